// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/loader.h"

#include <algorithm>
#include <tuple>
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
  if (entry.slice >= 0) {
    const TensorSlice& slice = manifest.slices[static_cast<size_t>(entry.slice)];
    return manifest.files[static_cast<size_t>(entry.file)].file + ": " + block.name + " " +
           to_string(entry.kind) + " elements [" + std::to_string(entry.range.begin) + ", " +
           std::to_string(entry.range.end) + ") of " +
           describe_slice(block.tensors[static_cast<size_t>(slice.tensor)], slice) + " at byte " +
           std::to_string(entry.offset);
  }
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

Result<CheckpointLoader> CheckpointLoader::open(const std::string& step_dir, FileFault* fault) {
  auto manifest = read_manifest(step_dir);
  if (!manifest.ok()) {
    if (fault != nullptr) *fault = {"manifest.json", 0, 0, manifest.error().os_error};
    return manifest.error();
  }
  for (const ShardFile& file : manifest->files) HP_TRY(check_shard_size(step_dir, file, fault));
  return CheckpointLoader(step_dir, std::move(*manifest));
}

// Reads the whole stored piece, the wanted part of it straight into `out`, and compares checksums.
Outcome CheckpointLoader::load_entry(const ShardEntry& entry, ElementRange wanted,
                                     std::span<float> out) {
  const ShardFile& file = manifest_.files[static_cast<size_t>(entry.file)];
  std::vector<float> scratch;
  uint32_t crc = 0;
  for (int64_t at = entry.range.begin; at < entry.range.end;) {
    // The next piece lies wholly before, inside or after the wanted part.
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
  shards_.blame(file, entry.offset, static_cast<uint64_t>(entry.range.size()) * sizeof(float));
  return Error{ErrorCode::kDataLoss, step_dir_ + "/" + describe_entry(manifest_, entry) +
                                         " is damaged: crc32c does not match the manifest"};
}

Outcome read_slices(const Manifest& manifest, ShardFiles& shards, int32_t block, StateKind kind,
                    ElementRange range, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  const auto& entries = manifest.shards;
  const auto key = std::tuple(block, kind);
  auto entry = std::partition_point(entries.begin(), entries.end(), [&](const ShardEntry& e) {
    return std::tuple(e.block, e.kind) < key;
  });
  std::vector<float> values;
  for (; entry != entries.end() && std::tuple(entry->block, entry->kind) == key; ++entry) {
    const TensorSlice& slice = manifest.slices[static_cast<size_t>(entry->slice)];
    const TensorSlot& tensor =
        manifest.blocks[static_cast<size_t>(block)].tensors[static_cast<size_t>(slice.tensor)];
    if (intersect(span_of(tensor, slice, entry->range), range).empty()) continue;
    values.resize(static_cast<size_t>(entry->range.size()));
    const size_t bytes = values.size() * sizeof(float);
    const ShardFile& file = manifest.files[static_cast<size_t>(entry->file)];
    HP_TRY(shards.read(file, entry->offset, values.data(), bytes));
    if (crc32c(values.data(), bytes) != entry->crc32c) {
      shards.blame(file, entry->offset, bytes);
      return Error{ErrorCode::kDataLoss, shards.step_dir() + "/" +
                                             describe_entry(manifest, *entry) +
                                             " is damaged: crc32c does not match the manifest"};
    }
    for_each_run(tensor, slice, entry->range, [&](int64_t place, int64_t at, int64_t count) {
      const ElementRange wanted = intersect({place, place + count}, range);
      if (wanted.empty()) return;
      const float* from = values.data() + (at - entry->range.begin) + (wanted.begin - place);
      std::copy_n(from, wanted.size(), out.data() + (wanted.begin - range.begin));
    });
  }
  return Ok{};
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
  if (is_sliced(manifest_, block)) return read_slices(manifest_, shards_, block, kind, range, out);
  for (const ShardEntry& entry : entries_of(manifest_, block, kind, range)) {
    const ElementRange wanted = intersect(entry.range, range);
    HP_TRY(load_entry(entry, wanted,
                      out.subspan(static_cast<size_t>(wanted.begin - range.begin),
                                  static_cast<size_t>(wanted.size()))));
  }
  return Ok{};
}

}  // namespace hpctl
