// SPDX-License-Identifier: Apache-2.0
// hpcontroller: parse, detach if asked, start, tell the starter, wait, stop.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "common/base/log.h"
#include "common/rpc/controller_process.h"
#include "controller/controller.h"
#include "controller/failpoint_names.h"
#include "controller/options.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kExitAnotherRuns = 3;

// Leaves the caller, whose child we are: it reaps us at once, and the process that goes on belongs
// to nobody. There is one thread so far.
bool detach() {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child > 0) ::_exit(0);
  return true;
}

void tell(int ready_fd, char what) {
  if (ready_fd < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(ready_fd, &what, 1);
  ::close(ready_fd);
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "hpcontroller: %s\n", message.c_str());
  return kExitUsage;
}

int serve(const hpctl::HomePaths& paths, const hpctl::ControllerOptions& options) {
  hpctl::set_log_component("controller");
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);

  hpctl::Controller controller(paths, options);
  if (const auto started = controller.start(); !started.ok()) {
    hpctl::log_error(started.error().message);
    const bool another = started.error().code == hpctl::ErrorCode::kAlreadyExists;
    if (another) tell(options.ready_fd, hpctl::kAnotherControllerRuns);
    return another ? kExitAnotherRuns : 1;
  }
  tell(options.ready_fd, hpctl::kControllerReady);
  controller.wait();
  controller.stop();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto options = hpctl::parse_controller_options(argc, argv);
  if (!options.ok()) return usage_error(options.error().message);
  if (options->help) return std::fputs(hpctl::kControllerUsage, stdout) < 0 ? 1 : 0;
  if (options->version) return std::puts("hpcontroller " HPCTL_VERSION) < 0 ? 1 : 0;
  if (options->list_failpoints) {
    for (const char* name : hpctl::kFailpointNames) std::puts(name);
    return 0;
  }
  if (options->home.empty()) {
    const auto home = hpctl::home_from_environment();
    if (!home.ok()) return usage_error(home.error().message);
    options->home = home->home();
  }
  if (options->detach && !detach()) {
    std::perror("hpcontroller: cannot fork");
    return 1;
  }
  return serve(hpctl::HomePaths(options->home), *options);
}
