// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA-256 (FIPS 180-4, RFC 2104) without a library, for the shim of a Slurm step, which is
// linked statically and started in every task. Programs with libcrypto use checksum.h for digests.
#pragma once

#include <string>
#include <string_view>

namespace hpctl {

inline constexpr size_t kHmacBytes = 32;

std::string hmac_sha256(std::string_view key, std::string_view text);

// Takes as long wherever they differ.
bool same_bytes(std::string_view a, std::string_view b);

}  // namespace hpctl
