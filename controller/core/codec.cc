// SPDX-License-Identifier: Apache-2.0
#include "controller/core/codec.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/job/job_spec_json.h"
#include "common/job/time_spent_json.h"

using nlohmann::json;

namespace hpctl {

template <typename Tag, typename Rep>
void to_json(json& j, const StrongId<Tag, Rep>& id) {
  j = id.value;
}
template <typename Tag, typename Rep>
void from_json(const json& j, StrongId<Tag, Rep>& id) {
  j.get_to(id.value);
}
void to_json(json& j, const ActionId& id) { j = json::array({id.seq, id.index}); }
void from_json(const json& j, ActionId& id) {
  j.at(0).get_to(id.seq);
  j.at(1).get_to(id.index);
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QuarantinedNode, node, instance_id, by, reason,
                                                hardware, since_wall_ms, until_wall_ms,
                                                recovery_wall_ms, reboot, rebooted_wall_ms)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FileFault, file, offset, bytes, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Seal, step, digest, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ArenaSeals, own, copies, part, parts, copied_part)

// A row may lack its spec; that it does is found when rows are loaded (validate_state.cc).
void to_json(json& j, const JobSpec& spec) {
  j = spec.name.empty() ? json() : parse_json(to_json_text(spec));
}
void from_json(const json& j, JobSpec& spec) {
  if (j.is_null()) {
    spec = {};
    return;
  }
  auto parsed = job_spec_from_json(json_text(j));
  if (!parsed.ok()) throw json::other_error::create(501, parsed.error().message, nullptr);
  spec = std::move(parsed).value();
}

namespace core {

// Rows.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Backend, requeues, replaces, restart_count, limits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Quarantine, by, reason, evidence, hardware,
                                                since_wall_ms, until_wall_ms, reboot, for_hangs)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Fault, cause, node, rank, step, seq, in_order, hang,
                                                damage, start, exited, words, unreachable, wall_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DamageClaim, checkpoint, node, what, part, asked)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BadStepRecord, generation, number, stopped_seq,
                                                stopped_by, not_finite, loss_spikes,
                                                gradient_spikes, same_results, hardware_suspected,
                                                skipped_steps, skipped_samples, rollbacks, stops)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Straggler, node, rank, slowdown, evidence,
                                                generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Verification, claim, verified_by, for_room)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Pruning, due, for_room, recorded_ms,
                                                verified_wall_ms, verification)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(UndoneSteps, generation, step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(OrderedRecord, generation, in_mirror)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WithdrawnRecord, generation, order, is_there)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Mirror, due, step, undone, ordered, problem,
                                                behind_since_ms, verification)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Job, id, spec, owner_uid, submit_key, backend, limits, active_nodes, state, reason, generation,
    directory_generation, stage, checkpoint, memory_of, refilled, former_parts, without_memory,
    in_host_memory, start_step, furthest_step, committed_step, damaged, restart_times_ms, restarts,
    progress_at_restart, start_at_restart, restarts_without_progress, fault, fault_is_collateral,
    fault_seq, recent_faults, plan_seq, not_before_ms, storage_since_ms, requeue_refusal,
    scheduler_note, cancel_requested, cancel_reason, saves_first, at_limit, stage_since_ms,
    suspended_since_ms, deadline_ms, submitted_wall_ms, ended_wall_ms, running_since_ms,
    recovering_since_ms, regain_step, stepped_ms, lost_ms, spent, part_since_ms, loss_part,
    told_waits, bad_step, stragglers, pruning, storage_waited_ms, storage_errors_directory,
    storage_errors_worker, claim, storage_exits, mirror)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Ending, state, reason, awaits_cause, requeues,
                                                by_ms, seq)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeKey, job, name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Node, key, state, instance_id, boot_id, address, holder_pid, agent_pid, connected, launches,
    launched_for, launch_attempts, launched_ms, launch_seq, generation_seen, quarantine,
    fault_times_ms, false_claims, replaced_instance, rebooted_wall_ms, recovery_wall_ms, suspect,
    tells_ready, is_ready, scheduler_note, lemon, confirms_damage, beside_controller, taken,
    former_boot_ids, deadline_ms, deadline_seq, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlotKey, job, rank)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Slot, key, node, state, generation, pid, exit_code,
                                                signal, unaccounted, seals, arena_boot_id)

// Actions.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LaunchNode, job, node)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FirstPlace, away, checkpoint, step,
                                                newest_generation, lost)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FindCheckpoint, job, exclude, claim, newest,
                                                in_mirror, first, undone, withdrawn, job_uuid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RecordGeneration, job, generation, parent,
                                                start_step, checkpoint, memory_of, refilled,
                                                former_parts, reason, restarts_used, damaged,
                                                members, quarantined, committed, in_mirror,
                                                withdrawn)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StartWorkers, job, node, generation, ranks,
                                                checkpoint, start_step, memory_of, refilled,
                                                former_parts, last, suspect)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StopWorkers, job, node, generation, graceful,
                                                stacks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EndNode, job, node, stacks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RequeueJob, job, exclude, expected_restart_count,
                                                quarantined, attempt)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ReplaceNode, job, node, instance_id, reason, leaves,
                                                reboot, since_wall_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PruneCheckpoints, job, generation, for_room,
                                                unfinished, asks, verified, verified_by)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MirrorCheckpoint, job, generation, damaged, undone,
                                                for_room, asks, verified, verified_by)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ConfirmDamage, job, node, claim, newest,
                                                before_delete)

// Events.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LiveWorker, rank, generation, pid, origin)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RequeueCarryover, excluded, exclusion_attempt,
                                                quarantined)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobTotals, submitted_wall_ms, restarts, lost_ms,
                                                furthest_step, interrupted, counted_wall_ms, spent,
                                                told_waits, generation, committed_step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobSubmitted, spec, uid, submit_key, job, nodes,
                                                backend, former, totals, lemons)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CancelRequested, job, uid, reason, time_limit)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobRemoved, job, uid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeLaunched, action, job, node, holder_pid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(AgentRegistered, job, node, instance_id, boot_id,
                                                holder_pid, agent_pid, generation_seen, workers,
                                                address, tells_ready, lemon, confirms_damage,
                                                beside_controller)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(AgentDisconnected, job, node, boot_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeLost, job, node, boot_id, cause, taken,
                                                given_up, unreachable, refused)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeDeparts, job, node, boot_id, cause)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeEnded, job, node, boot_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointChosen, action, job, checkpoint, step,
                                                newest_generation, confirmed, damaged, lost,
                                                withdrawn)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GenerationRecorded, action, job, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GenerationTaken, action, job, generation, order)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WorkersStarted, action, job, node, generation,
                                                workers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WorkersStopped, action, job, node, generation,
                                                stacks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WorkerExited, job, node, boot_id, rank, generation,
                                                pid, exit_code, signal, last_step, message,
                                                by_request, peer_lost, seals, fault)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(WorkersExited, job, node, boot_id, exits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GenerationProgressed, job, generation, step,
                                                stepped_ms, waits)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointCommitted, job, generation, step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointRoomNeeded, job, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointsPruned, action, job, verified, deleted,
                                                problem, to_verify)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointMirrored, action, job, checkpoint, step,
                                                copied_bytes, deleted, problem, verified, to_verify,
                                                for_room)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(DamageAnswered, action, job, node, verdict, what)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HangDetected, job, generation, node, rank, evidence)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ActionFailed, action, job, node, reason, permanent,
                                                node_fault, hardware, reboot, storage)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ControllerResumed, restarted)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobAdopted, job, spec, uid, submit_key, nodes,
                                                backend, cause, generation, start_step, checkpoint,
                                                memory_of, members, damaged, restarts,
                                                restart_ages_ms, restarts_without_progress,
                                                furthest_step, committed_step, former, totals)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(JobRequeued, action, job)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeReplacementRequested, action, job, node, what,
                                                reboot)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SchedulerObserved, job, node, what, unusable)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ControllerNoted, job, what)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TrainingSeen, job, generation, within_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FaultInjected, job, uid, fault, node, rank)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(FaultNotInjected, job, node, injected, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeReturned, job, node, cause)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QuarantineRequested, job, node, uid, reason, for_ms,
                                                asks_first)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ReleaseRequested, job, node, uid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(HardwareFaultFound, job, node, boot_id, reason,
                                                evidence, reboot)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SpareFoundUnfit, job, node, boot_id, reason,
                                                hardware, reboot)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SpareReady, job, node, boot_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RecoveryRequested, job, node, uid, reason, reboot,
                                                asks_first)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BadStepFound, job, node, generation, number, step,
                                                resumed_step, samples, finding, verdict, outcome,
                                                blamed_rank, reason, missed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StragglerFound, job, straggler)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StragglerOver, job, generation, node)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SuspensionChanged, job, suspended)
void to_json(json& j, const Tick&) { j = json::object(); }
void from_json(const json&, Tick&) {}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LogEntry, seq, type, job, generation, node, rank,
                                                cause, because, step)

namespace {

// In the order of the variants.
constexpr std::array<const char*, std::variant_size_v<EventBody>> kEventNames = {
    "JobSubmitted",
    "CancelRequested",
    "NodeLaunched",
    "AgentRegistered",
    "AgentDisconnected",
    "NodeLost",
    "NodeEnded",
    "CheckpointChosen",
    "GenerationRecorded",
    "GenerationTaken",
    "WorkersStarted",
    "WorkersStopped",
    "WorkerExited",
    "GenerationProgressed",
    "CheckpointCommitted",
    "HangDetected",
    "ActionFailed",
    "ControllerResumed",
    "Tick",
    "JobAdopted",
    "JobRequeued",
    "NodeReplacementRequested",
    "SchedulerObserved",
    "NodeReturned",
    "QuarantineRequested",
    "ReleaseRequested",
    "HardwareFaultFound",
    "BadStepFound",
    "RecoveryRequested",
    "SuspensionChanged",
    "ControllerNoted",
    "TrainingSeen",
    "FaultInjected",
    "FaultNotInjected",
    "StragglerFound",
    "StragglerOver",
    "WorkersExited",
    "SpareFoundUnfit",
    "SpareReady",
    "CheckpointRoomNeeded",
    "CheckpointsPruned",
    "CheckpointMirrored",
    "DamageAnswered",
    "NodeDeparts",
    "JobRemoved"};
constexpr std::array<const char*, std::variant_size_v<ActionBody>> kActionNames = {
    "LaunchNode",       "FindCheckpoint",   "RecordGeneration", "StartWorkers",
    "StopWorkers",      "EndNode",          "RequeueJob",       "ReplaceNode",
    "PruneCheckpoints", "MirrorCheckpoint", "ConfirmDamage"};

// Bytes that are not UTF-8 (a worker's last words) are replaced, never an error.
std::string dump(const json& j) { return json_text(j); }

template <typename Variant, size_t I = 0>
Variant body_from_json(const json& j, size_t index) {
  if constexpr (I < std::variant_size_v<Variant>) {
    if (index == I) return j.get<std::variant_alternative_t<I, Variant>>();
    return body_from_json<Variant, I + 1>(j, index);
  } else {
    throw json::other_error::create(501, "unknown alternative", nullptr);
  }
}

template <typename Variant, size_t N>
Variant named_body(const json& j, const std::array<const char*, N>& names) {
  const auto type = j.at("type").get<std::string>();
  for (size_t i = 0; i < N; ++i) {
    if (type == names[i]) return body_from_json<Variant>(j.at("body"), i);
  }
  throw json::other_error::create(501, "unknown type " + printable_line(type, 80), nullptr);
}

// The macro takes no further field of a job.
struct StoredJob {
  Job job;
};

void from_json(const json& j, StoredJob& stored) {
  j.get_to(stored.job);
  stored.job.ending = j.value("ending", Ending{});
  stored.job.withdrawn = j.value("withdrawn", std::vector<WithdrawnRecord>{});
}

template <typename T>
Result<T> decode(const std::string& text, const char* what) {
  json document;
  try {
    document = parse_json(text);
    return document.get<T>();
  } catch (const json::exception& e) {
    return Error{ErrorCode::kDataLoss,
                 std::string("not a stored ") + what + ": " + problem_in(document, e)};
  }
}

}  // namespace

void to_json(json& j, const EventBody& body) {
  std::visit([&](const auto& b) { j = b; }, body);
}
void to_json(json& j, const ActionBody& body) {
  std::visit([&](const auto& b) { j = b; }, body);
}
void to_json(json& j, const Action& a) {
  j = {{"id", a.id}, {"reason", a.reason}, {"type", type_name(a.body)}};
  to_json(j["body"], a.body);
}
void from_json(const json& j, Action& a) {
  j.at("id").get_to(a.id);
  a.reason = j.value("reason", "");
  a.body = named_body<ActionBody>(j, kActionNames);
}
void to_json(json& j, const Event& e) {
  j = {{"seq", e.seq}, {"now_ms", e.now_ms}, {"wall_ms", e.wall_ms}, {"type", type_name(e.body)}};
  to_json(j["body"], e.body);
}
void from_json(const json& j, Event& e) {
  j.at("seq").get_to(e.seq);
  j.at("now_ms").get_to(e.now_ms);
  e.wall_ms = j.value("wall_ms", int64_t{0});
  e.body = named_body<EventBody>(j, kEventNames);
}

const char* type_name(const EventBody& body) { return kEventNames[body.index()]; }
const char* type_name(const ActionBody& body) { return kActionNames[body.index()]; }

namespace {

// dump() of a string; most are plain.
std::string quoted(const std::string& value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  return plain ? '"' + value + '"' : dump(value);
}

std::string list_of(const std::vector<Seal>& seals) {
  std::string list;
  for (const Seal& seal : seals) {
    list += (list.empty() ? "" : ",") + ("{\"digest\":" + std::to_string(seal.digest)) +
            ",\"generation\":" + std::to_string(seal.generation) +
            ",\"step\":" + std::to_string(seal.step) + "}";
  }
  return list;
}

std::string text_of(const ArenaSeals& seals) {
  return "{\"copied_part\":" + std::to_string(seals.copied_part) + ",\"copies\":[" +
         list_of(seals.copies) + "],\"own\":[" + list_of(seals.own) +
         "],\"part\":" + std::to_string(seals.part) + ",\"parts\":" + std::to_string(seals.parts) +
         "}";
}

// By hand, and without what a reader assumes anyway: a generation of 100,000 ranks writes each of
// its slots several times.
void append(std::string& text, const Slot& row) {
  static const Slot nothing;
  const auto number = [&text](const char* field, auto value) {
    if (value == 0) return;
    text += field;
    text += std::to_string(value);
  };
  text +=
      "{\"key\":{\"job\":" + to_string(row.key.job) + ",\"rank\":" + to_string(row.key.rank) + '}';
  if (!row.arena_boot_id.empty()) text += ",\"arena_boot_id\":" + quoted(row.arena_boot_id);
  number(",\"exit_code\":", row.exit_code);
  number(",\"generation\":", row.generation.value);
  if (!row.node.empty()) text += ",\"node\":" + quoted(row.node);
  number(",\"pid\":", row.pid);
  if (row.seals != nothing.seals) text += ",\"seals\":" + text_of(row.seals);
  number(",\"signal\":", row.signal);
  number(",\"state\":", static_cast<int>(row.state));
  if (row.unaccounted) text += ",\"unaccounted\":true";
  text += '}';
}

}  // namespace

std::string encode(const Job& row) {
  json document = row;
  document["ending"] = row.ending;
  document["withdrawn"] = row.withdrawn;
  return dump(document);
}
std::string encode(const Node& row) { return dump(row); }
std::string encode(const Slot& row) {
  std::string text;
  append(text, row);
  return text;
}
std::string encode(const std::vector<const Slot*>& rows) {
  std::string text = "[";
  for (const Slot* row : rows) {
    if (text.size() > 1) text += ',';
    append(text, *row);
  }
  return text + ']';
}
std::string encode(const Action& action) { return dump(action); }
std::string encode(const Event& event) { return dump(event); }
std::string encode(const LogEntry& entry) { return dump(entry); }

Result<Job> decode_job(const std::string& text) {
  HP_TRY_ASSIGN(StoredJob stored, decode<StoredJob>(text, "job"));
  Job job = std::move(stored.job);
  job.limits = resolve(job.limits, local_limits());  // those that the writer did not know
  return job;
}
Result<Node> decode_node(const std::string& text) { return decode<Node>(text, "node"); }
Result<Slot> decode_slot(const std::string& text) { return decode<Slot>(text, "slot"); }
Result<std::vector<Slot>> decode_slots(const std::string& text) {
  return decode<std::vector<Slot>>(text, "row of slots");
}
Result<Action> decode_action(const std::string& text) { return decode<Action>(text, "action"); }
Result<Event> decode_event(const std::string& text) { return decode<Event>(text, "event"); }
Result<LogEntry> decode_log_entry(const std::string& text) {
  return decode<LogEntry>(text, "log entry");
}

}  // namespace core
}  // namespace hpctl
