// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/generation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/layout/sharding.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/wide_matmul.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/checkpoint/model_files.h"
#include "trainer/metrics/evaluation_record.h"
#include "trainer/plan/fit.h"
#include "trainer/process/runtime.h"
#include "trainer/process/stop_request.h"
#include "trainer/state/checkpoint_directory.h"
#include "trainer/state/joined_environment.h"

namespace hpctl {

namespace {

using Clock = std::chrono::steady_clock;

std::string data_name(const DataSpec& data) {
  return data.blend.empty() ? data.path : "of data.blend";
}

std::string trace_path(const Workload& workload, const char* what) {
  return job_directory(workload) + "/trace/g" + std::to_string(workload.generation) + ".r" +
         std::to_string(workload.rank) + what + ".json";
}

}  // namespace

Generation::Generation(Run& run, const Workload& workload)
    : run_(run),
      workload_(workload),
      progress_(run.progress()),
      device_(run.device()),
      copy_pace_(workload.snapshot.every_steps),
      storage_(workload_, run.progress()),
      operation_trace_(trace_path(workload, ".operations"), !run.device().is_host()),
      trace_(trace_path(workload, ""), workload.rank, workload.train.metrics.trace_from,
             workload.train.metrics.trace_steps) {}

Outcome Generation::start() {
  // A stop saves steps that only memory has. Without such steps it may end the process at once.
  if (workload_.from_memory) take_stop_requests();
  if (workload_.is_last) request_stop();
  HP_TRY(run_.begin_generation(workload_));
  HP_TRY(check_memory());
  progress_.enter(WorkerPhase::kLoading);
  // The last generation reads no data: they may be what ended the job.
  if (!workload_.is_last) HP_TRY(run_.open_data(workload_));
  HP_TRY(meet_peers());
  if (!workload_.is_last) HP_TRY(agree_on_data());
  HP_TRY(load_state());
  progress_.enter(WorkerPhase::kTraining);
  return Ok{};
}

Outcome Generation::run() {
  take_stop_requests();
  HP_TRY(look_back());
  // A last step that only memory or the mirror has is still to be saved.
  if (is_last_step() && !starts_without_directory(workload_)) {
    log_info("nothing to do: step " + std::to_string(state().step()) + " of " +
             std::to_string(run_.train().steps) + " is done and durable");
  } else {
    while (!is_last_step() && !stopping_) HP_TRY(step());
    trace_.finish();
    operation_trace_.follow(false);
    HP_TRY(save_last());
  }
  if (!stopping_) HP_TRY(test());
  if (!stopping_) progress_.enter(WorkerPhase::kFinished);
  return Ok{};
}

// The former generation may have left two things undone at the step where this one begins: an
// evaluation that a fault or a stop has cut short, and the last checkpoint of a stop that came
// meanwhile.
Outcome Generation::look_back() {
  Validation* const validation = run_.validation();
  const uint64_t step = state().step();
  const bool is_due = validation != nullptr && step > 0 && validation->due(step);
  if (!is_due && !workload_.from_memory) return Ok{};
  const bool is_owed =
      is_due && workload_.rank == 0 && !has_evaluation(workload_.metrics_path, "validation", step);
  std::array<double, 2> sums = {is_stop_requested() ? 1.0 : 0.0, is_owed ? 1.0 : 0.0};
  HP_TRY(comms_->world().all_reduce(sums));
  const bool any_owed = sums[1] > 0;
  stopping_ = sums[0] > 0 && (workload_.is_last || any_owed || !is_last_step());
  if (stopping_ || !any_owed) return Ok{};
  progress_.stands_at(step);  // it may take longer than limits.first_step
  return evaluate(*validation, "validation");
}

// Of the state as it is, which the checkpoint of the start may be.
Outcome Generation::save_last() {
  const bool is_durable =
      state().step() == workload_.start_step && !starts_without_directory(workload_);
  if (is_durable) return Ok{};
  progress_.enter(WorkerPhase::kSaving);
  state().begin_copy();
  state().seal_copy();
  const Clock::time_point began = Clock::now();
  HP_TRY_ASSIGN(const bool durable, saver_->finish(&seconds_since_stop, [this] { tell_saves(); }));
  progress_.waited_for_last_save(static_cast<uint64_t>(seconds_since(began) * 1e9));
  tell_saves();
  if (!durable) {
    // A process that was ordered to end ends, and is restarted if wanted.
    log_warning("step " + std::to_string(state().step()) +
                " is not durable: checkpoints cannot be written");
    stopping_ = true;
  }
  return Ok{};
}

uint64_t Generation::durable_step() const {
  const uint64_t began_with =
      starts_without_directory(workload_) ? workload_.durable_step : workload_.start_step;
  return std::max(saver_->committed_step(), began_with);
}

void Generation::abort() {
  const std::lock_guard lock(abort_mutex_);
  aborted_ = true;
  if (comms_) comms_->abort();
  if (host_world_) host_world_->abort();
  if (snapshots_) snapshots_->abort();
  if (saver_) saver_->abort();
  storage_.abort();
}

void Generation::when_saved(std::function<void()> done) {
  if (saver_) {
    saver_->when_idle(std::move(done));
  } else {
    done();
  }
}

// Where no collective would notice: before there is one, and with a single rank.
Outcome Generation::check_not_aborted() const {
  if (!aborted_) return Ok{};
  return Error{kPeerLost,
               "generation " + std::to_string(workload_.generation) + " was told to end"};
}

// A GPU says itself when it is full.
Outcome Generation::check_memory() const {
  if (!device_.is_host()) return Ok{};
  const MemoryPlan plan = plan_memory(setting_of(workload_, false), trained_layout(run_.train()));
  const Outcome fits = check_fit(plan, 1, machine_memory_bytes());
  // The job's own: no attempt on such a machine can end otherwise.
  return fits.ok() ? fits : Error{ErrorCode::kFailedPrecondition, fits.error().message};
}

Outcome Generation::meet_peers() {
  progress_.enter(WorkerPhase::kRendezvous);
  CommunicatorOptions options;
  options.rank = workload_.rank;
  options.world_size = workload_.world_size;
  options.rendezvous_dir = workload_.rendezvous_dir;
  options.bind_address = workload_.bind_address;
  options.sequence = progress_.collective_counter();
  options.counts = progress_.collective_counts();
  options.groups = progress_.group_slots();
  HP_TRY_ASSIGN(sharding_, sharding_of(run_.train(), workload_.world_size));
  HP_TRY(check_engine_mesh(sharding_.mesh));
  if (!device_.is_host() && sharding_.mesh.degree(MeshDim::kTp) > 1) {
    return Error{ErrorCode::kFailedPrecondition,
                 "parallelism.tensor_parallel_degree is " +
                     std::to_string(sharding_.mesh.degree(MeshDim::kTp)) +
                     ": this version divides layers on a CPU alone; give it the degree 1"};
  }
  data_rank_ = sharding_.mesh.data_rank(workload_.rank);
  HP_TRY_ASSIGN(
      MeshCommunicators comms,
      MeshCommunicators::create(options, sharding_.mesh, [&](const CommunicatorOptions& group) {
        return device_.make_communicator(group);
      }));
  {
    const std::lock_guard lock(abort_mutex_);
    comms_.emplace(std::move(comms));
  }
  HP_TRY(check_not_aborted());
  HP_TRY(comms_->connect());
  run_.log_phase("rendezvous");
  return Ok{};
}

// A corpus on a local disk may differ between nodes, and a process of an earlier generation has
// read what was there then; a sample number would not mean the same text everywhere.
Outcome Generation::agree_on_data() {
  HP_TRY_ASSIGN(const std::vector<std::string> fingerprints,
                comms_->world().all_gather_text(run_.data_fingerprint()));
  HP_TRY_ASSIGN(const std::vector<std::string> nodes,
                comms_->world().all_gather_text(workload_.node));
  for (size_t rank = 1; rank < fingerprints.size(); ++rank) {
    if (fingerprints[rank] == fingerprints[0]) continue;
    return Error{ErrorCode::kInvalidArgument,
                 "data " + data_name(run_.train().data) + " differs between rank 0 and rank " +
                     std::to_string(rank) +
                     (nodes[rank] == nodes[0]
                          ? ", both on node " + nodes[0] +
                                ": it was changed while the job ran; restore it and resume"
                          : "; put the same files on every node or on a disk that all share")};
  }
  return Ok{};
}

// The environment of this rank in this generation, besides the job's settings.
Result<Environment> Generation::environment_here() {
  Environment environment = runtime_environment(run_.train().precision, device_);
  if (run_.frozen() != nullptr) environment[kBaseLabel] = run_.frozen_checksum();
  if (device_.is_host()) {  // the order of sums does not depend on where the ranks are
    const Mesh& mesh = sharding_.mesh;
    note_order_of_sums(std::max(mesh.degree(MeshDim::kDpShard), mesh.degree(MeshDim::kDpReplicate)),
                       environment);
    note_weight_gradients(run_.train(), sharding_.whole_gradients, environment);
    note_bf16_products(run_.train(), bf16_products(), environment);
    return environment;
  }
  HP_TRY_ASSIGN(const std::vector<std::string> nodes,
                comms_->world().all_gather_text(workload_.node));
  environment["ranks_by_node"] = ranks_by_node(nodes);
  note_gpu_keys(run_.train().gpu, environment);
  note_attention(run_.train(), run_.model().attention_by(), environment);
  note_joined_projections(run_.train().model, environment);
  if (run_.train().precision == Precision::kBf16) {
    note_wide_gradients(wide_product_of(at::Device(device_.name())) != nullptr, environment);
  }
  return environment;
}

// Likewise adapters need the same base everywhere, which a local disk may not have.
Outcome Generation::check_one_base(const Environment& of_all) const {
  if (run_.frozen() == nullptr || of_all.at(kBaseLabel) == run_.frozen_checksum()) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "workload.train.lora.base " + run_.train().lora.base +
                   " is not the same weights everywhere (" + of_all.at(kBaseLabel) +
                   "); put the same checkpoint on every node or on a disk that all share"};
}

Outcome Generation::load_state() {
  progress_.enter(WorkerPhase::kLoading);
  const TrainSpec& train = run_.train();
  if (const Outcome ready = prepare_checkpoint_directory(workload_); !ready.ok()) {
    // A generation that starts from memory, or from the mirror, does not need it now.
    if (!starts_without_directory(workload_)) return ready.error();
    log_warning(ready.error().message);
  }
  HP_TRY(run_.load_frozen(workload_, sharding_.mesh));
  HP_TRY(run_.load_model());
  HP_TRY_ASSIGN(const Environment own, environment_here());
  HP_TRY_ASSIGN(const Environment environment,
                join_environments(own, workload_.node, comms_->world()));
  HP_TRY(check_one_base(environment));
  HP_TRY_ASSIGN(const bool copies, agree_on_copies());
  HP_TRY_ASSIGN(Communicator* const world, host_memory_world());
  const Outcome loaded = run_.load_state(workload_, environment, *world, copies);
  if (!loaded.ok()) return directory_error(workload_, loaded.error());
  keep_files_of_model();
  HP_TRY(make_snapshots());
  HP_TRY(refill());
  if (snapshots_) snapshots_->start();
  engine_ = std::make_unique<FullySharded>(run_.model(), state().blocks(), *comms_, train,
                                           sharding_, compute_type(train), device_, run_.frozen());
  note_what_is_for_gpus();
  HP_TRY(make_saver());
  if (const Outcome begun = begin_ledger(); !begun.ok()) return storage_error(begun.error());
  run_.open_metrics(workload_);
  owes_save_ = owes_save();
  run_.log_phase("load");
  return Ok{};
}

// A rank whose machine has no room for copies of its GPU's state would not seal a step, and without
// it the others' seals are of no use: all ranks keep copies, or none does.
Result<bool> Generation::agree_on_copies() {
  if (device_.is_host()) return false;
  const Outcome can = run_.can_copy_state(workload_);
  std::array<double, 1> cannot = {can.ok() ? 0.0 : 1.0};
  HP_TRY(comms_->world().all_reduce(cannot));
  const bool copies = cannot[0] == 0;
  if (!can.ok() && !can.error().message.empty()) log_warning(can.error().message);
  if (copies || !workload_.from_memory) return copies;
  return Error{ErrorCode::kDataLoss,
               "a rank keeps no copy of its GPU's state in host memory; start from a checkpoint"};
}

// Parts that are divided anew go from host memory to host memory; the ranks' communicator is
// between GPUs, where there are some.
Result<Communicator*> Generation::host_memory_world() {
  const bool divided_anew = workload_.from_memory && workload_.former_parts > 0;
  if (device_.is_host() || !divided_anew) return &comms_->world();
  CommunicatorOptions options;
  options.rank = workload_.rank;
  options.world_size = workload_.world_size;
  options.rendezvous_dir = workload_.rendezvous_dir + "/parts";
  options.bind_address = workload_.bind_address;
  auto made = make_communicator(options);
  {
    const std::lock_guard lock(abort_mutex_);
    host_world_ = std::move(made);
  }
  HP_TRY(check_not_aborted());
  HP_TRY(host_world_->connect());
  return host_world_.get();
}

Outcome Generation::make_snapshots() {
  if (state().geometry().copies == 0) return Ok{};
  auto made = std::make_unique<PeerSnapshots>(
      workload_, state(), make_communicator(PeerSnapshots::ring_options(workload_)));
  {
    const std::lock_guard lock(abort_mutex_);
    snapshots_ = std::move(made);
  }
  return check_not_aborted();
}

Outcome Generation::make_saver() {
  auto made = std::make_unique<Saver>(workload_, state(), comms_->world());
  {
    const std::lock_guard lock(abort_mutex_);
    saver_ = std::move(made);
  }
  return check_not_aborted();
}

Outcome Generation::refill() {
  if (workload_.refilled.empty()) return Ok{};
  if (snapshots_) {
    HP_TRY(snapshots_->restore());
  } else {
    HP_TRY(state().refill(comms_->replicate()));
  }
  run_.log_phase("refill");
  return Ok{};
}

// What began with an imported model is exported with that model's tokenizer.
void Generation::keep_files_of_model() const {
  const std::string& from = workload_.resume_checkpoint;
  const std::string& to = workload_.checkpoint_dir;
  if (workload_.rank != 0 || from.empty() || from.starts_with(to + "/")) return;
  if (!check_claimed(workload_).ok()) return;  // a mount point must stay empty
  const auto files = find_model_files(from);
  if (!files.ok() || files->empty()) return;
  const Outcome kept = keep_model_files(*files, to + "/" + kModelFilesDirectory);
  if (kept.ok()) return;
  log_warning("an export of this job will lack its model's tokenizer: " + kept.error().message);
}

Outcome Generation::begin_ledger() {
  if (workload_.ledger_dir.empty()) return Ok{};
  HP_TRY(check_claimed(workload_));
  if (workload_.from_memory && workload_.rank == 0) HP_TRY(complete_ledgers());
  if (!data_rank_.shares_data) return Ok{};
  HP_TRY_ASSIGN(ledger_,
                LedgerWriter::create(workload_.ledger_dir, workload_.generation, workload_.rank));
  return Ok{};
}

// A rank that is gone may not have come to write its line of the step that the others completed. It
// belongs to the generation that sealed the state: the one before this may have been recorded, and
// ended by the next fault before it began.
Outcome Generation::complete_ledgers() const {
  for (int32_t rank = 0; rank < state().former_world_size(); ++rank) {
    const auto samples = state().samples_of_newest_step(rank);
    if (samples.empty()) continue;
    HP_TRY(
        complete_ledger(workload_.ledger_dir, state().sealed_by(), rank, state().step(), samples));
  }
  return Ok{};
}

// A save that the former generation began, or should have begun, is not durable: memory ends with a
// node.
bool Generation::owes_save() const {
  if (!workload_.from_memory) return false;
  const auto every = static_cast<uint64_t>(workload_.checkpoint.every_steps);
  const uint64_t durable = workload_.durable_step;
  const bool passed_one = every > 0 && workload_.start_step / every > durable / every;
  return passed_one || run_.save_began_at() > durable;
}

void Generation::note_what_is_for_gpus() const {
  if (workload_.rank != 0) return;
  if (device_.is_host() && run_.train().gpu != GpuSpec()) {
    log_info("workload.train.gpu changes nothing here: this is a CPU");
  }
  if (run_.train().memory.offload.empty()) return;
  double bytes = 0;
  const MemoryPlan plan =
      plan_memory(setting_of(workload_, !device_.is_host()), state().whole_blocks());
  for (const MemoryPart& part : plan.host) {
    const bool is_copy = part.name == std::string_view(kHostCopiesPart) ||
                         part.name == std::string_view(kPeerSnapshotsPart);
    if (!is_copy) bytes += part.bytes;
  }
  log_info(device_.is_host()
               ? "memory.offload moves nothing here: a CPU's memory is the host's"
               : "memory.offload takes " + std::to_string(static_cast<int64_t>(bytes) >> 20) +
                     " MiB of host memory per worker");
}

// The job is done and durable; a generation that finds it so evaluates again, because the former
// one may not have done so.
Outcome Generation::test() {
  Validation* const part = run_.test();
  if (part == nullptr) return Ok{};
  progress_.stands_at(state().step());
  return evaluate(*part, "test");
}

// `name` is "validation" or "test". A stop ends it early.
Outcome Generation::evaluate(Validation& part, const char* name) {
  const Clock::time_point began = Clock::now();
  HP_TRY_ASSIGN(const std::optional<ValidationResult> found,
                part.run(*engine_, state().weight_shards(), data_rank_, comms_->world(), storage_,
                         &is_stop_requested));
  if (!found) {
    log_info(std::string("asked to end: the ") + name + " part is not evaluated");
    stopping_ = true;
    return Ok{};
  }
  if (workload_.rank != 0) return Ok{};
  run_.metrics().append_evaluation({.part = name,
                                    .step = state().step(),
                                    .generation = workload_.generation,
                                    .loss = found->loss,
                                    .sequences = found->sequences});
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(),
                "%s at step %llu loss %.4f perplexity %.2f over %llu sequences in %.1f s", name,
                static_cast<unsigned long long>(state().step()), found->loss, std::exp(found->loss),
                static_cast<unsigned long long>(found->sequences), seconds_since(began));
  log_info(line.data());
  return Ok{};
}

}  // namespace hpctl
