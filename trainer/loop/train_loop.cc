// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/train_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "trainer/data/batch_ramp.h"
#include "trainer/loop/batch_reader.h"
#include "trainer/metrics/schedule_spans.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/grad_norm.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/stability.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/gpu_models.h"
#include "trainer/process/runtime.h"
#include "trainer/process/stop_request.h"

namespace hpctl {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string data_name(const DataSpec& data) {
  return data.blend.empty() ? data.path : "of data.blend";
}

at::ScalarType compute_type(const TrainSpec& train) {
  if (train.precision == "fp16") return at::kHalf;
  return train.precision == "bf16" ? at::kBFloat16 : at::kFloat;
}

// The job's directory, where metrics.jsonl lies.
std::string job_directory(const Workload& workload) {
  return workload.metrics_path.substr(0, workload.metrics_path.rfind('/'));
}

std::string trace_path(const Workload& workload) {
  return job_directory(workload) + "/trace/g" + std::to_string(workload.generation) + ".r" +
         std::to_string(workload.rank) + ".json";
}

}  // namespace

TrainLoop::TrainLoop(const Workload& workload, Progress& progress, int arena_fd, Device& device)
    : workload_(workload),
      progress_(progress),
      arena_fd_(arena_fd),
      device_(device),
      trace_(trace_path(workload), workload.rank, workload.train.metrics.trace_from,
             workload.train.metrics.trace_steps) {}

Outcome TrainLoop::start() {
  HP_TRY(check_memory());
  HP_TRY(load_data());
  HP_TRY(meet_peers());
  HP_TRY(agree_on_data());
  HP_TRY(load_state());
  progress_.enter(WorkerPhase::kTraining);
  return Ok{};
}

Outcome TrainLoop::run() {
  const auto last = static_cast<uint64_t>(workload_.train.steps);
  if (state_->step() >= last) {
    log_info("nothing to do: step " + std::to_string(state_->step()) + " of " +
             std::to_string(last) + " is done and durable");
    HP_TRY(test());
    progress_.enter(WorkerPhase::kFinished);
    return Ok{};
  }
  take_stop_requests();  // before, there is nothing to save
  while (state_->step() < last && !stopping_) HP_TRY(step());
  stopping_ = state_->step() < last;
  trace_.finish();
  progress_.enter(WorkerPhase::kSaving);
  HP_TRY_ASSIGN(const bool durable, saver_->finish(&is_stop_requested));
  progress_.checkpoint_committed(saver_->committed_step());
  if (!durable) {
    // Who was told to end ends, and is started again where that is wanted.
    log_warning("step " + std::to_string(state_->step()) + " is not durable: the disk is full");
    stopping_ = true;
  }
  if (stopping_) return Ok{};
  HP_TRY(test());
  progress_.enter(WorkerPhase::kFinished);
  return Ok{};
}

Outcome TrainLoop::load_data() {
  progress_.enter(WorkerPhase::kLoading);
  auto reader =
      SampleReader::open(workload_.train.data, workload_.train.seed, workload_.train.model.vocab);
  if (!reader.ok()) return reader.error();
  reader_ = std::move(reader).value();
  HP_TRY_ASSIGN(validation_, Validation::open(workload_, DataPart::kValidation));
  HP_TRY_ASSIGN(test_, Validation::open(workload_, DataPart::kTest));
  log_phase("data");
  return Ok{};
}

PlanSetting TrainLoop::plan_setting() const {
  return {.train = workload_.train,
          .nodes = 1,
          .workers_per_node = workload_.world_size,
          .gpu = !device_.is_host()};
}

// A GPU says itself when it is full.
Outcome TrainLoop::check_memory() const {
  if (!device_.is_host()) return Ok{};
  const MemoryPlan plan = plan_memory(plan_setting(), model_layout(workload_.train.model));
  return check_fit(plan, 1, machine_memory_bytes());
}

Outcome TrainLoop::meet_peers() {
  progress_.enter(WorkerPhase::kRendezvous);
  CommunicatorOptions options;
  options.rank = workload_.rank;
  options.world_size = workload_.world_size;
  options.rendezvous_dir = workload_.rendezvous_dir;
  options.bind_address = workload_.bind_address;
  options.sequence = progress_.collective_counter();
  options.counts = progress_.collective_counts();
  HP_TRY_ASSIGN(sharding_, sharding_of(workload_.train, workload_.world_size));
  HP_TRY_ASSIGN(
      MeshCommunicators comms,
      MeshCommunicators::create(options, sharding_.mesh, [&](const CommunicatorOptions& group) {
        return device_.make_communicator(group);
      }));
  comms_.emplace(std::move(comms));
  HP_TRY(comms_->connect());
  log_phase("rendezvous");
  return Ok{};
}

// A corpus on a local disk may differ between nodes; then a sample number would not mean the same
// text everywhere.
Outcome TrainLoop::agree_on_data() {
  HP_TRY_ASSIGN(const std::vector<std::string> fingerprints,
                comms_->world().all_gather_text(reader_->fingerprint()));
  for (size_t rank = 1; rank < fingerprints.size(); ++rank) {
    if (fingerprints[rank] == fingerprints[0]) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "data " + data_name(workload_.train.data) + " differs between rank 0 and rank " +
                     std::to_string(rank) +
                     "; put the same files on every node or on a disk that all share"};
  }
  return Ok{};
}

// Of this generation, besides what the job decides.
Result<Environment> TrainLoop::environment_here() {
  Environment environment = runtime_environment(workload_.train.precision, device_);
  if (device_.is_host()) return environment;  // sums in rank order, wherever the ranks are
  HP_TRY_ASSIGN(const std::vector<std::string> nodes,
                comms_->world().all_gather_text(workload_.node));
  environment["ranks_by_node"] = ranks_by_node(nodes);
  return environment;
}

Outcome TrainLoop::load_state() {
  progress_.enter(WorkerPhase::kLoading);
  const TrainSpec& train = workload_.train;
  const DataIdentity data = {reader_->fingerprint(), reader_->tokens(), train.data.seq_len};
  HP_TRY(prepare_checkpoint_directory(workload_.checkpoint_dir));
  HP_TRY_ASSIGN(const Environment environment, environment_here());
  auto state = TrainingState::create(arena_fd_, workload_, data, environment, device_);
  if (!state.ok()) return state.error();
  state_.emplace(std::move(state).value());
  model_ = make_model(train.model, train.data.seq_len, compute_type(train), train.loss.z_loss,
                      at::Device(device_.name()));
  engine_ = std::make_unique<FullySharded>(*model_, state_->blocks(), *comms_, train, sharding_,
                                           compute_type(train), device_);
  note_offload();
  saver_ = std::make_unique<Saver>(workload_, *state_, comms_->world());
  if (!workload_.ledger_dir.empty()) {
    HP_TRY_ASSIGN(ledger_,
                  LedgerWriter::create(workload_.ledger_dir, workload_.generation, workload_.rank));
  }
  open_metrics();
  last_save_began_ = Clock::now();
  log_phase("load");
  return Ok{};
}

void TrainLoop::note_offload() const {
  if (workload_.rank != 0 || workload_.train.memory.offload.empty()) return;
  double bytes = 0;
  const MemoryPlan plan = plan_memory(plan_setting(), state_->blocks());
  for (const MemoryPart& part : plan.host) bytes += part.bytes;
  log_info(device_.is_host()
               ? "memory.offload moves nothing here: a CPU's memory is the host's"
               : "memory.offload takes " + std::to_string(static_cast<int64_t>(bytes) >> 20) +
                     " MiB of host memory per worker");
}

void TrainLoop::open_metrics() {
  const TrainSpec& train = workload_.train;
  throughput_.flops = flops_per_token(train.model, state_->blocks(), train.data.seq_len);
  throughput_.world_size = workload_.world_size;
  if (const GpuModel* gpu = gpu_model_of_product(device_.product())) {
    throughput_.peak_flops = gpu->peak_flops;
  }
  const bool write = workload_.rank == 0 && !workload_.metrics_path.empty();
  metrics_.emplace(write ? workload_.metrics_path : "", throughput_);
  if (write && train.metrics.tensorboard) {
    metrics_->open_events(job_directory(workload_) + "/tensorboard", next_step());
  }
}

Outcome TrainLoop::step() {
  times_.begin(next_step());
  const StepSamples samples =
      take_samples(state_->sample_cursor(),
                   global_batch(workload_.train.batch, state_->sample_cursor()), state_->skipped());
  step_tokens_ = sample_count(samples.ranges) * static_cast<uint64_t>(workload_.train.data.seq_len);
  const double lr = learning_rate(workload_.train, next_step(), samples.next_cursor);
  HP_TRY_ASSIGN(const StepSums sums, compute_gradients(samples));
  LossScaleRecord& loss_scale = state_->loss_scale();
  const uint64_t scale = loss_scale.scale;
  if (is_overflow(loss_scale, sums.loss, sums.grad_norm) &&
      lower_loss_scale(workload_.train.loss_scale, loss_scale)) {
    return leave_out_overflow(samples, scale);
  }
  const StabilitySpec& stability = workload_.train.stability;
  const StabilityProblem problem =
      stability_problem(stability, state_->stability(), sums.loss, sums.grad_norm);
  if (!problem.reason.empty()) return leave_out(samples, problem);
  remember_step(stability, state_->stability(), sums.loss, sums.grad_norm);
  remember_good_step(workload_.train.loss_scale, loss_scale);
  update(sums, samples, lr);
  HP_FAILPOINT("trainer.step.applied");
  times_.lap(StepPart::kOptimizer);
  if (ledger_) HP_TRY(ledger_->append(state_->step(), my_samples_));
  report(sums, lr);
  times_.lap(StepPart::kReport);
  stopping_ = sums.stop;
  const bool due = save_due(sums);
  if (due) last_save_began_ = Clock::now();
  HP_TRY(saver_->at_boundary(sums.news, due));
  times_.lap(StepPart::kSave);
  progress_.checkpoint_committed(saver_->committed_step());
  return validation_ && validation_->due(state_->step()) ? evaluate(*validation_, "validation")
                                                         : Outcome(Ok{});
}

// The job is done and durable; a generation that finds it so evaluates again, as nobody knows
// whether the one before came to it.
Outcome TrainLoop::test() { return test_ ? evaluate(*test_, "test") : Outcome(Ok{}); }

// `name` is "validation" or "test".
Outcome TrainLoop::evaluate(Validation& part, const char* name) {
  const Clock::time_point began = Clock::now();
  HP_TRY_ASSIGN(const ValidationResult found,
                part.run(*engine_, state_->weight_shards(), comms_->world()));
  if (workload_.rank != 0) return Ok{};
  metrics_->append_evaluation({.part = name,
                               .step = state_->step(),
                               .generation = workload_.generation,
                               .loss = found.loss,
                               .sequences = found.sequences});
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(),
                "%s at step %llu loss %.4f perplexity %.2f over %llu sequences in %.1f s", name,
                static_cast<unsigned long long>(state_->step()), found.loss, std::exp(found.loss),
                static_cast<unsigned long long>(found.sequences), seconds_since(began));
  log_info(line.data());
  return Ok{};
}

double TrainLoop::loss_factor() {
  const uint64_t scale = state_->loss_scale().scale;
  return scale == 0 ? 1.0 : static_cast<double>(scale);
}

// Forward and backward over this rank's micro-batches; the gradient of the loss over the step's
// tokens, times StepSums::loss_scale, is then in the engine's shards, whatever the number of ranks
// and micro-batches. How many of the tokens are counted is known only afterwards, so the sum is
// divided by all of them here, and the rest is a part of that scale.
Result<TrainLoop::StepSums> TrainLoop::compute_gradients(const StepSamples& samples) {
  my_samples_ = rank_part(samples.ranges, workload_.rank, workload_.world_size);
  const int64_t micro = workload_.train.batch.micro;
  HP_TRY_ASSIGN(const std::vector<MicroBatch> batches,
                read_micro_batches(*reader_, sample_numbers(my_samples_), micro,
                                   micro_batches(sample_count(samples.ranges), workload_.world_size,
                                                 static_cast<uint64_t>(micro))));
  times_.lap(StepPart::kData);
  schedule_.clear();
  engine_->set_trace(trace_.active() ? &schedule_ : nullptr);
  engine_->begin_step(state_->weight_shards(), static_cast<int>(batches.size()));
  const double scale = loss_factor() / static_cast<double>(step_tokens_);
  double loss_sum = 0;
  int64_t counted = 0;
  for (const MicroBatch& batch : batches) {
    HP_TRY_ASSIGN(const double loss,
                  engine_->forward_backward(batch.tokens, batch.targets, scale, batch.documents));
    loss_sum += loss;
    counted += batch.counted;
  }
  times_.lap(StepPart::kCompute);
  add_schedule(trace_, schedule_, state_->blocks());
  auto sums = reduce(loss_sum, counted);
  times_.lap(StepPart::kReduce);
  return sums;
}

// The last collective before the optimizer step: norm, loss, and what ranks must agree on.
Result<TrainLoop::StepSums> TrainLoop::reduce(double loss_sum, int64_t counted) {
  if (failpoint_due("trainer.loss")) loss_sum = std::numeric_limits<double>::quiet_NaN();
  own_sums_ = {loss_sum, engine_->gradient_squares()};
  // Only rank 0's clock decides, and all ranks hear of it in the same step.
  const double every_seconds = workload_.checkpoint.every_minutes * 60;
  const bool minutes_due = every_seconds > 0 && seconds_since(last_save_began_) >= every_seconds;
  const bool clock_due =
      workload_.rank == 0 && (saver_->disk_full() ? saver_->retry_due() : minutes_due);
  const SaveNews news = saver_->news();
  std::array<double, 7> sums = {own_sums_[1],
                                loss_sum,
                                clock_due ? 1.0 : 0.0,
                                news.finished,
                                news.failed,
                                is_stop_requested() ? 1.0 : 0.0,
                                static_cast<double>(counted)};
  HP_TRY(comms_->world().all_reduce(sums));
  StepSums result;
  const double tokens_counted = std::max(1.0, sums[6]);
  result.loss_scale = loss_factor() * (tokens_counted / static_cast<double>(step_tokens_));
  result.grad_norm = std::sqrt(sums[0]) / result.loss_scale;
  result.loss = sums[1] / tokens_counted;
  result.clock_due = sums[2] > 0;
  result.news = {.finished = sums[3], .failed = sums[4]};
  result.stop = sums[5] > 0;
  return result;
}

void TrainLoop::update(const StepSums& sums, const StepSamples& samples, double lr) {
  const double clip = clip_factor(sums.grad_norm, workload_.train.optimizer.clip);
  const AdamStep adam(workload_.train.optimizer, next_step(), lr, clip / sums.loss_scale);
  std::vector<const float*> gradients;
  for (size_t b = 0; b < state_->blocks().size(); ++b) gradients.push_back(engine_->gradient(b));
  state_->apply(adam, gradients, samples.next_cursor);
}

void TrainLoop::report(const StepSums& sums, double lr) {
  const StepMetrics metrics = measure(sums, lr);
  const bool first = progress_.page().first_step_unix_ns.load() == 0;
  progress_.step_done({.step = metrics.step,
                       .tokens = metrics.tokens,
                       .nanoseconds = static_cast<uint64_t>(metrics.step_s * 1e9),
                       .loss = static_cast<float>(metrics.loss),
                       .grad_norm = static_cast<float>(metrics.grad_norm),
                       .figures = figures_of(metrics, throughput_)});
  if (first) log_phase("first step");
  if (workload_.rank != 0) return;
  metrics_->append(metrics);
  // Every tenth step, the last one, and where steps are slow, one line per 5 s.
  const bool last = state_->step() == static_cast<uint64_t>(workload_.train.steps);
  if (state_->step() % 10 != 0 && !first && !last && seconds_since(last_log_) < 5) return;
  last_log_ = Clock::now();
  log_info(console_line(metrics, throughput_));
}

StepMetrics TrainLoop::measure(const StepSums& sums, double lr) const {
  const double wait = engine_->wait_seconds();
  return {.step = state_->step(),
          .generation = workload_.generation,
          .loss = sums.loss,
          .grad_norm = sums.grad_norm,
          .lr = lr,
          .tokens = step_tokens_,
          .step_s = seconds_since(times_.began()),
          .compute_s = std::max(0.0, times_.seconds(StepPart::kCompute) - wait),
          .comm_s = wait,
          .comm_under_way_s = engine_->communication_seconds(),
          .data_s = times_.seconds(StepPart::kData),
          .save_s = times_.seconds(StepPart::kSave),
          .peak_memory_bytes = device_.peak_memory_bytes(),
          .loss_scale = state_->loss_scale().scale,
          .overflows = state_->loss_scale().overflows,
          .failed_saves = saver_->failed_saves()};
}

bool TrainLoop::save_due(const StepSums& sums) const {
  if (saver_->disk_full()) return sums.clock_due;
  const auto every = static_cast<uint64_t>(workload_.checkpoint.every_steps);
  return sums.clock_due || (every > 0 && state_->step() % every == 0);
}

// Where the time from start to first step goes, for people and the recovery benchmark.
void TrainLoop::log_phase(const char* what) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const double started =
      static_cast<double>(progress_.page().start_unix_ns.load(std::memory_order_relaxed)) * 1e-6;
  const double present =
      static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  std::array<char, 96> line{};
  std::snprintf(line.data(), line.size(), "timing: %s done %.1f ms after start", what,
                present - started);
  log_info(line.data());
}

}  // namespace hpctl
