// SPDX-License-Identifier: Apache-2.0
// Added tokens: names that are found in a text before all else, and are one token each. As in
// Hugging Face's library the leftmost counts, and of those that begin there the longest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hpctl {

struct AddedToken {
  std::string text;
  int32_t id = 0;
  bool is_normalized = false;  // found in normal form, by that of its text
  bool is_word = false;        // single_word: not beside a letter, digit or underscore
  bool takes_left = false;     // lstrip: the spaces before it are part of it
  bool takes_right = false;    // rstrip: those behind it
};

class AddedTokens {
 public:
  struct Match {
    int32_t id = 0;
    size_t begin = 0;  // in the text
    size_t end = 0;
  };

  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  // The first one in the text from `from` on; nullopt: there is none.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  // The longest one that `text` begins with; nullptr: none.
  const AddedToken* begin_of(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // the longest first
  std::array<bool, 256> first_bytes_{};
};

}  // namespace hpctl
