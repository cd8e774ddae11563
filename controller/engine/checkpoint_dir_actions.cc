// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/checkpoint_dir_actions.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/net/port.h"
#include "controller/engine/mirror.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/manifest_format.h"

namespace hpctl {
namespace {

core::ActionFailed failed(ActionId id, JobId job, const Error& error) {
  // Damage and wrong names need a person. Rights may come back with the mount or the credentials
  // that have gone.
  const bool permanent =
      error.code == ErrorCode::kDataLoss || error.code == ErrorCode::kInvalidArgument;
  return {id, job, "", error.message, permanent};
}

// A checkpoint under another's name is not in the lineage, and one of a newer release cannot be
// judged here. A damaged manifest is left to the workers: they are the first reader of two.
Outcome check_identity(const std::string& directory, const CheckpointRef& name) {
  const std::string path = directory + "/" + name.name() + "/manifest.json";
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxManifestBytes));
  const auto manifest = manifest_from_text(text, path);
  if (!manifest.ok()) {
    if (manifest.error().code == ErrorCode::kDataLoss) return Ok{};
    return manifest.error();
  }
  if (manifest->ref() == name) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               path + " belongs to " + manifest->ref().name() + ", not to " + name.name() +
                   ": the directory was copied or renamed; remove it, or give it its name back"};
}

// "" = there is no claim, or it is not true.
Result<std::string> confirm(const std::string& directory, const core::DamageClaim& claim) {
  if (claim.checkpoint.empty()) return std::string();
  const bool has_path = claim.checkpoint.starts_with('/');
  return confirm_damage(has_path ? claim.checkpoint : directory + "/" + claim.checkpoint,
                        claim.what, claim.part);
}

// A missing directory shows no damage of a part.
Outcome check_still_there(const std::string& directory, const std::string& checkpoint,
                          Generation newest) {
  if (checkpoint.starts_with('/')) return check_path_in_place(checkpoint);
  return newest == Generation{} ? Outcome(Ok{}) : check_in_place(directory, newest.value);
}

// A checkpoint that was committed on this chain; "" = none was. Asked where none is left.
std::string find_lost(const std::vector<GenerationRecord>& chain, uint64_t committed_step) {
  if (std::string known = find_known_commit(chain); !known.empty()) return known;
  // The checkpoint that a job's first generation began with may lie elsewhere.
  const bool from_path = !chain.empty() && chain.back().checkpoint.starts_with('/');
  const uint64_t first = from_path ? chain.back().start_step : 0;
  return committed_step > first ? "a checkpoint of step " + std::to_string(committed_step) : "";
}

// A checkpoint after step `found` that was committed on this chain, and is neither there nor among
// the damaged ones; "" = none was.
std::string find_newer_lost(const std::vector<GenerationRecord>& chain, uint64_t committed_step,
                            uint64_t found, const std::vector<std::string>& damaged) {
  const std::string known = find_known_commit(chain);
  const auto ref = parse_checkpoint_name(known);
  const bool is_excluded = std::find(damaged.begin(), damaged.end(), known) != damaged.end();
  if (ref && ref->step > found && !is_excluded) return known;
  const bool is_damaged = std::any_of(damaged.begin(), damaged.end(), [&](const std::string& name) {
    const auto other = parse_checkpoint_name(name);
    return other && other->step == committed_step;
  });
  if (committed_step <= found || is_damaged) return "";
  return "a checkpoint of step " + std::to_string(committed_step);
}

// With the records of generations that began while the directory was away.
Result<std::vector<GenerationRecord>> read_own_lineage(const CheckpointSpec& checkpoint,
                                                       Generation newest) {
  HP_TRY_ASSIGN(auto records, read_lineage(checkpoint.dir));
  const bool lacks_some = records.empty() || records.back().generation < newest.value;
  if (checkpoint.mirror.dir.empty() || newest == Generation{} || !lacks_some) return records;
  HP_TRY(restore_lineage(checkpoint, newest));
  return read_lineage(checkpoint.dir);
}

std::string port_path(const HomePaths& paths, JobId job, Generation generation) {
  return paths.rendezvous(job, generation) + ".port";
}

// N of "gN" and "gN.port"; 0 for any other name.
uint64_t generation_in(const std::string& name) {
  return name.starts_with('g') ? std::strtoull(name.c_str() + 1, nullptr, 10) : 0;
}

Outcome prepare_rendezvous(const HomePaths& paths, JobId job, Generation generation) {
  const std::string directory = paths.rendezvous(job, generation);
  const std::string parent = directory.substr(0, directory.rfind('/'));
  HP_TRY(make_directories_below(paths.job(job), directory));
  const std::string port_file = port_path(paths, job, generation);
  HP_TRY_ASSIGN(const bool has_port, path_exists(port_file));
  if (!has_port) {
    // Free here; the agent of rank 0's node, which may be another, tries it once more.
    HP_TRY_ASSIGN(const uint16_t port, choose_free_port());
    HP_TRY(write_file_atomic(port_file, std::to_string(port) + "\n"));
  }
  HP_TRY_ASSIGN(const auto names, list_directory(parent));
  for (const std::string& name : names) {
    // A newer one is of a controller that has taken over: its workers meet there.
    if (generation_in(name) < generation.value) HP_TRY(remove_tree(parent + "/" + name));
  }
  return Ok{};
}

bool same_record(GenerationRecord a, const GenerationRecord& b) {
  a.created_wall_ms = b.created_wall_ms;
  // Of a release before, whose outbox we have.
  if (a.job_uuid.empty()) a.job_uuid = b.job_uuid;
  if (a.order.empty()) a.order = b.order;
  return to_json_text(a) == to_json_text(b);
}

}  // namespace

core::EventBody find_checkpoint(ActionId id, const core::FindCheckpoint& action,
                                const JobSpec& spec, uint64_t committed_step) {
  const std::string& directory = spec.checkpoint.dir;
  core::CheckpointChosen chosen{id, action.job, "", 0, {}};
  auto records = read_own_lineage(spec.checkpoint, action.newest);
  if (!records.ok()) return failed(id, action.job, records.error());
  const auto all = chain_of_newest(*records);
  chosen.withdrawn = core::drop_withdrawn(*records, action);
  if (!records->empty()) chosen.newest_generation.value = records->back().generation;
  for (const GenerationRecord& record : all) {
    chosen.damaged.insert(chosen.damaged.end(), record.damaged.begin(), record.damaged.end());
  }
  std::sort(chosen.damaged.begin(), chosen.damaged.end());
  chosen.damaged.erase(std::unique(chosen.damaged.begin(), chosen.damaged.end()),
                       chosen.damaged.end());
  auto confirmed = confirm(directory, action.claim);
  if (!confirmed.ok()) return failed(id, action.job, confirmed.error());
  chosen.confirmed = std::move(confirmed).value();
  if (!chosen.confirmed.empty()) {
    const auto there =
        check_still_there(directory, action.claim.checkpoint, chosen.newest_generation);
    if (!there.ok()) return failed(id, action.job, there.error());
  }
  std::vector<std::string> exclude = action.exclude;
  if (!chosen.confirmed.empty()) exclude.push_back(action.claim.checkpoint);
  const auto newest = latest_on_chain(directory, chain_of_newest(*records), exclude);
  if (!newest.ok()) return failed(id, action.job, newest.error());
  if (!newest->has_value()) {
    chosen.lost = find_lost(all, committed_step);
    return chosen;
  }
  if (const auto own = check_identity(directory, **newest); !own.ok()) {
    return failed(id, action.job, own.error());
  }
  chosen.checkpoint = (*newest)->name();
  chosen.step = (*newest)->step;
  exclude.insert(exclude.end(), chosen.damaged.begin(), chosen.damaged.end());
  chosen.lost = find_newer_lost(all, committed_step, chosen.step, exclude);
  return chosen;
}

GenerationRecord make_record(ActionId id, const core::RecordGeneration& action,
                             const core::State& state, int64_t wall_ms) {
  GenerationRecord record;
  record.order = to_string(id);
  for (const Generation withdrawn : action.withdrawn) record.withdrawn.push_back(withdrawn.value);
  record.generation = action.generation.value;
  record.parent = action.parent.value;
  record.start_step = action.start_step;
  record.checkpoint = action.checkpoint;
  record.from_memory = action.memory_of != Generation{};
  record.committed = action.committed;
  record.job = action.job.value;
  const core::Job& job = state.jobs.at(action.job);
  record.job_name = job.spec.name;
  record.job_uuid = job.submit_key;
  record.restart_count = static_cast<uint64_t>(job.backend.restart_count);
  for (const auto& [rank, node] : action.members) {
    const auto row = state.nodes.find({action.job, node});
    record.members.push_back(
        {rank.value, node, row == state.nodes.end() ? "" : row->second.instance_id});
  }
  record.reason = action.reason;
  record.restarts_used = action.restarts_used;
  record.damaged = action.damaged;
  record.created_wall_ms = wall_ms;
  record.quarantined = action.quarantined;
  return record;
}

core::EventBody record_generation(ActionId id, const core::RecordGeneration& action,
                                  const GenerationRecord& record, const std::string& directory,
                                  const HomePaths& paths) {
  if (const auto ready = prepare_rendezvous(paths, action.job, action.generation); !ready.ok()) {
    return failed(id, action.job, ready.error());
  }
  HP_FAILPOINT("controller.record.before");
  const auto created = create_generation(directory, record);
  HP_FAILPOINT("controller.record.after");
  if (created.ok()) return core::GenerationRecorded{id, action.job, action.generation};
  if (created.error().code != ErrorCode::kAlreadyExists) {
    return failed(id, action.job, created.error());
  }
  const auto existing = read_generation(directory, record.generation);
  if (!existing.ok()) return failed(id, action.job, existing.error());
  if (same_record(*existing, record)) {
    // The earlier attempt may have died between creating the name and making it durable.
    for (const std::string& path : {directory + "/generations", directory}) {
      if (const auto synced = sync_directory(path); !synced.ok()) {
        return failed(id, action.job, synced.error());
      }
    }
    return core::GenerationRecorded{id, action.job, action.generation};
  }
  const bool is_own = is_recorded_by(*existing, action.job.value, record.job_uuid);
  return core::GenerationTaken{id, action.job, action.generation, is_own ? existing->order : ""};
}

uint16_t rendezvous_port(const HomePaths& paths, JobId job, Generation generation) {
  const auto text = read_file(port_path(paths, job, generation), 64);
  const unsigned long port = text.ok() ? std::strtoul(text->c_str(), nullptr, 10) : 0;
  return port <= 65'535 ? static_cast<uint16_t>(port) : 0;
}

}  // namespace hpctl
