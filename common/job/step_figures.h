// SPDX-License-Identifier: Apache-2.0
// The measurements of a worker's last step, for the metrics of the controller: from the progress
// block through heartbeats; soft, never stored. 0 = unknown.
#pragma once

#include <cstdint>

namespace hpctl {

struct StepFigures {
  float learning_rate = 0;
  // Operations per second of this worker, and their share of the device's peak (0..1): causal
  // attention counted whole, and its half.
  float flops = 0;
  float flops_causal = 0;
  float mfu = 0;
  float mfu_causal = 0;
  uint64_t peak_memory_bytes = 0;  // since the worker's start
  uint64_t compute_ns = 0;         // forward and backward, without the waiting
  uint64_t data_wait_ns = 0;
  uint64_t communication_ns = 0;  // at least one collective was under way
  uint64_t communication_wait_ns = 0;
  uint64_t saves_without_room = 0;  // in a row, as of now: storage is full, or away
  uint64_t saves_out_of_space = 0;  // of these, the newest in a row that found the disk full
  // Consecutive storage failures of the current step: samples that could not be read, or a ledger
  // that could not be written. The rank tries again; 0 = it does not wait for storage.
  uint64_t storage_failures = 0;
  // Waits in all steps of the generation so far: for samples, and for checkpoints (to copy the
  // state, and for an unfinished save).
  uint64_t data_waits_ns = 0;
  uint64_t save_waits_ns = 0;
  // The newest step of which each rank's part is in the memory of two nodes
  // (common/job/snapshot_peers.h); 0 = none, and where ranks have replicas.
  uint64_t snapshot_step = 0;
};

// Share (0..1) of the time in which collectives were under way that the worker spent otherwise than
// waiting for them. Precondition: communication > 0.
constexpr double overlap_share(double communication, double wait) {
  return wait < communication ? 1 - wait / communication : 0;
}

}  // namespace hpctl
