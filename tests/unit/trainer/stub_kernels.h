// SPDX-License-Identifier: Apache-2.0
// DeviceKernels over the stubs of NVRTC and of the driver.
#pragma once

#include <vector>

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

// What `work` gives with the first thread of each block first, and with the last.
template <typename Work>
auto in_both_orders(const Work& work) {
  std::vector<decltype(work())> results;
  for (const bool descending : {false, true}) {
    stub_cuda_descending(descending);
    results.push_back(work());
  }
  stub_cuda_descending(false);
  return results;
}

}  // namespace hpctl::testing
