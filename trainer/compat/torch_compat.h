// SPDX-License-Identifier: Apache-2.0
// LibTorch as the trainer uses it, 1.13 to 2.x. Every difference between releases is in this file;
// it is also the precompiled header of what links LibTorch. Never torch/torch.h: it costs three
// times the compile time and drags in a module system that we do not use.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

namespace hpctl::compat {

inline std::string torch_version() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

// Points the storage under `tensor`, and so all its views, at other memory without telling
// autograd. `memory` is not owned; null with 0 bytes takes the memory away, and a use of the
// tensor then faults at address 0 instead of reading stale values.
inline void set_storage_memory(const at::Tensor& tensor, void* memory, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(
      memory, nullptr, [](void*) {}, at::Device(at::kCPU)));
  storage->set_nbytes(bytes);
}

// Runs the graph behind `output` backwards from `gradient` (undefined for a scalar).
inline void backward(const at::Tensor& output, const at::Tensor& gradient) {
  torch::autograd::backward({output}, {gradient});
}

}  // namespace hpctl::compat
