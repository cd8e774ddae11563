// SPDX-License-Identifier: Apache-2.0
// The words of a line of a script.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace hpctl::core {

using Words = std::vector<std::string>;

inline Words split(const std::string& line) {
  std::istringstream in(line);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

inline std::string join(const Words& words, size_t from) {
  std::string text;
  for (size_t i = from; i < words.size(); ++i) text += (i == from ? "" : " ") + words[i];
  return text;
}

inline Words split_at_commas(const std::string& list) {
  std::istringstream in(list);
  Words words;
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

inline int64_t number(const Words& words, size_t at) { return std::stoll(words.at(at)); }

}  // namespace hpctl::core
