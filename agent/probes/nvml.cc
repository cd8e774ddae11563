// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/nvml.h"

#include <array>

#include "common/base/library.h"

namespace hpctl::agent {
namespace {

// As NVML documents them; the numbers are part of its stable interface.
using Status = int;  // 0 = success
using Device = void*;
constexpr int kUncorrected = 1;  // nvmlMemoryErrorType_t
constexpr int kVolatile = 0;     // nvmlEccCounterType_t: since the driver was loaded

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
            "nvmlDeviceGetRemappedRows")) {}

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
};

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

}  // namespace

Result<GpuInventory> read_gpus() {
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
  nvml.shutdown();
  return inventory;
}

}  // namespace hpctl::agent
