// SPDX-License-Identifier: Apache-2.0
// Whether a silent node is lost. Silence alone says little: an agent on a busy machine is late, and
// while training goes on that does no harm. So silence is judged together with the other nodes'
// reports about the job, and with a direct probe of the node's holder:
//
//   training                                   holder probed    silent for             verdict
//   no rank moved for > heartbeat_timeout,     answered         > 3 heartbeat_timeout  lost
//     or this node has none                    otherwise        > heartbeat_timeout    lost
//   goes on: ranks elsewhere move              -                any                    nothing
//   stopped, ranks elsewhere wait in a         no answer        >= 6 beats             lost
//     collective; or a recovery has stopped it
//   peers report a broken connection that      no answer, or    >= 6 beats             lost
//     no death explains                        not possible
//   a command's next step is overdue: the      no answer        as long, too           lost
//     reporters of the last ones report none
//   does not visibly go on                     refused          >= 3 beats             lost
//
// A step takes every rank. So while any rank of the job moves, all nodes with ranks train, even
// silent ones: the controller's network is not the training's. This proves nothing for a node
// without ranks, for a command, or once a recovery has stopped the ranks; there only the silence is
// compared with heartbeat_timeout. If a node kept training for heartbeat_timeout after its last
// heartbeat, only the control network is down. A failed probe then proves nothing, and neither does
// a moment in which the others wait for the node, as in any training.
//
// It makes no difference whether the stream of the node's agent is open. A node that has never
// reported to this process of the controller is not judged here: its state is unknown, and the core
// has a deadline for it (limits.register). The one exception is the node of the former controller.
// Its listener no longer answers, so its machine is probably down, and if its peers wait, that
// proves as much as for any other node.
//
// Silence is counted in heartbeats that were due. In a job of many nodes most have a longer
// interval while training visibly goes on (beats.h), and only heartbeat_timeout is long enough to
// judge their silence. When training does not visibly go on, they are asked for heartbeats. From
// there on their silence counts, with shorter limits, because an agent answers such a request at
// once:
//
//   probed                     after 1 beat of silence, instead of 3, and before it is sure that
//                              training has stopped: the request came because it seemed to
//   lost, no answer            after 4, instead of 6
//   lost, refused              after 1, instead of 3: a refusal needs no patience
//   lost, not possible         after 6: there only the silence counts
//
// From 3 beats on, the holder of a node is probed if training does not visibly go on. A refused
// probe is proof: the machine answers, and the node has no holder. An answered probe proves the
// opposite: the machine is up, and a holder replaces an agent that hangs. Such a node gets no CPU
// time, and another launch would not give it any; it has three times heartbeat_timeout.
//
// A command shows no collectives. There the timeouts, a refusal and its peers' exits count, and its
// steps if it reports them. Only an overdue step shows that ranks wait for the node: overdue by
// three times the longest of the last pauses between two steps, and 2 s. The silence has to last as
// long. So a machine that pauses for less is not lost, nor one that only the controller does not
// reach, since the others' steps go on. Another node must report that also reported the newest
// steps: if only rank 0 reports steps, and is silent itself, nothing is known. A save or an
// evaluation is a pause like any other. A rare one can look like a hang, and then an unreachable
// machine is lost sooner than by heartbeat_timeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "controller/core/beats.h"
#include "controller/core/types.h"

namespace hpctl::core {

inline constexpr int64_t kProbeAfterMs = 3 * kBeatMs;  // of silence
inline constexpr int64_t kSilentMs = 6 * kBeatMs;
// For a node that was asked for heartbeats.
inline constexpr int64_t kProbeAskedAfterMs = kBeatMs;
inline constexpr int64_t kSilentAskedMs = 4 * kBeatMs;
// No rank elsewhere moved for so long: it is more than the gap between two beats.
inline constexpr int64_t kStillMs = 3 * kBeatMs;
inline constexpr int64_t kNeverMs = INT64_MAX;
// No step of a command was completed for so long, nor for so many times the longest pause.
inline constexpr int64_t kStepOverdueMs = 2'000;
inline constexpr int64_t kStepOverdueTimes = 3;
inline constexpr size_t kLeastPauses = 8;  // of fewer nobody knows what is usual
// A node whose holder answers has so many times heartbeat_timeout.
inline constexpr int64_t kAnsweredTimes = 3;

enum class TrainingSight {
  kUnseen,   // a command, or no step of this generation yet
  kSeen,     // NodeObservation::still_ms and peers_wait tell
  kStopped,  // a recovery has ended it, and waits for all its nodes
};

enum class HolderProbe {
  kImpossible,  // its holder cannot be probed, or never answered a probe while the node was heard
  kNotAsked,    // since it fell silent, or too long ago
  kAsked,       // the answer is awaited
  kAnswered,
  kUnanswered,
  kRefused,
};

// Of other nodes the core expects nothing.
constexpr bool is_watched(NodeState state) {
  return state == NodeState::kUp || state == NodeState::kEnding;
}

struct NodeObservation {
  int64_t silent_ms = 0;
  int64_t unasked_ms = 0;  // of it at first, in which no beat was due: it beats seldom
  bool was_asked = false;  // then, to beat often, and has not been heard since
  int64_t timeout_ms = 0;  // recovery.heartbeat_timeout
  TrainingSight training = TrainingSight::kUnseen;
  int64_t still_ms = 0;  // of kSeen: since no rank on a node that is heard has moved
  bool peers_wait =
      false;  // of kSeen: each of these ranks waits in a collective, and there are any
  bool is_command = false;  // of kSeen: it tells steps, and shows no collectives
  // For a command: the longest of the last pauses between two steps; 0 = unknown, or no node
  // reports that reported them lately.
  int64_t longest_pause_ms = 0;
  // Since a rank of the running generation last moved, on whatever node; kNeverMs: nothing runs, or
  // this node has no rank of it. Less than its silence: it trained after it was last heard.
  int64_t trained_ms = kNeverMs;
  bool peers_broke = false;  // workers elsewhere lost a connection, and no cause is known yet
  HolderProbe probe = HolderProbe::kImpossible;
};

struct FailureVerdict {
  enum class Kind { kNothing, kProbe, kLost };
  Kind kind = Kind::kNothing;
  std::string reason;  // of kLost, for people
};

// Of silence in which a beat was due; before, nothing is found but by heartbeat_timeout.
int64_t probe_after_ms(bool was_asked);

// A command whose steps pause for longer does not go on; 0 = that is not known.
int64_t overdue_after_ms(int64_t longest_pause_ms);

FailureVerdict judge_node(const NodeObservation& node);

// The training state from the job's row: kStopped or kUnseen, and peers_broke.
NodeObservation seen_in(const Job& job);

}  // namespace hpctl::core
