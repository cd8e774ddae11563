// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/stored_tensors.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "trainer/checkpoint/loader.h"

namespace hpctl {

std::vector<StoredTensor> tensors_by_name(const Manifest& manifest) {
  std::vector<StoredTensor> tensors;
  for (size_t b = 0; b < manifest.blocks.size(); ++b) {
    for (const TensorSlot& slot : manifest.blocks[b].tensors) {
      for (const StateKind kind : manifest.kinds()) {
        std::string name = slot.name;
        if (kind != StateKind::kParam) name += std::string(".") + to_string(kind);
        tensors.push_back({std::move(name), static_cast<int32_t>(b), kind, &slot});
      }
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  return tensors;
}

Outcome read_elements(const Manifest& manifest, ShardFiles& shards, const StoredTensor& tensor,
                      int64_t first, std::span<float> out) {
  HP_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= tensor.slot->numel);
  const int64_t begin = tensor.slot->offset + first;
  const ElementRange wanted{begin, begin + static_cast<int64_t>(out.size())};
  if (is_sliced(manifest, tensor.block)) {
    return read_slices(manifest, shards, tensor.block, tensor.kind, wanted, out);
  }
  for (const ShardEntry& entry : entries_of(manifest, tensor.block, tensor.kind, wanted)) {
    const ElementRange part = intersect(entry.range, wanted);
    const auto skip = static_cast<uint64_t>(part.begin - entry.range.begin) * sizeof(float);
    HP_TRY(shards.read(manifest.files[static_cast<size_t>(entry.file)], entry.offset + skip,
                       out.data() + (part.begin - wanted.begin),
                       static_cast<size_t>(part.size()) * sizeof(float)));
  }
  return Ok{};
}

}  // namespace hpctl
