// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/operation_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "trainer/compat/torch_compat.h"

namespace hpctl {

namespace {

namespace libtorch = torch::profiler::impl;
namespace profiler = torch::autograd::profiler;

// Later releases of LibTorch count in nanoseconds.
template <typename Event>
nlohmann::ordered_json complete_event(const Event& event) {
  double begin_us = 0;
  double length_us = 0;
  if constexpr (requires { event.startNs(); }) {
    begin_us = static_cast<double>(event.startNs()) / 1e3;
    length_us = static_cast<double>(event.durationNs()) / 1e3;
  } else {
    begin_us = static_cast<double>(event.startUs());
    length_us = static_cast<double>(event.durationUs());
  }
  const bool gpu = event.deviceType() == c10::DeviceType::CUDA;
  return {{"ph", "X"},
          {"name", event.name()},
          {"cat", gpu ? "gpu" : "cpu"},
          {"ts", begin_us},
          {"dur", length_us},
          {"pid", gpu ? 1 : 0},
          {"tid", gpu ? static_cast<uint64_t>(event.deviceResourceId()) : event.startThreadId()}};
}

}  // namespace

void OperationTrace::follow(bool wanted) {
  if (wanted == running_) return;
  running_ = wanted;
  try {
    wanted ? begin() : end();
  } catch (const c10::Error& e) {
    log_warning(std::string("no trace of operations: ") + e.what_without_backtrace());
  } catch (const std::exception& e) {
    log_warning(std::string("no trace of operations: ") + e.what());
  }
}

void OperationTrace::begin() {
  const libtorch::ProfilerConfig config(libtorch::ProfilerState::KINETO);
  const std::set<libtorch::ActivityType> activities = {gpu_ ? libtorch::ActivityType::CUDA
                                                            : libtorch::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

// Not the profiler's own file: not every LibTorch can write it.
void OperationTrace::end() {
  const auto found = profiler::disableProfiler();
  auto events = nlohmann::ordered_json::array();
  for (const auto& event : found->events()) {
    if (gpu_ == (event.deviceType() == c10::DeviceType::CUDA)) {
      events.push_back(complete_event(event));
    }
  }
  const nlohmann::ordered_json document = {{"traceEvents", std::move(events)},
                                           {"displayTimeUnit", "ms"}};
  Outcome written = make_directory_of(path_);
  if (written.ok()) written = write_file_atomic(path_, json_text(document));
  if (written.ok()) {
    log_info("trace of operations: " + path_);
  } else {
    log_warning("no trace of operations: " + written.error().message);
  }
}

}  // namespace hpctl
