// SPDX-License-Identifier: Apache-2.0
#include "common/base/printable.h"

namespace hpctl {
namespace {

// Bytes of the well-formed UTF-8 sequence at the start of `text`; 0 when there is none
// (Unicode 15, table 3-7).
size_t sequence_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = 0;
  if (lead >= 0xc2 && lead <= 0xdf) length = 2;
  if (lead >= 0xe0 && lead <= 0xef) length = 3;
  if (lead >= 0xf0 && lead <= 0xf4) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xf0 && byte(1) < 0x90);
  const bool out_of_range = (lead == 0xed && byte(1) > 0x9f) || (lead == 0xf4 && byte(1) > 0x8f);
  return overlong || out_of_range ? 0 : length;
}

}  // namespace

std::string printable_line(std::string_view text, size_t max_bytes) {
  std::string line;
  while (!text.empty()) {
    const size_t length = sequence_length(text);
    if (line.size() + (length == 0 ? 1 : length) > max_bytes) break;
    const char first = text.front();
    if (first == '\n' || first == '\r' || first == '\t') {
      line += ' ';
    } else if (length == 0 || static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
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
