// SPDX-License-Identifier: Apache-2.0
// NVRTC, the compiler of device code as a library, found at run time: it comes with every LibTorch
// for GPUs, and needs neither a toolkit nor headers. Declarations are ours; names, numbers and
// meaning come from its user guide and nvrtc.h (11.2 to 13.0). If the real header is installed, the
// build compares them (tests/unit/trainer/cuda_headers_check.cc).
#pragma once

#include <cstddef>

#include "common/base/result.h"

namespace hpctl::nvrtc {

using Status = int;  // nvrtcResult
inline constexpr Status kSuccess = 0;
inline constexpr Status kCompilation = 6;  // NVRTC_ERROR_COMPILATION: the log has more

using Program = void*;  // nvrtcProgram

struct Api {
  Status (*version)(int* major, int* minor);
  Status (*count_architectures)(int*);
  Status (*architectures)(int*);  // 90 for sm_90, ascending
  Status (*create_program)(Program*, const char* source, const char* name, int headers,
                           const char* const* header_sources, const char* const* header_names);
  Status (*destroy_program)(Program*);
  Status (*compile_program)(Program, int options, const char* const* option_texts);
  Status (*log_size)(Program, size_t*);
  Status (*log)(Program, char*);
  Status (*cubin_size)(Program, size_t*);
  Status (*cubin)(Program, char*);
  Status (*ptx_size)(Program, size_t*);
  Status (*ptx)(Program, char*);
  const char* (*error_string)(Status);
};

// Loaded once and kept. kNotFound where there is none.
Result<const Api*> load();

}  // namespace hpctl::nvrtc
