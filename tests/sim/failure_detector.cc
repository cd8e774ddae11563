// SPDX-License-Identifier: Apache-2.0
// Nodes that fall silent, as the controller's table sees them (controller/agents/liveness.h): the
// facts of this world, judged by the core. A busy node says nothing and its holder answers probes;
// one that is cut off does not answer; one whose holder has died refuses.
#include <algorithm>

#include "tests/sim/cluster.h"

namespace hpctl::sim {

namespace {

constexpr int64_t kProbePatienceMs = 300;
constexpr int64_t kAnswerLastsMs = 500;
// By then a node that the others are seen to wait for is lost, whenever it was probed.
constexpr int64_t kSoonMs = 2'500;

}  // namespace

void Cluster::falls_silent(SimNode& node) {
  if (node.bound == 0) return;
  watch_silence(node, {node.boot_id, node.bound, controller_.incarnation(), agenda_.now()});
}

void Cluster::watch_silence(SimNode& node, const Silence& silence) {
  agenda_.after(core::kBeatMs, [this, &node, now = silence]() mutable {
    if (!is_still_watched(node, now)) return;
    if (!is_lost_by_silence(node, now)) {
      watch_silence(node, now);
      return;
    }
    if (now.stream == 0) return;
    node.bound = 0;
    close_stream(node);
  });
}

bool Cluster::is_still_watched(const SimNode& node, const Silence& silence) const {
  if (!controller_.is_up() || silence.incarnation != controller_.incarnation()) return false;
  if (node.bound != silence.stream) return false;
  if (silence.stream != 0) return is_silent(node);
  const auto row = controller_.state().nodes.find(node.key);
  return row != controller_.state().nodes.end() && row->second.state == core::NodeState::kUp &&
         row->second.boot_id == silence.boot_id;
}

core::HolderProbe Cluster::probe(const SimNode& node, const Silence& silence) const {
  if (is_cut(node)) return core::HolderProbe::kUnanswered;
  const bool holds = node.holder_alive && node.boot_id == silence.boot_id;
  return holds ? core::HolderProbe::kAnswered : core::HolderProbe::kRefused;
}

core::NodeObservation Cluster::see(const SimNode& node, Silence& silence) {
  const JobPlan& plan = plans_.at(node.key.job);
  const core::Job& job = controller_.state().jobs.at(node.key.job);
  core::NodeObservation facts = core::seen_in(job);
  facts.silent_ms = agenda_.now() - silence.since_ms;
  facts.timeout_ms = plan.spec.recovery.heartbeat_timeout_ms;
  facts.probe = silence.answer;
  const int64_t asked_for_ms = agenda_.now() - silence.probed_ms;
  if (silence.probed_ms < 0 || asked_for_ms > kAnswerLastsMs) {
    facts.probe = core::HolderProbe::kNotAsked;
  } else if (facts.probe == core::HolderProbe::kUnanswered && asked_for_ms < kProbePatienceMs) {
    facts.probe = core::HolderProbe::kAsked;
  }
  if (!core::is_training(job) || plan.is_command) return facts;
  const Run& run = run_of(job.id, job.generation.value);
  const bool others_heard = std::any_of(run.alive.begin(), run.alive.end(), [&](int32_t rank) {
    const SimNode& home = node_of(run, rank);
    return home.key != node.key && !is_silent(home);
  });
  if (others_heard) silence.trained_ms = run.last_progress_ms;
  if (silence.trained_ms >= 0 && has_rank_of(run, node)) {
    facts.trained_ms = agenda_.now() - silence.trained_ms;
  }
  if (!others_heard) return facts;
  facts.training = core::TrainingSight::kSeen;
  facts.peers_wait = run.stuck_since_ms != 0;
  facts.still_ms = facts.peers_wait ? agenda_.now() - run.stuck_since_ms : 0;
  return facts;
}

// By the reports of agents that have registered.
bool Cluster::is_true(const core::TrainingSeen& doubted) {
  const Run& run = run_of(doubted.job, doubted.generation.value);
  const bool is_told = std::any_of(run.alive.begin(), run.alive.end(), [&](int32_t rank) {
    const SimNode& home = node_of(run, rank);
    return home.bound != 0 && !is_silent(home);
  });
  return is_told && run.last_progress_ms > 0 &&
         agenda_.now() - run.last_progress_ms <= doubted.within_ms;
}

bool Cluster::has_rank_of(const Run& run, const SimNode& node) {
  return std::any_of(run.homes.begin(), run.homes.end(),
                     [&](const auto& home) { return home.second == node.key; });
}

bool Cluster::is_lost_by_silence(const SimNode& node, Silence& silence) {
  if (controller_.is_stalled()) {  // when it goes on, everybody gets a fresh deadline
    silence.since_ms = agenda_.now();
    silence.trained_ms = silence.probed_ms = silence.waited_since_ms = -1;
    return false;
  }
  if (!controller_.state().jobs.contains(node.key.job)) return false;
  const core::NodeObservation facts = see(node, silence);
  const core::FailureVerdict verdict = core::judge_node(facts);
  const bool is_lost = verdict.kind == core::FailureVerdict::Kind::kLost;
  check_verdict(node, silence, facts, verdict);
  if (verdict.kind == core::FailureVerdict::Kind::kProbe) {
    silence.probed_ms = agenda_.now();
    silence.answer = probe(node, silence);
  }
  if (is_lost) {
    controller_.post(core::NodeLost{node.key.job, node.key.name, silence.boot_id, verdict.reason});
  }
  return is_lost;
}

// What is true of this world, whatever was seen of it.
void Cluster::check_verdict(const SimNode& node, Silence& silence,
                            const core::NodeObservation& facts,
                            const core::FailureVerdict& verdict) {
  const bool is_lost = verdict.kind == core::FailureVerdict::Kind::kLost;
  const std::string who = node.key.name + " of job " + to_string(node.key.job);
  const bool early = facts.silent_ms <= facts.timeout_ms;
  const bool only_busy =
      node.holder_alive && node.boot_id == silence.boot_id && node.cut_until_ms <= silence.since_ms;
  if (is_lost && only_busy && facts.silent_ms <= core::kAnsweredTimes * facts.timeout_ms) {
    checkers_.fail(who + " is lost although it was only busy: " + verdict.reason);
  }
  const core::Job& job = controller_.state().jobs.at(node.key.job);
  const Run& run = run_of(job.id, job.generation.value);
  const bool goes_on = core::is_training(job) && run.alive.size() > 1 &&
                       agenda_.now() - run.last_progress_ms < core::kStillMs;
  // Early also of a spare; later of a node that the steps take, as long as anybody tells of them.
  const bool is_proven = early || (has_rank_of(run, node) && node.boot_id == silence.boot_id &&
                                   facts.training == core::TrainingSight::kSeen);
  if (is_lost && is_proven && goes_on && probe(node, silence) == core::HolderProbe::kUnanswered) {
    checkers_.fail(who + " is lost although training goes on");
  }
  const bool waited_for = facts.training == core::TrainingSight::kSeen && facts.peers_wait &&
                          facts.silent_ms > core::kSilentMs && is_cut(node) &&
                          facts.silent_ms - facts.trained_ms <= facts.timeout_ms;
  if (!waited_for) {
    silence.waited_since_ms = -1;
  } else if (silence.waited_since_ms < 0) {
    silence.waited_since_ms = agenda_.now();
  }
  const bool too_long = waited_for && agenda_.now() - silence.waited_since_ms > kSoonMs;
  if (!is_lost && too_long) checkers_.fail(who + " is waited for and not lost");
}

}  // namespace hpctl::sim
