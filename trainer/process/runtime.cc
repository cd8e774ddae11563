// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/runtime.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "trainer/compat/torch_compat.h"
#include "trainer/device/host_memory.h"
#include "trainer/kernels/level.h"

namespace hpctl {

namespace {

// A function of the loaded OpenBLAS, or null when the BLAS is another one. Looked up at run time:
// linking OpenBLAS directly would force it on builds whose LibTorch brings its own BLAS.
template <typename Function>
Function* openblas(const char* name) {
  void* library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  dlclose(library);  // gives back the reference; the library stays loaded
  return function;
}

std::string find_blas() {
  if (auto* config = openblas<char*()>("openblas_get_config")) return config();
  return at::hasMKL() ? "MKL" : "unknown";
}

// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64": another release
// may add in another order, as another build or core does. Read once, since OpenBLAS rewrites this
// text in one buffer for all threads.
const std::string& blas_name() {
  static const std::string name = find_blas();
  return name;
}

// "CPU capability usage: AVX2" is where every release says which of its kernels it runs.
std::string aten_isa() {
  const std::string config = at::show_config();
  const std::string label = "CPU capability usage: ";
  const size_t begin = config.find(label);
  if (begin == std::string::npos) return "unknown";
  const size_t value = begin + label.size();
  return config.substr(value, config.find('\n', value) - value);
}

std::string variable_or(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// For the calling thread's operations. OpenMP's variable may be a list, one number for each level.
int threads_asked_for() {
  const std::string asked = variable_or("OMP_NUM_THREADS", "1");
  int threads = 1;
  std::from_chars(asked.data(), asked.data() + asked.size(), threads);
  return std::max(1, threads);
}

}  // namespace

void prepare_runtime() {
  at::set_num_threads(threads_asked_for());
  use_host_memory_again();
  // Every step frees its memory, and the next one takes the same amount. Memory that went back to
  // the kernel in between would be cleared and faulted page by page again. Without separate
  // mappings, large blocks share one heap with the others, which joins free neighbours; it is never
  // made smaller.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

std::map<std::string, std::string> runtime_environment(Precision precision, const Device& device) {
  auto* blas_threads = openblas<int()>("openblas_get_num_threads");
  std::map<std::string, std::string> environment = {
      {"libtorch", compat::torch_version()},
      {"aten_threads", std::to_string(at::get_num_threads())},
      {"aten_isa", aten_isa()},
      {"blas", blas_name()},
      {"blas_threads", blas_threads != nullptr ? std::to_string(blas_threads()) : "unknown"},
      {"kernels", kernels_label()},
      {"onednn_max_cpu_isa", variable_or("ONEDNN_MAX_CPU_ISA", "default")},
      {"precision", to_word(precision)},
  };
  environment.merge(device.environment());
  return environment;
}

std::string describe(const std::map<std::string, std::string>& environment) {
  std::string line;
  for (const auto& [key, value] : environment) {
    line += (line.empty() ? "" : ", ") + key + " " + value;
  }
  return line;
}

}  // namespace hpctl
