// SPDX-License-Identifier: Apache-2.0
#include "trainer/process/engine.h"

#include <exception>
#include <new>
#include <string>

#include "common/base/log.h"
#include "trainer/device/torch_device.h"
#include "trainer/loop/generation.h"
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

}  // namespace

}  // namespace hpctl

extern "C" __attribute__((visibility("default"))) int hptrain_run_engine(
    const hpctl::Workload& workload, hpctl::Progress& progress, int arena_fd) {
  using namespace hpctl;  // NOLINT(google-build-using-namespace)
  set_log_component("rank " + std::to_string(workload.rank));
  prepare_runtime();
  const Result<Device*> device =
      without_exceptions([&] { return open_device(workload.local_rank); });
  if (!device.ok()) return fail(progress, device.error());
  log_info("runtime: " + describe(runtime_environment(workload.train.precision, **device)));
  // Never destroyed: after a failure a thread may still be writing a shard of a save that nobody
  // will commit, and waiting for the disk would delay the recovery.
  auto* run = std::make_unique<Run>(workload, progress, arena_fd, **device).release();
  auto* generation = std::make_unique<Generation>(*run, workload).release();
  const Outcome started = without_exceptions([&] { return generation->start(); });
  if (!started.ok()) return fail(progress, started.error());
  const Outcome finished = without_exceptions([&] { return generation->run(); });
  if (!finished.ok()) return fail(progress, not_the_checkpoint(finished.error()));
  if (generation->is_stopped()) {
    log_info("asked to end by SIGTERM: step " + std::to_string(generation->durable_step()) +
             " is durable, and a restart goes on from there");
    end_as_requested();
  }
  log_info("finished");
  return kExitFinished;
}

extern "C" __attribute__((visibility("default"))) const char* hptrain_engine_versions() {
  static const std::string text = "LibTorch " + hpctl::compat::torch_version();
  return text.c_str();
}
