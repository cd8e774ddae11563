// SPDX-License-Identifier: Apache-2.0
// Bytes that both ends of a transfer know beforehand, so a changed byte shows. A message of a
// stream is a window into one block of them, each a little further than the one before, for kTurns
// messages: memory that still has an older message differs, and sending the next message needs no
// copy. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace hpctl::agent {

inline constexpr size_t kTurns = 64;
inline constexpr size_t kTurnBytes = 64;

// For messages of so many bytes, a multiple of 8. Another block for each `stream`.
inline std::string known_bytes(uint64_t stream, size_t message_bytes) {
  std::string block(message_bytes + kTurns * kTurnBytes, '\0');
  for (size_t at = 0; at < block.size(); at += sizeof(uint64_t)) {
    uint64_t x = (stream + 1) * 0x9e3779b97f4a7c15ULL + at;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 29;
    std::memcpy(block.data() + at, &x, sizeof x);
  }
  return block;
}

// Where the n-th message begins in the block.
inline size_t known_offset(uint64_t message) { return message % kTurns * kTurnBytes; }

struct WrongBytes {
  uint64_t messages = 0;
  uint64_t first_message = 0;
  size_t first_byte = 0;  // of it
};
// Compares the n-th message with what it is to be.
inline void compare_known(std::span<const char> arrived, const std::string& block, uint64_t message,
                          WrongBytes& wrong) {
  const char* expected = block.data() + known_offset(message);
  if (std::memcmp(arrived.data(), expected, arrived.size()) == 0) return;
  if (wrong.messages++ > 0) return;
  wrong.first_message = message;
  while (arrived[wrong.first_byte] == expected[wrong.first_byte]) ++wrong.first_byte;
}

}  // namespace hpctl::agent
