// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/operation_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>

#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {

namespace {

namespace libtorch = torch::profiler::impl;

void warn(const std::exception& why) {
  log_warning(std::string("no trace of operations: ") + why.what());
}

}  // namespace

void OperationTrace::follow(bool wanted) {
  if (wanted == running_) return;
  running_ = wanted;
  try {
    wanted ? begin() : end();
  } catch (const std::exception& e) {
    running_ = false;
    warn(e);
  }
}

void OperationTrace::begin() {
  const libtorch::ProfilerConfig config(libtorch::ProfilerState::KINETO);
  const std::set<libtorch::ActivityType> activities = {gpu_ ? libtorch::ActivityType::CUDA
                                                            : libtorch::ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
}

void OperationTrace::end() {
  const auto found = torch::autograd::profiler::disableProfiler();
  const Outcome made = make_directories(path_.substr(0, path_.rfind('/')));
  if (!made.ok()) {
    log_warning("no trace of operations: " + made.error().message);
    return;
  }
  found->save(path_);
  log_info("trace of operations: " + path_);
}

}  // namespace hpctl
