// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/loss_counter.h"

#include <string>

namespace hpctl {
namespace {

double in_seconds(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

}  // namespace

void LossCounter::recall(const core::Job& job) {
  lost_ms_ = job.lost_ms;
  notice_ms_ = job.spent.notice_ms;
  if (!job.recent_faults.empty()) fault_ = job.recent_faults.back().seq;
}

void LossCounter::count(const core::Job& job, Metrics& metrics) {
  const LossCounter before = *this;
  recall(job);
  const uint64_t id = job.id.value;
  const std::string& name = job.spec.name;
  const bool runs = job.state == core::JobState::kRunning;
  if (runs && lost_ms_ > before.lost_ms_) {
    metrics.recovery(id, name, in_seconds(lost_ms_ - before.lost_ms_));
  }
  if (notice_ms_ > before.notice_ms_) {
    metrics.detection(id, name, in_seconds(notice_ms_ - before.notice_ms_));
  }
  if (!runs && !core::has_ended(job.state)) {
    fault_ = before.fault_;
    return;
  }
  for (const core::Fault& fault : job.recent_faults) {
    if (fault.seq > before.fault_) metrics.fault(id, name, fault);
  }
}

}  // namespace hpctl
