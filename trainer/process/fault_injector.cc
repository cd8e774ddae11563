// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/fault_injector.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <limits>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/process/memory_cgroup.h"

namespace hpctl {
namespace {

// The generation that each is to happen in; 0 = none.
std::array<std::atomic<uint64_t>, words_of(InjectedFault{}).size()> g_ordered{};

std::atomic<uint64_t>& order_of(InjectedFault fault) {
  return g_ordered[static_cast<size_t>(fault)];
}

// A repeated step is not meant as well.
bool take_order(InjectedFault fault, uint64_t generation) {
  return order_of(fault).compare_exchange_strong(generation, 0);
}

void hang_if_ordered(uint64_t generation) {
  const std::atomic<uint64_t>& hanging = order_of(InjectedFault::kHangWorker);
  if (hanging != generation) return;
  log_warning("a fault on purpose: this rank hangs");
  while (hanging == generation) {
  }
}

[[noreturn]] void run_out_of_memory() {
  constexpr size_t kPiece = size_t{64} << 20;
  const auto machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t limit = memory_limit_bytes();
  if (limit == 0 || limit >= machine) {
    log_warning("a fault on purpose: no memory limit here; this rank gets SIGKILL");
    ::raise(SIGKILL);
  }
  log_warning("a fault on purpose: this rank takes memory to the limit of " +
              std::to_string(limit) + " bytes");
  // This one is meant, and no other of the group.
  const UniqueFd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (!score.valid() || ::write(score.get(), "1000", 4) != 4) log_warning("another may be ended");
  for (;;) {
    void* piece = ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (piece == MAP_FAILED) ::raise(SIGKILL);  // a kernel that promises no more than it has
  }
}

// For the thread that writes checkpoints.
struct DiskFailure {
  InjectedFault fault;
  int err;
  std::atomic<int64_t> until_ms{0};
};
std::array<DiskFailure, 2> g_disk_failures{
    {{InjectedFault::kFullDisk, ENOSPC}, {InjectedFault::kStorageError, EIO}}};
// For the training thread.
int64_t g_is_slow_until_ms = 0;
int64_t g_slow_steps_left = 0;

int64_t monotonic_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

void order_fault(InjectedFault fault, uint64_t generation) { order_of(fault) = generation; }

Outcome inject_ordered_fault(uint64_t generation) {
  hang_if_ordered(generation);
  if (take_order(InjectedFault::kOomWorker, generation)) run_out_of_memory();
  if (!take_order(InjectedFault::kExitWorker, generation)) return Ok{};
  return Error{ErrorCode::kInternal, "a fault on purpose: this rank fails inside a step"};
}

bool is_flip_ordered(uint64_t generation) {
  return take_order(InjectedFault::kFlipParameter, generation);
}

std::optional<PeerTrouble> take_ordered_trouble(uint64_t generation) {
  if (take_order(InjectedFault::kDelayCollectives, generation)) {
    log_warning("a fault on purpose: this rank's messages to its peers come late");
    return PeerTrouble::kLate;
  }
  if (take_order(InjectedFault::kLoseCollectives, generation)) {
    log_warning("a fault on purpose: this rank's messages to its peers are lost");
    return PeerTrouble::kSilent;
  }
  if (take_order(InjectedFault::kCutPeers, generation)) {
    log_warning("a fault on purpose: this rank's connections to its peers break");
    return PeerTrouble::kCut;
  }
  return std::nullopt;
}

Outcome inject_ordered_disk(uint64_t generation) {
  for (const InjectedFault slow : {InjectedFault::kSlowDisk, InjectedFault::kStoragePause}) {
    if (!take_order(slow, generation)) continue;
    log_warning(std::string("a fault on purpose: this rank gets ") + traits_of(slow).thing);
    std::this_thread::sleep_for(std::chrono::milliseconds(traits_of(slow).lasts_ms));
  }
  for (DiskFailure& failure : g_disk_failures) {
    if (take_order(failure.fault, generation)) {
      log_warning(std::string("a fault on purpose: this rank gets ") +
                  traits_of(failure.fault).thing);
      failure.until_ms = monotonic_ms() + kDiskTroubleMs;
    }
    if (monotonic_ms() >= failure.until_ms) continue;
    return errno_error("cannot write a checkpoint, on purpose", failure.err);
  }
  return Ok{};
}

void inject_ordered_slowness(uint64_t generation, std::chrono::nanoseconds computed) {
  if (take_order(InjectedFault::kSlowWorker, generation)) {
    log_warning("a fault on purpose: this rank is slow");
    g_is_slow_until_ms = monotonic_ms() + kSlowMs;
    g_slow_steps_left = kSlowSteps;
  }
  const bool is_slow = g_slow_steps_left > 0 || monotonic_ms() < g_is_slow_until_ms;
  if (g_slow_steps_left > 0) --g_slow_steps_left;
  if (is_slow) std::this_thread::sleep_for(computed * (kSlowTimes - 1));
}

double ordered_gradient_factor(uint64_t generation) {
  if (!take_order(InjectedFault::kNanGradient, generation)) return 1;
  log_warning("a fault on purpose: this rank's gradients of a step are NaN");
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace hpctl
