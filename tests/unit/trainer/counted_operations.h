// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <string>

namespace hpctl::testing {

// LibTorch's operations of this thread by name, as "aten::add_"; one at a time.
class CountedOperations {
 public:
  CountedOperations()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&CountedOperations::note))) {
    counts_.clear();
  }
  ~CountedOperations() { at::removeCallback(handle_); }
  CountedOperations(const CountedOperations&) = delete;
  CountedOperations& operator=(const CountedOperations&) = delete;

  static int of(const std::string& name) {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& operation) {
    ++counts_[operation.name()];
    return nullptr;
  }

  static thread_local inline std::map<std::string, int> counts_;
  at::CallbackHandle handle_;
};

}  // namespace hpctl::testing
