// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/hosts_file.h"

#include <algorithm>

namespace hpctl::agent {
namespace {

constexpr std::string_view kBlanks = " \t\r";

// Takes a word and the blanks before it from the front; "" = there is none.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, std::min(line.find_first_of(kBlanks), line.size()));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

std::string address_in_hosts(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, std::min(line.find('#'), line.size()));
    const std::string_view address = take_word(line);
    for (auto word = take_word(line); !word.empty(); word = take_word(line)) {
      if (word == name) return std::string(address);
    }
  }
  return "";
}

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace hpctl::agent
