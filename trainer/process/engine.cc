// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/engine.h"

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "trainer/device/torch_device.h"
#include "trainer/loop/generation.h"
#include "trainer/process/control.h"
#include "trainer/process/runtime.h"
#include "trainer/process/stop_request.h"

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
    default:
      return kExitDoNotRestart;
  }
}

// LibTorch and the standard library throw; here, around the steps, is where that ends.
template <typename Body>
auto without_exceptions(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResourceExhausted,
                 "out of memory; use more workers, a smaller batch.micro or a shorter seq_len"};
  } catch (const c10::OutOfMemoryError& e) {
    return Error{ErrorCode::kResourceExhausted,
                 std::string("out of GPU memory; use more workers, a smaller batch.micro, "
                             "memory.activation_checkpointing or memory.offload: ") +
                     e.what_without_backtrace()};
  } catch (const c10::Error& e) {
    return Error{ErrorCode::kInternal, std::string("LibTorch: ") + e.what_without_backtrace()};
  } catch (const std::exception& e) {
    return Error{ErrorCode::kInternal, e.what()};
  }
}

int fail(Progress& progress, const Error& error) {
  log_error(error.message);
  progress.last_words(error.message);
  return exit_code_of(error);
}

// Only start() reads a checkpoint; lost data later is not the fault of the one resumed from.
Error not_the_checkpoint(Error error) {
  if (error.code == ErrorCode::kDataLoss) error.code = ErrorCode::kInternal;
  return error;
}

// A process's life: one Run, and one Generation after another until one ends otherwise than by an
// Abort. Never destroyed: after a failure a thread may still be writing a shard of a save that
// nobody will commit, and waiting for the disk would delay the recovery.
class Trainer {
 public:
  Trainer(const Workload& workload, Progress& progress, int arena_fd, UniqueFd control_socket,
          Device& device)
      : progress_(progress),
        run_(workload, progress, arena_fd, device),
        control_(std::move(control_socket)) {}

  // The exit code.
  int train(Workload workload);

 private:
  Outcome live_through_generation();
  Result<std::optional<Workload>> await_next();
  int finished();

  Progress& progress_;
  Run run_;
  std::unique_ptr<Generation> generation_;
  Control control_;
};

int Trainer::train(Workload workload) {
  control_.say(control::Ready{});
  for (;;) {
    generation_.reset();  // before another: both would write into the same state
    generation_ = std::make_unique<Generation>(run_, workload);
    control_.enter(workload.generation, [this] { generation_->abort(); });
    const Outcome ended = live_through_generation();
    const bool aborted = control_.leave();
    if (ended.ok()) return finished();
    if (!aborted || ended.error().code != kPeerLost) return fail(progress_, ended.error());
    const auto next = await_next();
    if (!next.ok()) return fail(progress_, next.error());
    if (!next->has_value()) end_as_requested();
    workload = **next;
  }
}

Outcome Trainer::live_through_generation() {
  HP_TRY(without_exceptions([&] { return generation_->start(); }));
  control_.say(control::Joined{generation_->workload().generation});
  const Outcome finished = without_exceptions([&] { return generation_->run(); });
  if (!finished.ok()) return not_the_checkpoint(finished.error());
  return Ok{};
}

Result<std::optional<Workload>> Trainer::await_next() {
  progress_.enter(WorkerPhase::kRendezvous);
  control::Aborted answer{generation_->workload().generation};
  if (run_.has_state()) answer.sealed_steps = run_.state().sealed_steps();
  log_info("generation " + std::to_string(answer.generation) + " was aborted" +
           (answer.sealed_steps.empty()
                ? ""
                : "; newest step sealed here: " + std::to_string(answer.sealed_steps.front())));
  end_on_stop_requests();
  control_.say(answer);
  return control_.await_join();
}

int Trainer::finished() {
  if (generation_->is_stopped()) {
    log_info("asked to end by SIGTERM: step " + std::to_string(generation_->durable_step()) +
             " is durable, and a restart goes on from there");
    end_as_requested();
  }
  log_info("finished");
  return kExitFinished;
}

}  // namespace

}  // namespace hpctl

extern "C" __attribute__((visibility("default"))) int hptrain_run_engine(
    const hpctl::Workload& workload, hpctl::Progress& progress, int arena_fd, int control_fd) {
  using namespace hpctl;  // NOLINT(google-build-using-namespace)
  set_log_component("rank " + std::to_string(workload.rank));
  prepare_runtime();
  const Result<Device*> device =
      without_exceptions([&] { return open_device(workload.local_rank); });
  if (!device.ok()) return fail(progress, device.error());
  log_info("runtime: " + describe(runtime_environment(workload.train.precision, **device)));
  auto* trainer =
      std::make_unique<Trainer>(workload, progress, arena_fd, control_socket(control_fd), **device)
          .release();
  return trainer->train(workload);
}

extern "C" __attribute__((visibility("default"))) const char* hptrain_engine_versions() {
  static const std::string text = "LibTorch " + hpctl::compat::torch_version();
  return text.c_str();
}
