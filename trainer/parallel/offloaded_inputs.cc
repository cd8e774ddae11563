// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/offloaded_inputs.h"

#include <utility>

#include "common/base/check.h"

namespace hpctl {

OffloadedInputs::OffloadedInputs(std::vector<bool> leaves, Device& device)
    : leaves_(std::move(leaves)), device_(device), buffer_of_(leaves_.size()) {
  host_.reserve(leaves_.size());
  for (size_t b = 0; b < leaves_.size(); ++b) host_.emplace_back(device);
}

void OffloadedInputs::begin_leave(size_t block, const at::Tensor& input) {
  const auto [memory, bytes] = compat::storage_memory(input);
  device_.begin_download(memory, host_[block].reserve(bytes), bytes);
}

void OffloadedInputs::leave(const at::Tensor& input) {
  device_.after_downloads();
  compat::set_storage_memory(input, nullptr, 0);
}

void OffloadedInputs::begin_return(size_t block) {
  buffer_of_[block] = returns_++ % buffers_.size();
  DeviceArray<std::byte>& to = buffers_[buffer_of_[block]];
  const size_t bytes = host_[block].size();
  if (to.size() < bytes) {
    to = {};
    to = DeviceArray<std::byte>(device_, bytes);
  }
  device_.begin_upload(host_[block].data(), to.data(), bytes);
}

void OffloadedInputs::finish_return(size_t block, const at::Tensor& input) {
  device_.after_uploads();
  const DeviceArray<std::byte>& from = buffers_[buffer_of_[block]];
  compat::set_storage_memory(input, from.data(), host_[block].size());
}

void OffloadedInputs::forget(const at::Tensor& input) {
  compat::set_storage_memory(input, nullptr, 0);
}

}  // namespace hpctl
