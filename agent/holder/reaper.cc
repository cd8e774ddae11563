// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/reaper.h"

#include <signal.h>
#include <unistd.h>

#include "agent/holder/locked_memory.h"
#include "agent/holder/worker_mark.h"
#include "common/base/log.h"

namespace hpctl::holder {
namespace {

constexpr int64_t kLastSweepTimeoutMs = 10'000;

}  // namespace

int run_reaper(const std::string& boot_id) {
  // A signal to a whole session or terminal must not end the cleanup.
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  [[maybe_unused]] const Outcome locked = lock_memory();  // the holder has said why not
  char byte = 0;
  while (::read(kReaperPipeFd, &byte, 1) < 0 && errno == EINTR) {
  }
  if (kill_marked(boot_id + ".", kLastSweepTimeoutMs)) return 0;
  log_error("processes of a dead holder's workers could not be ended (stuck in the kernel?)");
  return 1;
}

}  // namespace hpctl::holder
