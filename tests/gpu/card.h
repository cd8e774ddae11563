// SPDX-License-Identifier: Apache-2.0
// What the programs of tests/gpu share: the kernels of the card, or on a machine without one those
// on the host behind the stubs of the driver and of NVRTC, which LD_PRELOAD must have.
#pragma once

#include <exception>
#include <string>

#include "trainer/compat/torch_compat.h"
#include "trainer/device/device_kernels.h"

namespace hpctl::testing {

// Null where there are none; the output says why. Once in a process.
const DeviceKernels* kernels_on(at::Device device);

// Of LibTorch's without the stack.
std::string text_of(const std::exception& error);

}  // namespace hpctl::testing
