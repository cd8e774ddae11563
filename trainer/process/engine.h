// SPDX-License-Identifier: Apache-2.0
// The boundary between hptrain (main.cc, no LibTorch) and the library with everything that needs
// LibTorch. hptrain loads it with dlopen after it has set the environment that OpenBLAS and OpenMP
// read in their constructors, and after the agent can see the process in its progress block.
#pragma once

#include <string>

#include "common/worker/workload.h"
#include "trainer/process/progress.h"

namespace hpctl {

inline constexpr char kEngineLibrary[] = "libhptrain_engine.so";
inline constexpr char kEngineEntry[] = "hptrain_run_engine";
inline constexpr char kEngineRequestEntry[] = "hptrain_answer_request";
inline constexpr char kEngineVersionEntry[] = "hptrain_engine_versions";

// Trains to the end of the job; the exit code is one of worker_abi.h, and on failure the reason is
// in the log and on the progress page. A null `workload` is a standby's: the first one is waited
// for. `control_fd` (control.h), -1 = none, is the engine's from now on. The caller ends the
// process with it at once (_exit): after a failure, threads may still be at work on memory of the
// engine.
using EngineFunction = int(const Workload* workload, Progress& progress, int arena_fd,
                           int control_fd);

// Answers a request about a checkpoint (trainer/loop/model_request.h). Returns the exit status; the
// reason of a failure is in the log.
using EngineRequestFunction = int(const std::string& request, std::string& answer);

// "LibTorch 1.13.0": for --version.
using EngineVersionFunction = const char*();

}  // namespace hpctl
