// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/loader.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/checksum.h"

namespace hpctl {
namespace {

constexpr size_t kPieceElements = 1U << 18;  // 1 MiB
constexpr size_t kNamesShown = 3;

}  // namespace

std::string describe_entry(const Manifest& manifest, const ShardEntry& entry) {
  const Block& block = manifest.blocks[static_cast<size_t>(entry.block)];
  std::string text = manifest.files[static_cast<size_t>(entry.file)].file + ": " + block.name +
                     " " + to_string(entry.kind) + " elements [" +
                     std::to_string(entry.range.begin) + ", " + std::to_string(entry.range.end) +
                     ") at byte " + std::to_string(entry.offset) + " (";
  size_t named = 0;
  for (const TensorSlot& tensor : block.tensors) {
    if (intersect({tensor.offset, tensor.offset + tensor.numel}, entry.range).empty()) continue;
    if (named++ < kNamesShown) text += (named > 1 ? ", " : "") + tensor.name;
  }
  if (named > kNamesShown) text += " and " + std::to_string(named - kNamesShown) + " more";
  return text + ")";
}

CheckpointLoader::CheckpointLoader(std::string step_dir, Manifest manifest)
    : step_dir_(std::move(step_dir)), manifest_(std::move(manifest)), shards_(step_dir_) {}

Result<CheckpointLoader> CheckpointLoader::open(const std::string& step_dir) {
  HP_TRY_ASSIGN(Manifest manifest, read_manifest(step_dir));
  for (const ShardFile& file : manifest.files) HP_TRY(check_shard_size(step_dir, file));
  return CheckpointLoader(step_dir, std::move(manifest));
}

// Reads the whole stored piece, the wanted part of it straight into `out`, and compares checksums.
Outcome CheckpointLoader::load_entry(const ShardEntry& entry, ElementRange wanted,
                                     std::span<float> out) {
  const ShardFile& file = manifest_.files[static_cast<size_t>(entry.file)];
  std::vector<float> scratch;
  uint32_t crc = 0;
  for (int64_t at = entry.range.begin; at < entry.range.end;) {
    // The next piece lies wholly before, inside or behind the wanted part.
    const bool is_wanted = at >= wanted.begin && at < wanted.end;
    int64_t limit = entry.range.end;
    if (at < wanted.begin) limit = wanted.begin;
    if (is_wanted) limit = wanted.end;
    const size_t size = std::min(static_cast<size_t>(limit - at), kPieceElements);
    if (!is_wanted && scratch.empty()) scratch.resize(kPieceElements);
    float* into = is_wanted ? out.data() + (at - wanted.begin) : scratch.data();
    const auto skip = static_cast<uint64_t>(at - entry.range.begin) * sizeof(float);
    HP_TRY(shards_.read(file, entry.offset + skip, into, size * sizeof(float)));
    crc = crc32c(into, size * sizeof(float), crc);
    at += static_cast<int64_t>(size);
  }
  if (crc == entry.crc32c) return Ok{};
  return Error{ErrorCode::kDataLoss, step_dir_ + "/" + describe_entry(manifest_, entry) +
                                         " is damaged: crc32c does not match the manifest"};
}

Outcome CheckpointLoader::load_range(int32_t block, StateKind kind, ElementRange range,
                                     std::span<float> out) {
  HP_CHECK(block >= 0 && static_cast<size_t>(block) < manifest_.blocks.size());
  HP_CHECK(range.begin >= 0 && range.end <= manifest_.blocks[static_cast<size_t>(block)].numel);
  HP_CHECK(out.size() == static_cast<size_t>(range.size()));
  if (manifest_.weights_only && kind != StateKind::kParam) {
    std::fill(out.begin(), out.end(), 0.0F);
    return Ok{};
  }
  for (const ShardEntry& entry : entries_of(manifest_, block, kind, range)) {
    const ElementRange wanted = intersect(entry.range, range);
    HP_TRY(load_entry(entry, wanted,
                      out.subspan(static_cast<size_t>(wanted.begin - range.begin),
                                  static_cast<size_t>(wanted.size()))));
  }
  return Ok{};
}

}  // namespace hpctl
