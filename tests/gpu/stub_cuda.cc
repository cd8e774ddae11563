// SPDX-License-Identifier: Apache-2.0
// A CUDA driver without a GPU: the kernels are those of trainer/kernels/device, compiled for the
// host, and run where they are launched, on host memory. Stricter than the driver about misuse.
#include <cstdlib>
#include <cstring>
#include <mutex>

#define HP_FP32
#define HP_BF16
#define HP_FP16
#include "tests/unit/trainer/device_language.h"
#include "trainer/kernels/device/kernels.cuh"

namespace {

using hpctl::device::Emulation;
using hpctl::device::Kernel;

constexpr int kInvalidValue = 1;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kNotFound = 500;
constexpr int kIllegalAddress = 700;

thread_local void* current = nullptr;
std::mutex one_at_a_time;

Emulation& emulation() {
  static Emulation all;
  return all;
}

bool set_to(const char* variable, const char* value) {
  const char* text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, value) == 0;
}

}  // namespace

extern "C" {

// The order in which threads run.
void stub_cuda_descending(bool descending) { emulation().descending = descending; }

int cuCtxGetCurrent(void** context) {
  *context = current;
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = context;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  static char loaded;
  if (std::strncmp(static_cast<const char*>(image), "stub code", 9) != 0) return kInvalidImage;
  *module = &loaded;
  return current == nullptr ? kInvalidContext : 0;
}
// STUB_CUDA_WITHOUT: a kernel that is not there.
int cuModuleGetFunction(void** function, void*, const char* name) {
  const auto found = hpctl::device::kernels().find(name);
  if (found == hpctl::device::kernels().end() || set_to("STUB_CUDA_WITHOUT", name)) {
    return kNotFound;
  }
  *function = &found->second;
  return 0;
}
// STUB_CUDA_LAUNCH=fails: as after a fault of a kernel before.
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void*, void** parameters, void** extra) {
  constexpr unsigned kMostShared = 48 << 10;
  const bool right = grid_x > 0 && grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1 &&
                     block_x == hpctl::device::kThreads && shared_bytes <= kMostShared &&
                     extra == nullptr;
  if (!right) return kInvalidValue;
  if (current == nullptr) return kInvalidContext;
  if (set_to("STUB_CUDA_LAUNCH", "fails")) return kIllegalAddress;
  const std::lock_guard lock(one_at_a_time);
  const Kernel& kernel = *static_cast<Kernel*>(function);
  emulation().run(grid_x, shared_bytes, [&] { kernel(parameters[0]); });
  return 0;
}
int cuGetErrorString(int status, const char** text) {
  switch (status) {
    case kInvalidImage:
      *text = "device kernel image is invalid";
      return 0;
    case kInvalidContext:
      *text = "invalid device context";
      return 0;
    case kNotFound:
      *text = "named symbol not found";
      return 0;
    case kIllegalAddress:
      *text = "an illegal memory access was encountered";
      return 0;
    default:
      return kInvalidValue;
  }
}

}  // extern "C"
