// SPDX-License-Identifier: Apache-2.0
// Nodes and their scheduler, orders, and the faults.
#include "tests/sim/cluster.h"

#include <algorithm>
#include <iterator>

namespace hpctl::sim {

namespace {

constexpr int64_t kBusyPauseMs = 5'000;
constexpr int64_t kBusyMostMs = 6'000;

}  // namespace

using core::Action;

void Cluster::add_job(JobId job) {
  if (plans_.contains(job)) return;
  const std::string& name = controller_.state().jobs.at(job).spec.name;
  const JobPlan& plan = *std::find_if(workload_.begin(), workload_.end(),
                                      [&](const JobPlan& p) { return p.spec.name == name; });
  plans_.emplace(job, plan);
  places_[job].mirror = Mirror(plan.spec.checkpoint.mirror.dir);
  for (int32_t i = 0; i < plan.spec.all_nodes(); ++i) {
    const core::NodeKey key{job, core::local_node_name(i)};
    nodes_[key].key = key;
    names_.push_back(key);
  }
  watch_job(job);
}

void Cluster::after_in_life(SimNode& node, int64_t ms, std::function<void()> task) {
  agenda_.after(ms, [&node, life = node.life, task = std::move(task)] {
    if (node.life == life && node.holder_alive) task();
  });
}

void Cluster::perform(const Action& action) {
  add_job(std::visit([](const auto& a) { return a.job; }, action.body));
  if (const auto* launch_order = std::get_if<core::LaunchNode>(&action.body)) {
    launch(action, *launch_order);
  } else if (const auto* find = std::get_if<core::FindCheckpoint>(&action.body)) {
    find_checkpoint(action, *find);
  } else if (const auto* record = std::get_if<core::RecordGeneration>(&action.body)) {
    record_generation(action, *record);
  } else if (const auto* prune = std::get_if<core::PruneCheckpoints>(&action.body)) {
    prune_checkpoints(action, *prune);
  } else if (const auto* copy = std::get_if<core::MirrorCheckpoint>(&action.body)) {
    mirror_checkpoint(action, *copy);
  } else if (const auto* requeue_order = std::get_if<core::RequeueJob>(&action.body)) {
    requeue(action, *requeue_order);
  } else if (const auto* replace_order = std::get_if<core::ReplaceNode>(&action.body)) {
    replace(action, *replace_order);
  } else {
    const core::NodeKey key = std::visit(
        [](const auto& a) -> core::NodeKey {
          if constexpr (requires { a.node; }) return {a.job, a.node};
          return {};
        },
        action.body);
    SimNode& node = nodes_.at(key);
    if (node.bound == 0) return;  // sent when its agent registers
    send_down(node, [this, &node, action] { receive(node, action); });
  }
}

void Cluster::receive(SimNode& node, const Action& action) {
  if (const auto* start = std::get_if<core::StartWorkers>(&action.body)) {
    start_workers(node, action.id, *start);
  } else if (const auto* stop = std::get_if<core::StopWorkers>(&action.body)) {
    stop_workers(node, action.id, *stop);
  } else if (const auto* confirm = std::get_if<core::ConfirmDamage>(&action.body)) {
    read_again(node, action.id, *confirm);
  } else {
    const core::NodeEnded goodbye{node.key.job, node.key.name, node.boot_id};
    send_up(node, goodbye);
    agenda_.after(2 * swarm_.delay_ms_max, [this, &node, life = node.life] {
      if (node.life == life && node.holder_alive) end_holder(node);
    });
  }
}

// The second reader: it cannot read, or gives no answer, as often as the controller cannot. If no
// worker complained, it may itself be wrong.
void Cluster::read_again(SimNode& node, ActionId id, const core::ConfirmDamage& order) {
  after_in_life(node, delay(), [this, &node, id, order] {
    const JobId job = node.key.job;
    const std::string& checkpoint = order.claim.checkpoint;
    core::DamageAnswered answer{id, job, node.key.name};
    if (is_out_of_reach(job, checkpoint) || strikes(swarm_.directory_fails)) {
      answer.what = kStorageError;
      if (rng_.chance(0.5)) send_up(node, answer);
      return;
    }
    const std::string damage = checkpoint.starts_with('/')
                                   ? places_.at(job).mirror.confirm(checkpoint)
                                   : directory(job).confirm(checkpoint);
    answer.what = order.before_delete ? damage : answer_claim(checkpoint, damage);
    if (order.before_delete && strikes(swarm_.false_claim)) answer.what = "its memory is broken";
    const bool is_sound = answer.what.empty();
    answer.verdict = is_sound ? core::DamageVerdict::kSound : core::DamageVerdict::kDamaged;
    if (order.before_delete && is_sound) checkers_.checkpoint_verified(job, checkpoint);
    if (!order.before_delete && !damage.empty()) checkers_.damage_confirmed(job, checkpoint);
    send_up(node, answer);
  });
}

void Cluster::controller_died() {
  for (auto& [key, node] : nodes_) {
    node.bound = 0;
    if (node.stream != 0) after_in_life(node, delay(), [this, &node] { close_stream(node); });
  }
}

// The scheduler looks at the holders: those that are believed to live and do not are reported.
void Cluster::controller_started() {
  if (!swarm_.scheduler_sees_exit) return;
  for (const auto& [key, row] : controller_.state().nodes) {
    const auto it = nodes_.find(key);
    if (it == nodes_.end() || row.holder_pid == 0) continue;
    if (!it->second.holder_alive) holder_exit_seen(it->second, row.holder_pid);
  }
}

// As the local scheduler sees it: a process it watched is gone, and no other one is the node by
// now.
void Cluster::holder_exit_seen(const SimNode& node, uint64_t pid) {
  const auto row = controller_.state().nodes.find(node.key);
  if (!controller_.is_up() || node.holder_alive || row == controller_.state().nodes.end()) return;
  const core::Node& known = row->second;
  if (known.holder_pid != pid && known.holder_pid != 0) return;
  if (known.state == core::NodeState::kDown || known.state == core::NodeState::kEnded) return;
  controller_.post(core::NodeLost{node.key.job, node.key.name, known.boot_id, "its holder exited"});
}

void Cluster::launch(const Action& action, const core::LaunchNode& order) {
  const uint64_t incarnation = controller_.incarnation();
  SimNode& node = nodes_.at({order.job, order.node});
  agenda_.after(20 + static_cast<int64_t>(rng_.below(300)), [this, &node, action, incarnation] {
    if (incarnation != controller_.incarnation()) return;
    const auto& job = node.key.job;
    if (strikes(swarm_.launch_fails)) {
      controller_.post(core::ActionFailed{action.id, job, node.key.name, "fork failed", false});
      return;
    }
    const bool adopts = swarm_.scheduler_adopts;
    if (node.holder_alive && node.launched_by != action.id && !adopts) {
      if (!swarm_.scheduler_fences || agenda_.now() < node.cut_until_ms) {
        controller_.post(core::ActionFailed{action.id, job, node.key.name,
                                            "another holder has the lock", false});
        return;
      }
      end_holder(node);
    }
    if (!node.holder_alive) start_holder(node, action.id);
    controller_.post(core::NodeLaunched{action.id, job, node.key.name, node.holder_pid});
  });
}

void Cluster::start_holder(SimNode& node, ActionId by) {
  const core::NodeKey key = node.key;
  const uint64_t life = node.life + 1;
  const int64_t cut = node.cut_until_ms;
  const bool is_isolated = node.is_isolated;
  const uint64_t instance = node.instance;
  const int64_t booted_ms = node.booted_ms;
  node = SimNode{};
  node.key = key;
  node.instance = instance;
  node.booted_ms = booted_ms;
  node.life = life;
  node.cut_until_ms = cut;
  node.is_isolated = is_isolated;
  node.launched_by = by;
  node.holder_alive = true;
  node.agent_alive = true;
  node.boot_id = key.name + "-" + std::to_string(life);
  node.holder_pid = next_pid_++;
  node.agent_pid = next_pid_++;
  node.last_contact_ms = agenda_.now();
  if (strikes(swarm_.launch_silent)) {
    end_holder(node);
    return;
  }
  connect(node);
  watch_orphan(node);
}

// The holder ends, and with it everything on the node.
void Cluster::end_holder(SimNode& node) {
  while (!node.workers.empty()) {
    const auto [rank, worker] = *node.workers.begin();
    worker_ends(node, rank, worker.pid, 0, 9, false, false);
  }
  node.agent_alive = false;
  close_stream(node);
  node.holder_alive = false;
  if (!swarm_.scheduler_sees_exit) return;
  agenda_.after(10 + static_cast<int64_t>(rng_.below(200)),
                [this, &node, pid = node.holder_pid] { holder_exit_seen(node, pid); });
}

// The scheduler refuses, or says yes and then does nothing: either way this life of the job goes
// on.
void Cluster::requeue(const Action& action, const core::RequeueJob& order) {
  checkers_.requeued(order, action.id);
  const bool refused = rng_.chance(swarm_.requeue_refused);
  agenda_.after(delay(), [this, id = action.id, job = order.job, refused,
                          incarnation = controller_.incarnation()] {
    if (refused) {
      controller_.post_from(incarnation, core::ActionFailed{id, job, "", "not allowed", false});
    } else {
      controller_.post_from(incarnation, core::JobRequeued{id, job});
    }
  });
}

// Another instance comes under the node's name, or the same one boots; what ran there is gone.
void Cluster::replace(const Action& action, const core::ReplaceNode& order) {
  SimNode& node = nodes_.at({order.job, order.node});
  // It boots within the millisecond of the order here, which comes again after a crash.
  const bool done = order.reboot && node.booted_ms > 0 && node.booted_ms >= order.since_wall_ms;
  if (instance_id(node) == order.instance_id && !done) {
    const GenerationRecord* recorded = newest_record(order.job);
    const uint64_t newest = recorded == nullptr ? 0 : recorded->generation;
    // A silent node may train on; declared lost, its ranks are elsewhere and it is refused.
    const auto row = controller_.state().nodes.find(node.key);
    const bool is_up =
        row != controller_.state().nodes.end() && row->second.state == core::NodeState::kUp;
    const bool works =
        is_up && std::any_of(node.workers.begin(), node.workers.end(),
                             [&](const auto& w) { return w.second.generation == newest; });
    checkers_.recovered(node.key, order, action.id, works);
    if (node.holder_alive) end_holder(node);
    node.instance += order.reboot ? 0 : 1;
    node.booted_ms = agenda_.now();
    const bool same = order.reboot;
    const auto back = [this, same, key = node.key, since_ms = node.booted_ms] {
      if (nodes_.at(key).booted_ms != since_ms) return;  // the scheduler sees the newest order only
      if (same) checkers_.released(key);
      controller_.post(core::NodeReturned{key.job, key.name, same ? "rebooted" : "another one"});
    };
    agenda_.after(static_cast<int64_t>(1'000 + rng_.below(20'000)), back);
  }
  controller_.post(
      core::NodeReplacementRequested{action.id, order.job, order.node, "", order.reboot});
}

std::vector<core::JobAdopted> Cluster::find_jobs(const core::State& last_known) {
  std::vector<core::JobAdopted> found;
  for (const auto& [id, job] : last_known.jobs) {
    if (core::has_ended(job.state)) continue;
    core::JobAdopted adoption;
    adoption.job = id;
    adoption.spec = job.spec;
    adoption.uid = job.owner_uid;
    adoption.submit_key = job.submit_key;
    for (int32_t i = 0; i < job.spec.all_nodes(); ++i) {
      adoption.nodes.push_back(core::local_node_name(i));
    }
    adoption.backend = job.backend;
    adoption.cause = "the controller lost its rows";
    core::fill_from_lineage(adoption, directory(id).records(), agenda_.now());
    for (const auto& [action, open] : last_known.outbox) {
      const auto* order = std::get_if<core::RequeueJob>(&open.body);
      if (order == nullptr || order->job != id) continue;
      adoption.former.excluded = order->exclude;  // in vain: it is given every node again
      adoption.former.exclusion_attempt = order->attempt;
    }
    found.push_back(std::move(adoption));
  }
  return found;
}

SimNode* Cluster::random_node(bool with_workers) {
  if (names_.empty()) return nullptr;
  for (int attempt = 0; attempt < 8; ++attempt) {
    SimNode& node = nodes_.at(names_[rng_.below(names_.size())]);
    if (node.holder_alive && (!with_workers || !node.workers.empty())) return &node;
  }
  return nullptr;
}

void Cluster::kill_worker(bool with_error) {
  SimNode* node = random_node(true);
  if (node == nullptr) return;
  auto it = node->workers.begin();
  std::advance(it, rng_.below(node->workers.size()));
  worker_ends(*node, it->first, it->second.pid, with_error ? 1 : 0, with_error ? 0 : 9, false,
              true);
}

void Cluster::hang_worker() {
  SimNode* node = random_node(true);
  if (node == nullptr || plans_.at(node->key.job).is_command) return;  // nobody would notice
  auto it = node->workers.begin();
  std::advance(it, rng_.below(node->workers.size()));
  if (it->second.hangs()) return;
  const HangKind kinds[] = {HangKind::kComputes, HangKind::kComputes, HangKind::kStopped,
                            HangKind::kInKernel, HangKind::kInCollective};
  it->second.hang = kinds[rng_.below(std::size(kinds))];
}

void Cluster::crash_agent() {
  SimNode* node = random_node(false);
  if (node == nullptr || !node->agent_alive) return;
  node->agent_alive = false;
  close_stream(*node);
  const auto restart_ms = static_cast<int64_t>(50 + rng_.below(swarm_.agent_restart_ms_max));
  after_in_life(*node, restart_ms, [this, node] {
    node->agent_alive = true;
    node->agent_pid = next_pid_++;
    connect(*node);
    watch_orphan(*node);
  });
}

void Cluster::crash_holder() {
  if (SimNode* node = random_node(false)) end_holder(*node);
}

void Cluster::cut_node(int64_t for_ms) {
  SimNode* node = random_node(false);
  if (node == nullptr) return;
  node->is_isolated = rng_.below(2) == 0;
  node->cut_until_ms = agenda_.now() + for_ms;
  falls_silent(*node);
}

// For less than a node has whose holder answers, and than a configured hang takes to be found; with
// time to be heard before the next.
void Cluster::busy_node() {
  SimNode* node = random_node(false);
  if (node == nullptr || agenda_.now() < node->busy_until_ms + kBusyPauseMs) return;
  const int64_t most_ms =
      std::min(kBusyMostMs, swarm_.heartbeat_timeout_ms * (core::kAnsweredTimes - 1));
  const auto for_ms = static_cast<int64_t>(100 + rng_.below(static_cast<uint64_t>(most_ms)));
  node->busy_until_ms = agenda_.now() + for_ms;
  falls_silent(*node);
}

void Cluster::break_stream() {
  if (SimNode* node = random_node(false)) close_stream(*node);
}

void Cluster::quarantine_node() {
  SimNode* node = random_node(false);
  if (node == nullptr || !controller_.is_up()) return;
  const auto for_ms = static_cast<int64_t>(1'000 + rng_.below(30'000));
  checkers_.may_be_quarantined(node->key, agenda_.now() + for_ms);
  const core::QuarantineRequested event{node->key.job, node->key.name, 1000, "a doubt", for_ms};
  controller_.post(event, [this, key = node->key, for_ms](const core::StepResult& result) {
    if (!result.refusal.empty() || !faults_) return;  // healed meanwhile: released again
    checkers_.quarantined(key, controller_.store().last_seq(), agenda_.now() + for_ms);
  });
}

void Cluster::drain_node() {
  const SimNode* node = random_node(false);
  if (node == nullptr || !controller_.is_up()) return;
  const core::NodeKey& at = node->key;
  controller_.post(core::SchedulerObserved{at.job, at.name, at.name + " is drained", true});
  const auto for_ms = static_cast<int64_t>(1'000 + rng_.below(40'000));
  agenda_.after(for_ms, [this, at] {
    controller_.post(core::SchedulerObserved{at.job, at.name, at.name + " is not drained"});
  });
}

void Cluster::break_hardware() {
  SimNode* node = random_node(false);
  if (node == nullptr || !controller_.is_up()) return;
  const core::NodeKey& at = node->key;
  const bool reboot = rng_.below(2) == 0;
  core::EventBody event =
      core::HardwareFaultFound{at.job, at.name, node->boot_id, "ecc", "row 7", reboot};
  if (rng_.below(4) == 0) {
    event = core::RecoveryRequested{at.job, at.name, 1000, kPersonAsks, reboot};
  }
  if (rng_.below(4) == 0) {
    event = core::SpareFoundUnfit{at.job, at.name, node->boot_id, "ecc", true, reboot};
  }
  controller_.post(event, [this, key = node->key](const core::StepResult& result) {
    if (!result.refusal.empty() || !faults_) return;
    // A controller that died when it had committed the registration did not say so.
    checkers_.registered(key, controller_.state().nodes.at(key).instance_id);
    checkers_.quarantined(key, controller_.store().last_seq(), INT64_MAX);
  });
}

void Cluster::heal() {
  faults_ = false;
  for (auto& [key, node] : nodes_) {
    node.cut_until_ms = std::min(node.cut_until_ms, agenda_.now());
    node.busy_until_ms = std::min(node.busy_until_ms, agenda_.now());
  }
  for (auto& [job, places] : places_) mend(places);
  release_nodes();
}

// The operator has looked at everything, and looks again: a controller may have been down.
void Cluster::release_nodes() {
  for (const core::NodeKey& key : controller_.state().index.quarantined) {
    checkers_.released(key);  // whenever it takes effect
    controller_.post(core::ReleaseRequested{key.job, key.name, 1000});
  }
  agenda_.after(60'000, [this] { release_nodes(); });
}

bool Cluster::all_gone() const {
  return std::none_of(nodes_.begin(), nodes_.end(),
                      [](const auto& entry) { return entry.second.holder_alive; });
}

}  // namespace hpctl::sim
