// SPDX-License-Identifier: Apache-2.0
#include "agent/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <tuple>
#include <utility>

#include "agent/core/printable.h"
#include "agent/progress_view.h"
#include "agent/worker_mark.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/packet_socket.h"
#include "common/base/worker_abi.h"

namespace hpctl::holder {
namespace {

// The kernel, out of memory, ends a worker rather than the agent that would report it.
constexpr int kOomScoreAboveAgent = 300;
constexpr size_t kMessageBytes = 1024;

Result<UniqueFd> make_memfd(const char* name) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return errno_error(std::string("cannot create shared memory for the ") + name);
  return fd;
}

Result<UniqueFd> make_workload(const std::string& document) {
  HP_TRY_ASSIGN(UniqueFd fd, make_memfd("workload"));
  HP_TRY(write_all(fd.get(), document, "workload memory"));
  if (::lseek(fd.get(), 0, SEEK_SET) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return errno_error("cannot seal the workload memory");
  }
  return fd;
}

Result<UniqueFd> make_progress_page() {
  HP_TRY_ASSIGN(UniqueFd fd, make_memfd("progress page"));
  // Sealed, because a worker that truncated the page would end its readers with SIGBUS.
  if (::ftruncate(fd.get(), kProgressPageBytes) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return errno_error("cannot set up a progress page");
  }
  return fd;
}

std::string header_line(const Worker& worker, const std::string& node) {
  return "---- " + format_wall_ms(SystemClock().wall_ms()) + " generation " +
         std::to_string(worker.generation) + " rank " + std::to_string(worker.rank) + " on " +
         node + " pid " + std::to_string(worker.pid()) + " ----";
}

}  // namespace

Result<UniqueFd> make_arena() { return make_memfd("state arena"); }

void Worker::signal_group(int signal) const { ::kill(-pid(), signal); }

Result<std::unique_ptr<Worker>> start_worker(const Spawn& request, uint64_t incarnation,
                                             const WorkerPlace& place) {
  auto worker = std::make_unique<Worker>();
  worker->incarnation = incarnation;
  worker->generation = request.generation;
  worker->rank = request.rank;
  worker->local_rank = request.local_rank;
  worker->mark = worker_mark(place.boot_id, incarnation);
  worker->log = std::make_unique<RankLog>(request.log_path);
  HP_TRY_ASSIGN(const UniqueFd log_end, worker->log->make_pipe());
  HP_TRY_ASSIGN(const UniqueFd workload, make_workload(request.workload));
  HP_TRY_ASSIGN(worker->progress, make_progress_page());
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid()) return errno_error("cannot open /dev/null");

  std::vector<std::string> changes = request.env;
  changes.push_back(std::string(kWorkerMarkName) + "=" + worker->mark);
  SpawnPlan plan;
  plan.argv = request.argv;
  plan.env = environment_with(changes);
  plan.directory = request.directory;
  plan.oom_score_increase = kOomScoreAboveAgent;
  HP_TRY_ASSIGN(plan.program, find_program(request.argv.front(), plan.env));
  static_assert(kWorkloadFd == 3 && kProgressFd == 4 && kArenaFd == 5 && kControlFd == 6);
  plan.descriptors = {null.get(),     log_end.get(),          log_end.get(),
                      workload.get(), worker->progress.get(), place.arena};
  UniqueFd control_end;
  if (!request.workload.empty()) {  // a command has none, and could not read a message
    HP_TRY_ASSIGN(auto pair, PacketSocket::make_pair());
    std::tie(worker->control, control_end) = std::move(pair);
    plan.descriptors.push_back(control_end.get());
  }
  HP_TRY_ASSIGN(worker->process, spawn_process(plan));
  worker->log->line(header_line(*worker, place.node));
  return worker;
}

Exited exit_record(Worker& worker, int code, int status) {
  Exited record;
  record.incarnation = worker.incarnation;
  record.generation = worker.generation;
  record.rank = worker.rank;
  record.pid = static_cast<uint64_t>(worker.pid());
  (code == CLD_EXITED ? record.exit_code : record.signal) = status;
  record.by_request = worker.by_request ? 1 : 0;
  const ProgressView page(worker.progress.get());
  const agent::ProgressSample sample = page.sample();
  record.last_step = sample.step;
  record.checkpoint_step = sample.checkpoint_step;
  record.bad_step = page.bad_steps();
  worker.log->drain();
  record.message = page.message();
  // Who was told to go has nothing to say; its last line would only mislead.
  const bool told_to_go = record.signal == SIGKILL || record.signal == SIGTERM;
  if (record.message.empty() && status != 0 && !told_to_go) {
    record.message = agent::printable_line(worker.log->last_line(), kMessageBytes);
  }
  return record;
}

}  // namespace hpctl::holder
