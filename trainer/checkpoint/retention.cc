// SPDX-License-Identifier: Apache-2.0
// Decides which checkpoints are deleted, and in which order. The controller calls this in the lane
// of the directory; no worker deletes a checkpoint. Before the first deletion the newest valid
// checkpoint is read again (confirm.h), here or by a node; checkpoints that are not older stay. A
// checkpoint stops
// existing with its manifest, so that goes first; a crash after it leaves a partial save, which a
// later pass removes.
//
// The lineage is read again before every deletion: a controller whose job has a newer generation,
// because another controller has taken over, stops deleting. So does one that does not see the
// record of its own generation: its view of the directory is broken.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/durable_file.h"

namespace hpctl {
namespace {

constexpr const char* kUndone = "undone-";  // before the name of a checkpoint, or before "2-" etc.
constexpr int kMostOfOneName = 1'000;
constexpr const char* kManifestName = "manifest.json";

std::string superseded(const std::vector<GenerationRecord>& records, uint64_t generation) {
  if (records.empty() || records.back().generation <= generation) return "";
  return "generation " + std::to_string(records.back().generation) + " is newer than " +
         std::to_string(generation);
}

// Why the job of that generation may delete nothing; "" = it may.
std::string find_objection(const std::vector<GenerationRecord>& records, uint64_t generation) {
  if (records.empty() || records.back().generation < generation) {
    return "the record of generation " + std::to_string(generation) + " cannot be seen";
  }
  return superseded(records, generation);
}

bool recorded_as_damaged(const std::vector<GenerationRecord>& chain, const std::string& name) {
  return std::any_of(chain.begin(), chain.end(), [&](const GenerationRecord& record) {
    return std::find(record.damaged.begin(), record.damaged.end(), name) != record.damaged.end();
  });
}

Result<bool> is_symbolic_link(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) == 0) return S_ISLNK(st.st_mode);
  if (errno == ENOENT) return false;
  return errno_error("cannot look at " + path);
}

// A look at the directory by the job of the newest generation.
class Retention {
 public:
  static Result<Retention> look(const std::string& checkpoint_dir, const RetentionOrder& order,
                                const std::vector<GenerationRecord>& records) {
    Retention seen(checkpoint_dir, order, records);
    HP_TRY_ASSIGN(const auto complete, list_checkpoints(checkpoint_dir));
    for (const CheckpointRef& ref : complete) {
      if (seen.own_.contains(ref.generation)) seen.complete_.push_back(ref);
    }
    HP_TRY_ASSIGN(seen.names_, list_directory(checkpoint_dir));
    return seen;
  }

  // The newest valid checkpoint, which stays.
  std::optional<CheckpointRef> newest() const {
    const auto found = std::find_if(complete_.rbegin(), complete_.rend(), [this](const auto& ref) {
      return valid_by_lineage(ref, chain_);
    });
    return found == complete_.rend() ? std::nullopt : std::optional(*found);
  }

  // Whether the checkpoint may be what remains.
  bool counts(const CheckpointRef& ref) const {
    return std::binary_search(complete_.begin(), complete_.end(), ref) &&
           valid_by_lineage(ref, chain_);
  }

  // What may go where `verified` remains.
  std::vector<std::string> drop_newer(const CheckpointRef& verified,
                                      std::vector<std::string> names) const {
    std::erase_if(names, [&](const std::string& name) {
      const auto ref = parse_checkpoint_name(name);
      return ref && valid_by_lineage(*ref, chain_) && !(*ref < verified);
    });
    return names;
  }

  // Names to delete, oldest first.
  Result<std::vector<std::string>> choose() const {
    const auto count = static_cast<int64_t>(complete_.size());
    int64_t keep = std::max<int64_t>(order_.keep, 1);
    HP_TRY_ASSIGN(auto doomed, choose(keep));
    for (keep = std::min(keep, count) - 1; order_.for_room && doomed.empty() && keep >= 1; --keep) {
      HP_TRY_ASSIGN(doomed, choose(keep));
    }
    return doomed;
  }

 private:
  Retention(const std::string& checkpoint_dir, const RetentionOrder& order,
            const std::vector<GenerationRecord>& records)
      : dir_(checkpoint_dir),
        order_(order),
        chain_(chain_of_newest(records)),
        own_(generations_of_newest_job(records)) {}

  Result<std::vector<std::string>> choose(int64_t keep) const {
    std::set<CheckpointRef> doomed = superfluous(keep);
    for (const std::string& name : names_) {
      const auto ref = parse_checkpoint_name(name);
      if (!ref || !may_be_given_up(*ref)) continue;
      HP_TRY_ASSIGN(const bool is_committed, has_manifest(dir_ + "/" + name));
      if (!is_committed) doomed.insert(*ref);
    }
    std::vector<std::string> result;
    for (const CheckpointRef& ref : doomed) result.push_back(ref.name());
    for (const std::string& name : names_) {
      const auto ref = parse_set_aside(name);
      if (ref && own_.contains(ref->generation)) result.push_back(name);
    }
    return result;
  }

  // Complete checkpoints beyond `keep`, or of a history that was given up.
  std::set<CheckpointRef> superfluous(int64_t keep) const {
    const std::set<CheckpointRef> kept = milestones();
    std::set<CheckpointRef> doomed;
    int64_t valid = 0;
    for (auto it = complete_.rbegin(); it != complete_.rend(); ++it) {
      if (valid_by_lineage(*it, chain_)) {
        if (++valid > keep && !kept.contains(*it)) doomed.insert(*it);
      } else if (it->generation < order_.generation && !recorded_as_damaged(chain_, it->name())) {
        doomed.insert(*it);
      }
    }
    return doomed;
  }

  // For each multiple of keep_every the first valid checkpoint from there on: a fault or failing
  // storage may have cost the one of the very step.
  std::set<CheckpointRef> milestones() const {
    std::set<CheckpointRef> found;
    if (order_.keep_every <= 0) return found;
    const auto every = static_cast<uint64_t>(order_.keep_every);
    uint64_t passed = first_step() / every;
    for (const CheckpointRef& ref : complete_) {
      if (!valid_by_lineage(ref, chain_)) continue;
      if (ref.step % every == 0 || ref.step / every > passed) found.insert(ref);
      passed = std::max(passed, ref.step / every);
    }
    return found;
  }

  // Where the job and its predecessors began.
  uint64_t first_step() const {
    std::optional<uint64_t> first;
    for (const GenerationRecord& record : chain_) {
      if (!own_.contains(record.generation)) continue;
      first = std::min(first.value_or(record.start_step), record.start_step);
    }
    return first.value_or(0);
  }

  // Whether a save without a manifest may go: its generation is over. If its commit still came, it
  // must not be the newest checkpoint.
  bool may_be_given_up(const CheckpointRef& ref) const {
    const bool is_former = ref.generation < order_.generation || order_.of_mirror;
    const bool is_over = is_former && own_.contains(ref.generation);
    const bool would_be_newest = newest() && ref > *newest() && valid_by_lineage(ref, chain_);
    return order_.unfinished && is_over && !would_be_newest;
  }

  std::string dir_;
  RetentionOrder order_;
  std::vector<GenerationRecord> chain_;
  std::set<uint64_t> own_;  // generations: another job may have checkpoints of its own here
  std::vector<CheckpointRef> complete_;  // own, ascending
  std::vector<std::string> names_;       // all entries
};

// "" = the deletion may go on. A rollback may have taken the checkpoint that is to remain out of
// the history (undo_checkpoints()).
Result<std::string> find_refusal(const std::string& checkpoint_dir, const RetentionOrder& order,
                                 const std::string& verified) {
  if (!order.goes_on()) return std::string("it was interrupted");
  HP_TRY_ASSIGN(const bool is_there, has_manifest(checkpoint_dir + "/" + verified));
  if (!is_there) return verified + " is gone";
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  return find_objection(records, order.generation);
}

// Whether `checkpoint` may be what remains. Otherwise the report says why not.
Result<bool> is_proven(const std::string& checkpoint_dir, const CheckpointRef& checkpoint,
                       const RetentionOrder& order, RetentionReport& report) {
  const Outcome sound =
      confirm_checkpoint(checkpoint_dir + "/" + checkpoint.name(), order.depth, order.goes_on);
  if (sound.ok()) return true;
  if (sound.error().code == ErrorCode::kDataLoss) {
    report.problem = sound.error().message;
  } else if (sound.error().code == ErrorCode::kUnavailable) {
    report.refused = sound.error().message;
  } else {
    return sound.error();
  }
  return false;
}

}  // namespace

Outcome delete_checkpoint(const std::string& checkpoint_dir, const std::string& name) {
  const std::string step_dir = checkpoint_dir + "/" + name;
  HP_TRY_ASSIGN(const bool is_link, is_symbolic_link(step_dir));
  if (is_link) return remove_tree(step_dir);
  const std::string manifest = step_dir + "/" + kManifestName;
  HP_FAILPOINT("checkpoint.delete.before_manifest");
  if (::unlink(manifest.c_str()) != 0 && errno != ENOENT) {
    return with_disk_remedy(errno_error("cannot remove " + manifest));
  }
  HP_TRY(sync_directory(step_dir));
  HP_FAILPOINT("checkpoint.delete.manifest_gone");
  return remove_tree(step_dir);
}

std::optional<CheckpointRef> parse_set_aside(const std::string& name) {
  const size_t at = name.find("step-");
  if (!name.starts_with(kUndone) || at == std::string::npos) return std::nullopt;
  return parse_checkpoint_name(name.substr(at));
}

Outcome set_aside(const std::string& checkpoint_dir, const std::string& name) {
  const std::string from = checkpoint_dir + "/" + name;
  for (int number = 1; number <= kMostOfOneName; ++number) {
    const std::string which = number == 1 ? "" : std::to_string(number) + "-";
    const std::string to = checkpoint_dir + "/" + kUndone + which + name;
    HP_TRY_ASSIGN(const bool is_used, entry_exists(to));
    if (is_used) continue;
    if (::rename(from.c_str(), to.c_str()) == 0) return sync_directory(checkpoint_dir);
    if (errno == EEXIST || errno == ENOTEMPTY) continue;
    return with_disk_remedy(errno_error("cannot rename " + from + " to " + to));
  }
  return Error{ErrorCode::kStorage,
               checkpoint_dir + " has too many undone checkpoints named " + name};
}

Result<RetentionReport> delete_older_checkpoints(const std::string& checkpoint_dir,
                                                 const RetentionOrder& order) {
  RetentionReport report;
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  report.refused = find_objection(records, order.generation);
  if (!report.refused.empty()) return report;
  HP_TRY_ASSIGN(const Retention seen, Retention::look(checkpoint_dir, order, records));
  HP_TRY_ASSIGN(auto doomed, seen.choose());
  if (doomed.empty() || !seen.newest()) return report;
  if (order.asks) {
    report.to_verify = seen.newest()->name();
    return report;
  }
  const bool is_verified = !order.verified.empty();
  const auto remains = is_verified ? parse_checkpoint_name(order.verified) : seen.newest();
  if (!remains || !seen.counts(*remains)) {
    report.refused = order.verified + " was verified and counts no more";
    return report;
  }
  if (!is_verified) {
    HP_TRY_ASSIGN(const bool proven, is_proven(checkpoint_dir, *remains, order, report));
    if (!proven) return report;
  }
  report.verified = remains->name();
  doomed = seen.drop_newer(*remains, std::move(doomed));
  for (const std::string& name : doomed) {
    HP_TRY_ASSIGN(report.refused, find_refusal(checkpoint_dir, order, report.verified));
    if (!report.refused.empty()) break;
    HP_TRY(delete_checkpoint(checkpoint_dir, name));
    report.deleted.push_back(name);
  }
  return report;
}

Outcome undo_checkpoints(const std::string& checkpoint_dir, uint64_t generation, uint64_t step) {
  HP_TRY_ASSIGN(auto complete, list_checkpoints(checkpoint_dir));
  std::reverse(complete.begin(), complete.end());
  for (const CheckpointRef& ref : complete) {
    if (ref.generation != generation || ref.step <= step) continue;
    HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
    const std::string newer = superseded(records, generation);
    if (!newer.empty()) return Error{ErrorCode::kUnavailable, "cannot go back: " + newer};
    HP_TRY(set_aside(checkpoint_dir, ref.name()));
  }
  return Ok{};
}

}  // namespace hpctl
