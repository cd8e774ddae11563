// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/nvrtc_api.h"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "common/base/required_functions.h"
#include "common/gpu/cuda_api.h"

namespace hpctl::nvrtc {
namespace {

// The library of a Python's LibTorch lies beside the CUDA runtime that this process has loaded, or
// in its own package's directory. It comes first: the driver has the release of CUDA that LibTorch
// was built for, and may refuse the code of a newer toolkit's, which the loader would find.
std::vector<std::string> places() {
  const std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
  std::vector<std::string> all;
  const auto cuda = cuda::load();
  Dl_info runtime{};
  if (cuda.ok() && dladdr(reinterpret_cast<void*>((*cuda)->device_count), &runtime) != 0) {
    const std::string file = runtime.dli_fname;
    const std::string directory = file.substr(0, file.rfind('/') + 1);
    for (const std::string& name : names) {
      if (directory.empty()) break;
      all.push_back(directory + name);
      all.push_back(directory + "../../cuda_nvrtc/lib/" + name);
    }
  }
  all.insert(all.end(), names.begin(), names.end());
  all.emplace_back("libnvrtc.so");
  return all;
}

Outcome fill(RequiredFunctions& find, Api& api) {
  find("nvrtcVersion", api.version);
  find("nvrtcGetNumSupportedArchs", api.count_architectures);
  find("nvrtcGetSupportedArchs", api.architectures);
  find("nvrtcCreateProgram", api.create_program);
  find("nvrtcDestroyProgram", api.destroy_program);
  find("nvrtcCompileProgram", api.compile_program);
  find("nvrtcGetProgramLogSize", api.log_size);
  find("nvrtcGetProgramLog", api.log);
  find("nvrtcGetCUBINSize", api.cubin_size);
  find("nvrtcGetCUBIN", api.cubin);
  find("nvrtcGetPTXSize", api.ptx_size);
  find("nvrtcGetPTX", api.ptx);
  find("nvrtcGetErrorString", api.error_string);
  return find.outcome();
}

}  // namespace

Result<const Api*> load() {
  static const FunctionTable<Api> table("NVRTC", places(), fill);
  return table.get();
}

}  // namespace hpctl::nvrtc
