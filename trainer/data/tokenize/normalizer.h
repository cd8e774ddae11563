// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json does with a text before it is cut into pieces: normal forms of Unicode and
// other changes of characters, one step after the other. By ICU. Immutable, shared by threads.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "trainer/data/tokenize/splitter.h"

namespace hpctl {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Each character by itself, as Rust's to_lowercase: a sigma at the end of a word is no other
// letter.
struct Lowercase {};

// Removes the white space at these ends of the text.
struct StripEnds {
  bool left = true;
  bool right = true;
};

// Removes the combining marks.
struct StripAccents {};

// Put before a text that is not empty.
struct Prepend {
  std::string text;
};

struct ReplaceText {
  std::string from;  // not empty
  std::string to;
};

struct ReplaceMatches {
  SplitPattern pattern;
  std::string to;  // as it is: no references to groups
};

using TextStep = std::variant<NormalForm, Lowercase, StripEnds, StripAccents, Prepend, ReplaceText,
                              ReplaceMatches>;

class Normalizer {
 public:
  // No step leaves every text as it is.
  explicit Normalizer(std::vector<TextStep> steps = {}) : steps_(std::move(steps)) {}

  bool changes_nothing() const { return steps_.empty(); }
  // `text` is UTF-8. It becomes its normal form, which lies in `buffer` where it is another text.
  // kInvalidArgument: more than a GiB. kResourceExhausted: a pattern takes too many steps.
  Outcome apply(std::string_view& text, std::string& buffer) const;

 private:
  std::vector<TextStep> steps_;
};

// Replaces each `from`, which is not empty.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace hpctl
