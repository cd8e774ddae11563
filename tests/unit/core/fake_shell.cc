// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/core/fake_shell.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/job/snapshot_peers.h"
#include "controller/core/codec.h"
#include "controller/core/plan.h"
#include "controller/core/reconcile.h"
#include "controller/core/transition.h"

namespace hpctl::core {

StepResult FakeShell::feed(EventBody body) {
  Event event;
  event.seq = {state.last_seq.value + 1};
  event.now_ms = now_ms;
  event.wall_ms = wall_ms(now_ms);
  event.body = std::move(body);
  StepResult result = stepper(state, event);
  log.insert(log.end(), result.log.begin(), result.log.end());
  for (const auto& [id, job] : state.jobs) {
    HP_CHECK(!checks_table || unsettled(state, id).empty());
  }
  return result;
}

void FakeShell::answer(const Action& action) {
  if (const auto* a = std::get_if<LaunchNode>(&action.body)) {
    const std::string boot = "boot-" + std::to_string(next_boot++);
    const uint64_t holder = next_pid++;
    feed(NodeLaunched{action.id, a->job, a->node, holder});
    feed(AgentRegistered{a->job,
                         a->node,
                         "i-" + a->node,
                         boot,
                         holder,
                         next_pid++,
                         {},
                         {},
                         {},
                         agents_tell_ready,
                         lemons.contains(a->node),
                         agents_confirm,
                         a->node == controller_node});
  } else if (const auto* a = std::get_if<FindCheckpoint>(&action.body)) {
    const std::string confirmed =
        a->claim.checkpoint.empty() || claims_are_false ? "" : "crc32c does not match";
    CheckpointChosen chosen{action.id,
                            a->job,
                            a->in_mirror ? mirror_checkpoint : checkpoint,
                            a->in_mirror ? mirror_step : checkpoint_step,
                            {newest_record[a->job]},
                            confirmed,
                            recorded_damage,
                            lost_checkpoint};
    for (const WithdrawnRecord& record : created_late) {
      const bool is_known =
          std::find(a->withdrawn.begin(), a->withdrawn.end(), record) != a->withdrawn.end();
      if (is_known) chosen.withdrawn.push_back(record);
      if (!is_known) chosen.newest_generation = record.generation;
    }
    feed(std::move(chosen));
  } else if (const auto* a = std::get_if<ConfirmDamage>(&action.body)) {
    const bool is_sound = claims_are_false || a->before_delete;
    feed(DamageAnswered{action.id, a->job, a->node,
                        is_sound ? DamageVerdict::kSound : DamageVerdict::kDamaged,
                        is_sound ? "" : "crc32c does not match"});
  } else if (const auto* a = std::get_if<RecordGeneration>(&action.body)) {
    newest_record[a->job] = a->generation.value;
    feed(GenerationRecorded{action.id, a->job, a->generation});
  } else if (const auto* a = std::get_if<StartWorkers>(&action.body)) {
    WorkersStarted started{action.id, a->job, a->node, a->generation, {}};
    for (const Rank rank : a->ranks) {
      const auto origin = origins.find(rank);
      started.workers.push_back(
          {rank, a->generation, next_pid++,
           origin == origins.end() ? WorkerOrigin::kUnknown : origin->second});
    }
    feed(started);
  } else if (const auto* a = std::get_if<StopWorkers>(&action.body)) {
    feed(WorkersStopped{action.id, a->job, a->node, a->generation,
                        a->stacks ? "stacks: where the ranks of " + a->node + " stood" : ""});
  } else if (const auto* a = std::get_if<RequeueJob>(&action.body)) {
    feed(JobRequeued{action.id, a->job});
  } else if (const auto* a = std::get_if<ReplaceNode>(&action.body)) {
    feed(NodeReplacementRequested{action.id, a->job, a->node, "", a->reboot});
  } else if (const auto* a = std::get_if<PruneCheckpoints>(&action.body)) {
    CheckpointsPruned done;
    if (a->asks) {
      done.to_verify = pruned.verified;
    } else {
      done = pruned;
    }
    done.action = action.id;
    done.job = a->job;
    feed(std::move(done));
  } else if (const auto* a = std::get_if<MirrorCheckpoint>(&action.body)) {
    const std::string name = mirror_checkpoint.substr(mirror_checkpoint.rfind('/') + 1);
    CheckpointMirrored done{action.id, a->job, name, mirror_step, 4096, {}, mirror_problem};
    const bool deletes = older_copies && mirror_problem.empty();
    if (deletes && a->asks && a->verified.empty()) {
      done.to_verify = mirror_checkpoint;
    } else if (deletes) {
      done.verified = mirror_checkpoint;
      older_copies = false;
    }
    feed(std::move(done));
  } else if (const auto* a = std::get_if<EndNode>(&action.body)) {
    const std::string boot = node(a->job, a->node).boot_id;
    if (!boot.empty()) {
      feed(NodeEnded{a->job, a->node, boot});
    } else {
      feed(NodeLost{a->job, a->node, "", "was never up"});
    }
  }
}

void FakeShell::answer_all(size_t kind) {
  std::vector<Action> batch;
  for (const auto& [id, action] : state.outbox) {
    if (action.body.index() == kind) batch.push_back(action);
  }
  for (const Action& action : batch) {
    if (state.outbox.contains(action.id)) answer(action);
  }
}

bool FakeShell::settle_one_kind() {
  if (state.outbox.empty()) return false;
  answer_all(state.outbox.begin()->second.body.index());
  return true;
}

void FakeShell::settle_kind(const std::string& name) {
  for (const auto& [id, action] : state.outbox) {
    if (type_name(action.body) != name) continue;
    answer_all(action.body.index());
    return;
  }
  HP_CHECK(!"an action of that kind is open");
}

void FakeShell::answer(const std::string& kind, const std::string& node) {
  for (const auto& [id, action] : state.outbox) {
    if (type_name(action.body) != kind || target_of(action.body).node != node) continue;
    answer(Action(action));
    return;
  }
  HP_CHECK(!"an action of that kind is open for the node");
}

void FakeShell::restart() {
  State loaded;
  loaded.last_seq = state.last_seq;
  loaded.now_ms = state.now_ms;
  loaded.last_local_job = state.last_local_job;
  for (const auto& [key, row] : state.jobs) loaded.jobs[key] = *decode_job(encode(row));
  for (const auto& [key, row] : state.nodes) loaded.nodes[key] = *decode_node(encode(row));
  for (const auto& [key, row] : state.slots) loaded.slots[key] = *decode_slot(encode(row));
  for (const auto& [key, row] : state.outbox) loaded.outbox[key] = *decode_action(encode(row));
  state = std::move(loaded);
  rebuild_index(state);
  feed(ControllerResumed{true});
}

void FakeShell::settle() {
  while (settle_one_kind()) {
  }
}

void FakeShell::pass(int64_t ms) {
  const int64_t until = now_ms + ms;
  for (auto due = next_deadline(state); due && *due <= until; due = next_deadline(state)) {
    now_ms = std::max(now_ms, *due);
    if (training_moves) {
      for (const TrainingSeen& doubted : doubts(state, now_ms)) feed(doubted);
    }
    if (next_deadline(state) <= now_ms) feed(Tick{});
  }
  now_ms = until;
}

JobId FakeShell::submit(const JobSpec& spec, uint32_t uid, const std::string& key) {
  const auto result = feed(JobSubmitted{spec, uid, key});
  HP_CHECK(result.submitted.has_value());
  return *result.submitted;
}

void FakeShell::progress(JobId id, uint64_t step) {
  feed(GenerationProgressed{id, job(id).generation, step});
}

ArenaSeals FakeShell::arena_of(JobId id, int32_t rank) const {
  ArenaSeals arena = seals;
  const Job& row = job(id);
  if (!row.spec.train) return arena;
  arena.parts = parts_of_state(row);
  arena.part = rank % arena.parts;
  if (!arena.copies.empty()) {
    arena.copied_part = snapshot_source(rank, row.world_size(), row.spec.workers_per_node);
  }
  return arena;
}

void FakeShell::exit_worker(JobId id, int32_t rank, int32_t code, int32_t signal, uint64_t step,
                            const std::string& message) {
  const Slot& row = slot(id, rank);
  feed(WorkerExited{id, row.node, node(id, row.node).boot_id, Rank{rank}, row.generation, row.pid,
                    code, signal, step, message, false, false, arena_of(id, rank)});
}

std::vector<const Action*> FakeShell::open(ActionKind kind) const {
  std::vector<const Action*> found;
  for (const auto& [id, action] : state.outbox) {
    if (action.body.index() == static_cast<size_t>(kind)) found.push_back(&action);
  }
  return found;
}

JobSpec small_job(const std::string& name, bool command) {
  JobSpec spec;
  spec.name = name;
  spec.nodes = 2;
  spec.workers_per_node = 2;
  spec.checkpoint.dir = "/ckpt/" + name;
  if (command) {
    spec.command = {"sleep", "1"};
    return spec;
  }
  TrainSpec train;
  train.model = *model_preset("tiny");
  train.data.path = "/data";
  train.data.seq_len = 16;
  train.batch.micro = 1;
  train.batch.global = 4;
  train.steps = 100;
  spec.train = train;
  return spec;
}

}  // namespace hpctl::core
