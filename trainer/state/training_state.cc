// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/training_state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "common/process/processors.h"
#include "common/worker/seal_packet.h"
#include "trainer/arch/lora.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/data/batch_ramp.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/state/arena_geometry.h"
#include "trainer/state/exactness.h"
#include "trainer/state/may_pass.h"
#include "trainer/state/replicas.h"
#include "trainer/state/reshard.h"

namespace hpctl {

namespace {

// The labels that the job decides, and those that this process found.
Environment environment_with(const TrainSpec& train, const Environment& found) {
  Environment environment = environment_of(train);
  environment.insert(found.begin(), found.end());
  return environment;
}

std::string encode(const Seal& seal) {
  PacketWriter w;
  return write_seal(w, seal).take();
}

// The bytes after it are ignored.
Result<Seal> decode_seal(std::string_view bytes) {
  PacketReader r(bytes.substr(0, kSealBytes));
  const Seal seal = read_seal(r);
  if (r.finished()) return seal;
  return Error{ErrorCode::kDataLoss, "a replica has sent the seal of no state"};
}

// Adapters mean nothing beside other weights. `base` is the job's.
Outcome check_same_base(const Manifest& manifest, const Environment& here, const std::string& base,
                        const std::string& checkpoint) {
  const auto label = [](const Environment& environment) {
    const auto found = environment.find(kBaseLabel);
    return found == environment.end() ? std::string() : found->second;
  };
  if (label(manifest.environment) == label(here)) return Ok{};
  if (!label(here).empty() && !label(manifest.environment).empty()) {
    const auto weights = read_manifest(base);
    if (!weights.ok()) return may_pass(weights.error());
    if (is_base(*weights, label(manifest.environment))) return Ok{};
  }
  const char* why = label(here).empty() ? "it holds adapters (workload.train.lora)"
                    : label(manifest.environment).empty()
                        ? "it holds a model, and the job trains adapters: that model can be "
                          "workload.train.lora.base"
                        : "its adapters were trained beside other weights than the weights of "
                          "workload.train.lora.base";
  return Error{ErrorCode::kInvalidArgument, "cannot resume from " + checkpoint + ": " + why};
}

Error ends_with_process() {
  return {ErrorCode::kDataLoss,
          "this worker keeps no copy of its GPU's state in host memory; start from a checkpoint"};
}

}  // namespace

Result<TrainingState> TrainingState::create(int arena_fd, const Workload& workload,
                                            const DataIdentity& data,
                                            const Environment& environment, Device& device,
                                            FileFault* fault) {
  HP_TRY_ASSIGN(const Sharding sharding, sharding_of(workload.train, workload.world_size));
  RankLayout layout(workload.train, sharding.mesh, workload.rank);
  const bool anew = !workload.from_memory || is_refilled(workload);
  HP_TRY_ASSIGN(TrainingState state,
                with_arenas(arena_fd, workload, sharding.mesh, std::move(layout), device, anew));
  state.data_ = data;
  state.environment_ = environment_with(workload.train, environment);
  if (workload.from_memory) {
    if (!is_refilled(workload)) HP_TRY(state.go_on_from_seal());
    return state;
  }
  if (workload.resume_checkpoint.empty()) {
    state.begin_from_seed();
  } else {
    FileFault of_load;
    const Outcome loaded = state.load(workload.resume_checkpoint, of_load);
    if (!loaded.ok() && fault != nullptr) *fault = of_load;
    HP_TRY(loaded);
  }
  if (state.inexact_reason_.empty()) state.note_inexact(unrepeatable_reason(state.environment_));
  state.seal_filled();
  return state;
}

Result<TrainingState> TrainingState::create_from_parts(int arena_fd, const Workload& workload,
                                                       const DataIdentity& data,
                                                       const Environment& environment,
                                                       Device& device, Communicator& world,
                                                       std::optional<TrainingState>& former) {
  if (!device.is_host() && arena_fd < 0) return ends_with_process();
  HP_TRY_ASSIGN(const Sharding sharding, sharding_of(workload.train, workload.world_size));
  RankLayout layout(workload.train, sharding.mesh, workload.rank);
  const ArenaGeometry geometry =
      host_geometry(workload, layout.blocks(), sharding.mesh, !device.is_host());
  // The arena of a worker that died here. A new node of the job has none.
  std::optional<StateArena> left;
  if (!former) {
    auto found = StateArena::open_former(arena_fd, layout.blocks(), geometry);
    if (found.ok()) left.emplace(std::move(found).value());
  }
  StateArena* const has = former ? &former->arena() : left ? &*left : nullptr;
  // The degrees are the job's; only the data dimensions were others. Its parts are of one replica.
  if (workload.former_parts % sharding.mesh.unit() != 0) {
    return Error{ErrorCode::kDataLoss,
                 "the state in memory has " + std::to_string(workload.former_parts) +
                     " parts, which is no multiple of the " + std::to_string(sharding.mesh.unit()) +
                     " ranks that share samples; start from a checkpoint"};
  }
  const Mesh former_mesh = sharding.mesh.with_world(workload.former_parts);
  HP_TRY_ASSIGN(NewPart part, reshard(world, has, former_mesh, workload.start_step,
                                      trained_cuts(workload.train), sharding.mesh, geometry));
  left.reset();
  former.reset();
  HP_TRY_ASSIGN(TrainingState state,
                with_arenas(arena_fd, workload, sharding.mesh, std::move(layout), device, true));
  const auto bytes = part.arena.slot_bytes(0);
  std::copy(bytes.begin(), bytes.end(), state.arena().slot_bytes(0).begin());
  state.arena().seal(0, part.seal, part.notes);
  state.data_ = data;
  state.environment_ = environment_with(workload.train, environment);
  HP_TRY(state.go_on_from_seal());
  return state;
}

// `anew`: what is behind the descriptor is not used.
Result<TrainingState> TrainingState::with_arenas(int arena_fd, const Workload& workload,
                                                 const Mesh& mesh, RankLayout layout,
                                                 Device& device, bool anew) {
  const ArenaGeometry geometry = host_geometry(workload, layout.blocks(), mesh, !device.is_host());
  const bool offloaded = !device.is_host() && offloads_optimizer(workload.train);
  const bool in_host_memory = device.is_host() || (arena_fd >= 0 && !offloaded);
  if (!in_host_memory && workload.from_memory) return ends_with_process();
  std::optional<StateArena> in_memory;
  if (in_host_memory) {
    HP_TRY_ASSIGN(StateArena arena, anew ? StateArena::create(arena_fd, geometry)
                                         : StateArena::open(arena_fd, geometry));
    in_memory.emplace(std::move(arena));
  }
  if (device.is_host()) {
    return TrainingState(std::move(*in_memory), workload, mesh, std::move(layout));
  }
  const ArenaGeometry in_place = in_one_slot(geometry);
  TrainingState state(offloaded ? StateArena::create_offloaded(device, in_place)
                                : StateArena::create(device, in_place),
                      workload, mesh, std::move(layout));
  if (in_memory) state.copies_ = std::make_unique<HostCopies>(device, std::move(*in_memory));
  if (offloaded) {
    state.offloaded_ = std::make_unique<OffloadedState>(device, in_place, workload.train);
  }
  if (keeps_rounded_weights(workload.train, geometry.intervals)) {
    state.rounded_ = std::make_unique<RoundedWeights>(device, in_place);
  }
  return state;
}

TrainingState::TrainingState(StateArena arena, const Workload& workload, const Mesh& mesh,
                             RankLayout layout)
    : arena_(std::move(arena)), workload_(workload), mesh_(mesh), layout_(std::move(layout)) {
  for (size_t b = 0; b < blocks().size(); ++b) {
    decay_.push_back(decay_ranges(blocks()[b], padded_shard(b)));
  }
}

ElementRange TrainingState::padded_shard(size_t block) const {
  const int64_t capacity = geometry().block_capacity[block];
  return {capacity * geometry().interval, capacity * (geometry().interval + 1)};
}

ElementRange TrainingState::written(size_t block) const {
  const ElementRange shard =
      shard_range(blocks()[block].numel, geometry().interval, geometry().intervals);
  const ElementRange part =
      shard_range(shard.size(), mesh_.coordinate(workload_.rank, MeshDim::kDpReplicate),
                  mesh_.degree(MeshDim::kDpReplicate));
  return {shard.begin + part.begin, shard.begin + part.end};
}

std::vector<WrittenPart> TrainingState::written_parts() const {
  std::vector<WrittenPart> parts;
  for (size_t b = 0; b < blocks().size(); ++b) layout_.append_written(b, written(b), parts);
  return parts;
}

std::span<float> TrainingState::host_part(StateKind kind, size_t block,
                                          std::vector<float>& otherwise) {
  const auto capacity = static_cast<size_t>(geometry().block_capacity[block]);
  const bool fp32 = arena_.element_bytes(kind) == sizeof(float);
  if (fp32 && arena_.device().is_host())
    return {arena_.state(training_slot(), kind, block), capacity};
  otherwise.resize(capacity);
  return otherwise;
}

void TrainingState::begin_from_seed() {
  fill_from_seed();
  now_ = {};
  now_.loss_scale = first_loss_scale(workload_.train);
}

void TrainingState::fill_from_seed() {
  parameters_changed();
  const int threads = std::max(1, allowed_processors() / workload_.workers_per_node);
  std::vector<float> converted;
  for (size_t b = 0; b < blocks().size(); ++b) {
    const std::span<float> values = host_part(StateKind::kParam, b, converted);
    layout_.fill_initial_values(workload_.train, b, padded_shard(b), values.data(), threads);
    if (!converted.empty()) arena_.write(training_slot(), StateKind::kParam, b, 0, values);
    arena_.clear(training_slot(), StateKind::kExpAvg, b);
    arena_.clear(training_slot(), StateKind::kExpAvgSq, b);
  }
}

Outcome TrainingState::load(const std::string& checkpoint, FileFault& fault) {
  const RunIdentity run = {.model = workload_.train.model,
                           .blocks = whole_blocks(),
                           .data = data_,
                           .seed = workload_.train.seed};
  auto loader = CheckpointLoader::open(checkpoint, &fault);
  if (!loader.ok()) {
    Error error = loader.error();
    // For the one who chose it, a checkpoint that is not there is as bad as a damaged one.
    if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kDataLoss;
    return error;
  }
  fault = {};
  const Manifest& manifest = loader->manifest();
  HP_TRY(check_same_base(manifest, environment_, workload_.train.lora.base, checkpoint));
  HP_TRY(check_resumable(manifest, run, checkpoint));
  parameters_changed();
  std::vector<float> converted;
  for (size_t b = 0; b < blocks().size(); ++b) {
    const ElementRange range =
        shard_range(blocks()[b].numel, geometry().interval, geometry().intervals);
    for (const StateKind kind : kStateKinds) {
      const std::span<float> shard = host_part(kind, b, converted);
      const auto size = static_cast<size_t>(range.size());
      std::fill(shard.begin() + range.size(), shard.end(), 0.0F);
      if (size > 0) {
        const Outcome read = layout_.load_range(*loader, b, kind, range, shard.first(size));
        if (!read.ok()) fault = loader->fault();
        HP_TRY(read);
      }
      if (shard.data() == converted.data()) arena_.write(training_slot(), kind, b, 0, shard);
    }
  }
  // An imported model's longest sequence does not change with this job's data.
  const int64_t made_for =
      manifest.weights_only ? manifest.data.seq_len : manifest.model.max_positions;
  if (made_for > 0) workload_.train.model.max_positions = made_for;
  now_.step = manifest.step;
  now_.sample_cursor = now_.former_cursor = manifest.sample_cursor;
  now_.skipped = manifest.skipped;
  now_.stability = manifest.stability;
  // A job may change its precision when it resumes.
  const bool scaled =
      workload_.train.precision == Precision::kFp16 && manifest.loss_scale.scale > 0;
  now_.loss_scale = scaled ? manifest.loss_scale : first_loss_scale(workload_.train);
  const bool begins = manifest.weights_only;
  if (!begins) note_inexact(inexact_reason(manifest, workload_.world_size, environment_));
  return Ok{};
}

void TrainingState::note_inexact(std::string reason) {
  inexact_reason_ = std::move(reason);
  if (!inexact_reason_.empty() && workload_.rank == 0) {
    log_warning("from here on not bit-exact with an undisturbed run: " + inexact_reason_);
  }
}

WeightShards TrainingState::weight_shards() {
  if (offloaded_) return offloaded_->weights(arena_);
  if (rounded_) return rounded_->shards(arena_, training_slot());
  WeightShards shards;
  for (size_t b = 0; b < blocks().size(); ++b) {
    shards.push_back({.values = arena_.bytes_at(training_slot(), StateKind::kParam, b, 0),
                      .rounded = arena_.element_bytes(StateKind::kParam) == sizeof(uint16_t)});
  }
  return shards;
}

void TrainingState::parameters_changed() {
  if (rounded_) rounded_->outdate();
}

void TrainingState::flip_parameter() {
  parameters_changed();
  constexpr uint32_t kBit = 1U << 22;  // the largest of the fraction
  const size_t block = blocks().size() / 2;
  const ElementRange range = padded_shard(block);
  const int64_t middle = range.size() / 2;
  // A bf16 is the upper half of an fp32 number.
  const size_t size = arena_.element_bytes(StateKind::kParam);
  std::array<std::byte, sizeof(float)> bytes{};
  arena_.begin_read(training_slot(), StateKind::kParam, block, middle, 1,
                    bytes.data() + (sizeof(float) - size));
  device().await_downloads();
  const float value = std::bit_cast<float>(std::bit_cast<uint32_t>(bytes) ^ kBit);
  arena_.write(training_slot(), StateKind::kParam, block, middle, std::span(&value, 1));
}

void TrainingState::apply(const AdamStep& adam, const std::vector<const float*>& gradients,
                          uint64_t next_cursor) {
  const int target = is_in_place() ? 0 : free_slot();
  HP_CHECK(target != kNoSlot);
  seal_copy();  // the state changes under it
  in_place_.reset();
  is_whole_ = false;
  arena_.device().after_downloads();
  arena_.unseal(target);
  if (offloaded_) {
    offloaded_->step(arena_, adam, decay_, gradients);
  } else {
    update_in_arena(target, adam, gradients);
  }
  ++now_.step;
  is_whole_ = true;
  now_.former_cursor = std::exchange(now_.sample_cursor, next_cursor);
  if (copies_) return;
  slot_ = target;
  seal();
}

void TrainingState::update_in_arena(int target, const AdamStep& adam,
                                    const std::vector<const float*>& gradients) {
  if (geometry().param_bytes == sizeof(uint16_t)) {
    update_as<uint16_t, uint16_t>(target, adam, gradients);
  } else if (geometry().moment_bytes == sizeof(uint16_t)) {
    update_as<uint16_t, float>(target, adam, gradients);
  } else {
    update_as<float, float>(target, adam, gradients);
  }
}

// M and P are the types of moments and parameters, as in AdamSource.
template <typename M, typename P>
void TrainingState::update_as(int target, const AdamStep& adam,
                              const std::vector<const float*>& gradients) {
  const int source = training_slot();
  for (size_t b = 0; b < blocks().size(); ++b) {
    const int64_t begin = padded_shard(b).begin;
    const auto param = [&](int slot) { return arena_.elements<P>(slot, StateKind::kParam, b); };
    const auto moment = [&](int slot, StateKind kind) { return arena_.elements<M>(slot, kind, b); };
    for (const DecayRange& part : decay_[b]) {
      const int64_t at = part.range.begin - begin;
      const AdamSource<float, M, P> from = {
          param(source) + at, moment(source, StateKind::kExpAvg) + at,
          moment(source, StateKind::kExpAvgSq) + at, gradients[b] + at};
      const AdamTarget<float, M, P> to = {
          param(target) + at, moment(target, StateKind::kExpAvg) + at,
          moment(target, StateKind::kExpAvgSq) + at, rounded_ ? rounded_->block(b) + at : nullptr};
      const RandomBits bits = random_bits(workload_.train.seed, adam, b, part.range.begin);
      arena_.device().adamw(adam, part.decayed, bits, part.range.size(), from, to);
    }
  }
}

void TrainingState::skip(const std::vector<SampleRange>& samples) {
  now_.skipped.insert(now_.skipped.end(), samples.begin(), samples.end());
  now_.skipped = normalized(std::move(now_.skipped));
}

Outcome TrainingState::go_back(const std::string& checkpoint) {
  const std::vector<SampleRange> skipped = now_.skipped;
  const uint64_t skips = now_.stability.skips;
  const uint64_t overflows = now_.loss_scale.overflows;
  HP_CHECK(held_slot_ == kNoSlot);
  is_whole_ = false;
  if (copies_) copies_->give_up();
  for (int slot = 0; slot < geometry().all_slots(); ++slot) arena().unseal(slot);
  kept_slot_ = kNoSlot;
  if (checkpoint.empty()) {
    begin_from_seed();
  } else {
    FileFault untold;  // only a start says what it could not use
    HP_TRY(load(checkpoint, untold));
  }
  now_.skipped.insert(now_.skipped.end(), skipped.begin(), skipped.end());
  now_.skipped = normalized(std::move(now_.skipped));
  now_.stability.skips = skips;
  now_.loss_scale.overflows = overflows;
  seal_filled();
  return Ok{};
}

Outcome TrainingState::rejoin(const Workload& workload, const Environment& environment) {
  HP_TRY_ASSIGN(const Sharding sharding, sharding_of(workload.train, workload.world_size));
  if (!mesh_.is_same_part(workload_.rank, sharding.mesh, workload.rank)) {
    return Error{ErrorCode::kDataLoss,
                 "generation " + std::to_string(workload.generation) +
                     " cannot start from this worker's memory: it holds the part of rank " +
                     std::to_string(workload_.rank) + " of " +
                     std::to_string(workload_.world_size) + ", wanted is rank " +
                     std::to_string(workload.rank) + " of " + std::to_string(workload.world_size)};
  }
  workload_ = workload;
  mesh_ = sharding.mesh;
  environment_ = environment_with(workload.train, environment);
  return go_on_from_seal();
}

// Of workload_.start_step.
Outcome TrainingState::go_on_from_seal() {
  HP_CHECK(held_slot_ == kNoSlot);
  seal_copy();
  StateArena& arena = this->arena();
  int sealed = -1;
  for (int slot = 0; slot < geometry().slots; ++slot) {
    if (arena.is_sealed(slot) && arena.seal_of(slot).step == workload_.start_step) sealed = slot;
  }
  if (sealed < 0) {
    return Error{ErrorCode::kDataLoss, "generation " + std::to_string(workload_.generation) +
                                           " cannot start from this worker's memory: step " +
                                           std::to_string(workload_.start_step) +
                                           " is not sealed; start from a checkpoint"};
  }
  HP_TRY_ASSIGN(SlotNotes notes, decode_slot_notes(arena.notes(sealed)));
  // Others are of a history that is undone, or older. A copy of this very state is not.
  for (int slot = 0; slot < geometry().all_slots(); ++slot) {
    if (arena.seal_of(slot) != arena.seal_of(sealed)) arena.unseal(slot);
  }
  slot_ = sealed;
  sent_slot_ = kept_slot_ = kNoSlot;
  take_in_place();
  now_ = std::move(notes.position);
  inexact_reason_ = std::move(notes.inexact_reason);
  workload_.train.model.max_positions = notes.max_positions;
  // It has not opened the data, which may have changed.
  if (workload_.is_last) data_ = std::move(notes.data);
  former_world_size_ = notes.world_size;
  if (!inexact_reason_.empty()) return Ok{};
  Manifest before;
  before.step = now_.step;
  before.world_size = notes.world_size;
  before.environment = std::move(notes.environment);
  note_inexact(inexact_reason(before, workload_.world_size, environment_));
  return Ok{};
}

Outcome TrainingState::refill(Communicator& replicas) {
  if (workload_.refilled.empty()) return Ok{};
  const bool lacks = is_refilled(workload_);
  std::string own;
  if (!lacks) own = encode(arena().seal_of(slot_)) + std::string(arena().notes(slot_));
  HP_TRY_ASSIGN(const std::vector<std::string> said, replicas.all_gather_text(own));
  const ReplicaGroup group = replica_group(mesh_, workload_.rank, workload_.refilled);
  const auto first = std::find(group.has.begin(), group.has.end(), true);
  HP_CHECK(first != group.has.end());  // the controller has looked
  HP_TRY(spread(replicas, group, arena().slot_bytes(slot_)));
  if (!lacks) return Ok{};
  const std::string& source = said[static_cast<size_t>(first - group.has.begin())];
  HP_TRY_ASSIGN(const Seal seal, decode_seal(source));
  arena().seal(slot_, seal, std::string_view(source).substr(kSealBytes));
  return go_on_from_seal();
}

std::vector<SampleRange> TrainingState::samples_of_newest_step(int32_t former_rank) const {
  if (now_.former_cursor == now_.sample_cursor) return {};
  const uint64_t count = global_batch(workload_.train.batch, now_.former_cursor);
  const DataRank former = mesh_.with_world(former_world_size_).data_rank(former_rank);
  if (!former.shares_data) return {};
  return data_part(take_samples(now_.former_cursor, count, now_.skipped).ranges, former.index,
                   former.count);
}

Manifest TrainingState::manifest() const {
  Manifest manifest;
  manifest.step = now_.step;
  manifest.generation = workload_.generation;
  manifest.parent = workload_.parent_generation;
  manifest.world_size = workload_.world_size;
  manifest.sample_cursor = now_.sample_cursor;
  manifest.skipped = now_.skipped;
  manifest.stability = now_.stability;
  manifest.loss_scale = now_.loss_scale;
  manifest.data = data_;
  manifest.seed = workload_.train.seed;
  manifest.model = workload_.train.model;
  manifest.lora = workload_.train.lora;
  manifest.environment = environment_;
  manifest.exact = inexact_reason_.empty();
  manifest.inexact_reason = inexact_reason_;
  manifest.created_wall_ms = SystemClock().wall_ms();
  manifest.blocks = whole_blocks();
  return manifest;
}

}  // namespace hpctl
