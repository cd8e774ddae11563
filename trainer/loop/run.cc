// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/run.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

#include "common/base/log.h"
#include "common/layout/memory_savings.h"
#include "trainer/arch/gpu_attention.h"
#include "trainer/arch/lora.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/flops.h"
#include "trainer/plan/gpu_models.h"
#include "trainer/state/checkpoint_directory.h"
#include "trainer/state/may_pass.h"

namespace hpctl {

namespace {

std::string identity_of(const Workload& workload) {
  Workload common;
  common.job = workload.job;
  common.train = workload.train;
  return to_json_text(common);
}

// Memory that a GPU copies from directly; to_device() then finds it so. LibTorch keeps locked
// memory, and reuses it once the copies from it are done: after a few steps nothing is locked
// again.
at::Tensor page_locked(const at::Tensor& tensor) { return tensor.pin_memory(); }

}  // namespace

at::ScalarType compute_type(const TrainSpec& train) {
  if (train.precision == Precision::kFp16) return at::kHalf;
  return train.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
}

std::string job_directory(const Workload& workload) {
  return workload.metrics_path.substr(0, workload.metrics_path.rfind('/'));
}

Run::Run(const Workload& workload, Progress& progress, int arena_fd, Device& device)
    : identity_(identity_of(workload)),
      train_(workload.train),
      progress_(progress),
      arena_fd_(arena_fd),
      device_(device) {}

Outcome Run::begin_generation(const Workload& workload) {
  if (!workload.from_memory || is_refilled(workload)) state_.reset();
  if (identity_of(workload) == identity_) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "generation " + std::to_string(workload.generation) + " of job " +
                   std::to_string(workload.job) +
                   " is not of the job, or not of the workload.train, that this worker was started "
                   "with; start new workers"};
}

Outcome Run::open_data(const Workload& workload) {
  if (reader_) return Ok{};
  const Outcome read = read_data();
  if (!read.ok()) return may_pass(directory_error(workload, read.error()));
  if (const std::string packing = reader_->packing(); !packing.empty())
    log_info("data: " + packing);
  feed_.emplace(*reader_, at::Device(device_.name()).is_cuda() ? &page_locked : nullptr);
  log_phase("data");
  return Ok{};
}

Outcome Run::read_data() {
  HP_TRY_ASSIGN(SampleReader reader,
                SampleReader::open(train_.data, train_.seed, train_.model.vocab));
  HP_TRY_ASSIGN(validation_, Validation::open(train_, reader, DataPart::kValidation));
  HP_TRY_ASSIGN(test_, Validation::open(train_, reader, DataPart::kTest));
  data_ = DataIdentity{reader.fingerprint(), reader.tokens(), train_.data.seq_len};
  reader_ = std::move(reader);
  return Ok{};
}

Outcome Run::load_frozen(const Workload& workload, const Mesh& mesh) {
  if (!train_.lora.on()) return Ok{};
  const int32_t index = mesh.coordinate(workload.rank, kShardDims);
  if (frozen_ && frozen_->is_part(index, mesh.degree(kShardDims))) return Ok{};
  frozen_.reset();
  auto loaded = FrozenWeights::load(train_, mesh, workload.rank, device_);
  if (!loaded.ok()) return may_pass(directory_error(workload, loaded.error()));
  frozen_.emplace(std::move(loaded).value());
  frozen_model_ = {.blocks = frozen_->blocks(), .shards = frozen_->shards()};
  log_phase("base");
  return Ok{};
}

Outcome Run::load_model() {
  if (model_) return Ok{};
  const at::Device device(device_.name());
  if (!device_.is_host()) HP_TRY(check_gpu_attention(train_, compute_type(train_), device));
  model_ = make_model(train_, compute_type(train_), device);
  if (!device_.is_host()) {
    log_info(std::string("attention: ") + to_word(model_->attention_by()));
  }
  return Ok{};
}

Outcome Run::can_copy_state(const Workload& workload) const {
  const Error none = {ErrorCode::kFailedPrecondition, ""};
  if (device_.is_host() || arena_fd_ < 0 || offloads_optimizer(train_)) return none;
  const MemoryPlan plan = plan_memory(setting_of(workload, true), trained_layout(train_));
  return check_host_fit(plan, workload.workers_per_node, machine_memory_bytes());
}

Outcome Run::load_state(const Workload& workload, const Environment& environment,
                        Communicator& world, bool copies) {
  const int arena_fd = device_.is_host() || copies ? arena_fd_ : -1;
  const bool divided_anew = workload.from_memory && workload.former_parts > 0;
  if (workload.from_memory && state_ && !divided_anew) {
    return state_->rejoin(workload, environment);
  }
  FileFault fault;
  // A last generation has none: the sealed state says what it was trained on.
  const DataIdentity data = data_.value_or(DataIdentity{});
  auto state = divided_anew
                   ? TrainingState::create_from_parts(arena_fd, workload, data, environment,
                                                      device_, world, state_)
                   : TrainingState::create(arena_fd, workload, data, environment, device_, &fault);
  if (!state.ok()) {
    progress_.file_fault(fault);
    return state.error();
  }
  state_.emplace(std::move(state).value());
  return Ok{};
}

void Run::open_metrics(const Workload& workload) {
  throughput_.flops =
      flops_per_token(train_.model, state_->whole_blocks(), train_.data.seq_len, train_.lora);
  throughput_.world_size = workload.world_size;
  if (const GpuModel* gpu = gpu_model_of_product(device_.product())) {
    throughput_.peak_flops = gpu->peak_flops;
  }
  const bool write = workload.rank == 0 && !workload.metrics_path.empty();
  metrics_.emplace(write ? workload.metrics_path : "", throughput_);
  if (write && train_.metrics.tensorboard) {
    metrics_->open_events(job_directory(workload) + "/tensorboard", state_->step() + 1);
  }
}

void Run::log_phase(const char* what) const {
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
