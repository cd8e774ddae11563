// SPDX-License-Identifier: Apache-2.0
// The normal forms of Unicode that a tokenizer.json asks for before its text is cut into pieces. By
// ICU. Immutable, shared by threads.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

class Normalizer {
 public:
  // The forms are applied one after the other; none leaves every text as it is.
  explicit Normalizer(std::vector<NormalForm> forms = {}) : forms_(std::move(forms)) {}

  bool changes_nothing() const { return forms_.empty(); }
  // `text` is UTF-8. It becomes its normal form, which lies in `buffer` where it is another text.
  // kInvalidArgument: more than a GiB.
  Outcome apply(std::string_view& text, std::string& buffer) const;

 private:
  std::vector<NormalForm> forms_;
};

}  // namespace hpctl
