// SPDX-License-Identifier: Apache-2.0
// A pipeline schedule as data: for each rank of the pipeline, the list of actions that it runs in
// order. A schedule is a table with one row per rank. A compute-only table has forwards and
// backwards; a lowered table (lower.h) also has the communication. The names of the kinds, and what
// they mean, are PyTorch's, so that tables can be exchanged with torch.distributed.pipelining.
//
// A model is divided into stages 0 .. S-1, and a batch into micro-batches 0 .. m-1. SEND_F of stage
// s sends its output to stage s+1, and RECV_F of s receives its input from s-1. SEND_B of s sends
// the gradient of its input to s-1, and RECV_B of s receives the gradient of its output from s+1.
// Two neighbouring stages on one rank need neither.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hpctl {

enum class ActionKind : uint8_t {
  kIdle,            // an empty cell: nothing to do
  kForward,         // F
  kBackward,        // B: I and W at once
  kBackwardInput,   // I: the gradient of the input
  kBackwardWeight,  // W: the gradients of the weights, after I
  kSendForward,
  kRecvForward,
  kSendBackward,
  kRecvBackward,
  kUnshard,  // gather the stage's parameters
  kReshard,
  kReduceGrad,  // reduce the stage's accumulated gradients over the data-parallel ranks
};

// "F", "SEND_F", "UNSHARD"; empty for kIdle.
std::string_view kind_name(ActionKind kind);
// Returns whether the action is F, B, I or W.
bool is_compute(ActionKind kind);
// Returns whether an action of this kind belongs to one micro-batch. The others belong to a stage.
bool has_micro(ActionKind kind);

struct Action {
  ActionKind kind = ActionKind::kIdle;
  int32_t stage = 0;
  int32_t micro = 0;  // 0 where the kind has none
  bool operator==(const Action&) const = default;
};

// "3SEND_F1", "0UNSHARD"; empty for kIdle.
std::string action_text(const Action& action);

// table[r] is what rank r of the pipeline runs, in this order.
using ScheduleTable = std::vector<std::vector<Action>>;

}  // namespace hpctl
