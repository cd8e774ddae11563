// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/engine.h"

#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "trainer/device/torch_device.h"
#include "trainer/loop/generation.h"
#include "trainer/loop/model_request.h"
#include "trainer/process/control.h"
#include "trainer/process/runtime.h"
#include "trainer/process/stop_request.h"
#include "trainer/state/may_pass.h"

namespace hpctl {

namespace {

constexpr int kExitUnknownFault = 1;

int exit_code_of(const Error& error) {
  switch (error.code) {
    case kPeerLost:
      return kExitPeerLost;
    case ErrorCode::kDataLoss:
      return kExitCheckpointDamaged;
    case ErrorCode::kInternal:
      return kExitUnknownFault;
    case ErrorCode::kStorage:
      return kExitStorage;
    default:
      return kExitDoNotRestart;
  }
}

// LibTorch and the standard library throw; here, around the steps, is where that ends. Memory is
// what this machine lacks now: the next attempt, or another machine, may have it (may_pass.h).
template <typename Body>
auto without_exceptions(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kInternal,
                 "out of memory; use more workers, a smaller batch.micro or a shorter seq_len"};
  } catch (const c10::OutOfMemoryError& e) {
    return Error{ErrorCode::kInternal,
                 std::string("out of GPU memory; use more workers, a smaller batch.micro, "
                             "memory.activation_checkpointing or memory.offload: ") +
                     e.what_without_backtrace()};
  } catch (const c10::Error& e) {
    return Error{ErrorCode::kInternal, std::string("LibTorch: ") + e.what_without_backtrace()};
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, e.what()};
  }
}

std::string rank_name(const Workload& workload) { return "rank " + std::to_string(workload.rank); }

int fail(Progress& progress, const Error& error) {
  log_error(error.message);
  progress.failed_call(error.os_error);
  progress.last_words(error.message);
  return exit_code_of(error);
}

// Only start() reads a checkpoint; lost data later is not the fault of the one resumed from. A
// later error of a generation from memory may not happen to one from a checkpoint.
Error not_the_checkpoint(Error error) {
  if (error.code == ErrorCode::kDataLoss) error.code = ErrorCode::kInternal;
  return error;
}

// No save is under way yet, so it is no full disk: memory or descriptors of this machine are short.
Error not_this_machine(Error error) {
  return error.code == ErrorCode::kResourceExhausted ? may_pass(std::move(error)) : error;
}

// How long a process that ends waits for its last metrics: after a failure others wait for it.
constexpr std::chrono::milliseconds kLastMetrics{5'000};
constexpr std::chrono::milliseconds kLastMetricsOfAFailure{100};

// A process's life: one Run, and one Generation after another until one ends otherwise than by an
// Abort. Never destroyed: after a failure a thread may still be writing a shard of a save that no
// rank will commit, and waiting for the disk would delay the recovery.
class Trainer {
 public:
  Trainer(Progress& progress, int arena_fd, UniqueFd control_socket)
      : progress_(progress), arena_fd_(arena_fd), control_(std::move(control_socket)) {}

  // Null as in EngineFunction. The exit code.
  int train(const Workload* first);

 private:
  Outcome open_run(const Workload& workload);
  Outcome live_through_generation();
  void tell_peer_lost(const Error& lost);
  Outcome tell_aborted();
  Result<Workload> await_join();
  int finished();
  int failed(const Error& error);

  Progress& progress_;
  const int arena_fd_;
  std::optional<Run> run_;
  std::unique_ptr<Generation> generation_;
  Control control_;
};

int Trainer::train(const Workload* first) {
  control_.say(control::Ready{});
  Result<Workload> workload = first != nullptr ? Result<Workload>(*first) : await_join();
  if (!workload.ok()) return failed(workload.error());
  const Outcome opened = open_run(*workload);
  if (!opened.ok()) return failed(opened.error());
  for (;;) {
    generation_ = std::make_unique<Generation>(*run_, *workload);
    control_.enter(workload->generation, [this] { generation_->abort(); });
    const Outcome ended = live_through_generation();
    const bool peer_lost = !ended.ok() && ended.error().code == kPeerLost;
    if (peer_lost) tell_peer_lost(ended.error());
    const bool aborted = control_.leave();
    if (ended.ok()) return finished();
    if (!peer_lost || !aborted) return failed(ended.error());
    const Outcome told = tell_aborted();
    if (!told.ok()) return failed(told.error());
    workload = await_join();
    if (!workload.ok()) return failed(workload.error());
  }
}

Outcome Trainer::open_run(const Workload& workload) {
  HP_TRY_ASSIGN(Device* const device, without_exceptions([&] {
                  return open_device(workload.local_rank, workload.train);
                }));
  log_info("runtime: " + describe(runtime_environment(workload.train.precision, *device)));
  run_.emplace(workload, progress_, arena_fd_, *device);
  return Ok{};
}

Outcome Trainer::live_through_generation() {
  const Outcome started = without_exceptions([&] { return generation_->start(); });
  if (!started.ok()) return not_this_machine(started.error());
  control_.say(control::Joined{generation_->workload().generation});
  const Outcome finished = without_exceptions([&] { return generation_->run(); });
  if (finished.ok() || generation_->workload().from_memory) return finished;
  return not_the_checkpoint(finished.error());
}

// This rank saw it before any order. It stays for another generation, its connections open, unless
// it was ordered to end or there is no peer to order one.
void Trainer::tell_peer_lost(const Error& lost) {
  if (!control_.may_abort() || is_stop_requested()) return;
  log_warning("a peer is lost, waiting for what becomes of the job: " + lost.message);
  progress_.last_words(lost.message);
  end_on_stop_requests();
  control_.say(control::PeerLost{generation_->workload().generation});
  control_.await_abort();
}

// The phase says whether a save of the former generation still runs: then the holder gives this
// rank to a standby.
//
// A GPU's newest state is sealed first: then this rank undoes nothing, and if the GPU has failed,
// this process is of no use to the next generation, and another one takes its memory.
Outcome Trainer::tell_aborted() {
  if (run_->has_state()) {
    HP_TRY(without_exceptions([this]() -> Outcome {
      run_->state().begin_copy();
      run_->state().seal_copy();
      return Ok{};
    }));
  }
  progress_.enter(WorkerPhase::kSaving);
  generation_->when_saved([this] { progress_.enter(WorkerPhase::kRendezvous); });
  const uint64_t generation = generation_->workload().generation;
  log_info("generation " + std::to_string(generation) + " was aborted" +
           (run_->has_state() ? " at step " + std::to_string(run_->state().step()) : ""));
  end_on_stop_requests();
  control_.say(control::Aborted{generation});
  return Ok{};
}

// The workload of the next generation, whose progress page it turns to. Where none will come the
// process ends.
Result<Workload> Trainer::await_join() {
  const auto next = control_.await_join();
  if (next.ok() && !next->has_value()) end_as_requested();
  generation_.reset();  // before another: both would write into the same state
  HP_TRY(progress_.turn_page(kProgressFd));
  if (!next.ok()) return next.error();
  set_log_component(rank_name(**next));
  return **next;
}

int Trainer::finished() {
  run_->await_metrics(kLastMetrics);
  if (generation_->is_stopped()) {
    const std::string durable = "step " + std::to_string(generation_->durable_step()) +
                                " is durable, and a restart goes on from there";
    // Where nobody asked this rank, its end is a consequence: who asked another one is the cause.
    if (!is_stop_requested()) {
      return fail(progress_, {kPeerLost, "another rank got SIGTERM: " + durable});
    }
    if (generation_->workload().is_last &&
        generation_->durable_step() < generation_->workload().start_step) {
      return fail(progress_, {ErrorCode::kStorage, "the last checkpoint cannot be written"});
    }
    log_info("asked to end by SIGTERM: " + durable);
    end_as_requested();
  }
  log_info("finished");
  return kExitFinished;
}

int Trainer::failed(const Error& error) {
  if (run_) run_->await_metrics(kLastMetricsOfAFailure);
  return fail(progress_, error);
}

}  // namespace

}  // namespace hpctl

extern "C" __attribute__((visibility("default"))) int hptrain_run_engine(
    const hpctl::Workload* workload, hpctl::Progress& progress, int arena_fd, int control_fd) {
  using namespace hpctl;  // NOLINT(google-build-using-namespace)
  set_log_component(workload != nullptr ? rank_name(*workload) : "standby");
  UniqueFd control = control_socket(control_fd);
  if (workload == nullptr && !control.valid()) {
    return fail(progress,
                {ErrorCode::kInvalidArgument,
                 "the workload is empty, as a standby's is, and there is no control socket "
                 "on which another could come; to start hptrain yourself, use --workload "
                 "FILE"});
  }
  prepare_runtime();
  auto* trainer = std::make_unique<Trainer>(progress, arena_fd, std::move(control)).release();
  return trainer->train(workload);
}

extern "C" __attribute__((visibility("default"))) int hptrain_answer_request(
    const std::string& request, std::string& answer) {
  using namespace hpctl;  // NOLINT(google-build-using-namespace)
  constexpr int kFailed = 1;
  constexpr int kWrongInput = 2;
  prepare_runtime();
  auto answered = without_exceptions([&] { return answer_model_request(request); });
  if (!answered.ok()) {
    log_error(answered.error().message);
    return answered.error().code == ErrorCode::kInvalidArgument ? kWrongInput : kFailed;
  }
  answer = std::move(*answered);
  return 0;
}

extern "C" __attribute__((visibility("default"))) const char* hptrain_engine_versions() {
  static const std::string text = "LibTorch " + hpctl::compat::torch_version();
  return text.c_str();
}
