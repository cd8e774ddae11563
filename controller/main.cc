// SPDX-License-Identifier: Apache-2.0
// hpcontroller: parse, become the job's owner or leave the caller if asked, run.
#include <absl/synchronization/mutex.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>

#include "common/job/paths.h"
#include "controller/cluster/child.h"
#include "controller/cluster/run_cluster.h"
#include "controller/failpoint_names.h"
#include "controller/run_controller.h"

namespace {

constexpr int kExitUsage = 2;
constexpr int kMappedBytes = 256 * 1024;

// Leaves the caller, whose child we are: it reaps us at once, and the remaining process is an
// orphan. There is one thread so far.
bool detach() {
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child > 0) ::_exit(0);
  return true;
}

// Blocks of this size, for a view of a large job or a scrape, are short-lived, and go back to the
// kernel then. By default glibc raises the limit with the first freed one, to 32 MiB, and each
// thread's arena keeps the memory of its peak.
void return_large_blocks() { ::mallopt(M_MMAP_THRESHOLD, kMappedBytes); }

// gRPC's mutexes are absl's, which as Debian compiles it notes in which order each is taken, to
// find deadlocks: a twentieth of the processor time of a controller of many agents.
void trust_orders_of_locks() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

int usage_error(const std::string& message) {
  std::fprintf(stderr, "hpcontroller: %s\n", message.c_str());
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  return_large_blocks();
  trust_orders_of_locks();
  auto options = hpctl::parse_controller_options(argc, argv);
  if (!options.ok()) return usage_error(options.error().message);
  if (options->help) return std::fputs(hpctl::kControllerUsage, stdout) < 0 ? 1 : 0;
  if (options->version) return std::puts("hpcontroller " HPCTL_VERSION) < 0 ? 1 : 0;
  if (options->list_failpoints) {
    for (const char* name : hpctl::kFailpointNames) std::puts(name);
    return 0;
  }
  if (!options->run_as.empty()) {
    options = hpctl::cluster::begin_child(std::move(*options));
    if (!options.ok()) return usage_error(options.error().message);
  }
  if (options->cluster) return hpctl::cluster::run_cluster(*options);
  if (options->home.empty() && options->job_dir.empty()) {
    const auto home = hpctl::home_from_environment();
    if (!home.ok()) return usage_error(home.error().message);
    options->home = home->home();
  }
  if (options->detach && !detach()) {
    std::perror("hpcontroller: cannot fork");
    return 1;
  }
  return hpctl::run_controller(*options);
}
