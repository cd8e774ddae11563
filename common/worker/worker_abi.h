// SPDX-License-Identifier: Apache-2.0
// The contract between holder and worker: the environment of a new worker, and the meaning of its
// exit code. Plain numbers and a shared-memory layout, so neither side needs the other's library.
//
// Descriptors  3 workload: memfd with one JSON document (common/worker/workload.h), position 0;
//                empty for a standby of the built-in trainer, which waits for one (6)
//              4 progress page: memfd of kProgressPageBytes, mapped shared; of one generation
//              5 state arena: memfd of size 0 or the size a former owner gave it; outlives the
//                worker because the holder keeps it open
//              6 control socket of the built-in trainer (common/worker/worker_control.h); a command
//                has none
// Environment  what torchrun gives its workers: RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE
//              GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR
//              MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID
//              TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE; and
//              HPCTL_JOB_ID HPCTL_GENERATION HPCTL_NODE HPCTL_WORKER (agent/holder/worker_mark.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace hpctl {

inline constexpr int kWorkloadFd = 3;
inline constexpr int kProgressFd = 4;
inline constexpr int kArenaFd = 5;
inline constexpr int kControlFd = 6;

// Exit codes of hptrain. Any other non-zero code or a signal is a fault of unknown kind.
inline constexpr int kExitFinished = 0;
// Wrong configuration or data: a restart cannot help.
inline constexpr int kExitDoNotRestart = 93;
// The checkpoint named in the workload is damaged: choose an older one. In a generation from
// memory: that state cannot be used, start from a checkpoint.
inline constexpr int kExitCheckpointDamaged = 94;
// A collective failed because a peer went away: a consequence, never the cause.
inline constexpr int kExitPeerLost = 95;
// Storage that is needed to go on cannot be read now: try again, with patience (limits.storage).
inline constexpr int kExitStorage = 96;

enum class WorkerPhase : uint32_t {
  kStarting = 0,    // process exists
  kLoading = 1,     // reading data and checkpoint
  kRendezvous = 2,  // connecting to peers
  kTraining = 3,    // inside the step loop
  kSaving = 4,      // waiting for a checkpoint to become durable
  kFinished = 5,    // about to exit 0
};

inline constexpr uint32_t kProgressMagic = 0x47504850;  // "HPPG"
inline constexpr uint32_t kProgressVersion = 1;
inline constexpr uint32_t kProgressPageBytes = 4096;
inline constexpr uint32_t kProgressMessageBytes = 1024;
inline constexpr size_t kBadStepSlots = 12;  // more than stability.max_skips by default
inline constexpr size_t kBadStepReasonBytes = 112;
inline constexpr uint32_t kFaultFileBytes = 128;

// Like common/job/bad_step.h.
struct BadStepSlot {
  std::atomic<uint64_t> number;  // 0 while the slot is written; stored last (release)
  std::atomic<uint64_t> step;
  std::atomic<uint64_t> resumed_step;
  std::atomic<uint64_t> samples;
  std::atomic<uint32_t> finding;
  std::atomic<uint32_t> verdict;
  std::atomic<uint32_t> outcome;
  std::atomic<int32_t> blamed_rank;
  std::atomic<uint32_t> reason_length;
  char reason[kBadStepReasonBytes];
};

// Of one communicator. A worker that is stuck is inside the first one that is not completed.
struct CollectiveCount {
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> completed;  // known to be: on GPUs as of the newest look at them
};
// 0 the world's, 1 the shard group's, 2 the replicas'; a group that is the whole world uses 0.
using CollectiveCounts = std::array<CollectiveCount, 3>;

// What the ranks of a group have in common. A number that the reader does not know is skipped.
enum class GroupKind : uint32_t {
  kNone = 0,  // the slot is not used
  kWorld = 1,
  kShard = 2,      // the ranks that divide parameters
  kReplicate = 3,  // the ranks that have the same part of the state
  kPipeline = 4,
  kContext = 5,
  kTensor = 6,
  kEdge = 7,  // of a pipeline: `first` sends to `last`
};

inline constexpr size_t kGroupSlots = 16;

// The collectives of one group of this rank. A kind and its first rank name a group; an edge is
// named by both ends.
struct GroupSlot {
  CollectiveCount count;
  std::atomic<int32_t> first;
  std::atomic<int32_t> last;
  std::atomic<uint32_t> kind;  // GroupKind; stored last (release), before the first collective
};

struct GroupSlots {
  std::array<GroupSlot, kGroupSlots> slots;
  std::atomic<uint32_t> waits_in;  // 1 + index of the slot in whose group the rank waits; 0 = none
};

// One page per worker and generation, zero at start; written by the worker, read by its agent at
// any time. Each field is written by one thread and is meaningful alone; readers must not assume
// that two fields belong to the same step, except that `step` is stored last (release). Fields are
// only ever added at the end: an older worker leaves them zero, which means unknown.
struct ProgressPage {
  std::atomic<uint32_t> magic;               // kProgressMagic once the worker has mapped the page
  std::atomic<uint32_t> version;             // kProgressVersion
  std::atomic<uint32_t> phase;               // WorkerPhase
  std::atomic<uint32_t> loss_bits;           // fp32 bits of the last global mean loss
  std::atomic<uint64_t> step;                // last completed step of the job; 0 before the first
  std::atomic<uint64_t> collective;          // collectives begun in this generation
  std::atomic<uint64_t> tokens;              // tokens of the whole job in the last step
  std::atomic<uint64_t> step_ns;             // duration of the last step
  std::atomic<uint64_t> checkpoint_step;     // newest checkpoint this rank saw committed by its
                                             // own generation; 0 = none
  std::atomic<uint64_t> start_unix_ns;       // CLOCK_REALTIME at main() or when it was turned to
  std::atomic<uint64_t> first_step_unix_ns;  // end of the generation's first step; 0 = not yet
  std::atomic<uint32_t> grad_norm_bits;      // fp32 bits
  std::atomic<uint32_t> message_length;      // bytes valid in message; stored last (release)
  char message[kProgressMessageBytes];       // why the worker is about to exit; one line
  // For the last step of this rank: common/job/step_figures.h.
  std::atomic<uint32_t> learning_rate_bits;  // fp32 bits, as the next four
  std::atomic<uint32_t> flops_bits;
  std::atomic<uint32_t> flops_causal_bits;
  std::atomic<uint32_t> mfu_bits;
  std::atomic<uint32_t> mfu_causal_bits;
  std::atomic<uint64_t> peak_memory_bytes;
  std::atomic<uint64_t> compute_ns;
  std::atomic<uint64_t> data_wait_ns;
  std::atomic<uint64_t> communication_ns;
  std::atomic<uint64_t> communication_wait_ns;
  // The newest bad steps, number n at (n - 1) % kBadStepSlots; rank 0's only.
  std::atomic<uint64_t> bad_steps;  // how many there were; stored after its slot
  std::array<BadStepSlot, kBadStepSlots> bad_step;
  CollectiveCounts collectives;
  std::atomic<uint64_t> saves_without_room;  // common/job/step_figures.h
  // 1 in the passes of a step, forward, backward and what reduces them: where nothing takes long
  // but them and collectives. Not while data is read, state is updated or saved, or in an
  // evaluation.
  std::atomic<uint32_t> computing;
  // For this rank, over all steps of the generation so far: common/job/step_figures.h.
  std::atomic<uint64_t> data_waits_ns;
  std::atomic<uint64_t> save_waits_ns;
  std::atomic<uint64_t> snapshot_step;       // likewise
  std::atomic<uint64_t> saves_out_of_space;  // likewise
  std::atomic<uint64_t> storage_failures;    // likewise
  // The file or call that `message` is about, if any: common/job/file_fault.h. Stored before
  // `message`.
  std::atomic<uint64_t> fault_offset;
  std::atomic<uint64_t> fault_bytes;
  std::atomic<int32_t> fault_error;
  std::atomic<uint32_t> fault_file_length;  // bytes valid in fault_file
  char fault_file[kFaultFileBytes];
  GroupSlots groups;
};
static_assert(sizeof(ProgressPage) <= kProgressPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hpctl
