// SPDX-License-Identifier: Apache-2.0
// A rank's input to the gathers: its shard of each block's weights, in any place and type. Without
// memory.offload these are the fp32 parameters of the training state.
#pragma once

#include <vector>

namespace hpctl {

struct WeightShard {
  const void* values = nullptr;  // fp32, or rounded
  bool rounded = false;          // to the type of computation, bf16 or fp16, already
  bool on_host = false;  // in the device's allocate_host(), and in the type of computation; not for
                         // a device that is the host
};

using WeightShards = std::vector<WeightShard>;

}  // namespace hpctl
