// SPDX-License-Identifier: Apache-2.0
// The memory of a tensor as the kernels of trainer/kernels take it: for them bf16 is uint16_t.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trainer/compat/torch_compat.h"

namespace hpctl {

// The first element of x, which is of that type.
template <typename T>
T* data_of(const at::Tensor& x) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    return reinterpret_cast<uint16_t*>(x.data_ptr<at::BFloat16>());
  } else {
    return x.data_ptr<T>();
  }
}

}  // namespace hpctl
