// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/script.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "controller/core/codec.h"
#include "controller/core/explain.h"
#include "controller/core/failure_detector.h"
#include "tests/golden/former_job.h"
#include "tests/golden/submit_words.h"
#include "tests/golden/words.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {

namespace {

class Script {
 public:
  // Throws std::exception for a line that does not say enough.
  void run(const std::string& line) {
    report_ += "> " + line + "\n";
    const Words words = split(line);
    told_ = shell_.log.size();
    (this->*commands().at(words.at(0)))(words);
    for (size_t i = told_; i < shell_.log.size(); ++i) tell(shell_.log[i]);
  }
  std::string finish() {
    show();
    return std::move(report_);
  }

 private:
  using Command = void (Script::*)(const Words&);
  static const std::map<std::string, Command>& commands() {
    static const std::map<std::string, Command> kCommands = {
        {"submit", &Script::submit},
        {"settle", &Script::settle},
        {"answer", &Script::answer},
        {"wait", &Script::wait},
        {"progress", &Script::progress},
        {"commit", &Script::commit},
        {"disk-full", &Script::disk_full},
        {"prunes", &Script::prunes},
        {"mirror", &Script::mirror},
        {"unsound", &Script::unsound},
        {"directory", &Script::directory},
        {"claims", &Script::claims},
        {"recorded", &Script::recorded},
        {"exit", &Script::exit_worker},
        {"stale-exit", &Script::stale_exit},
        {"lost", &Script::lost},
        {"excised", &Script::excised},
        {"refused", &Script::refused},
        {"silent", &Script::silent},
        {"marked", &Script::marked},
        {"disconnect", &Script::disconnect},
        {"judge", &Script::judge},
        {"reconnect", &Script::reconnect},
        {"replaced", &Script::replaced},
        {"revenant", &Script::revenant},
        {"bad_step", &Script::bad_step},
        {"hang", &Script::hang},
        {"slow", &Script::slow},
        {"fast", &Script::fast},
        {"cancel", &Script::cancel},
        {"limit", &Script::limit},
        {"taken", &Script::taken},
        {"fail", &Script::fail},
        {"restart", &Script::restart},
        {"why", &Script::why},
        {"successor", &Script::successor},
        {"excluded", &Script::excluded},
        {"registers", &Script::registers},
        {"quarantine", &Script::quarantine},
        {"inject", &Script::inject},
        {"not-injected", &Script::not_injected},
        {"release", &Script::release},
        {"hardware", &Script::hardware},
        {"unfit-node", &Script::unfit_node},
        {"unfit-spare", &Script::unfit_spare},
        {"ready", &Script::ready},
        {"recover", &Script::recover},
        {"observed", &Script::observed},
        {"drained", &Script::drained},
        {"departs", &Script::departs},
        {"undrained", &Script::undrained},
        {"returned", &Script::returned},
        {"suspended", &Script::suspended},
        {"resumed", &Script::resumed},
        {"instance", &Script::instance},
        {"copies", &Script::copies},
        {"sealed", &Script::sealed},
        {"left", &Script::left},
        {"origin", &Script::origin},
        {"left-together", &Script::left_together},
        {"trains", &Script::trains},
        {"unreadable", &Script::unreadable},
    };
    return kCommands;
  }

  const Job& job() const { return shell_.job(id_); }
  const Node& node(const std::string& name) const { return shell_.node(id_, name); }

  void tell(const LogEntry& entry) {
    std::string line = "  " + std::to_string(entry.seq.value) + " " + entry.type;
    if (entry.because != Seq{} && entry.because != entry.seq) {
      line += " (because of " + std::to_string(entry.because.value) + ")";
    }
    report_ += line + ": " + entry.cause + "\n";
  }

  void show() {
    report_ += "\njob " + std::string(to_string(job().state)) + ", generation " +
               to_string(job().generation) + ", " + std::to_string(job().restarts) +
               " restarts, lost " + std::to_string(lost_ms(job(), shell_.now_ms)) +
               " ms: " + job().reason + "\n";
    for (const auto& [key, row] : shell_.state.nodes) {
      const NodeRole role = role_of(shell_.state, row);
      const bool usual = role == NodeRole::kActive || role == NodeRole::kLost;
      report_ += "node " + key.name + " " + (usual ? "" : std::string(to_string(role)) + " ") +
                 to_string(row.state) + " " + row.boot_id +
                 (row.connected ? "" : " (not connected)") + ": " + row.reason + "\n";
    }
    for (const auto& [key, row] : shell_.state.slots) {
      if (row.node.empty()) continue;  // the world is smaller now
      report_ += "rank " + to_string(key.rank) + " on " + row.node + " " + to_string(row.state) +
                 " g" + to_string(row.generation) + "\n";
    }
    const BadStepRecord& bad_step = job().bad_step;
    if (bad_step.number > 0) {
      report_ += "bad steps: " + std::to_string(bad_step.not_finite) + " not finite, " +
                 std::to_string(bad_step.loss_spikes) + " loss, " +
                 std::to_string(bad_step.gradient_spikes) + " gradient; " +
                 std::to_string(bad_step.skipped_steps) + " skipped with " +
                 std::to_string(bad_step.skipped_samples) + " samples, " +
                 std::to_string(bad_step.rollbacks) + " rollbacks, " +
                 std::to_string(bad_step.stops) + " stops, " +
                 std::to_string(bad_step.hardware_suspected) + " suspicions\n";
    }
    for (const auto& [id, action] : shell_.state.outbox) {
      report_ += "open " + std::string(type_name(action.body)) + ": " + action.reason + "\n";
    }
    if (const auto due = next_deadline(shell_.state)) {
      report_ += "next deadline in " + std::to_string(*due - shell_.now_ms) + " ms\n";
    }
  }

  void submit(const Words& words) {
    const JobSubmitted submitted = read_submit(words);
    spec_ = submitted.spec;
    backend_ = submitted.backend;
    shell_.agents_tell_ready = std::find(words.begin(), words.end(), "tells-ready") != words.end();
    shell_.agents_confirm = std::find(words.begin(), words.end(), "confirms") != words.end();
    const auto beside = std::find(words.begin(), words.end(), "controller-on");
    if (beside != words.end()) shell_.controller_node = *std::next(beside);
    id_ = *shell_.feed(submitted).submitted;
  }
  void settle(const Words& words) {
    if (words.size() == 1) {
      shell_.settle();
    } else {
      shell_.settle_kind(words[1]);
    }
  }
  void answer(const Words& words) { shell_.answer(words.at(1), words.at(2)); }
  void wait(const Words& words) { shell_.pass(number(words, 1)); }
  void progress(const Words& words) {
    shell_.progress(id_, static_cast<uint64_t>(number(words, 1)));
    moved_ms_ = shell_.now_ms;
  }
  void trains(const Words& words) { shell_.training_moves = words.at(1) == "on"; }
  void commit(const Words& words) {
    const auto step = static_cast<uint64_t>(number(words, 1));
    shell_.feed(CheckpointCommitted{id_, job().generation, step});
  }
  // A save of the present generation found it.
  void disk_full(const Words&) { shell_.feed(CheckpointRoomNeeded{id_, job().generation}); }
  // prunes VERIFIED DELETED...: what comes of the orders from now on
  void prunes(const Words& words) {
    shell_.pruned = {{}, {}, words.at(1), {words.begin() + 2, words.end()}};
  }
  // unsound WHY: as above, and nothing is deleted
  void unsound(const Words& words) { shell_.pruned = {{}, {}, "", {}, join(words, 1)}; }
  // mirror PATH|- STEP [WHY]: what it holds, and why the newest is not copied
  void mirror(const Words& words) {
    shell_.mirror_checkpoint = words.at(1) == "-" ? "" : words.at(1);
    shell_.mirror_step = static_cast<uint64_t>(number(words, 2));
    shell_.mirror_problem = join(words, 3);
  }
  void directory(const Words& words) {
    shell_.checkpoint = words.at(1) == "-" ? "" : words.at(1);
    shell_.checkpoint_step = static_cast<uint64_t>(number(words, 2));
  }
  void claims(const Words& words) { shell_.claims_are_false = words.at(1) == "false"; }
  void recorded(const Words& words) {
    shell_.recorded_damage.assign(words.begin() + 1, words.end());
  }
  void exit_worker(const Words& words) {
    const bool signal = words.at(2) == "signal";
    const auto value = static_cast<int32_t>(number(words, 3));
    shell_.exit_worker(id_, static_cast<int32_t>(number(words, 1)), signal ? 0 : value,
                       signal ? value : 0, static_cast<uint64_t>(number(words, 5)), join(words, 6));
  }
  // What the memory of the workers that end from now on has: `sealed STEP...`, newest first, and,
  // after it, `copies STEP...` of another rank's states.
  void sealed(const Words& words) {
    shell_.seals = {};
    shell_.seals.own = make_seals(words);
  }
  void copies(const Words& words) { shell_.seals.copies = make_seals(words); }
  std::vector<Seal> make_seals(const Words& words) {
    std::vector<Seal> seals;
    for (size_t i = 1; i < words.size(); ++i) {
      seals.push_back({static_cast<uint64_t>(number(words, i)), 7, job().generation.value});
    }
    return seals;
  }
  // origin stayed | standby | new RANK...: of the processes that take their parts from now on
  void origin(const Words& words) {
    const WorkerOrigin origin = words.at(1) == "stayed"    ? WorkerOrigin::kStayed
                                : words.at(1) == "standby" ? WorkerOrigin::kStandby
                                                           : WorkerOrigin::kStarted;
    for (size_t i = 2; i < words.size(); ++i) {
      shell_.origins[Rank{static_cast<int32_t>(number(words, i))}] = origin;
    }
  }
  // As it was told to.
  void left(const Words& words) {
    const auto rank = static_cast<int32_t>(number(words, 1));
    shell_.feed(left_of(rank, true));
  }
  void left_together(const Words& words) {
    WorkersExited event;
    bool by_request = true;
    for (size_t i = 1; i < words.size(); ++i) {
      by_request = by_request && words[i] != "lost";
      if (words[i] == "lost") continue;
      event.exits.push_back(left_of(static_cast<int32_t>(number(words, i)), by_request));
    }
    const WorkerExited& first = event.exits.at(0);
    shell_.feed(WorkersExited{id_, first.node, first.boot_id, event.exits});
  }
  WorkerExited left_of(int32_t rank, bool by_request) {
    const Slot& slot = shell_.slot(id_, rank);
    return {id_,
            slot.node,
            node(slot.node).boot_id,
            slot.key.rank,
            slot.generation,
            slot.pid,
            95,
            0,
            job().furthest_step,
            "",
            by_request,
            false,
            shell_.arena_of(id_, rank)};
  }
  void stale_exit(const Words& words) {
    const Rank rank{static_cast<int32_t>(number(words, 1))};
    const Slot& slot = shell_.slot(id_, rank.value);
    const Generation generation{static_cast<uint64_t>(number(words, 3))};
    shell_.feed(WorkerExited{id_, slot.node, node(slot.node).boot_id, rank, generation, 7, 1, 0, 5,
                             "", false});
  }
  void lost(const Words& words) { lose(words, false, false); }
  // The scheduler took the node from the job.
  void excised(const Words& words) { lose(words, true, false); }
  // It did so because the node did not respond.
  void silent(const Words& words) { lose(words, true, true); }
  // It refused the launch, for what the job asks.
  void refused(const Words& words) {
    shell_.feed(NodeLost{.job = id_,
                         .node = words.at(1),
                         .boot_id = node(words.at(1)).boot_id,
                         .cause = join(words, 2),
                         .refused = true});
  }
  void lose(const Words& words, bool taken, bool given_up) {
    shell_.feed(
        NodeLost{id_, words.at(1), node(words.at(1)).boot_id, join(words, 2), taken, given_up});
  }
  // Somebody asked for a node to be replaced that is known to be broken.
  void marked(const Words& words) {
    shell_.feed(NodeReplacementRequested{{}, id_, words.at(1), join(words, 2)});
  }
  void disconnect(const Words& words) {
    shell_.feed(AgentDisconnected{id_, words.at(1), node(words.at(1)).boot_id});
    silent_since_ms_[words.at(1)] = shell_.now_ms;
  }
  // As the controller's table does it, of a node whose holder cannot be probed.
  void judge(const Words& words) {
    NodeObservation facts = seen_in(job());
    facts.silent_ms = shell_.now_ms - silent_since_ms_.at(words.at(1));
    facts.timeout_ms = job().spec.recovery.heartbeat_timeout_ms;
    if (is_training(job())) {
      facts.training = TrainingSight::kSeen;
      facts.still_ms = shell_.now_ms - moved_ms_;
      if (shell_.state.index.ranks.contains({id_, words.at(1)})) facts.trained_ms = facts.still_ms;
    }
    const FailureVerdict verdict = judge_node(facts);
    if (verdict.kind != FailureVerdict::Kind::kLost) {
      report_ += "  it may be silent\n";
      return;
    }
    shell_.feed(NodeLost{id_, words.at(1), node(words.at(1)).boot_id, verdict.reason});
  }
  void reconnect(const Words& words) {
    const int32_t missing = words.size() > 3 ? static_cast<int32_t>(number(words, 3)) : -1;
    AgentRegistered hello = hello_from(words.at(1), node(words.at(1)).boot_id);
    for (const auto& [key, slot] : shell_.state.slots) {
      if (slot.node != hello.node || slot.state != SlotState::kRunning) continue;
      if (key.rank.value != missing) hello.workers.push_back({key.rank, slot.generation, slot.pid});
    }
    shell_.feed(hello);
  }
  void replaced(const Words& words) {
    shell_.feed(hello_from(words.at(1), "boot-" + std::to_string(shell_.next_boot++)));
  }
  void revenant(const Words& words) {
    shell_.feed(hello_from(words.at(1), node(words.at(1)).former_boot_ids.back()));
  }
  AgentRegistered hello_from(const std::string& name, const std::string& boot_id) const {
    AgentRegistered hello{id_, name, "i-" + name, boot_id, 1, 2, job().generation, {}};
    hello.tells_ready = shell_.agents_tell_ready;
    hello.confirms_damage = shell_.agents_confirm;
    hello.beside_controller = name == shell_.controller_node;
    return hello;
  }
  void bad_step(const Words& words) {
    static const std::map<std::string, BadStepFinding> kFindings = {
        {"nan", BadStepFinding::kNotFinite},
        {"loss", BadStepFinding::kLossSpike},
        {"gradient", BadStepFinding::kGradientSpike}};
    static const std::map<std::string, BadStepOutcome> kOutcomes = {
        {"skipped", BadStepOutcome::kSkipped},
        {"rolled-back", BadStepOutcome::kRolledBack},
        {"stopped", BadStepOutcome::kStopped},
        {"gave-up", BadStepOutcome::kGaveUp}};
    BadStepFound e;
    e.job = id_;
    e.node = shell_.slot(id_, 0).node;
    e.generation = job().generation;
    e.number = static_cast<uint64_t>(number(words, 1));
    e.step = static_cast<uint64_t>(number(words, 2));
    e.finding = kFindings.at(words.at(3));
    e.outcome = kOutcomes.at(words.at(4));
    e.resumed_step = e.step - (e.outcome == BadStepOutcome::kRolledBack ? 5 : 1);
    e.samples = e.outcome <= BadStepOutcome::kRolledBack ? 16 : 0;
    e.reason = words[3] + " is bad";
    if (words.size() > 5 && words[5] == "same") e.verdict = BadStepVerdict::kSameResult;
    if (words.size() > 6 && words[5] == "other") {
      e.verdict = BadStepVerdict::kOtherResult;
      e.blamed_rank = static_cast<int32_t>(number(words, 6));
    }
    shell_.feed(e);
  }
  // hang nobody | NODE | RANK EVIDENCE
  void hang(const Words& words) {
    if (words.at(1) == "nobody") {
      shell_.feed(HangDetected{id_, job().generation, "", Rank{-1}, join(words, 2)});
      return;
    }
    if (words.at(1).starts_with('n')) {
      shell_.feed(HangDetected{id_, job().generation, words.at(1), Rank{-1}, join(words, 2)});
      return;
    }
    const Rank rank{static_cast<int32_t>(number(words, 1))};
    shell_.feed(HangDetected{id_, job().generation, shell_.slot(id_, rank.value).node, rank,
                             join(words, 2)});
  }
  void slow(const Words& words) {
    const auto rank = static_cast<int32_t>(number(words, 1));
    shell_.feed(StragglerFound{
        id_, {shell_.slot(id_, rank).node, rank, 3, join(words, 2), job().generation}});
  }
  void fast(const Words& words) { shell_.feed(StragglerOver{id_, job().generation, words.at(1)}); }
  void cancel(const Words& words) {
    shell_.feed(CancelRequested{id_, static_cast<uint32_t>(number(words, 2))});
  }
  void limit(const Words&) {
    shell_.feed(CancelRequested{id_, 1000, "the time limit has come", true});
  }
  void taken(const Words&) {
    const Action action = *shell_.open(ActionKind::kRecordGeneration).at(0);
    const Generation generation = std::get<RecordGeneration>(action.body).generation;
    shell_.newest_record[id_] = generation.value;
    shell_.feed(GenerationTaken{action.id, id_, generation});
  }
  void fail(const Words& words) {
    const bool permanent = words.at(3) == "permanent";
    for (const auto& [id, action] : shell_.state.outbox) {
      const std::string target = std::visit(
          [](const auto& a) -> std::string {
            if constexpr (requires { a.node; }) return a.node;
            return "-";
          },
          action.body);
      if (type_name(action.body) != words.at(1) || target != words.at(2)) continue;
      shell_.feed(ActionFailed{id, id_, target == "-" ? "" : target, join(words, permanent ? 4 : 3),
                               permanent});
      return;
    }
    throw std::invalid_argument("no such action is open");
  }
  // unreadable NODE WHY: it was to read again what a worker called damaged
  void unreadable(const Words& words) {
    for (const Action* action : shell_.open(ActionKind::kConfirmDamage)) {
      if (std::get<ConfirmDamage>(action->body).node != words.at(1)) continue;
      shell_.feed(
          DamageAnswered{action->id, id_, words[1], DamageVerdict::kUnreadable, join(words, 2)});
      return;
    }
    throw std::invalid_argument("it reads nothing again");
  }
  void restart(const Words&) {
    shell_.restart();
    for (const auto& [id, action] : shell_.state.outbox) {
      report_ += "  re-issued " + std::string(type_name(action.body)) + "\n";
    }
  }
  void why(const Words&) {
    const auto chain = explain(shell_.log, id_);
    for (const LogEntry& entry : chain) tell(entry);
    report_ += "  = " + summarize(chain) + "\n";
  }

  // The controller is gone with its database; another one takes over from the lineage, or, once the
  // job is requeued, from what the requeue carries.
  void successor(const Words& words) {
    const bool requeued = job().stage == PlanStage::kRequeue;
    const GenerationRecord newest = make_record(shell_, job());
    std::set<std::string> names(words.begin() + 1, words.end());
    for (const auto& [key, row] : shell_.state.nodes) {
      if (words.size() == 1) names.insert(key.name);
    }
    const JobTotals totals = make_totals(shell_, job());
    const uint64_t committed_step = job().committed_step;
    FakeShell next;
    next.now_ms = shell_.now_ms;
    next.newest_record = shell_.newest_record;
    next.checkpoint = shell_.checkpoint;
    next.checkpoint_step = shell_.checkpoint_step;
    shell_ = std::move(next);
    told_ = 0;
    JobAdopted adopted;
    adopted.job = id_;
    adopted.spec = spec_;
    adopted.uid = 1000;
    adopted.nodes.assign(names.begin(), names.end());
    adopted.backend = backend_;
    adopted.cause = "the controller of n0 is gone";
    if (newest.generation != 0) fill_from_lineage(adopted, {newest}, shell_.now_ms);
    if (requeued) adopted.former.quarantined = newest.quarantined;
    adopted.totals = totals;
    adopted.committed_step = committed_step;
    adopted.former.excluded = excluded_;
    adopted.former.exclusion_attempt = excluded_attempt_;
    shell_.feed(adopted);
  }
  // excluded ATTEMPT [NODE ...]: what the requeue before the next successor asked for
  void excluded(const Words& words) {
    excluded_attempt_ = number(words, 1);
    excluded_.assign(words.begin() + 2, words.end());
  }
  // registers NODE alive | empty | fresh [without RANK]
  void registers(const Words& words) {
    AgentRegistered hello = hello_from(words.at(1), "boot-of-" + words.at(1));
    const bool fresh = words.at(2) == "fresh";
    const int32_t missing = words.size() > 4 ? static_cast<int32_t>(number(words, 4)) : -1;
    if (fresh) hello.generation_seen = {job().generation.value - 1};
    for (const auto& [key, slot] : shell_.state.slots) {
      if (words.at(2) != "alive" || slot.node != hello.node || key.rank.value == missing) continue;
      hello.workers.push_back(
          {key.rank, job().generation, 900 + static_cast<uint64_t>(key.rank.value)});
    }
    shell_.feed(hello);
  }
  void quarantine(const Words& words) {
    shell_.feed(
        QuarantineRequested{id_, words.at(1), 1000, join(words, 3), number(words, 2) * 1000});
  }
  // inject FAULT [RANK | NODE]
  void inject(const Words& words) {
    FaultInjected injected{id_, 1000, *from_word<InjectedFault>(words.at(1)), "", Rank{-1}};
    const FaultTarget target = target_of(injected.fault);
    if (target == FaultTarget::kRank) injected.rank = {static_cast<int32_t>(number(words, 2))};
    if (target == FaultTarget::kNode) injected.node = words.at(2);
    shell_.feed(injected);
  }
  // not-injected SEQ NODE REASON
  void not_injected(const Words& words) {
    const auto seq = static_cast<uint64_t>(number(words, 1));
    shell_.feed(FaultNotInjected{id_, words.at(2), Seq{seq}, join(words, 3)});
  }
  void release(const Words& words) { shell_.feed(ReleaseRequested{id_, words.at(1), 1000}); }
  // hardware NODE [reboot] REASON EVIDENCE
  void hardware(const Words& words) {
    const bool reboot = words.at(2) == "reboot";
    const size_t at = reboot ? 3 : 2;
    shell_.feed(HardwareFaultFound{id_, words.at(1), node(words.at(1)).boot_id, words.at(at),
                                   join(words, at + 1), reboot});
  }
  // unfit-node NODE reboot | replace REASON: a check before its workers start
  void unfit_node(const Words& words) {
    for (const Action* action : shell_.open(ActionKind::kStartWorkers)) {
      if (std::get<StartWorkers>(action->body).node != words.at(1)) continue;
      shell_.feed(ActionFailed{action->id, id_, words.at(1), join(words, 3), false, true, true,
                               words.at(2) == "reboot"});
      return;
    }
    throw std::invalid_argument("it starts no workers");
  }
  // unfit-spare NODE reboot | replace | hook REASON: it was prepared while the job trains
  void unfit_spare(const Words& words) {
    shell_.feed(SpareFoundUnfit{id_, words.at(1), node(words.at(1)).boot_id, join(words, 3),
                                words.at(2) != "hook", words.at(2) == "reboot"});
  }
  void ready(const Words& words) {
    shell_.feed(SpareReady{id_, words.at(1), node(words.at(1)).boot_id});
  }
  // recover NODE reboot | replace REASON: a person wants it
  void recover(const Words& words) {
    shell_.feed(RecoveryRequested{id_, words.at(1), 1000, join(words, 3), words.at(2) == "reboot"});
  }
  void observed(const Words& words) { shell_.feed(SchedulerObserved{id_, "", join(words, 1)}); }
  void drained(const Words& words) {
    shell_.feed(SchedulerObserved{id_, words.at(1), join(words, 2), true});
  }
  // departs NODE CAUSE: a signal told its holder to end
  void departs(const Words& words) {
    shell_.feed(NodeDeparts{id_, words.at(1), node(words.at(1)).boot_id, join(words, 2)});
  }
  void undrained(const Words& words) {
    shell_.feed(SchedulerObserved{id_, words.at(1), join(words, 2)});
  }
  void returned(const Words& words) { shell_.feed(NodeReturned{id_, words.at(1), join(words, 2)}); }
  void suspended(const Words&) { shell_.feed(SuspensionChanged{id_, true}); }
  void resumed(const Words&) { shell_.feed(SuspensionChanged{id_, false}); }
  // The node's next life is on another instance.
  void instance(const Words& words) {
    AgentRegistered hello = hello_from(words.at(1), "boot-" + std::to_string(shell_.next_boot++));
    hello.instance_id = words.at(2);
    hello.generation_seen = {};
    shell_.feed(hello);
  }

  FakeShell shell_;
  size_t told_ = 0;
  int64_t moved_ms_ = 0;
  std::map<std::string, int64_t> silent_since_ms_;
  std::vector<std::string> excluded_;
  int64_t excluded_attempt_ = 0;
  JobSpec spec_;
  Backend backend_;
  JobId id_;
  std::string report_;
};

}  // namespace

Result<std::string> run_script(const std::string& text) {
  Script script;
  std::istringstream in(text);
  std::string line;
  for (int at = 1; std::getline(in, line); ++at) {
    if (line.empty() || line[0] == '#') continue;
    try {
      script.run(line);
    } catch (const std::exception& e) {
      return Error{ErrorCode::kInvalidArgument,
                   "line " + std::to_string(at) + ": \"" + line + "\": " + e.what()};
    }
  }
  return script.finish();
}

}  // namespace hpctl::core
