// SPDX-License-Identifier: Apache-2.0
// One step of a generation: gather, forward, backward, reduce, apply.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "trainer/data/batch_ramp.h"
#include "trainer/loop/batch_feed.h"
#include "trainer/loop/generation.h"
#include "trainer/metrics/schedule_spans.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/optim/schedule.h"
#include "trainer/process/fault_injector.h"
#include "trainer/process/stop_request.h"

namespace hpctl {

namespace {

using Clock = std::chrono::steady_clock;

// Steps that take longer, and the first one, whose length nothing tells, are given up between two
// micro-batches when a stop is asked for: the last checkpoint needs the time.
constexpr double kSlowStepS = 2;
// On a GPU the host waits for the device when it looks for a stop.
constexpr size_t kLooksOfADevice = 8;

std::string copy_pace_text(const CopyPace& pace, const HostCopies& copies) {
  const HostCopies::Counts& counts = copies.counts();
  std::array<char, 240> text{};
  std::snprintf(
      text.data(), text.size(),
      "copies of the state in host memory: every %s, %.1f MB in %.1f pieces; a step takes "
      "%.4f s beside one and %.4f s without",
      pace.every() == 1 ? "step" : (std::to_string(pace.every()) + " steps").c_str(),
      static_cast<double>(counts.bytes) * 1e-6 / static_cast<double>(counts.begun),
      static_cast<double>(counts.calls) / static_cast<double>(counts.begun), pace.beside_copy_s(),
      pace.plain_s());
  return text.data();
}

}  // namespace

Outcome Generation::step() {
  HP_TRY(check_not_aborted());
  times_.begin(next_step());
  operation_trace_.follow(trace_.active());
  if (is_flip_ordered(workload_.generation)) {
    log_warning("a fault on purpose: a bit of a parameter is inverted");
    state().flip_parameter();
  }
  if (const auto trouble = take_ordered_trouble(workload_.generation)) {
    const Outcome suffered = comms_->suffer(*trouble);
    if (!suffered.ok()) log_warning("the fault is not done: " + suffered.error().message);
  }
  const StepSamples samples = samples_from(state().sample_cursor());
  step_tokens_ = sample_count(samples.ranges) * static_cast<uint64_t>(run_.train().data.seq_len);
  const double lr = learning_rate(run_.train(), next_step(), samples.next_cursor);
  HP_TRY_ASSIGN(const std::optional<StepSums> computed,
                compute_gradients(samples, OnStop::kGiveUp));
  if (!computed) {
    log_info("asked to end: step " + std::to_string(next_step()) + " is given up");
    stopping_ = true;
    return Ok{};
  }
  const StepSums& sums = *computed;
  last_step_s_ = sums.seconds;
  LossScaleRecord& loss_scale = state().loss_scale();
  const uint64_t scale = loss_scale.scale;
  if (is_overflow(loss_scale, sums.loss, sums.grad_norm) &&
      lower_loss_scale(run_.train().loss_scale, loss_scale)) {
    return leave_out_overflow(samples, scale);
  }
  const StabilitySpec& stability = run_.train().stability;
  const StabilityProblem problem =
      stability_problem(stability, state().stability(), sums.loss, sums.grad_norm);
  if (!problem.reason.empty()) return leave_out(samples, problem);
  remember_step(stability, state().stability(), sums.loss, sums.grad_norm);
  remember_good_step(run_.train().loss_scale, loss_scale);
  if (ledger_) {
    HP_TRY(storage_.until_done(
        [&] { return ledger_->append(next_step(), my_samples_, my_counted_); }));
  }
  update(sums, samples, lr);
  const bool due = save_due(sums);
  copy_state(sums, due);
  HP_FAILPOINT("trainer.step.applied");
  if (snapshots_) snapshots_->at_boundary(sums.snapshots);
  times_.lap(StepPart::kOptimizer);
  report(sums, lr);
  times_.lap(StepPart::kReport);
  stopping_ = sums.stop && !is_last_step();
  if (due) {
    run_.save_begins(state().step());
    owes_save_ = false;
  }
  HP_TRY(saver_->at_boundary(sums.news, due));
  times_.lap(StepPart::kSave);
  tell_saves();
  Validation* const validation = run_.validation();
  const bool is_due = validation != nullptr && validation->due(state().step());
  return is_due && !stopping_ ? evaluate(*validation, "validation") : Outcome(Ok{});
}

void Generation::tell_saves() {
  progress_.checkpoint_committed(saver_->committed_step());
  progress_.saves_failed(saver_->failed_in_a_row(), saver_->out_of_space());
}

double Generation::loss_factor() {
  const uint64_t scale = state().loss_scale().scale;
  return scale == 0 ? 1.0 : static_cast<double>(scale);
}

StepSamples Generation::samples_from(uint64_t cursor) const {
  return take_samples(cursor, global_batch(run_.train().batch, cursor), state().skipped());
}

BatchOrder Generation::order_of(const StepSamples& samples) const {
  const int64_t micro = run_.train().batch.micro;
  return {.samples = data_part(samples.ranges, data_rank_.index, data_rank_.count),
          .micro = micro,
          .count = micro_batches(sample_count(samples.ranges), data_rank_.count,
                                 static_cast<uint64_t>(micro))};
}

// For the step after this one, if this one goes well.
void Generation::read_ahead(uint64_t cursor) {
  if (next_step() >= static_cast<uint64_t>(run_.train().steps)) return;
  run_.feed().read_ahead(order_of(samples_from(cursor)));
}

// Forward and backward over this rank's micro-batches; the gradient of the loss over the step's
// tokens, times StepSums::loss_scale, is then in the engine's shards, for any number of ranks and
// micro-batches. The number of counted tokens is known only afterwards, so the sum is divided by
// all of them here, and the rest is a part of that scale.
Result<std::optional<Generation::StepSums>> Generation::compute_gradients(
    const StepSamples& samples, OnStop on_stop) {
  const BatchOrder order = order_of(samples);
  my_samples_ = order.samples;
  const bool may_give_up =
      on_stop == OnStop::kGiveUp && (!last_step_s_ || *last_step_s_ >= kSlowStepS);
  const auto taken = storage_.until_done([&] { return run_.feed().take(order); });
  if (!taken.ok()) {
    // A stop has ended the wait for storage, and the others hear of it before their first batch.
    if (!may_give_up || !is_stop_requested()) return taken.error();
    HP_TRY(any_rank_is_stopped());
    return std::optional<StepSums>();
  }
  const std::vector<MicroBatch>& batches = *taken;
  read_ahead(samples.next_cursor);
  times_.lap(StepPart::kData);
  progress_.set_computing(true);
  schedule_.clear();
  engine_->set_trace(trace_.active() ? &schedule_ : nullptr);
  engine_->begin_step(state().weight_shards(), static_cast<int>(batches.size()));
  const double scale = loss_factor() / static_cast<double>(step_tokens_) *
                       ordered_gradient_factor(workload_.generation);
  int64_t counted = 0;
  HP_TRY(inject_ordered_fault(workload_.generation));
  const auto began = Clock::now();
  for (size_t number = 0; number < batches.size(); ++number) {
    const MicroBatch& batch = batches[number];
    if (may_give_up && looks_before(number, batches.size())) {
      HP_TRY_ASSIGN(const bool is_stopped, any_rank_is_stopped());
      if (is_stopped) {
        progress_.set_computing(false);
        return std::optional<StepSums>();
      }
    }
    HP_TRY(engine_->forward_backward(batch.tokens, batch.targets, scale, batch.documents));
    counted += batch.counted;
  }
  HP_TRY_ASSIGN(const FullySharded::Sums own, engine_->finish_step());
  inject_ordered_slowness(workload_.generation, Clock::now() - began);
  times_.lap(StepPart::kCompute);
  add_schedule(trace_, schedule_, run_.model_blocks());
  beside_copy_ = state().seal_copy() || beside_copy_;
  if (snapshots_) {
    progress_.set_computing(false);  // it waits for another rank, in no collective
    HP_TRY(snapshots_->make_room());
  }
  my_counted_ = static_cast<uint64_t>(counted);
  const auto sums = reduce(own, counted);
  progress_.set_computing(false);
  times_.lap(StepPart::kReduce);
  if (!sums.ok()) return sums.error();
  return std::optional(*sums);
}

// The first one always: there the ranks hear of one that has no data.
bool Generation::looks_before(size_t batch, size_t batches) const {
  const size_t looks = device_.is_host() ? batches : kLooksOfADevice;
  return batch % std::max<size_t>(1, batches / looks) == 0;
}

Result<bool> Generation::any_rank_is_stopped() {
  std::array<double, 1> stops = {is_stop_requested() ? 1.0 : 0.0};
  HP_TRY(comms_->world().all_reduce(stops));
  return stops[0] > 0;
}

// The last collective before the optimizer step: norm, loss, and what ranks must agree on.
Result<Generation::StepSums> Generation::reduce(FullySharded::Sums own, int64_t counted) {
  if (failpoint_due("trainer.loss")) own.loss = std::numeric_limits<double>::quiet_NaN();
  own_sums_ = {own.loss, own.gradient_squares};
  // Only rank 0's clock decides, and all ranks hear of it in the same step.
  const double every_seconds = workload_.checkpoint.every_minutes * 60;
  const bool minutes_due = every_seconds > 0 && seconds_since(run_.save_began()) >= every_seconds;
  const bool clock_due = workload_.rank == 0 &&
                         (saver_->is_failing() ? saver_->retry_due() : minutes_due || owes_save_);
  const SaveNews news = saver_->news();
  SnapshotNews snapshots;
  if (snapshots_) {
    HP_TRY_ASSIGN(snapshots, snapshots_->news());
  }
  const double share = data_rank_.shares_loss ? 1.0 : 0.0;
  std::array<double, 11> sums = {own_sums_[1],
                                 own.loss * share,
                                 clock_due ? 1.0 : 0.0,
                                 news.finished,
                                 news.failed,
                                 is_stop_requested() ? 1.0 : 0.0,
                                 static_cast<double>(counted) * share,
                                 snapshots.received,
                                 snapshots.damaged,
                                 snapshots.due,
                                 seconds_since(times_.began())};
  HP_TRY(comms_->world().all_reduce(sums));
  StepSums result;
  const double tokens_counted = std::max(1.0, sums[6]);
  result.loss_scale = loss_factor() * (tokens_counted / static_cast<double>(step_tokens_));
  result.grad_norm = std::sqrt(sums[0]) / result.loss_scale;
  result.loss = sums[1] / tokens_counted;
  result.counted = static_cast<uint64_t>(sums[6]);
  result.clock_due = sums[2] > 0;
  result.news = {.finished = sums[3], .failed = sums[4]};
  result.stop = sums[5] > 0;
  result.seconds = sums[10] / workload_.world_size;
  result.snapshots = {.received = sums[7], .damaged = sums[8], .due = sums[9]};
  if (snapshots_) snapshots_->conclude(result.snapshots);
  return result;
}

void Generation::update(const StepSums& sums, const StepSamples& samples, double lr) {
  const double clip = clip_factor(sums.grad_norm, run_.train().optimizer.clip);
  const AdamStep adam(run_.train().optimizer, next_step(), lr, clip / sums.loss_scale);
  std::vector<const float*> gradients;
  for (size_t b = 0; b < state().blocks().size(); ++b) gradients.push_back(engine_->gradient(b));
  state().apply(adam, gradients, samples.next_cursor);
}

// A GPU's state, to host memory, beside the next step.
void Generation::copy_state(const StepSums& sums, bool is_saved) {
  if (!state().is_copied_to_host()) return;
  const bool is_news = copy_pace_.step_done(sums.seconds, std::exchange(beside_copy_, false));
  if (is_news && workload_.rank == 0) {
    log_info(copy_pace_text(copy_pace_, *state().copies()));
  }
  if (is_saved || copy_pace_.is_due(state().step(), state().copied_step())) state().begin_copy();
}

void Generation::report(const StepSums& sums, double lr) {
  const StepMetrics metrics = measure(sums, lr);
  const bool first = progress_.page().first_step_unix_ns.load() == 0;
  progress_.step_done({.step = metrics.step,
                       .tokens = metrics.tokens,
                       .nanoseconds = static_cast<uint64_t>(metrics.step_s * 1e9),
                       .loss = static_cast<float>(metrics.loss),
                       .grad_norm = static_cast<float>(metrics.grad_norm),
                       .figures = figures_of(metrics, run_.throughput())});
  if (first) run_.log_phase("first step");
  if (workload_.rank != 0) return;
  run_.metrics().append(metrics);
  // Every tenth step, the last one, and where steps are slow, one line per 5 s.
  const bool last = state().step() == static_cast<uint64_t>(run_.train().steps);
  if (state().step() % 10 != 0 && !first && !last && seconds_since(last_log_) < 5) return;
  last_log_ = Clock::now();
  log_info(console_line(metrics, run_.throughput()));
}

StepMetrics Generation::measure(const StepSums& sums, double lr) const {
  const double wait = engine_->wait_seconds();
  return {.step = state().step(),
          .generation = workload_.generation,
          .loss = sums.loss,
          .grad_norm = sums.grad_norm,
          .lr = lr,
          .tokens = step_tokens_,
          .loss_tokens = sums.counted,
          .step_s = seconds_since(times_.began()),
          .compute_s = std::max(0.0, times_.seconds(StepPart::kCompute) - wait),
          .comm_s = wait,
          .comm_under_way_s = engine_->communication_seconds(),
          .data_s = times_.seconds(StepPart::kData),
          .save_s = times_.seconds(StepPart::kSave),
          .data_waits_s = times_.total_seconds(StepPart::kData),
          .save_waits_s = times_.total_seconds(StepPart::kSave),
          .peak_memory_bytes = device_.peak_memory_bytes(),
          .loss_scale = state().loss_scale().scale,
          .overflows = state().loss_scale().overflows,
          .failed_saves = saver_->failed_saves(),
          .snapshot_step = snapshots_ ? snapshots_->everywhere() : 0};
}

bool Generation::save_due(const StepSums& sums) const {
  if (saver_->is_failing()) return sums.clock_due;
  const auto every = static_cast<uint64_t>(workload_.checkpoint.every_steps);
  return sums.clock_due || (every > 0 && state().step() % every == 0);
}

}  // namespace hpctl
