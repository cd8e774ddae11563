// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver that load and start kernels, found at run time: the library is
// the driver's own, so every machine with a GPU has it. Like common/gpu/cuda_api.h, which has the
// CUDA runtime's functions; names and meaning come from the CUDA Driver API reference.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/gpu/cuda_api.h"

namespace hpctl::cuda_driver {

using Status = int;  // CUresult
inline constexpr Status kSuccess = 0;

using Context = void*;   // CUcontext
using Module = void*;    // CUmodule
using Function = void*;  // CUfunction

struct Api {
  Status (*current_context)(Context*);
  Status (*set_current_context)(Context);
  // An image is a cubin, or PTX that ends with a 0.
  Status (*load_module)(Module*, const void* image);
  Status (*function)(Function*, Module, const char* name);
  // `parameters` has the address of each.
  Status (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::Stream,
                   void** parameters, void** extra);
  Status (*error_string)(Status, const char**);
};

// Loaded once and kept. kNotFound where there is no driver.
Result<const Api*> load();

// The driver's text for it.
std::string text_of(const Api& api, Status status);

}  // namespace hpctl::cuda_driver
