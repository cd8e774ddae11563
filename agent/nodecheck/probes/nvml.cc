// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/probes/nvml.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "common/base/library.h"

namespace hpctl::agent {
namespace {

// As NVML documents them; the numbers are part of its stable interface.
using Status = int;  // 0 = success
using Device = void*;
constexpr int kUncorrected = 1;  // nvmlMemoryErrorType_t
constexpr int kVolatile = 0;     // nvmlEccCounterType_t: since the driver was loaded
constexpr auto kSlowdownLasts = std::chrono::milliseconds(500);
constexpr unsigned kMostLinks = 18;  // NVML_NVLINK_MAX_LINKS

struct Nvml {
  explicit Nvml(const Library& library)
      : init(library.function<Status()>("nvmlInit_v2")),
        shutdown(library.function<Status()>("nvmlShutdown")),
        error_string(library.function<const char*(Status)>("nvmlErrorString")),
        driver_version(library.function<Status(char*, unsigned)>("nvmlSystemGetDriverVersion")),
        count(library.function<Status(unsigned*)>("nvmlDeviceGetCount_v2")),
        handle(library.function<Status(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2")),
        uuid(library.function<Status(Device, char*, unsigned)>("nvmlDeviceGetUUID")),
        ecc(library.function<Status(Device, int, int, unsigned long long*)>(
            "nvmlDeviceGetTotalEccErrors")),
        rows(library.function<Status(Device, unsigned*, unsigned*, unsigned*, unsigned*)>(
            "nvmlDeviceGetRemappedRows")),
        reasons(library.function<Status(Device, unsigned long long*)>(
            "nvmlDeviceGetCurrentClocksThrottleReasons")),
        link(library.function<Status(Device, unsigned, unsigned*)>("nvmlDeviceGetNvLinkState")) {}

  bool is_complete() const {
    return init != nullptr && shutdown != nullptr && error_string != nullptr && count != nullptr &&
           handle != nullptr;
  }
  std::string text(Status status) const {
    const char* words = error_string(status);
    return words == nullptr ? "NVML error " + std::to_string(status) : words;
  }

  Status (*init)();
  Status (*shutdown)();
  const char* (*error_string)(Status);
  Status (*driver_version)(char*, unsigned);
  Status (*count)(unsigned*);
  Status (*handle)(unsigned, Device*);
  Status (*uuid)(Device, char*, unsigned);  // what follows is absent in old drivers
  Status (*ecc)(Device, int, int, unsigned long long*);
  Status (*rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*);
  Status (*reasons)(Device, unsigned long long*);
  Status (*link)(Device, unsigned, unsigned*);
};

// A GPU without NVLinks, and a link that it does not have, are not supported.
void read_links(const Nvml& nvml, Device device, GpuHealth& gpu) {
  if (nvml.link == nullptr) return;
  int there = 0;
  int up = 0;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned active = 0;
    if (nvml.link(device, link, &active) != 0) continue;
    ++there;
    if (active != 0) ++up;
  }
  gpu.nvlinks = there;
  gpu.nvlinks_up = up;
}

void read_slowdown(const Nvml& nvml, Device device, GpuHealth& gpu) {
  unsigned long long reasons = 0;
  if (nvml.reasons == nullptr || nvml.reasons(device, &reasons) != 0) return;
  gpu.slowdown = reasons;
}

GpuHealth read_gpu(const Nvml& nvml, unsigned index) {
  GpuHealth gpu;
  gpu.index = static_cast<int>(index);
  Device device = nullptr;
  if (const Status status = nvml.handle(index, &device); status != 0) {
    gpu.trouble = nvml.text(status);
    return gpu;
  }
  std::array<char, 96> uuid{};
  if (nvml.uuid != nullptr && nvml.uuid(device, uuid.data(), uuid.size()) == 0) {
    gpu.uuid = uuid.data();
  }
  unsigned long long errors = 0;
  if (nvml.ecc != nullptr && nvml.ecc(device, kUncorrected, kVolatile, &errors) == 0) {
    gpu.uncorrected_ecc = errors;
  }
  unsigned corrected = 0;
  unsigned uncorrected = 0;
  unsigned pending = 0;
  unsigned failed = 0;
  if (nvml.rows != nullptr && nvml.rows(device, &corrected, &uncorrected, &pending, &failed) == 0) {
    gpu.remap_pending = pending != 0;
    gpu.remap_failed = failed != 0;
  }
  read_slowdown(nvml, device, gpu);
  read_links(nvml, device, gpu);
  return gpu;
}

Result<GpuInventory> read_inventory(const Nvml& nvml) {
  GpuInventory inventory;
  std::array<char, 96> driver{};
  if (nvml.driver_version != nullptr && nvml.driver_version(driver.data(), driver.size()) == 0) {
    inventory.driver = driver.data();
  }
  unsigned count = 0;
  if (const Status status = nvml.count(&count); status != 0) {
    return Error{ErrorCode::kUnavailable, "NVML cannot count the GPUs: " + nvml.text(status)};
  }
  for (unsigned i = 0; i < count; ++i) inventory.gpus.push_back(read_gpu(nvml, i));
  return inventory;
}

// A reason for a throttled clock counts only if it is still there a little later.
void confirm_slowdowns(const Nvml& nvml, GpuInventory& inventory) {
  const bool any = std::any_of(
      inventory.gpus.begin(), inventory.gpus.end(),
      [](const GpuHealth& gpu) { return (gpu.slowdown.value_or(0) & kHardwareSlowdowns) != 0; });
  if (!any) return;
  std::this_thread::sleep_for(kSlowdownLasts);  // time is what is measured
  for (GpuHealth& gpu : inventory.gpus) {
    Device device = nullptr;
    GpuHealth later;
    if (nvml.handle(static_cast<unsigned>(gpu.index), &device) != 0) continue;
    read_slowdown(nvml, device, later);
    if (gpu.slowdown && later.slowdown) *gpu.slowdown &= *later.slowdown;
  }
}

}  // namespace

Result<GpuInventory> read_gpus(bool watches) {
  HP_TRY_ASSIGN(const Library library,
                Library::open({"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
                               "/usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1"}));
  const Nvml nvml(library);
  if (!nvml.is_complete()) {
    return Error{ErrorCode::kUnavailable, library.name() + " lacks functions of NVML"};
  }
  if (const Status status = nvml.init(); status != 0) {
    return Error{ErrorCode::kUnavailable, "NVML does not start: " + nvml.text(status)};
  }
  auto inventory = read_inventory(nvml);
  if (inventory.ok() && watches) confirm_slowdowns(nvml, *inventory);
  nvml.shutdown();
  return inventory;
}

}  // namespace hpctl::agent
