// SPDX-License-Identifier: Apache-2.0
// Whether a silent node is lost. Silence alone says little: an agent on a busy machine is late, and
// where training goes on that hurts nobody. So it is judged together with what the others see of
// the job, and with whether the node's holder can be reached directly:
//
//   training                                   holder probed    silent for             verdict
//   (any)                                      (any)            > heartbeat_timeout    lost
//   goes on: ranks elsewhere move              -                less                   nothing
//   stands still, ranks elsewhere wait in a    no answer        >= 6 beats             lost
//     collective; or a recovery has stopped it
//   peers say that a connection broke, and     no answer, or    >= 6 beats             lost
//     nobody's death explains it               not possible
//   does not visibly go on                     refused          >= 3 beats             lost
//
// From 3 beats on the holder of a node is probed whose training does not visibly go on. A probe
// that is refused is proof (the machine answers, and nobody holds the node), one that is answered
// proves the opposite: such a node has until heartbeat_timeout. A command shows no progress: there
// the timeout, a refusal and what its peers' exits say count.
#pragma once

#include <cstdint>
#include <string>

#include "controller/core/types.h"

namespace hpctl::core {

inline constexpr int64_t kBeatMs = 100;                // between two heartbeats of an agent
inline constexpr int64_t kProbeAfterMs = 3 * kBeatMs;  // of silence
inline constexpr int64_t kSilentMs = 6 * kBeatMs;
// No rank elsewhere moved for so long: it is more than the gap between two beats.
inline constexpr int64_t kStillMs = 3 * kBeatMs;

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

struct SilentNode {
  int64_t silent_ms = 0;
  int64_t timeout_ms = 0;  // recovery.heartbeat_timeout
  TrainingSight training = TrainingSight::kUnseen;
  int64_t still_ms = 0;  // of kSeen: since no rank on a node that is heard has moved
  bool peers_wait =
      false;  // of kSeen: each of these ranks waits in a collective, and there are any
  bool peers_broke = false;  // workers elsewhere lost a connection, and no cause is known yet
  HolderProbe probe = HolderProbe::kImpossible;
};

struct SilenceVerdict {
  enum class Kind { kNothing, kProbe, kLost };
  Kind kind = Kind::kNothing;
  std::string reason;  // of kLost, for people
};

SilenceVerdict judge_silence(const SilentNode& node);

// What the job's row says of its training: kStopped or kUnseen, and peers_broke.
SilentNode seen_in(const Job& job);

}  // namespace hpctl::core
