// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/pre_tokenizer.h"

#include <algorithm>

#include "trainer/data/tokenize/normalizer.h"

namespace hpctl {
namespace {

// The parts of `spans` that are pieces. Joined to its left or right neighbour is a match that does
// not follow, or precede, another match; its neighbour is no match then.
void join(std::vector<Span>& spans, CutBehavior behavior) {
  std::vector<Span> joined;
  const auto add = [&](const Span& span, bool grows) {
    if (grows && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, span.begin);
      joined.back().end = std::max(joined.back().end, span.end);
    } else {
      joined.push_back(span);
    }
  };
  bool was_match = false;
  switch (behavior) {
    case CutBehavior::kIsolated:
      return;
    case CutBehavior::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.is_match; });
      return;
    case CutBehavior::kContiguous:
      for (const Span& span : spans) {
        add(span, span.is_match == was_match);
        was_match = span.is_match;
      }
      break;
    case CutBehavior::kMergedWithPrevious:
      for (const Span& span : spans) {
        add(span, span.is_match && !was_match);
        was_match = span.is_match;
      }
      break;
    case CutBehavior::kMergedWithNext:
      for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
        add(*span, span->is_match && !was_match);
        was_match = span->is_match;
      }
      std::reverse(joined.begin(), joined.end());
      break;
  }
  spans = std::move(joined);
}

}  // namespace

bool PreTokenizer::removes_text() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const PreStep& step) {
    const Cut* const cut = std::get_if<Cut>(&step);
    return cut != nullptr && cut->behavior == CutBehavior::kRemoved;
  });
}

PieceCutter::PieceCutter(const PreTokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (const PreStep& step : tokenizer.steps_) {
    const Cut* const cut = std::get_if<Cut>(&step);
    if (cut == nullptr) {
      splitters_.emplace_back();
    } else {
      splitters_.emplace_back(cut->pattern);
    }
  }
}

Outcome PieceCutter::cut(std::string_view text, bool is_first,
                         const std::vector<std::string_view>*& pieces) {
  texts_.clear();
  document_begin_ = is_first ? text : std::string_view();
  pieces_.assign(1, text);
  for (size_t i = 0; i < tokenizer_.steps_.size(); ++i) {
    const PreStep& step = tokenizer_.steps_[i];
    if (const auto* cut = std::get_if<Cut>(&step)) {
      HP_TRY(apply(*cut, i));
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      apply(*metaspace);
    } else {
      apply(PrefixSpace());
    }
  }
  pieces = &pieces_;
  return Ok{};
}

Outcome PieceCutter::apply(const Cut& step, size_t index) {
  Splitter& splitter = *splitters_[index];
  next_.clear();
  for (const std::string_view piece : pieces_) {
    if (step.behavior == CutBehavior::kIsolated) {
      HP_TRY(splitter.split(piece, next_));
      continue;
    }
    spans_.clear();
    HP_TRY(splitter.find(piece, spans_));
    for (Span& span : spans_) span.is_match = span.is_match != step.is_inverted;
    join(spans_, step.behavior);
    for (const Span& span : spans_) {
      if (span.end > span.begin) next_.push_back(piece.substr(span.begin, span.end - span.begin));
    }
  }
  pieces_.swap(next_);
  return Ok{};
}

void PieceCutter::apply(const Metaspace& step) {
  next_.clear();
  for (const std::string_view piece : pieces_) {
    const bool is_first = !document_begin_.empty() && piece.data() == document_begin_.data();
    std::string marked(piece);
    replace_all(marked, " ", step.mark);
    if (!marked.starts_with(step.mark) &&
        (step.prepend == Metaspace::Prepend::kAlways ||
         (step.prepend == Metaspace::Prepend::kFirst && is_first))) {
      marked.insert(0, step.mark);
    }
    const std::string_view text = keep(std::move(marked));
    for (size_t begin = 0; begin < text.size();) {
      const size_t end =
          step.splits ? std::min(text.size(), text.find(step.mark, begin + 1)) : text.size();
      next_.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  }
  pieces_.swap(next_);
}

void PieceCutter::apply(PrefixSpace /*step*/) {
  for (std::string_view& piece : pieces_) {
    if (piece[0] != ' ') piece = keep(" " + std::string(piece));
  }
}

}  // namespace hpctl
