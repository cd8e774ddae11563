// SPDX-License-Identifier: Apache-2.0
// The state of a training run, without its configuration: this rank's parameters and moments in the
// state arena, the completed step, the sample cursor and the skip list. Starts from the seed or
// from a checkpoint of any world size; an optimizer step moves it to another slot of the arena.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/file_fault.h"
#include "common/layout/block_layout.h"
#include "common/layout/mesh.h"
#include "common/worker/workload.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/comm/communicator.h"
#include "trainer/data/step_samples.h"
#include "trainer/optim/adamw.h"
#include "trainer/state/exactness.h"
#include "trainer/state/host_copies.h"
#include "trainer/state/offloaded_state.h"
#include "trainer/state/position.h"
#include "trainer/state/rank_layout.h"
#include "trainer/state/rounded_weights.h"
#include "trainer/state/state_arena.h"

namespace hpctl {

class TrainingState {
 public:
  // `arena_fd` as in StateArena::create; on a GPU -1 means that no copies are kept in host memory,
  // and the state ends with the process. The device outlives it. A checkpoint that is missing or
  // damaged gives kDataLoss (another one may do); one of another model, data or seed
  // kInvalidArgument. `environment` has the other labels of bit-exactness, of all ranks
  // (joined_environment.h); a difference to the checkpoint's is noted as inexact, on every rank
  // alike.
  //
  // With Workload::from_memory the arena comes from a dead process, and this one resumes from the
  // seal of start_step; kDataLoss if there is none. A rank of Workload::refilled has no state
  // before refill(). If the checkpoint could not be used, `fault` says which part of which file of
  // it.
  static Result<TrainingState> create(int arena_fd, const Workload& workload,
                                      const DataIdentity& data, const Environment& environment,
                                      Device& device = host_device(), FileFault* fault = nullptr);

  // With Workload::former_parts, collective over `world`: the state in the ranks' arenas, in this
  // process `former`, else behind the descriptor, is resharded (reshard.h), and this rank resumes
  // from the seal of start_step. After an error everything is as it was, `former` too, unless the
  // error comes after that: then `former` is gone.
  static Result<TrainingState> create_from_parts(int arena_fd, const Workload& workload,
                                                 const DataIdentity& data,
                                                 const Environment& environment, Device& device,
                                                 Communicator& world,
                                                 std::optional<TrainingState>& former);

  // This rank's blocks, and the model's or its adapters' that they are parts of (rank_layout.h).
  const std::vector<Block>& blocks() const { return layout_.blocks(); }
  const std::vector<Block>& whole_blocks() const { return layout_.whole(); }
  uint64_t step() const { return now_.step; }
  uint64_t sample_cursor() const { return now_.sample_cursor; }
  const std::vector<SampleRange>& skipped() const { return now_.skipped; }

  // This rank's shard of each block's weights, for FullySharded. In the host's arena valid until
  // the second apply() from now, elsewhere until the next.
  WeightShards weight_shards();
  // Reads from the newest sealed state elements `range` of a block, which this rank must hold, like
  // StateArena::begin_read; the copy is complete even if apply() follows.
  void begin_read_sealed(StateKind kind, size_t block, ElementRange range, std::byte* host) {
    arena_.begin_read(training_slot(), kind, block, range.begin - padded_shard(block).begin,
                      range.size(), host);
  }
  // A save reads the newest state in place: apply() does not write its slot until release_held(),
  // whatever else reads it. On a GPU that slot has its copy, which has arrived when
  // device().await_downloads() returns; it is begun if that was not done. False if there are no
  // slots: on a GPU without copies, and if the state is offloaded (begin_read_sealed() works
  // there). One state is held at most, and none during a rollback or while joining another
  // generation.
  bool hold_newest();
  void release_held() { held_slot_ = kNoSlot; }
  bool holds() const { return held_slot_ != kNoSlot; }
  // The held state in its stored form: elements `range` of a block, which this rank must hold.
  const std::byte* held(StateKind kind, size_t block, ElementRange range);
  size_t element_bytes(StateKind kind) const { return arena_.element_bytes(kind); }
  // Whose memory the state is in: the host's where it is offloaded.
  Device& device() const { return arena_.device(); }
  const ArenaGeometry& geometry() const { return sealed_arena().geometry(); }
  // This rank's range of a block, with the padding after the block's end.
  ElementRange padded_shard(size_t block) const;
  // The part of a block's range that this rank may write to checkpoints: all of its shard, or,
  // where replicas have the same one, its part of it. Empty for some ranks when the block is small.
  ElementRange written(size_t block) const;
  // What of it this rank writes, of all blocks, in the order of a file.
  std::vector<WrittenPart> written_parts() const;

  // A fault on purpose (flip-parameter): inverts a bit in the middle of this rank's parameters, of
  // no use where they are offloaded.
  void flip_parameter();

  // Whether a GPU's state is copied to host memory.
  bool is_copied_to_host() const { return copies_ != nullptr; }
  // Where it is: begins to copy the newest state, unless that was done, or a fault came in the
  // middle of its change. False if there is no slot for it (has_room()).
  bool begin_copy();
  // Before the small all-reduce of the next step, and where the generation ends: waits for the copy
  // under way and seals it. False if there was none.
  bool seal_copy();
  // The newest step whose copy was begun; 0 = none.
  uint64_t copied_step() const { return copied_step_; }
  // Null where there are no copies.
  const HostCopies* copies() const { return copies_.get(); }

  // One AdamW step with gradients[b] = block b's gradient shard; afterwards step() is one more.
  void apply(const AdamStep& adam, const std::vector<const float*>& gradients,
             uint64_t next_cursor);

  // Numbers that the judgement of the next steps depends on; saved with the state.
  StabilityRecord& stability() { return now_.stability; }
  // Likewise; scale 0 where the run is not in fp16.
  LossScaleRecord& loss_scale() { return now_.loss_scale; }
  const LossScaleRecord& loss_scale() const { return now_.loss_scale; }
  // Puts samples on the skip list: the cursor passes over them.
  void skip(const std::vector<SampleRange>& samples);
  // To an earlier state of this history: a checkpoint, or the seed (""). The skip list and the
  // counts of skips and overflows stay. On an error the state is lost.
  Outcome go_back(const std::string& checkpoint);

  // Goes on in another generation, in which this rank has the same part, as of the seal of
  // workload.start_step: what was decided after it is decided again. Every step's all-reduce proves
  // that all ranks have sealed the step before, or the newest that is copied from a GPU, so there
  // is a newest one that all ranks have. kDataLoss when there is no such seal. A GPU's own state
  // stays if it is the one of that seal.
  Outcome rejoin(const Workload& workload, const Environment& environment);

  // With Workload::refilled, after create() or rejoin() and before anything else: the ranks named
  // there get their parts from their replicas, and go on as of the same seal. Collective over the
  // replica group, on every rank of the job.
  Outcome refill(Communicator& replicas);
  // Likewise, where PeerSnapshots has filled slot 0 of a rank that had nothing.
  Outcome take_restored() { return go_on_from_seal(); }

  // After that: the generation that has sealed this state, how many ranks it had, and what one of
  // them trained on in the newest step; {} where it did none.
  uint64_t sealed_by() const { return sealed_arena().seal_of(slot_).generation; }
  int32_t former_world_size() const { return former_world_size_; }
  std::vector<SampleRange> samples_of_newest_step(int32_t former_rank) const;

  // Copies at peers (peer_snapshots.h). The arena, and its slot that has another rank's part of
  // the state that is now the newest; kNoSlot = there is none.
  StateArena& arena() { return copies_ ? copies_->arena() : arena_; }
  int find_copy() const;
  // The step that begin_snapshot() begins with; 0 = none.
  uint64_t sealed_step() const;
  // apply() needs no slot whose state must stay: the snapshot in flight, the newest one that is
  // everywhere, and the held state. A slot may be several of these; it is free when it is none of
  // them any more.
  bool has_room() const { return free_slot() >= 0; }
  // Begins a snapshot of the newest state; returns its slot.
  int begin_snapshot();
  // The one under way is everywhere now, or it is given up.
  void end_snapshot(bool everywhere);

  // A manifest of this state without files and shards.
  Manifest manifest() const;

 private:
  TrainingState(StateArena arena, const Workload& workload, const Mesh& mesh, RankLayout layout);
  static Result<TrainingState> with_arenas(int arena_fd, const Workload& workload, const Mesh& mesh,
                                           RankLayout layout, Device& device, bool anew);
  bool is_in_place() const { return arena_.geometry().slots == 1; }
  // Of arena_: where steps read the state.
  int training_slot() const { return is_in_place() ? 0 : slot_; }
  const StateArena& sealed_arena() const { return copies_ ? copies_->arena() : arena_; }
  Seal seal_of_now() const { return {now_.step, digest_of(now_), workload_.generation}; }
  std::string notes_of_now() const;
  void tell_unsealed(size_t notes_bytes);

  // In host memory a block's part of the state itself, else `otherwise`, which must be written
  // back.
  std::span<float> host_part(StateKind kind, size_t block, std::vector<float>& otherwise);
  void fill_from_seed();
  void begin_from_seed();
  // Otherwise than by an optimizer step.
  void parameters_changed();
  Outcome load(const std::string& checkpoint, FileFault& fault);
  Outcome go_on_from_seal();
  void take_in_place();
  int free_slot() const;
  void seal();
  void seal_filled();
  void update_in_arena(int target, const AdamStep& adam,
                       const std::vector<const float*>& gradients);
  template <typename M, typename P>
  void update_as(int target, const AdamStep& adam, const std::vector<const float*>& gradients);
  void note_inexact(std::string reason);  // "" = bit-exact

  StateArena arena_;                    // where steps change the state
  std::unique_ptr<HostCopies> copies_;  // null = there are none
  Workload workload_;
  Mesh mesh_;
  RankLayout layout_;
  std::vector<std::vector<DecayRange>> decay_;  // of this rank's shards
  std::unique_ptr<OffloadedState> offloaded_;   // null = the state is where the device computes
  std::unique_ptr<RoundedWeights> rounded_;     // null = gathers round, or need not
  DataIdentity data_;
  Environment environment_;
  int slot_ = 0;               // of the newest sealed state, in sealed_arena()
  int sent_slot_ = kNoSlot;    // of the snapshot under way
  int kept_slot_ = kNoSlot;    // of the newest one that is everywhere
  int held_slot_ = kNoSlot;    // of the state that a save reads
  int copied_slot_ = kNoSlot;  // of the newest copy, under way or not
  uint64_t copied_step_ = 0;
  std::optional<Seal> in_place_;  // with which the state in place was copied; nullopt = it was not
  bool told_unsealed_ = false;
  bool is_whole_ = false;  // a GPU's state in place: neither lacking, nor in the middle of a change
  Position now_;
  std::string inexact_reason_;  // "" = bit-exact
  int32_t former_world_size_ = 0;
};

}  // namespace hpctl
