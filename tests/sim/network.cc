// SPDX-License-Identifier: Apache-2.0
// Streams between agents and controller.
#include <algorithm>
#include <utility>

#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr int64_t kReconnectMsMax = 500;

}  // namespace

// Tries until a controller listens and the network lets it through.
void Cluster::connect(SimNode& node) {
  after_in_life(node, 1 + static_cast<int64_t>(rng_.below(kReconnectMsMax)), [this, &node] {
    if (!node.agent_alive || node.stream != 0) return;
    if (!controller_.is_up() || is_silent(node)) {
      connect(node);
      return;
    }
    node.stream = next_stream_++;
    node.welcomed = false;
    node.up_clear_ms = node.down_clear_ms = 0;
    register_agent(node);
  });
}

void Cluster::register_agent(SimNode& node) {
  core::AgentRegistered hello{node.key.job,    node.key.name,  instance_id(node),      node.boot_id,
                              node.holder_pid, node.agent_pid, {node.generation_seen}, {}};
  for (const auto& [rank, worker] : node.workers) {
    hello.workers.push_back({Rank{rank}, {worker.generation}, worker.pid});
  }
  hello.tells_ready = true;
  // One in three is of an older release.
  hello.confirms_damage = node.key.name.back() % 3 != 0;
  const uint64_t stream = node.stream;
  const uint64_t incarnation = controller_.incarnation();
  after_in_life(node, delay(), [this, &node, stream, incarnation, hello] {
    if (incarnation != controller_.incarnation() || node.stream != stream) return;
    node.bound = stream;
    controller_.post(hello, [this, &node, stream,
                             instance_id = hello.instance_id](const core::StepResult& result) {
      if (result.refusal.empty()) checkers_.registered(node.key, instance_id);
      registered(node, stream, result);
    });
    if (is_silent(node)) falls_silent(node);
  });
}

// The controller's answer: refused agents end what they have and themselves.
void Cluster::registered(SimNode& node, uint64_t stream, const core::StepResult& result) {
  if (!result.refusal.empty()) {
    refuse(node);
    return;
  }
  if (node.stream != stream) return;
  prepare_as_spare(node, stream);
  send_down(node, [this, &node] {
    node.welcomed = true;
    for (const auto& [number, body] : node.reports) send_report(node, number);
  });
  const auto& open = controller_.state().index.open;
  for (const auto kind : {core::ActionKind::kStartWorkers, core::ActionKind::kStopWorkers,
                          core::ActionKind::kEndNode, core::ActionKind::kConfirmDamage}) {
    const auto it = open.find({node.key.job, kind, node.key.name});
    if (it != open.end()) perform(controller_.state().outbox.at(it->second));
  }
}

// What it takes to prepare a spare, again and again: a node may become one at any time.
void Cluster::prepare_as_spare(SimNode& node, uint64_t stream) {
  const auto takes_ms = static_cast<int64_t>(1'000 + rng_.below(20'000));
  after_in_life(node, takes_ms, [this, &node, stream] {
    if (node.stream != stream) return;
    if (controller_.is_up()) {
      const core::State& state = controller_.state();
      const auto row = state.nodes.find(node.key);
      if (row == state.nodes.end()) return;
      const bool is_spare = core::role_of(state, row->second) == core::NodeRole::kSpare;
      if (is_spare && !row->second.is_ready) {
        send_up(node, core::SpareReady{node.key.job, node.key.name, node.boot_id});
      }
    }
    prepare_as_spare(node, stream);
  });
}

void Cluster::refuse(SimNode& node) {
  after_in_life(node, delay(), [this, &node] { end_holder(node); });
}

// A connected life that the core gave up is told so.
void Cluster::node_changed(const core::Node& row) {
  const auto it = nodes_.find(row.key);
  if (it == nodes_.end() || it->second.bound == 0) return;
  const auto& former = row.former_boot_ids;
  if (std::find(former.begin(), former.end(), it->second.boot_id) != former.end()) {
    refuse(it->second);
  }
}

// Both sides notice by themselves; the controller only tells the core when no newer stream of the
// node has registered since.
void Cluster::close_stream(SimNode& node) {
  const uint64_t stream = std::exchange(node.stream, 0);
  if (stream == 0) return;
  node.welcomed = false;
  const uint64_t incarnation = controller_.incarnation();
  const core::AgentDisconnected event{node.key.job, node.key.name, node.boot_id};
  agenda_.after(delay(), [this, &node, stream, incarnation, event] {
    if (incarnation != controller_.incarnation() || node.bound != stream) return;
    node.bound = 0;
    controller_.post(event);
    watch_silence(node, {event.boot_id, 0, incarnation, agenda_.now()});
  });
  if (node.agent_alive) {
    connect(node);
    watch_orphan(node);
  }
}

void Cluster::send_up(SimNode& node, core::EventBody body, SimController::Done done) {
  const uint64_t stream = node.stream;
  if (stream == 0) return;
  node.last_contact_ms = agenda_.now();
  const uint64_t incarnation = controller_.incarnation();
  int64_t at = agenda_.now() + delay();
  if (!swarm_.reorder) at = std::max(at, node.up_clear_ms);
  at = std::max({at, node.cut_until_ms, node.busy_until_ms});
  node.up_clear_ms = at;
  const int copies = strikes(swarm_.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    agenda_.after(at - agenda_.now() + i * delay(), [this, &node, stream, incarnation, body, done] {
      const bool broken = node.stream != stream || incarnation != controller_.incarnation();
      if (broken && !rng_.chance(swarm_.late_message)) return;
      controller_.post(body, done);
    });
  }
}

void Cluster::send_down(SimNode& node, std::function<void()> task) {
  const uint64_t stream = node.bound;
  const uint64_t life = node.life;
  int64_t at = agenda_.now() + delay();
  if (!swarm_.reorder) at = std::max(at, node.down_clear_ms);
  at = std::max({at, node.cut_until_ms, node.busy_until_ms});
  node.down_clear_ms = at;
  const int copies = strikes(swarm_.duplicate) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    agenda_.after(at - agenda_.now() + i * delay(), [this, &node, stream, life, task] {
      if (node.life != life || !node.agent_alive) return;
      if (node.stream != stream && !rng_.chance(swarm_.late_message)) return;
      node.last_contact_ms = agenda_.now();
      task();
    });
  }
}

// Durable reports: kept by the holder until acknowledged, repeated on every new stream.
void Cluster::report(SimNode& node, core::EventBody body) {
  const uint64_t number = node.next_report++;
  node.reports.emplace(number, std::move(body));
  if (node.welcomed) send_report(node, number);
}

void Cluster::send_report(SimNode& node, uint64_t number) {
  const uint64_t life = node.life;
  const core::EventBody& body = node.reports.at(number);
  send_up(node, body, [this, &node, life, number, body](const core::StepResult&) {
    if (const auto* bad_step = std::get_if<core::BadStepFound>(&body)) {
      checkers_.bad_step_acknowledged(*bad_step);
    }
    if (node.life != life || node.bound == 0) return;
    send_down(node, [&node, number] { node.reports.erase(number); });
  });
}

// Nobody controls the job: the agent ends everything within a stated bound.
void Cluster::watch_orphan(SimNode& node) {
  after_in_life(node, swarm_.orphan_timeout_ms, [this, &node] {
    if (node.stream != 0) return;
    if (agenda_.now() - node.last_contact_ms >= swarm_.orphan_timeout_ms) end_holder(node);
  });
}

}  // namespace hpctl::sim
