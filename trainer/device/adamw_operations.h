// SPDX-License-Identifier: Apache-2.0
// AdamW (trainer/optim/adamw.h) by LibTorch's operations, for a GPU without kernels of our own.
// State in bf16 is rounded by the same random bits as elsewhere. The numbers before that rounding
// may differ from the host's in the last bits of fp32.
#pragma once

#include "trainer/compat/torch_compat.h"
#include "trainer/optim/adamw.h"

namespace hpctl {

// Each in fp32 or in bf16.
struct AdamTensors {
  at::Tensor param;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

// One step of all elements; `gradient` is fp32, and `bits` are not read where all else is, too.
// `from` and `to` may be the same memory.
void adamw_by_operations(const AdamStep& step, bool decayed, const RandomBits& bits,
                         const at::Tensor& gradient, const AdamTensors& from, AdamTensors to);

}  // namespace hpctl
