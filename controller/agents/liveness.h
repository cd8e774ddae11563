// SPDX-License-Identifier: Apache-2.0
// The time of each agent's last heartbeat, and whether its holder answers: a soft table, never
// stored. Only the transition is an event (NodeLost). The core judges the silence of a node
// (controller/core/failure_detector.h); this table has the facts. A node is in the table from its
// agent's first registration with this process until the node is given up, also while the stream is
// closed: the core has no deadline for it then. The node of the former controller is in the table
// even before it registers.
//
// A holder counts as one that can be probed when it has answered once, just after its agent
// registered: behind a firewall, a silent probe says nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "controller/core/events.h"
#include "controller/core/failure_detector.h"

namespace hpctl {

// Any thread.
class Liveness {
 public:
  // probe_at: "IP:PORT" of the holder; "" = it cannot be probed.
  void watch(const core::NodeKey& node, const std::string& boot_id, int64_t timeout_ms,
             int64_t now_ms, const std::string& probe_at = "");
  // A node of which this process has heard nothing yet, and whose machine answered at `probe_at`
  // before: a controller that agents were connected to listened there. Refused, it is only that
  // process that is gone. Until it registers or is given up.
  void expect(const core::NodeKey& node, int64_t timeout_ms, int64_t now_ms,
              const std::string& probe_at);
  void heard(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms);
  // The node gets the order to send heartbeats each kBeatMs, or only each `every_ms` from now on.
  // The end of a stream counts as an order too: the next stream has to begin.
  void may_beat_seldom(const core::NodeKey& node, const std::string& boot_id, int64_t every_ms);
  void asked_to_beat(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms);
  // Its stream has ended.
  void closed(const core::NodeKey& node, const std::string& boot_id, int64_t now_ms);
  void forget(const core::NodeKey& node, const std::string& boot_id);
  // The core does not count on this node any more; one whose stream is open is watched on.
  // `is_awaited`: it waits for its registration; one that is expected is watched on.
  void given_up(const core::NodeKey& node, bool is_awaited = false);
  // Names of the job's nodes with an open stream and a heartbeat within kHeardMs, plus the node's
  // longer heartbeat interval. A stream alone says little: if the network is down, it stays open
  // until gRPC's keepalive ends it. In a suspended job silence says nothing, and the open streams
  // count.
  std::set<std::string> heard_nodes(JobId job, int64_t now_ms);
  // As long as an agent that finds no controller waits before it starts a successor
  // (agent/core/reconnect.h): a controller that is cut off stops its sign of life by then.
  static constexpr int64_t kHeardMs = 3'000;
  // Everybody gets a fresh deadline.
  void rearm(int64_t now_ms);
  // The job is suspended, even if some of its nodes still report: none is lost before rearm().
  void suspend(JobId job);
  void rearm(JobId job, int64_t now_ms);
  // Jobs whose nodes have all been silent for half their time: the scheduler may have suspended
  // them. None of their nodes is lost until the scheduler has answered; each job once, until one of
  // its nodes reports again. Half: they fall silent one after the other, and the first must not be
  // lost before the last counts.
  std::vector<JobId> take_silent_jobs(int64_t now_ms);
  // It is not suspended.
  void answered(JobId job);

  struct Probe {
    core::NodeKey node;
    std::string boot_id;
    std::string address;
  };
  struct Findings {
    std::vector<core::NodeLost> lost;  // they leave the table
    std::vector<Probe> probes;         // to be made; at most kProbesAtOnce
  };
  static constexpr size_t kProbesAtOnce = 64;
  // Facts about the training of a job, for each of its silent nodes.
  using Sight = std::function<std::map<std::string, core::NodeObservation>(
      JobId job, const std::set<std::string>& silent)>;
  Findings judge(int64_t now_ms, const Sight& sight);
  // True when it is this holder's first answer: from now on its silence and a refusal count.
  bool probed(const Probe& probe, core::HolderProbe answer);

 private:
  enum class Beats {
    kOften,
    kSeldom,
    kAsked,  // to beat often, and not heard since
  };
  struct Entry {
    std::string boot_id;
    int64_t timeout_ms = 0;
    int64_t heard_ms = 0;
    Beats beats = Beats::kOften;
    int64_t seldom_every_ms = 0;  // while kSeldom
    int64_t often_since_ms = 0;   // unless it beats seldom
    bool is_closed = false;
    std::string probe_at;
    bool can_be_probed = false;  // it answered once
    bool is_expected = false;    // expect()
    bool was_probed = false;
    int64_t probed_ms = 0;
    core::HolderProbe answer = core::HolderProbe::kAsked;  // of the newest
  };

  Entry* find(const core::NodeKey& node, const std::string& boot_id);
  static int64_t awaited_ms(const Entry& entry, int64_t now_ms);
  static bool is_heard(const Entry& entry, int64_t now_ms);
  static core::HolderProbe probe_of(const Entry& entry, int64_t now_ms);
  static void begin_probe(const core::NodeKey& node, Entry& entry, int64_t now_ms, Findings& out);
  void judge_one(const core::NodeKey& node, const core::NodeObservation& seen, int64_t now_ms,
                 Findings& out);
  bool is_held(JobId job) const;

  std::mutex mutex_;
  std::map<JobId, bool> silent_jobs_;  // whether somebody answered
  std::set<JobId> suspended_;
  std::map<core::NodeKey, Entry> entries_;
};

}  // namespace hpctl
