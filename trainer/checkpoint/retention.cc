// SPDX-License-Identifier: Apache-2.0
// What may be deleted, and in which order. A checkpoint stops existing with its manifest, so that
// goes first; a crash after it leaves a partial save, which the next pass removes.
//
// The lineage is read again before every deletion: a process of a generation that has been
// superseded in the meantime stops deleting. Between that look and the deletion a newer generation
// could still choose the checkpoint only if it chose before this generation's newest commit, and
// its controller ends the old workers before it chooses.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/durable_file.h"

namespace hpctl {
namespace {

constexpr const char* kUndone = "undone-";  // before the name of a checkpoint

std::string superseded(const std::vector<GenerationRecord>& records, uint64_t generation) {
  if (records.empty() || records.back().generation <= generation) return "";
  return "generation " + std::to_string(records.back().generation) + " is newer than " +
         std::to_string(generation);
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

// Whose checkpoint it is: another job may have its own in the same directory, and those stay.
class OwnGenerations {
 public:
  OwnGenerations(const std::vector<GenerationRecord>& records, uint64_t generation)
      : is_recorded_(!records.empty()), own_(generations_of_newest_job(records)) {
    own_.insert(generation);
  }
  // Without any record there is one job.
  bool has(uint64_t generation) const { return !is_recorded_ || own_.contains(generation); }

 private:
  bool is_recorded_;
  std::set<uint64_t> own_;
};

// Names to delete, oldest first.
Result<std::vector<std::string>> choose(const std::string& checkpoint_dir, int64_t keep,
                                        int64_t keep_every, uint64_t generation,
                                        const std::vector<GenerationRecord>& records) {
  const auto chain = chain_of_newest(records);
  const OwnGenerations own(records, generation);
  HP_TRY_ASSIGN(const auto complete, list_checkpoints(checkpoint_dir));
  std::set<CheckpointRef> doomed;
  int64_t valid = 0;
  for (auto it = complete.rbegin(); it != complete.rend(); ++it) {
    if (!own.has(it->generation)) continue;
    if (valid_by_lineage(*it, chain)) {
      const bool milestone = keep_every > 0 && it->step % static_cast<uint64_t>(keep_every) == 0;
      if (++valid > keep && !milestone) doomed.insert(*it);
    } else if (it->generation < generation && !recorded_as_damaged(chain, it->name())) {
      doomed.insert(*it);
    }
  }
  HP_TRY_ASSIGN(const auto names, list_directory(checkpoint_dir));
  for (const std::string& name : names) {
    const auto ref = parse_checkpoint_name(name);
    if (!ref || ref->generation >= generation || !own.has(ref->generation)) continue;
    HP_TRY_ASSIGN(const bool is_complete,
                  path_exists(checkpoint_dir + "/" + name + "/manifest.json"));
    if (!is_complete) doomed.insert(*ref);
  }
  std::vector<std::string> result;
  for (const CheckpointRef& ref : doomed) result.push_back(ref.name());
  for (const std::string& name : names) {
    if (!name.starts_with(kUndone)) continue;
    const auto ref = parse_checkpoint_name(name.substr(std::string(kUndone).size()));
    if (ref && own.has(ref->generation)) result.push_back(name);
  }
  return result;
}

}  // namespace

Outcome delete_checkpoint(const std::string& checkpoint_dir, const std::string& name) {
  const std::string step_dir = checkpoint_dir + "/" + name;
  HP_TRY_ASSIGN(const bool is_link, is_symbolic_link(step_dir));
  if (is_link) return remove_tree(step_dir);
  const std::string manifest = step_dir + "/manifest.json";
  HP_FAILPOINT("checkpoint.delete.before_manifest");
  if (::unlink(manifest.c_str()) != 0 && errno != ENOENT) {
    return with_disk_remedy(errno_error("cannot remove " + manifest));
  }
  HP_TRY(sync_directory(step_dir));
  HP_FAILPOINT("checkpoint.delete.manifest_gone");
  return remove_tree(step_dir);
}

Result<RetentionReport> keep_newest(const std::string& checkpoint_dir, int64_t keep,
                                    uint64_t generation, int64_t keep_every) {
  RetentionReport report;
  HP_TRY_ASSIGN(const auto first_look, read_lineage(checkpoint_dir));
  report.refused = superseded(first_look, generation);
  if (!report.refused.empty()) return report;
  HP_TRY_ASSIGN(const auto doomed, choose(checkpoint_dir, std::max<int64_t>(keep, 1), keep_every,
                                          generation, first_look));
  for (const std::string& name : doomed) {
    HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
    report.refused = superseded(records, generation);
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
    const std::string from = checkpoint_dir + "/" + ref.name();
    const std::string to = checkpoint_dir + "/" + kUndone + ref.name();
    HP_TRY(remove_tree(to));  // of an earlier rollback, which retention could not remove
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return with_disk_remedy(errno_error("cannot rename " + from + " to " + to));
    }
  }
  return sync_directory(checkpoint_dir);
}

}  // namespace hpctl
