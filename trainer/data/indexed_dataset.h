// SPDX-License-Identifier: Apache-2.0
// Reads and writes Megatron-LM's indexed datasets (indexed_format.h), so that either side trains on
// what the other has prepared.
//
// Opening reads the whole index once, in pieces of 1 MiB, and believes nothing in it: lengths,
// pointers and boundaries must describe PREFIX.bin exactly, in order and without a gap. Afterwards
// nothing of it is kept in memory; a document's begin costs two reads of 8 bytes. Files are read
// with pread, not mapped (docs/decisions/0005-read-not-map.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "trainer/data/indexed_format.h"
#include "trainer/data/token_source.h"

namespace hpctl {

class IndexedDataset : public TokenSource {
 public:
  // kNotFound: a file is missing; kDataLoss: the index is damaged or of another dataset.
  static Result<IndexedDataset> open(const std::string& prefix);

  TokenType type() const { return type_; }
  uint64_t sequences() const { return sequences_; }

  uint64_t tokens() const override { return tokens_; }
  uint64_t documents() const override { return boundaries_ - 1; }
  Result<uint64_t> document_begin(uint64_t k) override;
  const std::string& fingerprint() const override { return fingerprint_; }
  uint64_t vocabulary() const override { return vocabulary_; }
  DataFormat format() const override { return format_; }
  ChatTemplate chat_template() const override { return chat_template_; }
  Result<std::vector<uint64_t>> sequence_lengths(uint64_t k) override;
  Result<std::vector<uint64_t>> document_begins(uint64_t first, uint64_t last) override;
  Outcome read(uint64_t begin, std::span<int64_t> out) override;

 private:
  explicit IndexedDataset(const std::string& prefix);

  Outcome read_header(uint64_t index_bytes);
  Outcome check_sequences();
  Outcome check_boundaries();
  Outcome compute_fingerprint();
  Outcome read_index(uint64_t offset, std::span<uint8_t> out) const;
  Error damaged(const std::string& what) const;
  uint64_t pointers_at() const { return kIndexHeaderBytes + 4 * sequences_; }
  uint64_t boundaries_at() const { return pointers_at() + 8 * sequences_; }

  std::string index_path_;
  std::string tokens_path_;
  UniqueFd index_;
  UniqueFd bin_;
  TokenType type_ = TokenType::kUint8;
  uint64_t sequences_ = 0;
  uint64_t boundaries_ = 0;
  uint64_t tokens_ = 0;
  uint64_t vocabulary_ = 0;
  DataFormat format_ = DataFormat::kText;
  ChatTemplate chat_template_ = ChatTemplate::kNone;
  std::string fingerprint_;
};

// Writes the index of a dataset whose sequence i has lengths[i] tokens, durably and under its name
// only when complete. Document k has the next documents[k] sequences; empty: one each.
Outcome write_index(const std::string& path, TokenType type, std::span<const int32_t> lengths,
                    std::span<const int32_t> documents = {});

}  // namespace hpctl
