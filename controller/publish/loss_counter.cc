// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/loss_counter.h"

#include <algorithm>
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

void LossCounter::go_on_from(LossCounts counts) {
  counts_ = std::move(counts);
  if (counts_.until_fault < 0) return;
  // The row of another session of the job may have begun at 0.
  lost_ms_ = std::min(lost_ms_, std::max<int64_t>(0, counts_.until_lost_ms));
  notice_ms_ = std::min(notice_ms_, std::max<int64_t>(0, counts_.until_notice_ms));
  fault_ = std::min(fault_, Seq{static_cast<uint64_t>(counts_.until_fault)});
}

void LossCounter::count_fault(const core::Fault& fault) {
  const std::string kind = fault_kind(fault);
  const auto known = std::find_if(
      counts_.faults.begin(), counts_.faults.end(),
      [&](const FaultCount& one) { return one.kind == kind && one.node == fault.node; });
  if (known != counts_.faults.end()) {
    ++known->count;
  } else if (counts_.faults.size() < kMostFaultCounts) {
    counts_.faults.push_back({kind, fault.node, 1});
  }
}

void LossCounter::note_how_far() {
  counts_.until_lost_ms = lost_ms_;
  counts_.until_notice_ms = notice_ms_;
  counts_.until_fault = static_cast<int64_t>(fault_.value);
}

void LossCounter::count(const core::Job& job, Metrics* metrics) {
  const uint64_t id = job.id.value;
  const std::string& name = job.spec.name;
  if (std::exchange(is_new_, false) && metrics != nullptr) metrics->losses(id, name, counts_);
  const int64_t lost_before_ms = lost_ms_;
  const int64_t notice_before_ms = notice_ms_;
  const Seq fault_before = fault_;
  recall(job);
  const bool runs = job.state == core::JobState::kRunning;
  if (runs && lost_ms_ > lost_before_ms) {
    const double seconds = in_seconds(lost_ms_ - lost_before_ms);
    counts_.recovery.add(seconds);
    if (metrics != nullptr) metrics->recovery(id, name, seconds);
  }
  if (notice_ms_ > notice_before_ms) {
    const double seconds = in_seconds(notice_ms_ - notice_before_ms);
    counts_.detection.add(seconds);
    if (metrics != nullptr) metrics->detection(id, name, seconds);
  }
  if (!runs && !core::has_ended(job.state)) {
    fault_ = fault_before;
    note_how_far();
    return;
  }
  note_how_far();
  for (const core::Fault& fault : job.recent_faults) {
    if (fault.seq <= fault_before) continue;
    count_fault(fault);
    if (metrics != nullptr) metrics->fault(id, name, fault);
  }
}

}  // namespace hpctl
