// SPDX-License-Identifier: Apache-2.0
// The trace of LibTorch's profiler (Kineto) for some steps of one rank: every operation on a CPU,
// every kernel and copy on a GPU. As complete events of the Trace Event Format, beside the trace of
// those steps (metrics/trace.h). tests/gpu/roofline.py makes a table of it.
#pragma once

#include <string>

namespace hpctl {

class OperationTrace {
 public:
  // `gpu`: whether the operations are on one.
  OperationTrace(std::string path, bool gpu) : path_(std::move(path)), gpu_(gpu) {}

  // Between two steps, on the step loop's thread: whether the next one is recorded. The recording
  // is written when the answer becomes no. Failures are only logged: a missing trace does not
  // affect a step.
  void follow(bool wanted);

 private:
  void begin();
  void end();

  std::string path_;
  bool gpu_;
  bool running_ = false;
};

}  // namespace hpctl
