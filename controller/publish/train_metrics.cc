// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/train_metrics.h"

#include <string>
#include <utility>

namespace hpctl {
namespace {

using Labels = MetricLabels;

double seconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

double share(uint64_t part, uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// For the whole job, from rank 0.
void add_job(MetricFamilies& out, const Labels& job, const RankReport& rank,
             const StepFigures& figures) {
  out.gauge("hpctl_train_gradient_norm", "Global norm before clipping", job, rank.grad_norm);
  out.gauge("hpctl_train_learning_rate", "Learning rate of the last step", job,
            figures.learning_rate);
  out.gauge("hpctl_train_step_seconds", "Duration of the last step", job, seconds(rank.step_ns));
  out.gauge("hpctl_train_saves_without_room", "Saves in a row that failed for storage", job,
            static_cast<double>(figures.saves_without_room));
  const Labels whole = with(job, "attention", "whole");
  const Labels causal = with(job, "attention", "causal");
  constexpr auto kFlopsHelp = "Operations of the model per second and worker";
  out.gauge("hpctl_train_flops_per_second", kFlopsHelp, whole, figures.flops);
  out.gauge("hpctl_train_flops_per_second", kFlopsHelp, causal, figures.flops_causal);
  if (figures.mfu <= 0) return;  // the device's peak is unknown
  constexpr auto kMfuHelp = "Share of the device's peak that the model's operations are";
  out.gauge("hpctl_train_mfu_ratio", kMfuHelp, whole, figures.mfu);
  out.gauge("hpctl_train_mfu_ratio", kMfuHelp, causal, figures.mfu_causal);
}

void add_rank(MetricFamilies& out, const Labels& rank, const RankReport& report,
              const StepFigures& figures) {
  out.gauge("hpctl_train_peak_memory_bytes", "Peak memory of the worker since its start", rank,
            static_cast<double>(figures.peak_memory_bytes));
  out.gauge("hpctl_train_compute_seconds", "Forward and backward of the last step, without waiting",
            rank, seconds(figures.compute_ns));
  if (report.step_ns == 0) return;
  out.gauge("hpctl_train_data_wait_ratio", "Share of the last step spent waiting for samples", rank,
            share(figures.data_wait_ns, report.step_ns));
  out.gauge("hpctl_train_communication_wait_ratio",
            "Share of the last step spent waiting for collectives", rank,
            share(figures.communication_wait_ns, report.step_ns));
  if (figures.communication_ns == 0) return;
  out.gauge(
      "hpctl_train_communication_overlap_ratio",
      "Share of the time with collectives under way that was not spent waiting for them", rank,
      overlap_share(seconds(figures.communication_ns), seconds(figures.communication_wait_ns)));
}

void add_stragglers(MetricFamilies& out, const Labels& job, const std::vector<StragglerView>& all) {
  out.gauge("hpctl_train_stragglers", "Nodes that hold the others up in every step", job,
            static_cast<double>(all.size()));
  for (const StragglerView& one : all) {
    const Labels labels =
        with(with(job, "rank", one.rank < 0 ? "" : std::to_string(one.rank)), "node", one.node);
    out.gauge("hpctl_train_straggler_slowdown_ratio",
              "Compute time of a node that holds the others up, over the others' compute time",
              labels, one.slowdown);
  }
}

void add_bad_step(MetricFamilies& out, const Labels& job, const core::BadStepRecord& bad_step) {
  constexpr auto kHelp = "Steps that were not applied, by what was wrong with them";
  for (const auto& [finding, count] :
       {std::pair{"not_finite", bad_step.not_finite}, std::pair{"loss_spike", bad_step.loss_spikes},
        std::pair{"gradient_spike", bad_step.gradient_spikes}}) {
    out.counter("hpctl_train_bad_steps_total", kHelp, with(job, "finding", finding), count);
  }
  out.counter("hpctl_train_skipped_steps_total", "Bad steps whose samples were left out", job,
              bad_step.skipped_steps);
  out.counter("hpctl_train_skipped_samples_total", "Samples left out for good", job,
              bad_step.skipped_samples);
  out.counter("hpctl_train_rollbacks_total", "Times training went back because of a bad step", job,
              bad_step.rollbacks);
  out.counter("hpctl_train_stability_stops_total", "Times a bad step ended the workers", job,
              bad_step.stops);
  out.counter("hpctl_train_reproduced_steps_total",
              "Bad steps that gave the same result when executed again", job,
              bad_step.same_results);
  out.counter("hpctl_train_hardware_faults_suspected_total",
              "Bad steps that gave another result when executed again", job,
              bad_step.hardware_suspected);
}

}  // namespace

void TrainMetrics::show(const JobView& view, JobProgress progress,
                        const core::BadStepRecord& bad_step) {
  Shown shown{view.name,           view.state, view.step,      view.loss, view.tokens_per_second,
              std::move(progress), bad_step,   view.stragglers};
  const std::lock_guard lock(mutex_);
  std::swap(jobs_[view.job], shown);  // what was shown goes after the lock
}

void TrainMetrics::add_to(MetricFamilies& out) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, shown] : jobs_) {
    const Labels job = {{"job", std::to_string(id)}, {"name", shown.name}};
    out.gauge("hpctl_train_step", "Last completed step", job, static_cast<double>(shown.step));
    out.gauge("hpctl_train_loss", "Loss of that step", job, shown.loss);
    add_bad_step(out, job, shown.bad_step);
    if (shown.state != "RUNNING") continue;  // what was measured is over
    out.gauge("hpctl_train_tokens_per_second",
              "Tokens per second of the whole job in the last step", job, shown.tokens_per_second);
    add_stragglers(out, job, shown.stragglers);
    for (const auto& [number, rank] : shown.progress.ranks) {
      if (!rank.report.figures) continue;
      if (number == 0) add_job(out, job, rank.report, *rank.report.figures);
      const Labels labels = with(with(job, "rank", std::to_string(number)), "node", rank.node);
      add_rank(out, labels, rank.report, *rank.report.figures);
    }
  }
}

}  // namespace hpctl
