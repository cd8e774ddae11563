// SPDX-License-Identifier: Apache-2.0
// The few functions of the CUDA runtime that we need, found at run time: every build compiles this,
// and a machine without CUDA runs it. Declarations are ours; names, numbers and meaning come from
// the CUDA Runtime API reference. A process that has loaded a CUDA LibTorch gets that very library.
//
// A release of CUDA may lack a name. The function is then one that fails with kAbsent, so only what
// calls it goes without, and the log names it once.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/result.h"

namespace hpctl::cuda {

using Status = int;  // cudaError_t
inline constexpr Status kSuccess = 0;
inline constexpr Status kNotReady = 600;  // cudaErrorNotReady
inline constexpr Status kAbsent = -1;     // ours: the library has no such function
using Stream = void*;                     // cudaStream_t; nullptr = the default stream
using Event = void*;                      // cudaEvent_t
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr int kCopyDefault = 4;       // cudaMemcpyDefault: by the addresses
inline constexpr int kMultiprocessors = 16;  // cudaDeviceAttr
inline constexpr int kCapabilityMajor = 75;
inline constexpr int kCapabilityMinor = 76;

// cudaDeviceProp begins with the product's name; what follows differs between releases.
struct DeviceProperties {
  char name[256];
  char rest[64 * 1024];
};

struct Api {
  Status (*device_count)(int*);
  Status (*set_device)(int device);
  Status (*stream_create)(Stream*, unsigned flags);
  Status (*stream_create_with_priority)(Stream*, unsigned flags, int priority);
  // The lower the number, the sooner its work is begun.
  Status (*stream_priorities)(int* least, int* greatest);
  Status (*stream_destroy)(Stream);
  Status (*stream_wait_event)(Stream, Event, unsigned flags);
  Status (*event_create)(Event*, unsigned flags);
  Status (*event_destroy)(Event);
  Status (*event_record)(Event, Stream);
  Status (*event_query)(Event);
  Status (*event_elapsed)(float* ms, Event begin, Event end);
  Status (*malloc)(void**, size_t);
  Status (*free)(void*);
  Status (*host_malloc)(void**, size_t);  // page-locked: copies to and from it never block
  Status (*host_free)(void*);
  // The same for memory that others have mapped, from a page's begin on; until host_unregister().
  Status (*host_register)(void*, size_t, unsigned flags);
  Status (*host_unregister)(void*);
  Status (*copy_async)(void* to, const void* from, size_t bytes, int kind, Stream);
  Status (*device_attribute)(int* value, int attribute, int device);
  Status (*device_properties)(DeviceProperties*, int device);
  Status (*memory_info)(size_t* free, size_t* total);
  const char* (*error_string)(Status);  // null where it is absent; error() does without
};

// Loaded once and kept. kNotFound where there is no CUDA runtime.
Result<const Api*> load();

// As the driver names it, "NVIDIA H100 80GB HBM3"; "" when it does not say.
std::string product_name(const Api& api, int device);

// Page-locked host memory, taken on this GPU. A thread that has used no GPU yet would make a
// context on GPU 0 for it, some 500 MiB of a card that may be another rank's.
Status host_malloc_on(const Api& api, int device, void** memory, size_t bytes);

// Likewise page-locks host memory that is mapped already.
Status host_register_on(const Api& api, int device, void* memory, size_t bytes);

// "cannot WHAT: out of memory", with a remedy where the function is absent.
Error error(const Api& api, const std::string& what, Status status);

}  // namespace hpctl::cuda
