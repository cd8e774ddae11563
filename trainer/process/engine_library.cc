// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/engine_library.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <thread>

#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/job/paths.h"
#include "trainer/process/engine.h"

namespace hpctl {

namespace {

constexpr int kLowestPriority = 19;

// OpenBLAS begins them while it is loaded, and they keep the priority of who loads it.
bool blas_begins_threads() {
  const char* const threads = std::getenv("OPENBLAS_NUM_THREADS");
  return threads == nullptr || std::string_view(threads) != "1";
}

bool is_readable(int fd) {
  pollfd readable{fd, POLLIN, 0};
  return poll(&readable, 1, 0) > 0;
}

// False: `order_fd` has something to read, or its writer is gone, and nothing is loaded.
bool is_loaded_before_an_order(int loaded_fd, int order_fd) {
  pollfd either[] = {{loaded_fd, POLLIN, 0}, {order_fd, POLLIN, 0}};
  while (poll(either, 2, -1) < 0) {
  }
  return either[0].revents != 0;
}

// Ends the thread that loads, whatever it holds. Returns where that cannot be done.
void start_anew() {
  log_info("an order came while the engine was loaded: loading it again, at ordinary priority");
  char* arguments[] = {program_invocation_name, nullptr};
  execv("/proc/self/exe", arguments);
  log_warning(
      errno_error("cannot start again; the engine goes on loading at the lowest priority").message);
}

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

Result<void*> load_engine_yielding(int order_fd) {
  if (is_readable(order_fd) || blas_begins_threads()) return load_engine();
  const UniqueFd loaded_fd(eventfd(0, EFD_CLOEXEC));
  if (!loaded_fd.valid()) return errno_error("cannot create an event descriptor");
  std::optional<Result<void*>> loaded;
  std::thread loader([&] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);  // of this thread only
    loaded = load_engine();
    eventfd_write(loaded_fd.get(), 1);
  });
  if (!is_loaded_before_an_order(loaded_fd.get(), order_fd)) start_anew();
  loader.join();
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
