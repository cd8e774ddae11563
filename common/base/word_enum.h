// SPDX-License-Identifier: Apache-2.0
// Enumerations that people write as words. Beside such an enumeration stands words_of(), which
// gives the words in the order of the enumerators. Everything else follows from it: job.yaml and
// JSON read a word once, at the edge, and code that prints the value prints the word again.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace hpctl {

template <typename E>
concept WordEnum = std::is_enum_v<E> && requires(E value) {
  { words_of(value)[0] } -> std::convertible_to<const char*>;
};

template <WordEnum E>
constexpr const char* to_word(E value) {
  return words_of(value)[static_cast<size_t>(value)];
}

template <WordEnum E>
constexpr std::optional<E> from_word(std::string_view word) {
  for (size_t i = 0; i < words_of(E{}).size(); ++i) {
    if (words_of(E{})[i] == word) return static_cast<E>(i);
  }
  return std::nullopt;
}

// "bf16, fp16, fp32"
template <WordEnum E>
std::string all_words() {
  std::string text;
  for (const char* word : words_of(E{})) text += std::string(text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace hpctl
