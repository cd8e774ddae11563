// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda_driver.h"

#include "common/base/library.h"
#include "common/base/required_functions.h"

namespace hpctl::cuda_driver {
namespace {

Result<Api> open() {
  static const Result<Library> library = Library::open({"libcuda.so.1"});
  if (!library.ok()) {
    return Error{ErrorCode::kNotFound, "no CUDA driver: " + library.error().message};
  }
  Api api{};
  RequiredFunctions find(*library);
  find("cuCtxGetCurrent", api.current_context);
  find("cuCtxSetCurrent", api.set_current_context);
  find("cuModuleLoadData", api.load_module);
  find("cuModuleGetFunction", api.function);
  find("cuLaunchKernel", api.launch);
  find("cuGetErrorString", api.error_string);
  HP_TRY(find.outcome());
  return api;
}

}  // namespace

Result<const Api*> load() {
  static const Result<Api> api = open();
  if (!api.ok()) return api.error();
  return &*api;
}

std::string text_of(const Api& api, Status status) {
  const char* text = nullptr;
  if (api.error_string(status, &text) == kSuccess && text != nullptr) return text;
  return "error " + std::to_string(status) + " of the CUDA driver";
}

}  // namespace hpctl::cuda_driver
