// SPDX-License-Identifier: Apache-2.0
// The agents' side of the controller: which stream belongs to which node, what their messages mean
// to the core, and how actions reach them.
//
// An agent is connected from the commit of its registration until its stream ends; a newer stream
// of the same node replaces the older. Actions are sent when they are decided and, because that
// may have met no stream, again after every registration: all that the outbox holds for the node.
// Durable reports are acknowledged after their commit, also when the core refused them as repeated.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "common/job/paths.h"
#include "controller/access/gate.h"
#include "controller/agents/agent_session.h"
#include "controller/agents/liveness.h"
#include "controller/agents/progress.h"
#include "controller/agents/rendezvous_ports.h"
#include "controller/agents/told_nodes.h"
#include "controller/agents/worker_order.h"
#include "controller/engine/owner_loop.h"
#include "controller/schedulers/scheduler.h"

namespace hpctl {

class AgentLink final
    : public v1::AgentLink::WithRawCallbackMethod_Connect<v1::AgentLink::Service> {
 public:
  // Returns whether earlier jobs blamed a node and its instance so much that it gets ranks last.
  // Any thread.
  using IsLemon = std::function<bool(const std::string& node, const std::string& instance)>;

  // `own_node`: the job's node that this controller runs on; "" = none is.
  AgentLink(const HomePaths& paths, const Gate& gate, OwnerLoop& loop, Liveness& liveness,
            ProgressTable& progress, Scheduler& scheduler, const RendezvousPorts& ports,
            IsLemon is_lemon, std::string own_node = "");

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Connect(
      grpc::CallbackServerContext* context) override;

  // Owner thread. Sends the action if its agent is connected. Precondition: agent_of(action).
  void perform(const core::Action& action, const core::State& state);

  // Owner thread. The order of an event FaultInjected, for the agent of that node. If there is no
  // stream any more, the history records that it did not happen.
  void inject(const core::NodeKey& node, const v1::InjectFault& order);

  // Owner thread. The job trains again: its nodes without ranks prepare standbys, and so do nodes
  // that come later.
  void trains(JobId job, const core::State& state);
  // Owner thread. Likewise of one node, if it is one of them; a repetition changes nothing.
  void stand_by(const core::NodeKey& node, const core::State& state);

  // Owner thread. For its agents that know it; agents that come later get it as well.
  void order_beats(core::BeatOrder order);

  // Owner thread. Between the two, no node of the job gets the order to end: another step comes
  // first.
  void hold_ends(JobId job) { held_.insert(job); }
  void release_ends(JobId job, const core::State& state);

  // Owner thread, after a commit: cuts off lives that the core gave up; such an agent ends its
  // workers and itself.
  void refuse_former_lives(const core::State& state, const core::Dirty& dirty);

  // Those that were told to end by a signal.
  ToldNodes& told_nodes() { return told_nodes_; }

  size_t connected() const;
  uint64_t heartbeats() const { return heartbeats_; }
  void close_all();

 private:
  void received(AgentSession& session, const v1::AgentMessage& message);
  void refuse(AgentSession& session, const std::string& problem) const;
  void closed(AgentSession& session);
  void register_agent(AgentSession& session, const v1::AgentMessage& message);
  void attach(const std::shared_ptr<AgentSession>& session, const core::State& state,
              uint64_t holder_pid, const std::string& probe_at);
  void heartbeat(const AgentSession& session, const v1::Heartbeat& heartbeat);
  void report(AgentSession& session, const v1::AgentMessage& message);
  void tell_to_beat(AgentSession& session, const core::BeatOrder& order);
  void tell_ready(const AgentSession::Identity& who);
  void tell_progress(JobId job);
  std::shared_ptr<AgentSession> session_of(const core::NodeKey& node) const;

  const HomePaths paths_;
  const Gate& gate_;
  OwnerLoop& loop_;
  Liveness& liveness_;
  ProgressTable& progress_;
  Scheduler& scheduler_;
  const IsLemon is_lemon_;
  const std::string own_node_;
  OrderMaker orders_;  // owner thread only
  ToldNodes told_nodes_;
  std::atomic<uint64_t> heartbeats_{0};
  mutable std::mutex mutex_;
  std::map<core::NodeKey, std::shared_ptr<AgentSession>> sessions_;
  // By life of a node, the stream whose registration was taken up last, until it has ended. Owner
  // thread only.
  std::map<std::pair<core::NodeKey, std::string>, const AgentSession*> newest_;
  std::set<JobId> held_;                     // owner thread only
  std::map<JobId, core::BeatOrder> seldom_;  // of jobs whose nodes beat seldom; likewise
};

}  // namespace hpctl
