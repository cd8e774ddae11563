// SPDX-License-Identifier: Apache-2.0
#include "hpctl/prepared_data.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "common/base/file.h"
#include "common/job/job_spec.h"
#include "controller/publish/status_files.h"
#include "hpctl/job_source.h"

namespace hpctl {
namespace {

constexpr size_t kHashDigits = 16;  // trainer/data/prepare/cached.cc

// "NAME-HASH" of "NAME-HASH.idx" and of whatever else belongs to that dataset; "" = no such name.
std::string dataset_of(const std::string& file) {
  for (size_t dash = file.rfind('-'); dash != std::string::npos && dash > 0;
       dash = file.rfind('-', dash - 1)) {
    const size_t end = std::min(file.find_first_not_of("0123456789abcdef", dash + 1), file.size());
    if (end == dash + 1 + kHashDigits && end < file.size() && file[end] == '.') {
      return file.substr(0, end);
    }
  }
  return "";
}

struct Dataset {
  std::vector<std::string> files;
  int64_t used_s = 0;
};

std::map<std::string, Dataset> datasets_in(const std::string& directory) {
  std::map<std::string, Dataset> datasets;
  const auto names = list_directory(directory);
  if (!names.ok()) return datasets;
  for (const std::string& name : *names) {
    const std::string dataset = dataset_of(name);
    struct stat st {};
    if (dataset.empty() || ::lstat((directory + "/" + name).c_str(), &st) != 0) continue;
    Dataset& entry = datasets[directory + "/" + dataset];
    entry.files.push_back(name);
    entry.used_s = std::max(entry.used_s, int64_t{st.st_mtim.tv_sec});
  }
  return datasets;
}

bool ended_long_ago(const std::string& job_dir, int64_t now_s) {
  const auto text = read_file(job_dir + "/status.json");
  if (!text.ok()) return false;
  const auto view = job_view_from_json(*text);
  return view.ok() && has_ended(view->state) && view->ended_at.is_known() &&
         view->ended_at.unix_ms() / 1000 <= now_s - kUnusedDataSeconds;
}

// The paths that the home's jobs train on; nullopt = of one it is not known.
std::optional<std::set<std::string>> paths_in_use(const HomePaths& paths, int64_t now_s) {
  std::set<std::string> used;
  const auto names = list_directory_if_there(paths.jobs());
  if (!names.ok()) return std::nullopt;
  for (const std::string& name : *names) {
    const std::string job_dir = paths.jobs() + "/" + name;
    struct stat st {};
    if (::stat(job_dir.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) continue;
    if (ended_long_ago(job_dir, now_s)) continue;
    const auto text = read_file(job_dir + "/job.json");
    if (!text.ok()) return std::nullopt;
    const auto spec = job_spec_from_json(*text);
    if (!spec.ok()) return std::nullopt;
    if (!spec->train) continue;
    used.insert(spec->train->data.path);
    for (const BlendPart& part : spec->train->data.blend) used.insert(part.path);
  }
  return used;
}

// The index first: what has none is not taken for a dataset.
bool remove_dataset(const std::string& directory, const std::string& prefix,
                    const Dataset& dataset) {
  bool gone = remove_tree(prefix + ".idx").ok();
  for (const std::string& file : dataset.files) {
    gone = gone && remove_tree(directory + "/" + file).ok();
  }
  return gone;
}

// Invalid where that fails.
UniqueFd lock_directory(const std::string& directory, int how) {
  UniqueFd fd(::open((directory + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  while (fd.valid() && ::flock(fd.get(), how) != 0) {
    if (errno != EINTR) fd.reset();
  }
  return fd;
}

}  // namespace

UniqueFd PreparedData::hold() const {
  if (!make_directories(directory()).ok()) return UniqueFd();  // who writes there will say why
  return lock_directory(directory(), LOCK_SH);
}

void PreparedData::mark_used(const std::string& prefix) const {
  if (!prefix.starts_with(directory() + "/")) return;
  ::utimensat(AT_FDCWD, (prefix + ".idx").c_str(), nullptr, 0);
}

std::vector<std::string> PreparedData::remove_unused(int64_t now_s) const {
  std::vector<std::string> removed;
  const UniqueFd lock = lock_directory(directory(), LOCK_EX | LOCK_NB);
  if (!lock.valid()) return removed;
  auto datasets = datasets_in(directory());
  std::erase_if(datasets, [&](const auto& entry) {
    return entry.second.used_s > now_s - kUnusedDataSeconds;
  });
  if (datasets.empty()) return removed;
  const auto used = paths_in_use(paths_, now_s);
  if (!used) return removed;
  for (const auto& [prefix, dataset] : datasets) {
    if (used->contains(prefix)) continue;
    if (remove_dataset(directory(), prefix, dataset)) removed.push_back(prefix);
  }
  return removed;
}

}  // namespace hpctl
