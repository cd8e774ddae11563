// SPDX-License-Identifier: Apache-2.0
// Whether a silent node is lost. Silence alone says little: an agent on a busy machine is late, and
// where training goes on that hurts nobody. So it is judged together with what the others see of
// the job, and with whether the node's holder can be reached directly:
//
//   training                                   holder probed    silent for             verdict
//   no rank moved for > heartbeat_timeout,     answered         > 3 heartbeat_timeout  lost
//     or this node has none                    otherwise        > heartbeat_timeout    lost
//   goes on: ranks elsewhere move              -                any                    nothing
//   stands still, ranks elsewhere wait in a    no answer        >= 6 beats             lost
//     collective; or a recovery has stopped it
//   peers say that a connection broke, and     no answer, or    >= 6 beats             lost
//     nobody's death explains it               not possible
//   a command's next step is overdue: those    no answer        as long, too           lost
//     who told the last ones tell none
//   does not visibly go on                     refused          >= 3 beats             lost
//
// A step takes every rank. So while any rank of the job moves, all nodes with ranks train, whoever
// of them is heard: the controller's network is not the training's. That proves nothing of a node
// without ranks, of a command, or once a recovery has stopped the ranks: there the silence alone is
// compared with heartbeat_timeout. Of a node that trained on for heartbeat_timeout after it was
// last heard it is known that only that network is away: that its holder does not answer is no news
// then, and a moment in which the others wait for it, as there are in any training, no reason.
//
// Whether the stream of the node's agent is open makes no difference. Only a node of which this
// process of the controller has heard nothing yet is not judged here: what it has is not known, and
// the core has a deadline for it (limits.register). But for one: the node on which the controller
// ran that this one succeeds. There something listened that no longer answers; that it is silenced
// with its machine is likely, and its peers' standstill is as good a proof as of any other node.
//
// Silence is counted in beats that were due. Of a job of many nodes most beat seldom while training
// visibly goes on (beats.h), and of these no silence is short enough to say anything but by
// heartbeat_timeout. When training does not visibly go on they are asked to beat; from there on
// their silence counts, and shorter: an agent that is asked answers at once, so
//
//   probed                     after 1 beat of silence, instead of 3, and before it is sure that
//                              training stands still: it was asked because it seemed to
//   lost, no answer            after 4, instead of 6
//   lost, refused              after 1, instead of 3: a refusal needs no patience
//   lost, not possible         after 6: there the silence is all that there is
//
// From 3 beats on the holder of a node is probed whose training does not visibly go on. A probe
// that is refused is proof (the machine answers, and nobody holds the node), one that is answered
// proves the opposite: the machine is up, and a holder replaces an agent that hangs. Such a node
// gets no processor, and being launched anew would not give it one; it has three times
// heartbeat_timeout.
//
// A command shows no collectives: there the timeouts, a refusal and what its peers' exits say
// count, and its steps where it tells them. That ranks wait for the node is known of these only
// when a step is overdue: by three times the longest of the last pauses between two, and 2 s. The
// silence has to last as long, so a machine that pauses for less is not lost, nor one that only the
// controller does not reach: there the steps of the others go on. Somebody has to be heard who told
// the newest steps with the silent node: where rank 0 alone tells any, and is silent itself,
// nothing is known. A save or an evaluation is a pause like any other; a rare one can look like a
// standstill, and then a machine that cannot be reached meanwhile is lost, sooner than by
// heartbeat_timeout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "controller/core/beats.h"
#include "controller/core/types.h"

namespace hpctl::core {

inline constexpr int64_t kProbeAfterMs = 3 * kBeatMs;  // of silence
inline constexpr int64_t kSilentMs = 6 * kBeatMs;
// Of a node that was asked to beat.
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
  kSeen,     // SilentNode::still_ms and peers_wait tell
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

struct SilentNode {
  int64_t silent_ms = 0;
  int64_t unasked_ms = 0;  // of it at first, in which no beat was due: it beats seldom
  bool was_asked = false;  // then, to beat often, and has not been heard since
  int64_t timeout_ms = 0;  // recovery.heartbeat_timeout
  TrainingSight training = TrainingSight::kUnseen;
  int64_t still_ms = 0;  // of kSeen: since no rank on a node that is heard has moved
  bool peers_wait =
      false;  // of kSeen: each of these ranks waits in a collective, and there are any
  bool is_command = false;  // of kSeen: it tells steps, and shows no collectives
  // Of a command: the longest of the last pauses between two steps; 0 = it is not known, or nobody
  // is heard who told them lately.
  int64_t longest_pause_ms = 0;
  // Since a rank of the running generation last moved, on whatever node; kNeverMs: nothing runs, or
  // this node has no rank of it. Less than its silence: it trained after it was last heard.
  int64_t trained_ms = kNeverMs;
  bool peers_broke = false;  // workers elsewhere lost a connection, and no cause is known yet
  HolderProbe probe = HolderProbe::kImpossible;
};

struct SilenceVerdict {
  enum class Kind { kNothing, kProbe, kLost };
  Kind kind = Kind::kNothing;
  std::string reason;  // of kLost, for people
};

// Of silence in which a beat was due; before, nothing is found but by heartbeat_timeout.
int64_t probe_after_ms(bool was_asked);

// A command whose steps pause for longer does not go on; 0 = that is not known.
int64_t overdue_after_ms(int64_t longest_pause_ms);

SilenceVerdict judge_silence(const SilentNode& node);

// What the job's row says of its training: kStopped or kUnseen, and peers_broke.
SilentNode seen_in(const Job& job);

}  // namespace hpctl::core
