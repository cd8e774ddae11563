// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/job_summary_wire.h"

#include <algorithm>
#include <cmath>

#include "common/base/plausible.h"
#include "common/base/printable.h"
#include "common/slurm/node_ranges.h"

namespace hpctl {
namespace {

constexpr size_t kMaxState = 32;
constexpr size_t kMaxOwner = 10;                     // digits of a uid
constexpr int64_t kMaxWallMs = 253'402'300'800'000;  // the year 10000
constexpr double kMaxRate = 1e18;

// Never within a character of UTF-8, which the wire would refuse.
std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

int64_t plausible_ms(int64_t ms) { return std::clamp<int64_t>(ms, 0, kMaxWallMs); }

double plausible_rate(double value) {
  return std::isfinite(value) ? std::clamp(value, 0.0, kMaxRate) : 0;
}

std::vector<std::string> plausible_nodes(const std::string& ranges, size_t most_bytes) {
  if (ranges.size() > most_bytes) return {};
  auto nodes = from_node_ranges(ranges, kMaxSummaryNodeNames);
  return nodes.ok() ? std::move(*nodes) : std::vector<std::string>{};
}

int64_t plausible_restarts(int64_t count) {
  return std::clamp<int64_t>(count, 0, kMaxRestartsRecorded);
}

}  // namespace

void fill(const TimeSpent& spent, v1::TimeSpent& wire) {
  wire.set_start_ms(spent.start_ms);
  wire.set_notice_ms(spent.notice_ms);
  wire.set_restart_ms(spent.restart_ms);
  wire.set_repeat_ms(spent.repeat_ms);
  wire.set_decide_ms(spent.decide_ms);
  wire.set_wait_ms(spent.wait_ms);
  wire.set_suspended_ms(spent.suspended_ms);
  wire.set_checkpoint_ms(spent.waits.checkpoint_ms);
  wire.set_data_ms(spent.waits.data_ms);
}

TimeSpent to_time_spent(const v1::TimeSpent& wire) {
  return {plausible_ms(wire.start_ms()),
          plausible_ms(wire.notice_ms()),
          plausible_ms(wire.restart_ms()),
          plausible_ms(wire.repeat_ms()),
          plausible_ms(wire.decide_ms()),
          plausible_ms(wire.wait_ms()),
          plausible_ms(wire.suspended_ms()),
          {plausible_ms(wire.checkpoint_ms()), plausible_ms(wire.data_ms())}};
}

void fill(const JobMargins& margins, v1::JobMargins& wire) {
  wire.set_max_restarts(margins.max_restarts);
  wire.set_window_ms(margins.window_ms);
  wire.set_recent_restarts(margins.recent_restarts);
  wire.set_hour_restarts(margins.hour_restarts);
  wire.set_spares_wanted(margins.spares_wanted);
  wire.set_spares_left(margins.spares_left);
  wire.set_quarantined(to_node_ranges(margins.quarantined, kMaxMarginNodes));
  wire.set_slow(to_node_ranges(margins.slow, kMaxMarginNodes));
  wire.set_still_ms(margins.still_ms);
  wire.set_recovering_ms(margins.recovering_ms);
  wire.set_requeue_refusal(cut(margins.requeue_refusal, kMaxSummaryReason));
  wire.set_lemons(to_node_ranges(margins.lemons, kMaxMarginNodes));
  wire.set_storage_ms(margins.storage_ms);
  wire.set_failed_saves(margins.failed_saves);
  wire.set_mirror_behind_ms(margins.mirror_behind_ms);
  wire.set_since_restart_ms(margins.since_restart_ms);
  wire.set_hang_warning(cut(margins.hang_warning, kMaxSummaryReason));
}

JobMargins to_job_margins(const v1::JobMargins& wire) {
  return {plausible_restarts(wire.max_restarts()),
          plausible_ms(wire.window_ms()),
          plausible_restarts(wire.recent_restarts()),
          plausible_restarts(wire.hour_restarts()),
          wire.spares_wanted(),
          wire.spares_left(),
          plausible_nodes(wire.quarantined(), kMaxMarginNodes),
          plausible_nodes(wire.slow(), kMaxMarginNodes),
          plausible_ms(wire.still_ms()),
          plausible_ms(wire.recovering_ms()),
          cut(wire.requeue_refusal(), kMaxSummaryReason),
          plausible_nodes(wire.lemons(), kMaxMarginNodes),
          plausible_ms(wire.storage_ms()),
          wire.failed_saves(),
          plausible_ms(wire.mirror_behind_ms()),
          plausible_ms(wire.since_restart_ms()),
          cut(wire.hang_warning(), kMaxSummaryReason)};
}

void fill(const NodeRecord& record, v1::NodeBlame& wire) {
  wire.set_node(record.node);
  wire.set_instance(record.instance);
  wire.set_kind(to_string(record.kind));
  wire.set_key(record.key);
  wire.set_reason(cut(record.reason, kMaxSummaryReason));
}

// Nothing of what is no name or no kind that is known.
std::vector<NodeRecord> to_blamed(const v1::JobSummary& wire) {
  std::vector<NodeRecord> blamed;
  for (const v1::NodeBlame& said : wire.blamed()) {
    if (blamed.size() == kMostBlamed) break;
    const auto kind = node_record_kind(said.kind());
    if (!kind || said.node().empty() || said.node().size() > kMaxBlamedName) continue;
    blamed.push_back({0, wire.job(), printable_line(said.node(), kMaxBlamedName),
                      printable_line(said.instance(), kMaxBlamedName), *kind,
                      printable_line(said.key(), kMaxBlamedName),
                      printable_line(said.reason(), kMaxSummaryReason)});
  }
  return blamed;
}

void fill(const JobSummary& summary, v1::JobSummary& wire) {
  wire.set_job(summary.job.value);
  wire.set_name(cut(summary.name, kMaxSummaryName));
  wire.set_state(summary.state);
  if (!summary.is_told()) return;
  wire.set_taken_wall_ms(summary.taken_at.unix_ms());
  wire.set_owner(summary.owner);
  wire.set_generation(summary.generation);
  wire.set_step(summary.step);
  wire.set_total_steps(summary.total_steps);
  wire.set_tokens_per_second(summary.tokens_per_second);
  wire.set_step_ms(summary.step_ms);
  wire.set_restarts(summary.restarts);
  wire.set_faults(summary.faults);
  wire.set_nodes(to_node_ranges(summary.nodes, kMaxSummaryNodes));
  wire.set_ranks(summary.ranks);
  wire.set_submitted_wall_ms(summary.submitted_at.unix_ms());
  wire.set_ended_wall_ms(summary.ended_at.unix_ms());
  fill(summary.spent, *wire.mutable_spent());
  wire.set_reason(cut(summary.reason, kMaxSummaryReason));
  wire.set_last_fault(cut(summary.last_fault, kMaxSummaryReason));
  if (summary.margins) fill(*summary.margins, *wire.mutable_margins());
  for (const NodeRecord& record : summary.blamed) fill(record, *wire.add_blamed());
}

JobSummary to_job_summary(const v1::JobSummary& wire) {
  JobSummary summary;
  summary.job = JobId{wire.job()};
  summary.name = cut(wire.name(), kMaxSummaryName);
  summary.state = cut(wire.state(), kMaxState);
  summary.taken_at = WallTime(plausible_ms(wire.taken_wall_ms()));
  if (!summary.is_told()) return summary;
  summary.owner = cut(wire.owner(), kMaxOwner);
  summary.generation = std::min(wire.generation(), kMaxGeneration);
  summary.step = std::min(wire.step(), kMaxStep);
  summary.total_steps = std::min(wire.total_steps(), kMaxStep);
  summary.tokens_per_second = plausible_rate(wire.tokens_per_second());
  summary.step_ms = plausible_rate(wire.step_ms());
  summary.restarts = plausible_restarts(wire.restarts());
  summary.faults = std::max(0, wire.faults());
  summary.nodes = plausible_nodes(wire.nodes(), kMaxSummaryNodes);
  summary.ranks = wire.ranks();
  summary.submitted_at = WallTime(plausible_ms(wire.submitted_wall_ms()));
  summary.ended_at = WallTime(plausible_ms(wire.ended_wall_ms()));
  summary.spent = to_time_spent(wire.spent());
  summary.reason = cut(wire.reason(), kMaxSummaryReason);
  summary.last_fault = cut(wire.last_fault(), kMaxSummaryReason);
  if (wire.has_margins()) summary.margins = to_job_margins(wire.margins());
  summary.blamed = to_blamed(wire);
  return summary;
}

}  // namespace hpctl
