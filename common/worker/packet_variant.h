// SPDX-License-Identifier: Apache-2.0
// A variant as one packet: u8 index of the type, then its fields. Each type T of the variant needs,
// in its own namespace, put(PacketWriter&, const T&) and get(PacketReader&, T&); the two list the
// fields in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/base/result.h"
#include "common/net/packet.h"

namespace hpctl {

template <typename Variant>
std::string encode_packet(const Variant& message) {
  PacketWriter writer;
  writer.number(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& m) { put(writer, m); }, message);
  return writer.take();
}

template <typename Variant, size_t I = 0>
bool read_packet_kind(uint8_t kind, PacketReader& reader, Variant& message) {
  if constexpr (I < std::variant_size_v<Variant>) {
    if (kind == I) {
      get(reader, message.template emplace<I>());
      return reader.finished();
    }
    return read_packet_kind<Variant, I + 1>(kind, reader, message);
  } else {
    return false;
  }
}

// kInvalidArgument for anything encode_packet did not make; `where` says between whom.
template <typename Variant>
Result<Variant> decode_packet(std::string_view packet, const std::string& where) {
  PacketReader reader(packet);
  const auto kind = reader.number<uint8_t>();
  Result<Variant> message{Variant()};  // filled in place: a move would be taken for uninitialized
  if (!read_packet_kind(kind, reader, *message)) {
    return Error{ErrorCode::kInvalidArgument, "damaged packet " + where + ": kind " +
                                                  std::to_string(kind) + ", " +
                                                  std::to_string(packet.size()) + " bytes"};
  }
  return message;
}

}  // namespace hpctl
