// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, RFC 3720 appendix B.4) for stored and sent bytes, SHA-256 (libcrypto) for
// digests that people compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace hpctl {

// Extends `crc` (0 to begin) over `size` bytes. Uses the SSE4.2 instruction where the CPU has it.
uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0);
// The checksum of the last `size` bytes alone, from the checksums of all bytes and of the bytes
// before the last `size`.
uint32_t crc32c_of_end(uint32_t begin, uint32_t whole, uint64_t size);
// The checksum of adjacent bytes, from the checksum of the bytes before the last `size` and the
// checksum of the last `size`.
uint32_t crc32c_joined(uint32_t begin, uint32_t end, uint64_t size);

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  // 64 lowercase hex digits. Call once, last.
  std::string hex_digest();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hpctl
