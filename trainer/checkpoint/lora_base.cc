// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/lora_base.h"

#include <array>
#include <cstdio>

#include "common/base/checksum.h"
#include "trainer/arch/registry.h"

namespace hpctl {

std::string base_checksum(const Manifest& manifest) {
  uint32_t crc = 0;
  for (const ShardEntry& entry : manifest.shards) {
    if (entry.kind == StateKind::kParam) crc = crc32c(&entry.crc32c, sizeof entry.crc32c, crc);
  }
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%08x", crc);
  return text.data();
}

Outcome check_base(const Manifest& manifest, const TrainSpec& train) {
  if (manifest.lora.on()) {
    return Error{ErrorCode::kInvalidArgument,
                 "workload.train.lora.base: " + train.lora.base +
                     " is a checkpoint of adapters; give that of the model, or export it with "
                     "--merge and import the result"};
  }
  const std::string why = find_model_difference(manifest, train.model, model_layout(train.model));
  if (why.empty()) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "workload.train.lora.base: " + train.lora.base +
                   " is another model than workload.train.model: " + why};
}

}  // namespace hpctl
