// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's indexed dataset, as megatron/core/datasets/indexed_dataset.py defines it, little
// endian throughout. PREFIX.bin is nothing but the tokens. PREFIX.idx:
//
//   0   9 bytes   "MMIDIDX\0\0"
//   9   u64       version, 1
//   17  u8        token type: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16 (6 and 7 are
//                 float64 and float32, which are no tokens)
//   18  u64       S, number of sequences
//   26  u64       D, number of document boundaries = documents + 1
//   34  i32[S]    tokens of each sequence
//       i64[S]    where each begins in PREFIX.bin, in bytes
//       i64[D]    the sequence each document begins with; the first is 0, the last is S
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hpctl {

inline constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kIndexVersion = 1;
inline constexpr size_t kIndexHeaderBytes = 34;

enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};

// nullopt: not a type of tokens.
inline std::optional<TokenType> token_type(uint8_t code) {
  if ((code >= 1 && code <= 5) || code == 8) return static_cast<TokenType>(code);
  return std::nullopt;
}

inline size_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 0;
}

inline const char* to_string(TokenType type) {
  constexpr std::array<const char*, 9> names = {"",      "uint8", "int8", "int16", "int32",
                                                "int64", "",      "",     "uint16"};
  return names[static_cast<size_t>(type)];
}

// Megatron-LM's own rule (DType.optimal_dtype), so that both sides write the same bytes.
inline TokenType token_type_for_vocabulary(uint64_t vocabulary) {
  return vocabulary < 65500 ? TokenType::kUint16 : TokenType::kInt32;
}

}  // namespace hpctl
