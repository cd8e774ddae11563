// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/engine_library.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "common/base/paths.h"
#include "trainer/process/engine.h"

namespace hpctl {

namespace {

constexpr int kLowestPriority = 19;

}  // namespace

Result<void*> load_engine() {
  HP_TRY_ASSIGN(const std::string directory, program_directory());
  const std::string path = directory + "/" + kEngineLibrary;
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    return Error{ErrorCode::kFailedPrecondition, std::string("cannot load the training engine: ") +
                                                     dlerror() +
                                                     "; install LibTorch and Gloo, or build again"};
  }
  return library;
}

Result<void*> load_engine_yielding() {
  std::optional<Result<void*>> loaded;
  std::thread([&loaded] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);  // of this thread only
    loaded = load_engine();
  }).join();
  return *loaded;
}

Result<void*> engine_entry(void* library, const char* name) {
  void* const function = dlsym(library, name);
  if (function == nullptr) {
    return Error{ErrorCode::kFailedPrecondition, std::string(kEngineLibrary) + " has no " + name +
                                                     "; it belongs to another release"};
  }
  return function;
}

}  // namespace hpctl
