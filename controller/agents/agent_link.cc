// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/agent_link.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "controller/agents/agent_report.h"
#include "controller/core/hang.h"

namespace hpctl {
namespace {

constexpr int64_t kMinHeartbeatMs = 20;
constexpr size_t kReasonBytes = 200;

v1::ControllerMessage make_welcome(const core::Job& job) {
  v1::ControllerMessage message;
  message.set_job(job.id.value);
  v1::Welcome& welcome = *message.mutable_welcome();
  welcome.set_controller_pid(static_cast<uint64_t>(::getpid()));
  welcome.set_heartbeat_interval_ms(static_cast<uint32_t>(
      std::clamp(job.spec.recovery.heartbeat_timeout_ms / core::kBeatsPerTimeout, kMinHeartbeatMs,
                 core::kBeatMs)));
  welcome.set_orphan_timeout_ms(static_cast<uint32_t>(job.limits.orphan_ms));
  const int64_t hang_ms = job.spec.recovery.hang_timeout_ms;
  welcome.set_hang_timeout_ms(static_cast<uint32_t>(hang_ms > 0 ? hang_ms : core::kHangFloorMs));
  welcome.set_exits_together(true);
  return message;
}

v1::ControllerMessage make_refusal(uint64_t job, const std::string& reason) {
  v1::ControllerMessage message;
  message.set_job(job);
  message.mutable_refused()->set_reason(reason);
  message.mutable_refused()->set_permanent(true);
  return message;
}

// The open actions of the node's agent, oldest first: the index finds them, because all agents of a
// job may come at once and the outbox has an order for each of them.
std::set<ActionId> open_orders(const core::State& state, const core::NodeKey& node) {
  std::set<ActionId> orders;
  for (const auto kind : {core::ActionKind::kStartWorkers, core::ActionKind::kStopWorkers,
                          core::ActionKind::kEndNode, core::ActionKind::kConfirmDamage}) {
    const auto open = state.index.open.find({node.job, kind, node.name});
    if (open != state.index.open.end()) orders.insert(open->second);
  }
  return orders;
}

std::pair<core::NodeKey, std::string> life_of(const AgentSession& session) {
  return {session.identity().node, session.identity().boot_id};
}

}  // namespace

AgentLink::AgentLink(const HomePaths& paths, const Gate& gate, OwnerLoop& loop, Liveness& liveness,
                     ProgressTable& progress, Scheduler& scheduler, const RendezvousPorts& ports,
                     IsLemon is_lemon, std::string own_node)
    : paths_(paths),
      gate_(gate),
      loop_(loop),
      liveness_(liveness),
      progress_(progress),
      scheduler_(scheduler),
      is_lemon_(std::move(is_lemon)),
      own_node_(std::move(own_node)),
      orders_(paths, ports) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* AgentLink::Connect(
    grpc::CallbackServerContext* context) {
  // A reactor that only says no.
  class Refusal final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Refusal(grpc::Status status) { Finish(std::move(status)); }
    void OnDone() override { delete this; }
  };
  const Entry entry = gate_.enter(*context, Rpc::kConnect);
  if (!entry) return new Refusal(entry.refusal);
  const auto session = std::make_shared<AgentSession>(
      *entry,
      [this](AgentSession& s, const v1::AgentMessage* m) {
        m == nullptr ? refuse(s, "its bytes are no AgentMessage") : received(s, *m);
      },
      [this](AgentSession& s) { closed(s); });
  session->start();
  return session.get();
}

void AgentLink::received(AgentSession& session, const v1::AgentMessage& message) {
  if (session.identity().boot_id.empty()) {
    register_agent(session, message);
    return;
  }
  const AgentSession::Identity& who = session.identity();
  if (message.job() != who.node.job.value || message.node() != who.node.name ||
      message.boot_id() != who.boot_id || message.has_register_agent()) {
    refuse(session, "one stream is one life of one node");
    return;
  }
  if (const std::string problem = find_report_problem(message); !problem.empty()) {
    refuse(session, problem);
    return;
  }
  liveness_.heard(who.node, who.boot_id, loop_.now_ms());
  if (message.has_heartbeat()) {
    heartbeat(session, message.heartbeat());
  } else if (message.has_told_to_end()) {
    told_nodes_.told(who.node, who.boot_id,
                     printable_line(message.told_to_end().reason(), kReasonBytes), loop_.now_ms());
  } else {
    report(session, message);
  }
}

// It is recorded like a refused call: the bearer of an agent's token may flood.
void AgentLink::refuse(AgentSession& session, const std::string& problem) const {
  const AgentSession::Identity& who = session.identity();
  if (!who.boot_id.empty()) {
    log_warning("the agent of " + who.node.name + " of job " + to_string(who.node.job) +
                " is not accepted any more: " + problem);
  }
  const grpc::Status status(grpc::StatusCode::INVALID_ARGUMENT, problem);
  gate_.refused_stream(session.caller(), Rpc::kConnect, who.node.job.value, status);
  session.close(status);
}

void AgentLink::register_agent(AgentSession& session, const v1::AgentMessage& message) {
  if (const std::string problem = find_registration_problem(message); !problem.empty()) {
    refuse(session, problem);
    return;
  }
  session.set_identity({{JobId{message.job()}, message.node()},
                        message.boot_id(),
                        beats_as_told(message.register_agent())});
  // Its time to reconnect does not end while its registration is being committed.
  liveness_.forget(session.identity().node, "");  // expected: here it is
  liveness_.heard(session.identity().node, message.boot_id(), loop_.now_ms());
  HP_FAILPOINT("controller.register.received");
  const auto shared = session.shared_from_this();
  core::AgentRegistered registration = make_registration(message);
  registration.lemon = is_lemon_(registration.node, registration.instance_id);
  registration.beside_controller = registration.node == own_node_;
  loop_.post(
      [this, shared, registration = std::move(registration)](
          const core::State&) -> std::optional<core::EventBody> {
        newest_[life_of(*shared)] = shared.get();
        return registration;
      },
      [this, shared, holder_pid = message.register_agent().holder_pid(),
       probe_at = probe_address(message.register_agent())](const core::StepResult* result,
                                                           const core::State* state) {
        if (result == nullptr) {
          shared->close({grpc::StatusCode::UNAVAILABLE, "the controller is stopping"});
        } else if (!result->refusal.empty()) {
          shared->send(make_refusal(shared->identity().node.job.value, result->refusal));
          shared->close(grpc::Status::OK);
        } else {
          attach(shared, *state, holder_pid, probe_at);
        }
      });
}

void AgentLink::attach(const std::shared_ptr<AgentSession>& session, const core::State& state,
                       uint64_t holder_pid, const std::string& probe_at) {
  const core::NodeKey& node = session->identity().node;
  const core::Job& job = state.jobs.at(node.job);
  std::shared_ptr<AgentSession> former;
  bool is_over = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over = session->is_over;
    if (!is_over) former = std::exchange(sessions_[node], session);
    if (!is_over || core::is_watched(state.nodes.at(node).state)) {
      liveness_.watch(node, session->identity().boot_id, job.spec.recovery.heartbeat_timeout_ms,
                      loop_.now_ms(), probe_at);
    }
    if (is_over) liveness_.closed(node, session->identity().boot_id, loop_.now_ms());
  }
  scheduler_.registered(node, holder_pid);
  if (is_over) return;  // the stream ended while its registration was being committed
  if (former != nullptr) {
    former->close({grpc::StatusCode::ABORTED, "a newer stream of this node took over"});
  }
  HP_FAILPOINT("controller.welcome.before");
  session->send(make_welcome(job));
  HP_FAILPOINT("controller.welcome.after");
  for (const ActionId id : open_orders(state, node)) perform(state.outbox.at(id), state);
  stand_by(node, state);
  if (const auto order = seldom_.find(node.job); order != seldom_.end()) {
    tell_to_beat(*session, order->second);
  }
}

void AgentLink::order_beats(core::BeatOrder order) {
  std::vector<std::shared_ptr<AgentSession>> sessions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto it = sessions_.lower_bound({order.job, ""});
         it != sessions_.end() && it->first.job == order.job; ++it) {
      sessions.push_back(it->second);
    }
  }
  for (const auto& session : sessions) tell_to_beat(*session, order);
  if (order.interval_ms > core::kBeatMs) {
    seldom_[order.job] = std::move(order);
  } else {
    seldom_.erase(order.job);
  }
}

void AgentLink::tell_to_beat(AgentSession& session, const core::BeatOrder& order) {
  const AgentSession::Identity& who = session.identity();
  if (!who.beats_as_told || order.sentinels.contains(who.node.name)) return;
  const bool seldom = order.interval_ms > core::kBeatMs;
  if (seldom) liveness_.may_beat_seldom(who.node, who.boot_id, order.interval_ms);
  v1::ControllerMessage message;
  message.set_job(who.node.job.value);
  message.mutable_beat_every()->set_interval_ms(static_cast<uint32_t>(order.interval_ms));
  session.send(std::move(message));
  if (!seldom) liveness_.asked_to_beat(who.node, who.boot_id, loop_.now_ms());
}

void AgentLink::stand_by(const core::NodeKey& node, const core::State& state) {
  if (!stands_by(state, node)) return;
  if (const auto session = session_of(node)) session->send(make_stand_by(node, state, paths_));
}

void AgentLink::trains(JobId job, const core::State& state) {
  for (auto row = state.nodes.lower_bound({job, ""});
       row != state.nodes.end() && row->first.job == job; ++row) {
    stand_by(row->first, state);
  }
}

// The end of a stream and the registration of the next one of the same life come by different
// threads, in any order. Only the owner thread knows which stream the rows speak of.
void AgentLink::closed(AgentSession& session) {
  const AgentSession::Identity& who = session.identity();
  if (who.boot_id.empty()) return;  // it has not registered
  tell_progress(who.node.job);
  loop_.post([this, shared = session.shared_from_this()](
                 const core::State& state) -> std::optional<core::EventBody> {
    const AgentSession::Identity& who = shared->identity();
    const auto newest = newest_.find(life_of(*shared));
    if (newest == newest_.end() || newest->second != shared.get()) return std::nullopt;
    newest_.erase(newest);
    const auto row = state.nodes.find(who.node);
    const bool present =
        row != state.nodes.end() && row->second.connected && row->second.boot_id == who.boot_id;
    if (!present) {  // it said Goodbye, or is known to be lost
      liveness_.forget(who.node, who.boot_id);
      return std::nullopt;
    }
    return core::AgentDisconnected{who.node.job, who.node.name, who.boot_id};
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  session.is_over = true;
  const auto it = sessions_.find(who.node);
  if (it == sessions_.end() || it->second.get() != &session) return;
  liveness_.closed(who.node, who.boot_id, loop_.now_ms());
  sessions_.erase(it);
}

void AgentLink::heartbeat(const AgentSession& session, const v1::Heartbeat& heartbeat) {
  ++heartbeats_;
  const core::NodeKey& node = session.identity().node;
  if (heartbeat.has_standbys()) {
    const v1::Standbys& standbys = heartbeat.standbys();
    progress_.report(node.job, node.name,
                     StandbyReport{session.identity().boot_id, standbys.ready(), standbys.loading(),
                                   standbys.memory_bytes()});
    if (standbys.settled()) tell_ready(session.identity());
  }
  const auto transition =
      progress_.report(node.job, node.name, make_rank_reports(heartbeat), loop_.now_ms());
  if (transition) loop_.post(*transition);
}

// The standbys of a node with ranks are not relevant to the core.
void AgentLink::tell_ready(const AgentSession::Identity& who) {
  loop_.post([who](const core::State& state) -> std::optional<core::EventBody> {
    const auto row = state.nodes.find(who.node);
    const bool is_spare = row != state.nodes.end() && row->second.boot_id == who.boot_id &&
                          core::role_of(state, row->second) == core::NodeRole::kSpare;
    if (!is_spare || row->second.is_ready) return std::nullopt;
    return core::SpareReady{who.node.job, who.node.name, who.boot_id};
  });
}

// The core needs this before it judges.
void AgentLink::tell_progress(JobId job) {
  if (const auto news = progress_.news(job)) loop_.post(*news);
}

void AgentLink::report(AgentSession& session, const v1::AgentMessage& message) {
  if (message.has_action_done() || message.has_action_failed()) {
    HP_FAILPOINT("controller.acknowledgement.received");
  }
  HP_FAILPOINT("controller.report.received");
  if (message.has_worker_exited() || message.has_workers_exited())
    tell_progress(session.identity().node.job);
  const auto shared = session.shared_from_this();
  loop_.post([message](const core::State& state) { return make_event(message, state); },
             [shared, job = message.job(), seq = message.report_seq(),
              first = message.workers_exited().first_report_seq()](const core::StepResult*,
                                                                   const core::State* state) {
               if (state == nullptr || seq == 0) return;  // not committed, or not durable
               v1::ControllerMessage ack;
               ack.set_job(job);
               ack.mutable_report_ack()->set_report_seq(seq);
               ack.mutable_report_ack()->set_first_report_seq(first);
               HP_FAILPOINT("controller.report_ack.before");
               shared->send(std::move(ack));
               HP_FAILPOINT("controller.report_ack.after");
             });
}

std::shared_ptr<AgentSession> AgentLink::session_of(const core::NodeKey& node) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sessions_.find(node);
  return it == sessions_.end() ? nullptr : it->second;
}

void AgentLink::perform(const core::Action& action, const core::State& state) {
  const auto* end = std::get_if<core::EndNode>(&action.body);
  if (end != nullptr && held_.contains(end->job)) return;
  if (const auto session = session_of(*agent_of(action))) {
    HP_FAILPOINT("controller.order.before");
    session->send(orders_.make(action, state));
    HP_FAILPOINT("controller.order.after");
  }
}

void AgentLink::inject(const core::NodeKey& node, const v1::InjectFault& order) {
  const auto session = session_of(node);
  if (session == nullptr) {
    loop_.post(core::FaultNotInjected{node.job, node.name, Seq{order.event_seq()},
                                      "the agent of " + node.name + " is not connected any more"});
    return;
  }
  v1::ControllerMessage message;
  message.set_job(node.job.value);
  *message.mutable_inject_fault() = order;
  session->send(std::move(message));
}

void AgentLink::release_ends(JobId job, const core::State& state) {
  if (held_.erase(job) == 0) return;
  for (const auto& [id, action] : state.outbox) {
    const auto* end = std::get_if<core::EndNode>(&action.body);
    if (end != nullptr && end->job == job) perform(action, state);
  }
}

void AgentLink::refuse_former_lives(const core::State& state, const core::Dirty& dirty) {
  for (const core::NodeKey& key : dirty.nodes) {
    const auto& former = state.nodes.at(key).former_boot_ids;
    const auto session = former.empty() ? nullptr : session_of(key);
    if (session == nullptr) continue;
    const std::string& boot_id = session->identity().boot_id;
    if (std::find(former.begin(), former.end(), boot_id) == former.end()) continue;
    session->send(make_refusal(key.job.value, "this life of " + key.name + " was declared lost"));
    session->close(grpc::Status::OK);
  }
}

size_t AgentLink::connected() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sessions_.size();
}

void AgentLink::close_all() {
  std::map<core::NodeKey, std::shared_ptr<AgentSession>> sessions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sessions.swap(sessions_);
  }
  for (const auto& [node, session] : sessions) {
    session->close({grpc::StatusCode::UNAVAILABLE, "the controller is stopping"});
  }
}

}  // namespace hpctl
