// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/text_rules.h"

#include <algorithm>
#include <utility>

namespace hpctl {

RuledText::RuledText(TextRules rules)
    : added_(std::move(rules.added)),
      normalizer_(std::move(rules.normalizer)),
      pre_tokenizer_(std::move(rules.pre_tokenizer)) {
  std::vector<AddedToken> first;
  std::vector<AddedToken> later;
  for (const AddedToken& token : added_) {
    const bool is_later = token.is_normalized && !normalizer_.changes_nothing();
    (is_later ? later : first).push_back(token);
  }
  for (AddedToken& token : later) token.text = normal_form(token.text);
  first_ = AddedTokens(std::move(first));
  later_ = AddedTokens(std::move(later));
}

int32_t RuledText::added_token(std::string_view name) const {
  const auto found = std::find_if(added_.begin(), added_.end(),
                                  [&](const AddedToken& token) { return token.text == name; });
  return found == added_.end() ? -1 : found->id;
}

// A token whose text has no normal form is never found.
std::string RuledText::normal_form(const std::string& text) const {
  std::string buffer;
  std::string_view normal = text;
  return normalizer_.apply(normal, buffer).ok() ? std::string(normal) : "";
}

}  // namespace hpctl
