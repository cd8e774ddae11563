// SPDX-License-Identifier: Apache-2.0
#include "common/net/packet.h"

#include <cstring>

namespace hpctl {

PacketWriter& PacketWriter::text(std::string_view value) {
  number(static_cast<uint32_t>(value.size()));
  bytes_.append(value);
  return *this;
}

PacketWriter& PacketWriter::texts(const std::vector<std::string>& values) {
  number(static_cast<uint32_t>(values.size()));
  for (const std::string& value : values) text(value);
  return *this;
}

void PacketReader::copy_out(void* to, size_t size) {
  if (!ok_ || rest_.size() < size) {
    ok_ = false;
    return;
  }
  std::memcpy(to, rest_.data(), size);
  rest_.remove_prefix(size);
}

std::string PacketReader::text() {
  const auto size = number<uint32_t>();
  if (!ok_ || rest_.size() < size) {
    ok_ = false;
    return "";
  }
  std::string value(rest_.substr(0, size));
  rest_.remove_prefix(size);
  return value;
}

std::vector<std::string> PacketReader::texts() {
  std::vector<std::string> values;
  // The loop ends with the input, whatever the count says.
  for (auto count = number<uint32_t>(); count > 0 && ok_; --count) values.push_back(text());
  return values;
}

}  // namespace hpctl
