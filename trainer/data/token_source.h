// SPDX-License-Identifier: Apache-2.0
// A row of tokens, made of documents that follow one another without a gap: what samples are cut
// from. Any thread, several at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/train_spec.h"

namespace hpctl {

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  virtual uint64_t tokens() const = 0;
  virtual uint64_t documents() const = 0;  // at least 1
  // First token of document k, k <= documents(); document_begin(documents()) is tokens(). Never
  // falls.
  virtual Result<uint64_t> document_begin(uint64_t k) = 0;
  // 64 hex digits that change with the content; independent of where the files lie.
  virtual const std::string& fingerprint() const = 0;
  // Largest number of token ids that the tokenizer may have used; 0 when nothing tells.
  virtual uint64_t vocabulary() const = 0;

  // The form of the documents. In forms other than text, the sequences of a document alternate
  // between given tokens (perhaps none), which come first, and tokens to learn.
  virtual DataFormat format() const { return DataFormat::kText; }
  virtual ChatTemplate chat_template() const { return ChatTemplate::kNone; }
  // Tokens of each sequence of document k.
  virtual Result<std::vector<uint64_t>> sequence_lengths(uint64_t k) = 0;
  // document_begin() of documents `first` to `last`, the latter included.
  virtual Result<std::vector<uint64_t>> document_begins(uint64_t first, uint64_t last) = 0;

  // Tokens [begin, begin + out.size()), a range within tokens(). Token ids are not negative.
  virtual Outcome read(uint64_t begin, std::span<int64_t> out) = 0;
};

// Returns whether the path of a job's data is the prefix of an indexed dataset rather than text.
Result<bool> is_prepared(const std::string& path);

// The files that job.yaml's data.path names: a text file, a directory of text files, or the prefix
// of an indexed dataset PREFIX.bin and PREFIX.idx (indexed_dataset.h). Errors say what to do.
Result<std::unique_ptr<TokenSource>> open_tokens(const std::string& path);

}  // namespace hpctl
