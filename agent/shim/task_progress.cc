// SPDX-License-Identifier: Apache-2.0
#include "agent/shim/task_progress.h"

#include <sys/stat.h>

#include <cstdlib>
#include <utility>

#include "common/base/file.h"
#include "common/base/private_directory.h"
#include "common/process/process_stat.h"

namespace hpctl::shim {
namespace {

constexpr char kPrefix[] = "step-";
constexpr int kAttempts = 10;

void remove_what_nobody_holds() {
  const auto names = list_directory(user_directory());
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string path = user_directory() + "/" + name;
    if (lock_directory(path).valid()) [[maybe_unused]]
      const Outcome removed = remove_tree(path);
  }
}

// Between creation and lock, another shim may take the directory for an unused one.
Result<std::pair<std::string, UniqueFd>> make_locked_directory() {
  for (int i = 0; i < kAttempts; ++i) {
    std::string path = user_directory() + "/" + kPrefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return errno_error("cannot make " + path);
    UniqueFd lock = lock_directory(path);
    struct stat found {};
    if (lock.valid() && ::fstat(lock.get(), &found) == 0 && found.st_nlink > 0) {
      return std::pair(path, std::move(lock));
    }
  }
  return Error{ErrorCode::kUnavailable, "directories in " + user_directory() + " do not stay"};
}

}  // namespace

Result<TaskProgress> TaskProgress::begin(uint64_t generation, int32_t rank) {
  HP_TRY(own_private_directory(user_directory()));
  remove_what_nobody_holds();
  HP_TRY_ASSIGN(auto made, make_locked_directory());
  TaskProgress progress(std::move(made.first), std::move(made.second), generation, rank);
  HP_TRY(agent::prepare_progress_files(progress.directory_, generation, {rank}));
  return progress;
}

TaskProgress::TaskProgress(std::string directory, UniqueFd lock, uint64_t generation, int32_t rank)
    : directory_(std::move(directory)),
      lock_(std::move(lock)),
      generation_(generation),
      rank_(rank),
      path_(agent::progress_file_path(directory_, generation, rank)),
      file_(path_) {}

TaskProgress::~TaskProgress() {
  if (!lock_.valid()) return;
  [[maybe_unused]] const Outcome removed = remove_tree(directory_);
}

std::optional<step::Progress> TaskProgress::look(pid_t pid) {
  const agent::ProgressSample& sample = file_.sample();
  damaged_ = sample.damaged;
  if (!sample.told_by_program) return std::nullopt;
  return step::Progress{generation_,   static_cast<uint64_t>(pid), sample.step,
                        sample.tokens, ns_of(sample.step_took),    process_stat(pid, kStateField)};
}

bool TaskProgress::take_damage() { return damaged_ && !std::exchange(damage_told_, true); }

}  // namespace hpctl::shim
