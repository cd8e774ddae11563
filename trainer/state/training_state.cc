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
#include "common/job/snapshot_peers.h"
#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "common/process/processors.h"
#include "common/worker/seal_packet.h"
#include "trainer/arch/lora.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/data/batch_ramp.h"
#include "trainer/optim/loss_scaler.h"
#include "trainer/plan/memory_plan.h"
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

// The notes have a loss and a gradient norm for each step of the window. Half of the usual room is
// for the rest: labels, and samples that are left out.
size_t notes_room(const StabilitySpec& stability) {
  const size_t window = static_cast<size_t>(stability.window) * 2 * sizeof(double);
  const size_t beyond = window - std::min(window, kArenaNotesBytes / 2);
  return kArenaNotesBytes * (1 + (beyond + kArenaNotesBytes - 1) / kArenaNotesBytes);
}

ArenaGeometry geometry_of(const Workload& workload, const std::vector<Block>& blocks,
                          const Mesh& mesh, const Device& device) {
  ArenaGeometry geometry = ArenaGeometry::of(blocks, workload.job, workload.rank, mesh);
  if (workload.train.optimizer.master == StateType::kBf16) geometry.param_bytes = 2;
  if (workload.train.optimizer.moments == StateType::kBf16) geometry.moment_bytes = 2;
  // The third is for a save to read from, and the fourth, where copies at peers have the third.
  geometry.slots = device.is_host() ? 3 : 1;
  geometry.notes_bytes = notes_room(workload.train.stability);
  if (keeps_copies(setting_of(workload, !device.is_host()))) {
    geometry.slots = static_cast<int32_t>(kOwnSlots);
    geometry.copies = static_cast<int32_t>(kCopySlots);
    geometry.copied_index =
        snapshot_source(workload.rank, workload.world_size, workload.workers_per_node);
  }
  return geometry;
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
          "the state of a worker on a GPU ends with its process; start from a checkpoint"};
}

}  // namespace

Result<TrainingState> TrainingState::create(int arena_fd, const Workload& workload,
                                            const DataIdentity& data,
                                            const Environment& environment, Device& device,
                                            FileFault* fault) {
  HP_TRY_ASSIGN(const Sharding sharding, sharding_of(workload.train, workload.world_size));
  RankLayout layout(workload.train, sharding.mesh, workload.rank);
  const ArenaGeometry geometry = geometry_of(workload, layout.blocks(), sharding.mesh, device);
  auto arena = make_arena(arena_fd, geometry, workload, device);
  if (!arena.ok()) return arena.error();
  TrainingState state(std::move(arena).value(), workload, sharding.mesh, std::move(layout));
  if (!device.is_host() && offloads_optimizer(workload.train)) {
    state.offloaded_ = std::make_unique<OffloadedState>(device, geometry, workload.train);
  }
  if (!device.is_host() && keeps_rounded_weights(workload.train, geometry.intervals)) {
    state.rounded_ = std::make_unique<RoundedWeights>(device, geometry);
  }
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
  if (!device.is_host()) return ends_with_process();
  HP_TRY_ASSIGN(const Sharding sharding, sharding_of(workload.train, workload.world_size));
  RankLayout layout(workload.train, sharding.mesh, workload.rank);
  const ArenaGeometry geometry = geometry_of(workload, layout.blocks(), sharding.mesh, device);
  // The arena of a worker that died here. A new node of the job has none.
  std::optional<StateArena> left;
  if (!former) {
    auto found = StateArena::open_former(arena_fd, layout.blocks(), geometry);
    if (found.ok()) left.emplace(std::move(found).value());
  }
  StateArena* const has = former ? &former->arena_ : left ? &*left : nullptr;
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
  HP_TRY_ASSIGN(StateArena arena, StateArena::create(arena_fd, geometry));
  const auto bytes = part.arena.slot_bytes(0);
  std::copy(bytes.begin(), bytes.end(), arena.slot_bytes(0).begin());
  arena.seal(0, part.seal, part.notes);
  TrainingState state(std::move(arena), workload, sharding.mesh, std::move(layout));
  state.data_ = data;
  state.environment_ = environment_with(workload.train, environment);
  HP_TRY(state.go_on_from_seal());
  return state;
}

Result<StateArena> TrainingState::make_arena(int arena_fd, const ArenaGeometry& geometry,
                                             const Workload& workload, Device& device) {
  if (workload.from_memory && !device.is_host()) return ends_with_process();
  if (workload.from_memory && !is_refilled(workload)) return StateArena::open(arena_fd, geometry);
  if (device.is_host()) return StateArena::create(arena_fd, geometry);
  if (offloads_optimizer(workload.train)) return StateArena::create_offloaded(device, geometry);
  return StateArena::create(device, geometry);
}

// After a beginning or a checkpoint was put into the arena.
void TrainingState::seal_filled() {
  if (offloaded_) offloaded_->refresh(arena_);
  seal();
}

// The slot that is now the newest.
void TrainingState::seal() {
  const std::string notes =
      encode({now_, environment_, inexact_reason_, workload_.train.model.max_positions,
              workload_.world_size, data_});
  const bool sealed = arena_.seal(slot_, {now_.step, digest_of(now_), workload_.generation}, notes);
  if (sealed || told_unsealed_ || !arena_.device().is_host()) return;
  told_unsealed_ = true;
  log_warning("step " + std::to_string(now_.step) +
              " and those after it are of no use to a recovery from memory: " +
              std::to_string(now_.skipped.size()) +
              " ranges of samples are left out, and what goes with the state takes " +
              std::to_string(notes.size()) + " bytes, for which an arena has " +
              std::to_string(geometry().notes_bytes) +
              "; a fault goes back to the newest checkpoint: save more often");
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
  if (fp32 && arena_.device().is_host()) return {arena_.state(slot_, kind, block), capacity};
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
    if (!converted.empty()) arena_.write(slot_, StateKind::kParam, b, 0, values);
    arena_.clear(slot_, StateKind::kExpAvg, b);
    arena_.clear(slot_, StateKind::kExpAvgSq, b);
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
      if (shard.data() == converted.data()) arena_.write(slot_, kind, b, 0, shard);
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
  if (rounded_) return rounded_->shards(arena_, slot_);
  WeightShards shards;
  for (size_t b = 0; b < blocks().size(); ++b) {
    shards.push_back({.values = arena_.bytes_at(slot_, StateKind::kParam, b, 0),
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
  arena_.begin_read(slot_, StateKind::kParam, block, middle, 1,
                    bytes.data() + (sizeof(float) - size));
  device().await_downloads();
  const float value = std::bit_cast<float>(std::bit_cast<uint32_t>(bytes) ^ kBit);
  arena_.write(slot_, StateKind::kParam, block, middle, std::span(&value, 1));
}

void TrainingState::apply(const AdamStep& adam, const std::vector<const float*>& gradients,
                          uint64_t next_cursor) {
  const int target = free_slot();
  HP_CHECK(target != kNoSlot);
  arena_.device().after_downloads();
  arena_.unseal(target);
  if (offloaded_) {
    offloaded_->step(arena_, adam, decay_, gradients);
  } else {
    update_in_arena(target, adam, gradients);
  }
  ++now_.step;
  now_.former_cursor = std::exchange(now_.sample_cursor, next_cursor);
  slot_ = target;
  seal();
}

int TrainingState::free_slot() const {
  if (geometry().slots == 1) return slot_;
  const std::array taken = {slot_, sent_slot_, kept_slot_, held_slot_};
  for (int slot = 0; slot < geometry().slots; ++slot) {
    if (std::find(taken.begin(), taken.end(), slot) == taken.end()) return slot;
  }
  return kNoSlot;
}

bool TrainingState::hold_newest() {
  HP_CHECK(held_slot_ == kNoSlot);
  if (geometry().slots < 3) return false;
  held_slot_ = slot_;
  return true;
}

const std::byte* TrainingState::held(StateKind kind, size_t block, ElementRange range) {
  HP_CHECK(held_slot_ != kNoSlot);
  return arena_.bytes_at(held_slot_, kind, block, range.begin - padded_shard(block).begin);
}

int TrainingState::begin_snapshot() { return sent_slot_ = slot_; }

void TrainingState::end_snapshot(bool everywhere) {
  if (everywhere) kept_slot_ = sent_slot_;
  sent_slot_ = kNoSlot;
}

int TrainingState::find_copy() const {
  const Seal newest = arena_.seal_of(slot_);
  for (int slot = geometry().slots; slot < geometry().all_slots(); ++slot) {
    if (arena_.is_sealed(slot) && arena_.seal_of(slot) == newest) return slot;
  }
  return kNoSlot;
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
  for (size_t b = 0; b < blocks().size(); ++b) {
    const int64_t begin = padded_shard(b).begin;
    const auto param = [&](int slot) { return arena_.elements<P>(slot, StateKind::kParam, b); };
    const auto moment = [&](int slot, StateKind kind) { return arena_.elements<M>(slot, kind, b); };
    for (const DecayRange& part : decay_[b]) {
      const int64_t at = part.range.begin - begin;
      const AdamSource<float, M, P> from = {
          param(slot_) + at, moment(slot_, StateKind::kExpAvg) + at,
          moment(slot_, StateKind::kExpAvgSq) + at, gradients[b] + at};
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
  for (int slot = 0; slot < geometry().all_slots(); ++slot) arena_.unseal(slot);
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
  parameters_changed();
  int sealed = -1;
  for (int slot = 0; slot < geometry().slots; ++slot) {
    if (arena_.is_sealed(slot) && arena_.seal_of(slot).step == workload_.start_step) sealed = slot;
  }
  if (sealed < 0) {
    return Error{ErrorCode::kDataLoss, "generation " + std::to_string(workload_.generation) +
                                           " cannot start from this worker's memory: step " +
                                           std::to_string(workload_.start_step) +
                                           " is not sealed; start from a checkpoint"};
  }
  HP_TRY_ASSIGN(SlotNotes notes, decode_slot_notes(arena_.notes(sealed)));
  // Others are of a history that is undone, or older. A copy of this very state is not.
  for (int slot = 0; slot < geometry().all_slots(); ++slot) {
    if (arena_.seal_of(slot) != arena_.seal_of(sealed)) arena_.unseal(slot);
  }
  slot_ = sealed;
  sent_slot_ = kept_slot_ = kNoSlot;
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
  if (!lacks) own = encode(arena_.seal_of(slot_)) + std::string(arena_.notes(slot_));
  HP_TRY_ASSIGN(const std::vector<std::string> said, replicas.all_gather_text(own));
  const ReplicaGroup group = replica_group(mesh_, workload_.rank, workload_.refilled);
  const auto first = std::find(group.has.begin(), group.has.end(), true);
  HP_CHECK(first != group.has.end());  // the controller has looked
  HP_TRY(spread(replicas, group, arena_.slot_bytes(slot_)));
  if (!lacks) return Ok{};
  const std::string& source = said[static_cast<size_t>(first - group.has.begin())];
  HP_TRY_ASSIGN(const Seal seal, decode_seal(source));
  arena_.seal(slot_, seal, std::string_view(source).substr(kSealBytes));
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
