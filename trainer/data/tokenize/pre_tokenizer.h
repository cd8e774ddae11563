// SPDX-License-Identifier: Apache-2.0
// Cuts text into the pieces that BPE never merges across, as a pre_tokenizer of Hugging Face's
// tokenizer.json does: each step cuts the pieces of the step before.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/tokenize/splitter.h"

namespace hpctl {

// What becomes of the text that matches a pattern. Contiguous: neighbouring matches are one piece.
enum class CutBehavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

struct Cut {
  SplitPattern pattern;
  CutBehavior behavior = CutBehavior::kIsolated;
  bool is_inverted = false;  // what lies between the matches is what matches
};

// Spaces become `mark`, which is also put before a piece that does not begin with it.
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };  // kFirst: only where the document begins
  std::string mark;                                // not empty
  Prepend prepend = Prepend::kAlways;
  bool splits = true;  // pieces begin with the mark
};

// A space is put before a piece that does not begin with one.
struct PrefixSpace {};

using PreStep = std::variant<Cut, Metaspace, PrefixSpace>;

// Immutable, shared by threads.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreStep> steps) : steps_(std::move(steps)) {}

  // Whether text between pieces is lost, so that tokens say nothing of it.
  bool removes_text() const;

 private:
  friend class PieceCutter;
  std::vector<PreStep> steps_;
};

// One thread's use of a PreTokenizer, which it does not outlive.
class PieceCutter {
 public:
  explicit PieceCutter(const PreTokenizer& tokenizer);

  // The pieces of `text`, which is not empty. They hold until the next call, and while `text` does.
  // `is_first`: the document begins with it. kResourceExhausted: as Splitter::split.
  Outcome cut(std::string_view text, bool is_first, const std::vector<std::string_view>*& pieces);

 private:
  Outcome apply(const Cut& step, size_t index);
  void apply(const Metaspace& step);
  void apply(PrefixSpace step);
  // `text`, which lives as long as the pieces do.
  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }

  const PreTokenizer& tokenizer_;
  std::vector<std::optional<Splitter>> splitters_;  // of the steps that cut
  std::string_view document_begin_;                 // the text, where the document begins with it
  std::deque<std::string> texts_;                   // that are not in the text
  std::vector<std::string_view> pieces_;
  std::vector<std::string_view> next_;
  std::vector<Span> spans_;
};

}  // namespace hpctl
