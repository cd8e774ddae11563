// SPDX-License-Identifier: Apache-2.0
// One GPU's part in the rounds of the network check, as a separate process (`hpagent check network
// --gpu N`): a driver or an NCCL that crashes or hangs ends this process, which is a result, and
// not the check. Its parent (gpu_ranks.h) speaks JSON in frames on descriptor kGpuRankSocket:
//
//   rank → parent   {"gpus", "nccl"} or {"error"}            at its start; GPUs of the machine
//   parent → rank   {"make_id"}                              → {"id": hexadecimal} or {"error"}
//   parent → rank   {"id", "rank", "ranks", "init_ms", "transfer_ms"}
//   rank → parent   {"bytes_per_s", "wrong"} or {"error"}; "wrong": what is, "" = every sum is
//   right
//
// A round is one communicator: made, a first all-reduce (which connects), then all-reduces of
// kReducedFloats for as long as kReduceTime, all of known values
// (agent/nodecheck/core/known_sums.h). Each rank adds to the first place whether it has had enough,
// so all stop after the same one. Communicators are non-blocking; operations that do not end in
// time are aborted.
//
// bytes_per_s is the bus bandwidth as nccl-tests defines it: bytes of the buffer per second times
// 2 (ranks - 1) / ranks.
#pragma once

namespace hpctl::agent {

inline constexpr int kGpuRankSocket = 3;

// Until the parent has closed the socket. Exit codes of a process.
int run_gpu_rank(int device);

}  // namespace hpctl::agent
