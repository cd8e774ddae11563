// SPDX-License-Identifier: Apache-2.0
// Training samples: windows of seq_len + 1 tokens of a source with stride seq_len, in the order of
// sample_order.h. Window w of a source is tokens [w*seq_len, w*seq_len + seq_len] of its part, so
// every token is predicted once per epoch; the up to seq_len - 1 tokens after the last window are
// not used.
//
// A source is split by documents into train, validation and test: a part is the documents from
// round(D * a) to round(D * b), as in Megatron-LM. A blend takes training samples from its sources
// by weight (blend_order.h); validation and test take every window of every source once.
//
// With data.format sft or chat a window is instead whole documents of at most seq_len tokens
// together (packing.h), followed by padding, which is a separate document that does not count. Only
// the learnt tokens of the documents count (token_source.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "trainer/data/blend_order.h"
#include "trainer/data/packing.h"
#include "trainer/data/token_source.h"

namespace hpctl {

enum class DataPart : uint8_t { kTrain = 0, kValidation = 1, kTest = 2 };
const char* to_string(DataPart part);

class SampleReader {
 public:
  // Errors as open_tokens; a part shorter than one window; a tokenizer of more ids than `vocab`.
  static Result<SampleReader> open(const DataSpec& spec, uint64_t seed, int64_t vocab,
                                   DataPart part = DataPart::kTrain);
  // Another part of the data that `spec` opened this one from. They share the files, which are read
  // and checked once; each may have its own thread.
  Result<SampleReader> open_part(const DataSpec& spec, DataPart part) const;

  uint64_t windows() const { return windows_; }  // of all sources
  int64_t seq_len() const { return seq_len_; }
  DocumentMask mask() const { return mask_; }  // documents where documents are packed
  uint64_t tokens() const { return tokens_; }  // of all parts of all sources
  // A single source that is not split keeps its own fingerprint; otherwise it covers weights and
  // split.
  const std::string& fingerprint() const { return fingerprint_; }

  // How the documents of all sources in this part were packed, for people: "", or "1,204 documents
  // in 310 sequences ...".
  std::string packing() const;

  // Writes the seq_len + 1 tokens of sample number `sample` (any number: epochs repeat in another
  // order); out.size() must be seq_len + 1. Inputs are out[0, seq_len), targets out[1, seq_len].
  // With `positions` and `counted` (seq_len + 1 each, or empty) it also writes each token's
  // distance from the beginning of its document or of the window, whichever is nearer, and whether
  // the token counts as a target (1) under mask() and format or not (0). One thread at a time.
  Outcome read_sample(uint64_t sample, std::span<int64_t> out, std::span<int64_t> positions = {},
                      std::span<uint8_t> counted = {});

 private:
  struct Source {
    std::string path;
    std::shared_ptr<TokenSource> tokens;
    uint64_t begin = 0;  // the part's tokens
    uint64_t end = 0;
    uint64_t windows = 0;
    uint64_t seed = 0;
    PackedSequences packed{};     // of format sft and chat, documents counted from the next
    uint64_t first_document = 0;  // of the part
  };

  SampleReader(int64_t seq_len, uint64_t seed, int64_t vocab, DataPart part,
               const std::vector<double>& weights);
  Outcome add_source(const std::string& path, std::shared_ptr<TokenSource> tokens,
                     const DataSpec& spec);
  Outcome cut(Source& source, const DataSpec& spec, uint64_t last_document) const;
  Outcome pack(Source& source, const DataSpec& spec, uint64_t last_document) const;
  std::string share_of(const Source& source, const DataSpec& spec, uint64_t last_document) const;
  void compute_fingerprint(const DataSpec& spec);
  std::pair<size_t, uint64_t> place(uint64_t sample) const;  // source and window
  Outcome read_packed(Source& source, uint64_t sequence, std::span<int64_t> out,
                      std::span<int64_t> positions, std::span<uint8_t> counted) const;
  static Outcome find_positions(Source& source, uint64_t begin, std::span<int64_t> positions);
  Outcome check_tokens(const Source& source, uint64_t begin, std::span<const int64_t> out) const;

  int64_t seq_len_;
  uint64_t seed_;
  int64_t vocab_;
  DataPart part_;
  BlendOrder blend_;
  std::vector<Source> sources_;
  DocumentMask mask_ = DocumentMask::kNone;
  uint64_t windows_ = 0;
  uint64_t tokens_ = 0;
  std::string fingerprint_;
};

}  // namespace hpctl
