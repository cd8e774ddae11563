// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/pin_environment.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace hpctl {

namespace {

void set_default(const char* name, const char* value) { setenv(name, value, /*overwrite=*/0); }

}  // namespace

void pin_environment() {
  set_default("OPENBLAS_NUM_THREADS", "1");
  set_default("OMP_NUM_THREADS", "1");
  set_default("CUBLAS_WORKSPACE_CONFIG", ":4096:8");  // else cuBLAS adds in any order
  // LibTorch has had it since 2.1, and takes a word that it does not know for an error.
  if (HPCTL_TORCH_VERSION >= 201 && std::getenv("PYTORCH_ALLOC_CONF") == nullptr) {
    set_default("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
  }
#ifdef __x86_64__
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx512) {
    set_default("OPENBLAS_CORETYPE", "SkylakeX");
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    set_default("OPENBLAS_CORETYPE", "Haswell");
  }
#endif
}

void ask_for_huge_pages(char** arguments) {
  if (std::getenv("GLIBC_TUNABLES") == nullptr) {
    setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
    // The very file that runs, also where its name has another one by now.
    execv("/proc/self/exe", arguments);
  }
  prctl(PR_SET_NAME, program_invocation_short_name);  // the kernel took "exe" for it
}

}  // namespace hpctl
