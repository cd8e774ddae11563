// SPDX-License-Identifier: Apache-2.0
// DeviceKernels over the stubs of NVRTC and of the driver.
#pragma once

#include <functional>

#include "common/base/check.h"
#include "trainer/device/device_kernels.h"

extern "C" void stub_cuda_descending(bool descending);
extern "C" int cuCtxSetCurrent(void* context);

namespace hpctl::testing {

// Loading wants a thread that has a GPU.
inline void take_stub_gpu() {
  static char context;
  cuCtxSetCurrent(&context);
}

inline const DeviceKernels& stub_kernels() {
  static const Result<DeviceKernels> kernels = [] {
    take_stub_gpu();
    return DeviceKernels::load(9, 0, {Element::kFp32, Element::kBf16, Element::kFp16});
  }();
  HP_CHECK(kernels.ok());
  return *kernels;
}

// Does work with the first thread of each block first, and with the last.
inline std::function<void(const std::function<void()>&)> both_orders() {
  return [](const std::function<void()>& work) {
    for (const bool descending : {false, true}) {
      stub_cuda_descending(descending);
      work();
    }
    stub_cuda_descending(false);
  };
}

}  // namespace hpctl::testing
