// SPDX-License-Identifier: Apache-2.0
// Constants of manifest.json shared by its writer and its reader.
//
// The text is one JSON object whose last member is the checksum of all bytes before it:
//   {"blocks":...,...,"world_size":4,"crc32c":"0a1b2c3d"}\n
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hpctl {

inline constexpr const char* kManifestFormat = "hpctl.checkpoint";
// The newest readable version. A manifest without slices is written as kManifestOfIntervals, so
// that releases that do not know slices can read it.
inline constexpr int kManifestVersion = 3;
inline constexpr int kManifestOfIntervals = 2;
// A larger manifest is neither written nor read. 16,384 ranks with Llama 3.1 405B have 90 MB.
inline constexpr size_t kMaxManifestBytes = 256U << 20;
// Version 1 has a row of these for every stored range.
inline constexpr std::array<const char*, 8> kShardColumns = {"block", "kind",   "begin", "end",
                                                             "file",  "offset", "bytes", "crc32c"};

// ,"crc32c":"0a1b2c3d"}\n
inline constexpr size_t kManifestSealBytes = 22;
// The seal that belongs to `body`: all bytes of the document before the seal.
std::string manifest_seal(std::string_view body);

}  // namespace hpctl
