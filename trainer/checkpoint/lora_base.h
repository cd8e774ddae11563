// SPDX-License-Identifier: Apache-2.0
// The checkpoint that adapters are trained beside (workload.train.lora.base).
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/checkpoint/manifest.h"

namespace hpctl {

// The label of Manifest::environment that tells which weights those are.
inline constexpr const char* kBaseLabel = "lora.base";

// 8 hexadecimal digits: the crc32c of the checksums of all blocks' parameters, u32 each. It
// compares weights without reading them: a block's checksum comes from its pieces, and is the same
// however many ranks saved it (but not for a block in slices, which lie in another order).
std::string base_checksum(const Manifest& manifest);
// Returns whether adapters with this label were trained beside these weights. Also knows older
// labels, which were the crc32c of the checksums of all pieces.
bool is_base(const Manifest& manifest, const std::string& label);

// kInvalidArgument: a checkpoint of another model, or of adapters. Data and seed may differ.
Outcome check_base(const Manifest& manifest, const TrainSpec& train);

}  // namespace hpctl
