// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/worker.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstdlib>
#include <set>
#include <utility>

#include "agent/holder/progress_view.h"
#include "agent/holder/python_standby_order.h"
#include "agent/holder/worker_mark.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/line_pattern.h"
#include "common/base/printable.h"
#include "common/process/memory_file.h"
#include "common/worker/arena_header.h"
#include "common/worker/worker_abi.h"
#include "common/worker/worker_control.h"

namespace hpctl::holder {
namespace {

// The kernel, out of memory, ends a worker rather than the agent that would report it.
constexpr int kOomScoreAboveAgent = 300;
constexpr size_t kMessageBytes = 1024;
constexpr int32_t kExitOfPythonException = 1;  // one that nothing caught

Result<UniqueFd> make_memfd(const char* name) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return errno_error(std::string("cannot create shared memory for the ") + name);
  return fd;
}

Result<UniqueFd> make_workload(const std::string& document) {
  HP_TRY_ASSIGN(UniqueFd fd, make_memory_file("workload", document));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
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

Result<std::vector<LinePattern>> compile_all(const std::vector<std::string>& texts) {
  std::vector<LinePattern> patterns;
  for (const std::string& text : texts) {
    auto pattern = LinePattern::compile(text);
    if (!pattern.ok()) {
      return Error{ErrorCode::kInvalidArgument, "recovery.hang_rules: \"" + text +
                                                    "\" is not a regular expression as RE2 takes "
                                                    "it: " +
                                                    pattern.error().message};
    }
    patterns.push_back(std::move(*pattern));
  }
  return patterns;
}

void take_part(Worker& worker, const Spawn& request, WorkerPart part) {
  worker.generation = request.generation;
  worker.rank = request.rank;
  worker.local_rank = request.local_rank;
  worker.part = part;
  worker.by_request = false;
}

void begin_log(Worker& worker, const Spawn& request, const std::string& node,
               const std::string& more = "") {
  worker.log->line("---- " + format_wall_ms(SystemClock().wall_ms()) + " generation " +
                   std::to_string(request.generation) +
                   (request.rank < 0 ? " standby" : " rank " + std::to_string(request.rank)) +
                   " on " + node + " pid " + std::to_string(worker.pid()) + more + " ----");
}

// A Python that still imports has the lowest priority (agent/holder/python_standby.py), with which
// it would hardly run on a busy node. It lowers only what we may raise.
void raise_priority(pid_t pid) {
  const int policy = ::sched_getscheduler(0);
  const sched_param parameters{};
  std::set<std::string> seen;
  for (bool is_complete = false; !is_complete;) {  // one thread may have begun another meanwhile
    is_complete = true;
    const auto threads = list_directory("/proc/" + std::to_string(pid) + "/task");
    if (!threads.ok()) return;
    for (const std::string& name : *threads) {
      if (!seen.insert(name).second) continue;
      is_complete = false;
      const pid_t thread = std::atoi(name.c_str());
      if (::sched_getscheduler(thread) == SCHED_IDLE) {
        ::sched_setscheduler(thread, policy, &parameters);
      }
    }
  }
}

}  // namespace

Result<UniqueFd> make_arena() { return make_memfd("state arena"); }

void Worker::signal_group(int signal) const { ::kill(-pid(), signal); }

Result<std::unique_ptr<Worker>> start_worker(const Spawn& request, uint64_t incarnation,
                                             const WorkerPlace& place) {
  auto worker = std::make_unique<Worker>();
  worker->incarnation = incarnation;
  const bool is_standby = request.rank < 0;
  take_part(*worker, request, is_standby ? WorkerPart::kIdle : WorkerPart::kMember);
  worker->mark = worker_mark(place.boot_id, incarnation);
  HP_TRY_ASSIGN(auto patterns, compile_all(request.hang_patterns));
  worker->log = std::make_unique<RankLog>(*place.logs, request.log_path);
  worker->log->watch_for(std::move(patterns));
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
  plan.traceable = true;  // by hpstacks
  plan.program = request.argv.front();
  static_assert(kWorkloadFd == 3 && kProgressFd == 4 && kArenaFd == 5 && kControlFd == 6);
  plan.descriptors = {
      null.get(),     log_end.get(),          log_end.get(),
      workload.get(), worker->progress.get(), is_standby ? null.get() : place.arena};
  UniqueFd control_end;
  if (is_standby || !request.workload.empty()) {  // a command could not read a message
    HP_TRY_ASSIGN(auto pair, PacketSocket::make_pair());
    worker->control.emplace(std::move(pair.first));
    control_end = std::move(pair.second);
    plan.descriptors.push_back(control_end.get());
  }
  HP_TRY_ASSIGN(worker->process, start_process(plan));
  begin_log(*worker, request, place.node);
  return worker;
}

Outcome join_worker(Worker& worker, const Spawn& request, const WorkerPlace& place) {
  HP_TRY_ASSIGN(
      const UniqueFd workload,
      make_workload(request.python != 0 ? python_standby_document({request.argv, request.env, {}})
                                        : request.workload));
  HP_TRY_ASSIGN(UniqueFd page, make_progress_page());
  HP_TRY_ASSIGN(auto patterns, compile_all(request.hang_patterns));
  const auto tell = [&](const control::ToWorker& message, int descriptor) {
    return worker.control->send_or_queue(control::encode(message), descriptor);
  };
  HP_TRY(tell(control::Take{kProgressFd}, page.get()));
  if (worker.local_rank < 0) HP_TRY(tell(control::Take{kArenaFd}, place.arena));
  worker.log->go_on_in(request.log_path);  // before it prints anything of the new generation
  worker.log->watch_for(std::move(patterns));
  begin_log(worker, request, place.node, worker.rank < 0 ? ", which stood by" : "");
  HP_TRY(tell(control::Join{request.generation}, workload.get()));
  if (worker.control->has_queued()) {
    return Error{ErrorCode::kUnavailable, "it does not read its control socket"};
  }
  // After the order: a Python that lowers its priority then looks whether there is one.
  if (request.python != 0 && !worker.is_ready) raise_priority(worker.pid());
  worker.progress = std::move(page);
  worker.origin = worker.rank < 0 ? WorkerOrigin::kStandby : WorkerOrigin::kStayed;
  take_part(worker, request, WorkerPart::kMember);
  return Ok{};
}

Exited exit_record(Worker& worker, int code, int status, int arena) {
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
  record.seals = read_seals(arena);
  worker.log->drain();
  record.message = page.message();
  record.fault = page.file_fault();
  // A process that was ordered to end has no error; its last line would only mislead.
  const bool told_to_go = record.signal == SIGKILL || record.signal == SIGTERM;
  if (record.message.empty() && status != 0 && !told_to_go) {
    const bool may_be_exception = record.exit_code == kExitOfPythonException;
    record.message = printable_line(
        may_be_exception ? worker.log->last_words() : worker.log->last_line(), kMessageBytes);
  }
  return record;
}

Exited left_record(Worker& worker, int arena) {
  Exited record = exit_record(worker, CLD_EXITED, kExitPeerLost, arena);
  record.stays = 1;
  // A process that was ordered to leave has no error.
  if (worker.by_request) record.message.clear();
  return record;
}

}  // namespace hpctl::holder
