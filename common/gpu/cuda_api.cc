// SPDX-License-Identifier: Apache-2.0
#include "common/gpu/cuda_api.h"

#include <cstring>
#include <memory>
#include <string>

#include "common/base/log.h"
#include "common/base/required_functions.h"

namespace hpctl::cuda {
namespace {

template <typename... Operands>
Status absent(Operands...) {
  return kAbsent;
}

class Finder {
 public:
  explicit Finder(const Library& library) : library_(library) {}

  template <typename... Operands>
  void operator()(const char* name, Status (*&out)(Operands...)) {
    out = library_.function<Status(Operands...)>(name);
    if (out != nullptr) return;
    out = absent<Operands...>;
    log_warning(library_.name() + " has no " + name + "; what does not call it works");
  }

 private:
  const Library& library_;
};

Outcome fill(RequiredFunctions& functions, Api& api) {
  Finder find(functions.library());
  find("cudaGetDeviceCount", api.device_count);
  find("cudaSetDevice", api.set_device);
  find("cudaStreamCreateWithFlags", api.stream_create);
  find("cudaStreamCreateWithPriority", api.stream_create_with_priority);
  find("cudaDeviceGetStreamPriorityRange", api.stream_priorities);
  find("cudaStreamDestroy", api.stream_destroy);
  find("cudaStreamWaitEvent", api.stream_wait_event);
  find("cudaEventCreateWithFlags", api.event_create);
  find("cudaEventDestroy", api.event_destroy);
  find("cudaEventRecord", api.event_record);
  find("cudaEventQuery", api.event_query);
  find("cudaEventElapsedTime", api.event_elapsed);
  find("cudaMalloc", api.malloc);
  find("cudaFree", api.free);
  find("cudaMallocHost", api.host_malloc);
  find("cudaFreeHost", api.host_free);
  find("cudaHostRegister", api.host_register);
  find("cudaHostUnregister", api.host_unregister);
  find("cudaMemcpyAsync", api.copy_async);
  find("cudaDeviceGetAttribute", api.device_attribute);
  find("cudaGetDeviceProperties", api.device_properties);
  find("cudaMemGetInfo", api.memory_info);
  api.error_string = functions.library().function<const char*(Status)>("cudaGetErrorString");
  return Ok{};
}

}  // namespace

Result<const Api*> load() {
  static const FunctionTable<Api> table(
      "CUDA runtime", {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"},
      fill);
  return table.get();
}

std::string product_name(const Api& api, int device) {
  const auto properties = std::make_unique<DeviceProperties>();
  if (api.device_properties(properties.get(), device) != kSuccess) return "";
  return {properties->name, ::strnlen(properties->name, sizeof properties->name)};
}

Status host_malloc_on(const Api& api, int device, void** memory, size_t bytes) {
  const Status status = api.set_device(device);
  if (status != kSuccess) return status;
  return api.host_malloc(memory, bytes);
}

Status host_register_on(const Api& api, int device, void* memory, size_t bytes) {
  const Status status = api.set_device(device);
  if (status != kSuccess) return status;
  return api.host_register(memory, bytes, kHostRegisterPortable);
}

Error error(const Api& api, const std::string& what, Status status) {
  std::string why = "error " + std::to_string(status) + " of the CUDA runtime";
  if (status == kAbsent) {
    why = "this CUDA runtime lacks the function (the log names it); use CUDA 11 to 13";
  } else if (api.error_string != nullptr) {
    why = api.error_string(status);
  }
  return {ErrorCode::kInternal, "cannot " + what + ": " + why};
}

}  // namespace hpctl::cuda
