// SPDX-License-Identifier: Apache-2.0
#include "common/base/printable.h"

#include "common/base/utf8.h"

namespace hpctl {
std::string printable_line(std::string_view text, size_t max_bytes) {
  std::string line;
  while (!text.empty()) {
    const size_t length = utf8_sequence_length(text);
    if (line.size() + (length == 0 ? 1 : length) > max_bytes) break;
    const char first = text.front();
    if (first == '\n' || first == '\r' || first == '\t') {
      line += ' ';
    } else if (length == 0 || starts_with_control(text)) {
      line += '?';
    } else {
      line.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

}  // namespace hpctl
