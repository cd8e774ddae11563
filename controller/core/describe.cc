// SPDX-License-Identifier: Apache-2.0
// An event as one line of the history. `because` names the event that led to it. For an
// acknowledgement it is the one that issued the action, for consequences of a plan the one that
// began the plan's present stage, and 0 for external events.
#include <algorithm>

#include "common/job/duration_text.h"
#include "common/worker/worker_abi.h"
#include "controller/core/codec.h"
#include "controller/core/plan.h"
#include "controller/core/quarantine.h"
#include "controller/core/rules.h"
#include "controller/core/withdrawn_records.h"

namespace hpctl::core {

namespace {

const Job* find_job(const State& state, JobId id) {
  const auto it = state.jobs.find(id);
  return it == state.jobs.end() ? nullptr : &it->second;
}

// nullptr where it was withdrawn or answered before.
template <typename Body>
const Body* find_order(const State& state, ActionId id) {
  const auto it = state.outbox.find(id);
  return it == state.outbox.end() ? nullptr : std::get_if<Body>(&it->second.body);
}

// A worker that has lost its peers may be there still: the built-in trainer's process stays.
std::string what_ended(const WorkerExited& e) {
  if (e.signal == 0 && e.exit_code == kExitPeerLost) {
    return e.by_request ? "left generation " + to_string(e.generation) : "lost a peer";
  }
  if (e.signal != 0)
    return (e.by_request ? "was ended by " : "ended with ") + signal_name(e.signal);
  return (e.by_request ? "ended as ordered, with code " : "ended with code ") +
         std::to_string(e.exit_code);
}

// "7 workers on n1 (ranks 9 to 15): 3 lost a peer, 4 left generation 2"
std::string what_ended(const WorkersExited& e) {
  std::vector<std::pair<std::string, size_t>> kinds;
  for (const WorkerExited& exit : e.exits) {
    const std::string what = what_ended(exit);
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == what; });
    if (known == kinds.end()) {
      kinds.emplace_back(what, 1);
    } else {
      ++known->second;
    }
  }
  const auto [first, last] = std::minmax_element(
      e.exits.begin(), e.exits.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::string text = std::to_string(e.exits.size()) + " workers on " + e.node + " (ranks " +
                     to_string(first->rank) + " to " + to_string(last->rank) + ")";
  const char* before = kinds.size() == 1 ? " " : ": ";
  for (const auto& [what, count] : kinds) {
    text += before + (kinds.size() == 1 ? what : std::to_string(count) + " " + what);
    before = ", ";
  }
  return text;
}

std::string worker_list(const std::vector<LiveWorker>& workers) {
  if (workers.empty()) return "no worker is alive";
  std::string text = "alive:";
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < workers.size() && i < kShown; ++i) {
    text += " rank " + to_string(workers[i].rank) + " (pid " + std::to_string(workers[i].pid) +
            ", generation " + to_string(workers[i].generation) + ")";
  }
  return workers.size() > kShown ? text + " ..." : text;
}

// " (3 stayed, 1 stood by)"; "" where all are new, and where the agent did not tell.
std::string origins_of(const std::vector<LiveWorker>& workers) {
  const auto count = [&](WorkerOrigin origin) {
    return std::count_if(workers.begin(), workers.end(),
                         [&](const LiveWorker& worker) { return worker.origin == origin; });
  };
  std::string text;
  const auto add = [&](int64_t number, const char* what) {
    if (number > 0) text += (text.empty() ? "" : ", ") + std::to_string(number) + what;
  };
  add(count(WorkerOrigin::kStayed), " stayed");
  add(count(WorkerOrigin::kStandby), " stood by");
  if (text.empty()) return "";
  add(count(WorkerOrigin::kStarted), " new");
  return " (" + text + ")";
}

const char* finding_name(BadStepFinding finding) {
  switch (finding) {
    case BadStepFinding::kLossSpike:
      return "LossSpiked";
    case BadStepFinding::kGradientSpike:
      return "GradientSpiked";
    case BadStepFinding::kNotFinite:
      break;
  }
  return "NonFiniteFound";
}

std::string injected_thing(InjectedFault fault) {
  const FaultTraits& traits = traits_of(fault);
  return *traits.thing != '\0' ? traits.thing : signal_name(traits.signal);
}

struct Describe {
  const State& state;
  LogEntry& entry;

  void place(JobId job, const std::string& node = "", Generation generation = {}) {
    entry.job = job;
    entry.node = node;
    const Job* row = find_job(state, job);
    if (row != nullptr) entry.generation = row->generation;
    if (generation != Generation{}) entry.generation = generation;
  }
  void planned(JobId job) {
    if (const Job* row = find_job(state, job)) entry.because = row->plan_seq;
  }

  void operator()(const JobSubmitted& e) {
    entry.cause = "job \"" + e.spec.name + "\" submitted by uid " + std::to_string(e.uid);
  }
  void operator()(const CancelRequested& e) {
    place(e.job);
    const std::string asked = "uid " + std::to_string(e.uid) + " asks to cancel the job";
    entry.cause = e.reason.empty() ? asked : "the job is to end: " + e.reason;
  }
  void operator()(const JobRemoved& e) {
    place(e.job);
    entry.cause = "uid " + std::to_string(e.uid) + " asks to remove the job";
  }
  void operator()(const NodeLaunched& e) {
    place(e.job, e.node);
    entry.because = e.action.seq;
    entry.cause = "holder " + std::to_string(e.holder_pid) + " of " + e.node + " was started";
  }
  void operator()(const AgentRegistered& e) {
    place(e.job, e.node);
    const auto it = state.nodes.find(NodeKey{e.job, e.node});
    if (it != state.nodes.end()) entry.because = it->second.launch_seq;
    entry.cause =
        "agent of " + e.node + " registered (boot id " + e.boot_id + "); " + worker_list(e.workers);
  }
  void operator()(const AgentDisconnected& e) {
    place(e.job, e.node);
    entry.cause = "the connection to " + e.node + " closed";
  }
  void operator()(const NodeLost& e) {
    place(e.job, e.node);
    const auto node = state.nodes.find({e.job, e.node});
    // It was left on purpose before, and has no ranks.
    const bool is_left = e.taken && node != state.nodes.end() &&
                         !node->second.quarantine.by.empty() &&
                         !state.index.ranks.contains(node->first);
    if (is_left) entry.type = "NodeLeft";
    entry.cause = e.node + (is_left ? " has left the job: " : " was lost: ") + e.cause;
  }
  void operator()(const NodeDeparts& e) {
    place(e.job, e.node);
    entry.cause = e.node + " was told to end (" + e.cause + ")";
  }
  void operator()(const NodeEnded& e) {
    place(e.job, e.node);
    planned(e.job);
    entry.cause = e.node + " has ended";
  }
  void operator()(const CheckpointChosen& e) {
    place(e.job);
    entry.because = e.action.seq;
    const Job* row = find_job(state, e.job);
    const std::string newest = "newest generation there: " + to_string(e.newest_generation);
    if (row != nullptr && !row->spec.train) {
      entry.cause = "the directory is read; " + newest;
      return;
    }
    entry.cause = (e.checkpoint.empty() ? "the directory has no valid checkpoint"
                                        : "the newest valid checkpoint is " + e.checkpoint) +
                  "; " + newest;
  }
  void operator()(const GenerationRecorded& e) {
    place(e.job, "", e.generation);
    entry.because = e.action.seq;
    entry.cause = "the record of generation " + to_string(e.generation) + " is durable";
  }
  void operator()(const GenerationTaken& e) {
    place(e.job);
    entry.because = e.action.seq;
    const auto job = state.jobs.find(e.job);
    const bool is_own = job != state.jobs.end() && is_withdrawn(job->second, e.generation, e.order);
    entry.cause = "generation " + to_string(e.generation) + " belongs to " +
                  (is_own ? "an order that was withdrawn" : "another controller");
  }
  void operator()(const WorkersStarted& e) {
    place(e.job, e.node, e.generation);
    entry.because = e.action.seq;
    entry.cause =
        e.node + " started its workers" + origins_of(e.workers) + "; " + worker_list(e.workers);
  }
  void operator()(const WorkersStopped& e) {
    place(e.job, e.node, e.generation);
    entry.because = e.action.seq;
    entry.cause = e.node + " has no worker up to generation " + to_string(e.generation);
  }
  void operator()(const WorkerExited& e) {
    place(e.job, e.node, e.generation);
    entry.rank = e.rank.value;
    entry.step = e.last_step;
    if (e.by_request) {
      planned(e.job);
    } else if (const Job* row = find_job(state, e.job);
               row != nullptr && row->bad_step.generation == e.generation) {
      entry.because = row->bad_step.stopped_seq;
    }
    entry.cause = "worker " + to_string(e.rank) + " on " + e.node + " (pid " +
                  std::to_string(e.pid) + ") " + what_ended(e) + " at step " +
                  std::to_string(e.last_step) + (e.message.empty() ? "" : ": " + e.message);
  }
  void operator()(const WorkersExited& e) {
    if (e.exits.empty()) return place(e.job, e.node);
    place(e.job, e.node, e.exits.front().generation);
    bool all_by_request = true;
    for (const WorkerExited& exit : e.exits) {
      entry.step = std::max(entry.step, exit.last_step);
      all_by_request = all_by_request && exit.by_request;
    }
    if (all_by_request) planned(e.job);
    entry.cause = what_ended(e) + " at step " + std::to_string(entry.step);
  }
  void operator()(const GenerationProgressed& e) {
    place(e.job, "", e.generation);
    planned(e.job);
    entry.step = e.step;
    entry.cause =
        "generation " + to_string(e.generation) + " completed step " + std::to_string(e.step);
  }
  void operator()(const CheckpointCommitted& e) {
    place(e.job, "", e.generation);
    planned(e.job);
    entry.cause = "checkpoint step-" + std::to_string(e.step) + ".g" + to_string(e.generation) +
                  " is durable";
  }
  void operator()(const CheckpointRoomNeeded& e) {
    place(e.job, "", e.generation);
    entry.cause = "a save found the disk full";
  }
  void operator()(const CheckpointsPruned& e) {
    place(e.job);
    entry.because = e.action.seq;
    const auto* order = find_order<PruneCheckpoints>(state, e.action);
    const std::string reader = order == nullptr ? "" : order->verified_by;
    if (!e.problem.empty()) {
      entry.cause = "older checkpoints stay: " + e.problem;
    } else {
      entry.cause = e.verified + " is verified" + (reader.empty() ? "" : " by " + reader) +
                    "; deleted: " + join_some(e.deleted);
    }
  }
  void operator()(const CheckpointMirrored& e) {
    place(e.job);
    entry.because = e.action.seq;
    entry.step = e.step;
    if (!e.problem.empty()) {
      entry.cause = "the mirror stays as it is: " + e.problem;
    } else {
      entry.cause = e.checkpoint + " is in the mirror, and verified";
    }
  }
  void operator()(const DamageAnswered& e) {
    place(e.job, e.node);
    entry.because = e.action.seq;
    const auto* order = find_order<ConfirmDamage>(state, e.action);
    const std::string name = order == nullptr ? "the checkpoint" : order->claim.checkpoint;
    if (e.verdict == DamageVerdict::kSound) {
      entry.cause = name + " is sound for " + e.node;
    } else if (e.verdict == DamageVerdict::kDamaged) {
      entry.cause = name + " is damaged for " + e.node + ": " + e.what;
    } else {
      entry.cause = e.node + " cannot read " + name + " again: " + e.what;
    }
  }
  void operator()(const HangDetected& e) {
    place(e.job, e.node, e.generation);
    entry.rank = e.rank.value;
    entry.cause = "no progress: " + e.evidence;
  }
  void operator()(const ActionFailed& e) {
    place(e.job, e.node);
    entry.because = e.action.seq;
    entry.cause = "action " + to_string(e.action) + " failed" +
                  (e.permanent ? " for good: " : ": ") + e.reason;
  }
  void operator()(const ControllerResumed& e) {
    entry.cause = e.restarted ? "the controller started and loaded its state; no node is late yet"
                              : "the controller was stalled; no node is late yet";
  }
  void operator()(const Tick&) {}
  void operator()(const SuspensionChanged& e) {
    place(e.job);
    entry.cause = e.suspended ? "the scheduler suspends the job; no node is late"
                              : "the scheduler lets the job go on; every node gets its full time";
  }
  void operator()(const JobAdopted& e) {
    entry.job = e.job;
    entry.generation = e.generation;
    entry.cause = "job \"" + e.spec.name + "\" of uid " + std::to_string(e.uid) +
                  " is taken over: " + e.cause;
  }
  void operator()(const JobRequeued& e) {
    place(e.job);
    entry.because = e.action.seq;
    entry.cause = "the scheduler requeues the job";
  }
  void operator()(const NodeReplacementRequested& e) {
    place(e.job, e.node);
    entry.because = e.action.seq;
    entry.cause = std::string(e.reboot ? "a reboot" : "the replacement") + " of " + e.node +
                  " is asked for" + (e.what.empty() ? "" : ": " + e.what);
  }
  void operator()(const SchedulerObserved& e) {
    place(e.job, e.node);
    entry.cause = e.what;
  }
  void operator()(const ControllerNoted& e) {
    place(e.job);
    entry.cause = e.what;
  }
  void operator()(const TrainingSeen& e) {
    place(e.job);
    entry.cause = "ranks of generation " + to_string(e.generation) + " moved in the last " +
                  duration_text(e.within_ms) +
                  ", so all its nodes train: those that have not registered get their full time";
  }
  void operator()(const FaultInjected& e) {
    place(e.job, e.node);
    entry.rank = e.rank.value;
    entry.cause = "uid " + std::to_string(e.uid) + " injects " + to_word(e.fault) + ": " +
                  injected_thing(e.fault) + " to " + target(e);
  }
  // The line also names the node of a rank.
  std::string target(const FaultInjected& e) {
    switch (target_of(e.fault)) {
      case FaultTarget::kRank: {
        const auto slot = state.slots.find(SlotKey{e.job, e.rank});
        if (slot == state.slots.end()) return "worker " + to_string(e.rank);
        entry.node = slot->second.node;
        return "worker " + to_string(e.rank) + " on " + entry.node + " (pid " +
               std::to_string(slot->second.pid) + ")";
      }
      case FaultTarget::kNode:
        return (is_to_agent(e.fault) ? "the agent of " : "the holder of ") + e.node;
      case FaultTarget::kController:
        break;
    }
    return "the controller";
  }
  void operator()(const FaultNotInjected& e) {
    place(e.job, e.node);
    entry.because = e.injected;
    entry.cause =
        "the fault of event " + std::to_string(e.injected.value) + " was not injected: " + e.reason;
  }
  void operator()(const NodeReturned& e) {
    place(e.job, e.node);
    entry.cause = e.node + " can be used again: " + e.cause;
  }
  void operator()(const QuarantineRequested& e) {
    place(e.job, e.node);
    entry.cause = "uid " + std::to_string(e.uid) + " quarantines " + e.node +
                  (e.reason.empty() ? "" : ": " + e.reason);
  }
  void operator()(const RecoveryRequested& e) {
    place(e.job, e.node);
    entry.cause = "uid " + std::to_string(e.uid) +
                  (e.reboot ? " wants a reboot" : " wants another machine in place") + " of " +
                  e.node + (e.reason.empty() ? "" : ": " + e.reason);
  }
  void operator()(const ReleaseRequested& e) {
    place(e.job, e.node);
    entry.cause = "uid " + std::to_string(e.uid) + " releases " + e.node;
  }
  void operator()(const BadStepFound& e) {
    place(e.job, e.node, e.generation);
    entry.rank = 0;
    entry.type = finding_name(e.finding);
    entry.step = e.step - std::min<uint64_t>(e.step, 1);
    entry.cause = "step " + std::to_string(e.step) + " was not applied: " + e.reason;
    if (e.verdict == BadStepVerdict::kSameResult) entry.cause += "; executed again, the same";
    if (e.missed > 0) entry.cause += "; " + std::to_string(e.missed) + " before it were not seen";
  }
  void operator()(const StragglerFound& e) {
    place(e.job, e.straggler.node, e.straggler.generation);
    entry.rank = e.straggler.rank;
    entry.cause = e.straggler.node + " holds the others up: " + e.straggler.evidence;
  }
  void operator()(const StragglerOver& e) {
    place(e.job, e.node, e.generation);
    entry.cause = e.node + " computes about as fast as the others again";
  }
  void operator()(const SpareFoundUnfit& e) {
    place(e.job, e.node);
    entry.cause = "spare " + e.node + " is unfit: " + e.reason;
  }
  void operator()(const SpareReady& e) {
    place(e.job, e.node);
    entry.cause = "spare " + e.node + " could take ranks at once";
  }
  void operator()(const HardwareFaultFound& e) {
    place(e.job, e.node);
    entry.cause = "hardware fault on " + e.node + ": " + e.reason + " (" + e.evidence + ")";
  }
};

}  // namespace

LogEntry describe(const State& state, const Event& event) {
  LogEntry entry;
  entry.seq = event.seq;
  entry.type = type_name(event.body);
  std::visit(Describe{state, entry}, event.body);
  return entry;
}

}  // namespace hpctl::core
