// SPDX-License-Identifier: Apache-2.0
// The text of trainer/kernels/device, which is part of this program, compiled for one kind of GPU.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "trainer/device/nvrtc_api.h"

namespace hpctl {

struct DeviceImage {
  std::string code;   // for cuda_driver::Api::load_module
  std::string label;  // "nvrtc 13.0 sm_90": what the bits of the kernels' results depend on
};

// The kernels of one type of element, "fp32", "bf16" or "fp16", for compute capability
// `major`.`minor`: machine code, or, if this NVRTC is older than the GPU, code of the newest older
// kind, which the driver translates. A compiler's error is kInternal with its log: the text is
// ours.
Result<DeviceImage> compile_device_program(const nvrtc::Api& nvrtc, int major, int minor,
                                           std::string_view type);

}  // namespace hpctl
