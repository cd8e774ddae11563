// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/card.h"

#include <iostream>
#include <vector>

#include "trainer/device/cuda_driver.h"

namespace hpctl::testing {

const DeviceKernels* kernels_on(at::Device device) {
  const std::vector<Element> types = {Element::kFp32, Element::kBf16, Element::kFp16};
  if (device.is_cuda()) return load_device_kernels(device.index(), types);
  // Loading wants a thread that has a GPU; any address is one to the stub.
  static char context;
  const auto driver = cuda_driver::load();
  if (driver.ok()) (*driver)->set_current_context(&context);
  static const Result<DeviceKernels> kernels = DeviceKernels::load(9, 0, types);
  if (kernels.ok()) return &*kernels;
  std::cout << kernels.error().message << std::endl;
  return nullptr;
}

std::string text_of(const std::exception& error) {
  const auto* const of_libtorch = dynamic_cast<const c10::Error*>(&error);
  return of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what();
}

}  // namespace hpctl::testing
