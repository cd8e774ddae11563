// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <utility>

#include "trainer/data/tokenize/characters.h"

namespace hpctl {
namespace {

// \w of Rust's regex.
bool is_of_word(UChar32 character) {
  constexpr uint32_t kOfWord = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(character, UCHAR_ALPHABETIC) != 0 ||
         (U_GET_GC_MASK(character) & kOfWord) != 0 ||
         u_hasBinaryProperty(character, UCHAR_JOIN_CONTROL) != 0;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_of_word(character_before(text, begin))) return false;
  return end == text.size() || !is_of_word(character_at(text, end));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.text.size() > b.text.size();
  });
  for (const AddedToken& token : tokens_) {
    if (!token.text.empty()) first_bytes_[static_cast<uint8_t>(token.text[0])] = true;
  }
}

const AddedToken* AddedTokens::begin_of(std::string_view text) const {
  if (!first_bytes_[static_cast<uint8_t>(text[0])]) return nullptr;
  for (const AddedToken& token : tokens_) {
    if (!token.text.empty() && text.starts_with(token.text)) return &token;
  }
  return nullptr;
}

std::optional<AddedTokens::Match> AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t i = from; i < text.size();) {
    const AddedToken* const token = begin_of(text.substr(i));
    if (token == nullptr) {
      ++i;
      continue;
    }
    const size_t end = i + token->text.size();
    if (token->is_word && !stands_alone(text, i, end)) {
      i = end;
      continue;
    }
    // What a token before this one has taken stays its own.
    const size_t begin = token->takes_left ? std::max(from, spaces_before(text, i)) : i;
    return Match{token->id, begin, token->takes_right ? spaces_behind(text, end) : end};
  }
  return std::nullopt;
}

}  // namespace hpctl
