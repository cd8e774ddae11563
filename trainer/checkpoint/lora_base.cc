// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/lora_base.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "common/base/checksum.h"
#include "trainer/arch/registry.h"

namespace hpctl {

namespace {

std::string hexadecimal(uint32_t checksum) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%08x", checksum);
  return text.data();
}

// The former label of adapters: the same weights saved by another number of ranks have another one.
std::string checksum_of_pieces(const Manifest& manifest) {
  uint32_t crc = 0;
  for (const ShardEntry& entry : manifest.shards) {
    if (entry.kind == StateKind::kParam) crc = crc32c(&entry.crc32c, sizeof entry.crc32c, crc);
  }
  return hexadecimal(crc);
}

}  // namespace

std::string base_checksum(const Manifest& manifest) {
  std::vector<uint32_t> blocks(manifest.blocks.size());
  for (const ShardEntry& entry : manifest.shards) {
    if (entry.kind != StateKind::kParam) continue;
    uint32_t& block = blocks[static_cast<size_t>(entry.block)];
    const auto bytes = static_cast<uint64_t>(entry.range.size()) * sizeof(float);
    block = crc32c_joined(block, entry.crc32c, bytes);
  }
  return hexadecimal(crc32c(blocks.data(), blocks.size() * sizeof(uint32_t)));
}

bool is_base(const Manifest& manifest, const std::string& label) {
  return label == base_checksum(manifest) || label == checksum_of_pieces(manifest);
}

Outcome check_base(const Manifest& manifest, const TrainSpec& train) {
  if (manifest.lora.on()) {
    return Error{ErrorCode::kInvalidArgument,
                 "workload.train.lora.base: " + train.lora.base +
                     " is a checkpoint of adapters; give the model's, or export it with "
                     "--merge and import the result"};
  }
  const std::string why = find_model_difference(manifest, train.model, model_layout(train.model));
  if (why.empty()) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "workload.train.lora.base: " + train.lora.base +
                   " is another model than workload.train.model: " + why};
}

}  // namespace hpctl
