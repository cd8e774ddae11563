// SPDX-License-Identifier: Apache-2.0
#include "common/base/checksum.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "common/base/check.h"

namespace hpctl {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) != 0 ? (c >> 1) ^ kReversedPolynomial : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t crc_portable(const unsigned char* p, size_t size, uint32_t c) {
  for (size_t i = 0; i < size; ++i) c = (c >> 8) ^ kTable[(c ^ p[i]) & 0xff];
  return c;
}

// Polynomials over GF(2) modulo the one of the checksum; the highest bit is the coefficient of 1.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1) {
    if ((a >> 31) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kReversedPolynomial : b >> 1;
  }
  return product;
}

// Times this, a checksum is what it becomes when `size` zero bytes follow: x to the power 8 * size.
constexpr uint32_t followed_by(uint64_t size) {
  uint32_t power = 1U << 31;
  for (uint32_t square = 1U << 23; size > 0; size >>= 1, square = multiply(square, square)) {
    if ((size & 1) != 0) power = multiply(power, square);
  }
  return power;
}

#if defined(__x86_64__)
uint64_t word_at(const unsigned char* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, 8);
  return word;
}

// The instruction takes three cycles and can begin in every one: three lanes of bytes side by side.
constexpr size_t kLane = 8192;

__attribute__((target("sse4.2"))) uint32_t crc_sse42(const unsigned char* p, size_t size,
                                                     uint32_t crc) {
  constexpr uint32_t kOneLane = followed_by(kLane);
  constexpr uint32_t kTwoLanes = followed_by(2 * kLane);
  uint64_t c = crc;
  for (; size >= 3 * kLane; p += 3 * kLane, size -= 3 * kLane) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (const unsigned char* q = p; q < p + kLane; q += 8) {
      c = _mm_crc32_u64(c, word_at(q));
      second = _mm_crc32_u64(second, word_at(q + kLane));
      third = _mm_crc32_u64(third, word_at(q + 2 * kLane));
    }
    c = multiply(kTwoLanes, static_cast<uint32_t>(c)) ^
        multiply(kOneLane, static_cast<uint32_t>(second)) ^ third;
  }
  for (; size >= 8; p += 8, size -= 8) c = _mm_crc32_u64(c, word_at(p));
  auto tail = static_cast<uint32_t>(c);
  for (; size > 0; ++p, --size) tail = _mm_crc32_u8(tail, *p);
  return tail;
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t size, uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return ~crc_sse42(p, size, ~crc);
#endif
  return ~crc_portable(p, size, ~crc);
}

uint32_t crc32c_joined(uint32_t begin, uint32_t end, uint64_t size) {
  return end ^ multiply(followed_by(size), begin);
}

// Adding the same bytes again removes them.
uint32_t crc32c_of_end(uint32_t begin, uint32_t whole, uint64_t size) {
  return crc32c_joined(begin, whole, size);
}

struct Sha256::Impl {
  EVP_MD_CTX* context = nullptr;
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  impl_->context = EVP_MD_CTX_new();
  HP_CHECK(impl_->context != nullptr);
  HP_CHECK(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(impl_->context); }

void Sha256::update(const void* data, size_t size) {
  HP_CHECK(EVP_DigestUpdate(impl_->context, data, size) == 1);
}

std::string Sha256::hex_digest() {
  std::array<unsigned char, 32> raw{};
  unsigned int size = 0;
  HP_CHECK(EVP_DigestFinal_ex(impl_->context, raw.data(), &size) == 1 && size == raw.size());
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : raw) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

}  // namespace hpctl
