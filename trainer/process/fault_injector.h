// SPDX-License-Identifier: Apache-2.0
// Faults (`hpctl chaos`) that a worker injects into itself, because they cannot come from outside:
// a fault ordered over the control socket happens in the next step that the training thread
// computes, and once.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/base/result.h"
#include "common/worker/injected_fault.h"
#include "trainer/comm/communicator.h"

namespace hpctl {

// Any thread.
void order_fault(InjectedFault fault, uint64_t generation);

// Likewise before a step: whether a bit of a parameter is to be inverted now (flip-parameter).
bool is_flip_ordered(uint64_t generation);

// Likewise: what is to become of its messages to its peers (delay-collectives, lose-collectives,
// cut-peers).
std::optional<PeerTrouble> take_ordered_trouble(uint64_t generation);

// On the thread that writes this rank's part of a checkpoint, before it does. slow-disk and
// storage-pause: returns when the time is over. full-disk and storage-error: an error, as of
// write(2).
Outcome inject_ordered_disk(uint64_t generation);

// In the middle of a step. oom-worker: takes memory until the kernel ends it; if no cgroup sets a
// limit below the machine's memory, which others use as well, it ends itself as the kernel would.
// hang-worker: does not return. The thread runs in a loop, like a program that waits for an event
// that never comes, and its peers wait for it. exit-worker: an error, as of a step that went wrong.
Outcome inject_ordered_fault(uint64_t generation);

// After the passes of a step that took so long. slow-worker: the thread sleeps until they have
// taken kSlowTimes as long; in kSlowSteps, and each that begins within kSlowMs of the first.
void inject_ordered_slowness(uint64_t generation, std::chrono::nanoseconds computed);

// An additional factor for the gradients of a step: 1, or NaN if nan-gradient was ordered.
double ordered_gradient_factor(uint64_t generation);

}  // namespace hpctl
