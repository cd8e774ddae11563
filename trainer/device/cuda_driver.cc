// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda_driver.h"

#include "common/base/required_functions.h"

namespace hpctl::cuda_driver {
namespace {

Outcome fill(RequiredFunctions& find, Api& api) {
  find("cuCtxGetCurrent", api.current_context);
  find("cuCtxSetCurrent", api.set_current_context);
  find("cuModuleLoadData", api.load_module);
  find("cuModuleGetFunction", api.function);
  find("cuLaunchKernel", api.launch);
  find("cuGetErrorString", api.error_string);
  return find.outcome();
}

}  // namespace

Result<const Api*> load() {
  static const FunctionTable<Api> table("CUDA driver", {"libcuda.so.1"}, fill);
  return table.get();
}

std::string text_of(const Api& api, Status status) {
  const char* text = nullptr;
  if (api.error_string(status, &text) == kSuccess && text != nullptr) return text;
  return "error " + std::to_string(status) + " of the CUDA driver";
}

}  // namespace hpctl::cuda_driver
