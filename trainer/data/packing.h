// SPDX-License-Identifier: Apache-2.0
// Whole documents packed into sequences, each document in one: best-fit decreasing. The longest
// come first, of equals the earlier; each goes where the least room is left that holds it, else
// begins a sequence. A document longer than a sequence is left out. A function of the lengths and
// the capacity alone, so that every rank of every world size packs alike.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hpctl {

class PackedSequences {
 public:
  PackedSequences() = default;
  // Document i has tokens [begins[i], begins[i + 1]); one of no token is left out silently.
  PackedSequences(std::span<const uint64_t> begins, uint64_t capacity);

  uint64_t size() const { return first_.empty() ? 0 : first_.size() - 1; }
  // Numbers of the documents of a sequence, in the order in which they stand there.
  std::span<const uint64_t> documents(uint64_t sequence) const {
    return std::span(documents_).subspan(first_[sequence], first_[sequence + 1] - first_[sequence]);
  }
  uint64_t documents() const { return documents_.size(); }  // in all sequences
  uint64_t too_long() const { return too_long_; }           // documents left out
  uint64_t tokens() const { return tokens_; }               // of those that are not

 private:
  std::vector<uint64_t> documents_;  // sequence after sequence
  std::vector<uint64_t> first_;      // of each sequence in documents_, and the end
  uint64_t too_long_ = 0;
  uint64_t tokens_ = 0;
};

}  // namespace hpctl
