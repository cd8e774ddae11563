// SPDX-License-Identifier: Apache-2.0
// What LibTorch's profiler (Kineto) sees of some steps of one rank: every operation on a CPU, every
// kernel and copy on a GPU. As complete events of the Trace Event Format, beside the trace of those
// steps (metrics/trace.h). tests/gpu/roofline.py makes a table of it.
#pragma once

#include <string>

namespace hpctl {

class OperationTrace {
 public:
  // `gpu`: whether the operations are on one.
  OperationTrace(std::string path, bool gpu) : path_(std::move(path)), gpu_(gpu) {}

  // Between two steps, on the step loop's thread: whether the next one is recorded. What was
  // recorded is written when the answer becomes no. Failures are said in the log: no step is worth
  // less for want of a trace.
  void follow(bool wanted);

 private:
  void begin();
  void end();

  std::string path_;
  bool gpu_;
  bool running_ = false;
};

}  // namespace hpctl
