// SPDX-License-Identifier: Apache-2.0
// Our own declarations of NVRTC and of the CUDA driver, compared with the real headers.
#include <cuda.h>
#include <nvrtc.h>

#include <type_traits>

#include "trainer/device/cuda_driver.h"
#include "trainer/device/nvrtc_api.h"

namespace hpctl {

static_assert(NVRTC_SUCCESS == nvrtc::kSuccess);
static_assert(NVRTC_ERROR_COMPILATION == nvrtc::kCompilation);
static_assert(CUDA_SUCCESS == cuda_driver::kSuccess);

// Handles are pointers, enumerations are ints.
static_assert(sizeof(nvrtcResult) == sizeof(nvrtc::Status));
static_assert(sizeof(nvrtcProgram) == sizeof(nvrtc::Program));
static_assert(sizeof(CUresult) == sizeof(cuda_driver::Status));
static_assert(sizeof(CUcontext) == sizeof(cuda_driver::Context));
static_assert(sizeof(CUmodule) == sizeof(cuda_driver::Module));
static_assert(sizeof(CUfunction) == sizeof(cuda_driver::Function));
static_assert(sizeof(CUstream) == sizeof(cuda::Stream));

static_assert(std::is_same_v<decltype(nvrtcVersion), nvrtcResult(int*, int*)>);
static_assert(std::is_same_v<decltype(nvrtcGetNumSupportedArchs), nvrtcResult(int*)>);
static_assert(std::is_same_v<decltype(nvrtcGetSupportedArchs), nvrtcResult(int*)>);
using Create = nvrtcResult(nvrtcProgram*, const char*, const char*, int, const char* const*,
                           const char* const*);
static_assert(std::is_same_v<decltype(nvrtcCreateProgram), Create>);
static_assert(std::is_same_v<decltype(nvrtcDestroyProgram), nvrtcResult(nvrtcProgram*)>);
using Compile = nvrtcResult(nvrtcProgram, int, const char* const*);
static_assert(std::is_same_v<decltype(nvrtcCompileProgram), Compile>);
using Size = nvrtcResult(nvrtcProgram, size_t*);
using Text = nvrtcResult(nvrtcProgram, char*);
static_assert(std::is_same_v<decltype(nvrtcGetProgramLogSize), Size>);
static_assert(std::is_same_v<decltype(nvrtcGetProgramLog), Text>);
static_assert(std::is_same_v<decltype(nvrtcGetCUBINSize), Size>);
static_assert(std::is_same_v<decltype(nvrtcGetCUBIN), Text>);
static_assert(std::is_same_v<decltype(nvrtcGetPTXSize), Size>);
static_assert(std::is_same_v<decltype(nvrtcGetPTX), Text>);
static_assert(std::is_same_v<decltype(nvrtcGetErrorString), const char*(nvrtcResult)>);

static_assert(std::is_same_v<decltype(cuCtxGetCurrent), CUresult(CUcontext*)>);
static_assert(std::is_same_v<decltype(cuCtxSetCurrent), CUresult(CUcontext)>);
static_assert(std::is_same_v<decltype(cuModuleLoadData), CUresult(CUmodule*, const void*)>);
using GetFunction = CUresult(CUfunction*, CUmodule, const char*);
static_assert(std::is_same_v<decltype(cuModuleGetFunction), GetFunction>);
using Launch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**);
static_assert(std::is_same_v<decltype(cuLaunchKernel), Launch>);
static_assert(std::is_same_v<decltype(cuGetErrorString), CUresult(CUresult, const char**)>);

}  // namespace hpctl
