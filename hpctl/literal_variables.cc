// SPDX-License-Identifier: Apache-2.0
#include "hpctl/literal_variables.h"

#include <cctype>

namespace hpctl {
namespace {

bool continues_name(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

// "$HOME" of "$HOME/bin" and of "${HOME}/bin"; "" = there is none.
std::string first_reference(const std::string& value) {
  for (size_t at = value.find('$'); at != std::string::npos; at = value.find('$', at + 1)) {
    const size_t begin = at + (value.compare(at, 2, "${") == 0 ? 2 : 1);
    size_t end = begin;
    while (end < value.size() && continues_name(value[end])) ++end;
    const bool is_name = end > begin && std::isdigit(static_cast<unsigned char>(value[begin])) == 0;
    if (is_name) return "$" + value.substr(begin, end - begin);
  }
  return "";
}

}  // namespace

std::vector<std::string> describe_literal_variables(const JobSpec& spec) {
  std::vector<std::string> sentences;
  for (const auto& [name, value] : spec.env) {
    const std::string reference = first_reference(value);
    if (reference.empty()) continue;
    sentences.push_back("env.set: the value of " + name + " has " + reference +
                        ", and hpctl expands no variable; write the value in full, or let a shell "
                        "expand it: command: [bash, -c, ...]");
  }
  return sentences;
}

}  // namespace hpctl
