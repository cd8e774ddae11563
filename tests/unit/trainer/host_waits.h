// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <array>
#include <cstring>
#include <memory>

namespace hpctl::testing {

// Operations of this thread after which a GPU's host waits for it.
class HostWaits {
 public:
  HostWaits() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&HostWaits::note))) {
    count_ = 0;
  }
  ~HostWaits() { at::removeCallback(handle_); }
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  static int count() { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& operation) {
    static constexpr std::array<const char*, 4> kWaiting = {
        "aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero"};
    for (const char* name : kWaiting) {
      if (std::strcmp(operation.name(), name) == 0) ++count_;
    }
    return nullptr;
  }

  static thread_local inline int count_ = 0;
  at::CallbackHandle handle_;
};

}  // namespace hpctl::testing
