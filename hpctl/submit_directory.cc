// SPDX-License-Identifier: Apache-2.0
#include "hpctl/submit_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "common/base/bounded_json.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/base/random_hex.h"
#include "common/job/job_files.h"

namespace hpctl {
namespace {

constexpr size_t kTokenBytes = 32;

// Never readable by others, not even before it is complete.
Outcome write_secret(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error("cannot create " + path);
  HP_TRY(write_all(fd.get(), text, path));
  if (::fsync(fd.get()) != 0) return errno_error("cannot sync " + path);
  return Ok{};
}

std::string job_document(const JobSpec& spec, const std::string& key) {
  auto document = parse_json(to_json_text(spec));
  document["uid"] = ::geteuid();
  document["submit_key"] = key;
  return json_text(document) + "\n";
}

// Target of the link jobs/JOB; "" when there is none.
std::string link_target(const std::string& link) {
  std::array<char, PATH_MAX> buffer{};
  const ssize_t n = ::readlink(link.c_str(), buffer.data(), buffer.size());
  return n <= 0 ? "" : std::string(buffer.data(), static_cast<size_t>(n));
}

std::string cluster_file(const std::string& job_dir) { return job_dir + "/cluster"; }

bool same_cluster(const std::string& job_dir, const std::string& other) {
  constexpr size_t kMaxBytes = 4096;
  const auto a = read_file(cluster_file(job_dir), kMaxBytes);
  const auto b = read_file(cluster_file(other), kMaxBytes);
  return a.ok() && b.ok() && *a == *b;
}

// "12" -> 12; 0 for any other name.
uint64_t number_of(const std::string& name) {
  const bool digits = !name.empty() && name.size() <= 18 &&
                      name.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoull(name) : 0;
}

}  // namespace

SubmitDirectory submit_directory(const HomePaths& paths, const std::string& key) {
  SubmitDirectory directory{"", key};
  directory.path = paths.home() + "/jobs/" + directory.name();
  return directory;
}

Result<SubmitDirectory> create_submit_directory(const HomePaths& paths, const std::string& key,
                                                const std::string& cluster, const JobSpec& spec) {
  SubmitDirectory directory = submit_directory(paths, key);
  HP_TRY(make_directories(paths.home() + "/jobs"));
  if (::mkdir(directory.path.c_str(), 0700) != 0) {
    return errno_error("cannot create " + directory.path);
  }
  const auto fill = [&]() -> Outcome {
    HP_TRY_ASSIGN(const std::string token, random_hex(kTokenBytes));
    HP_TRY(write_secret(directory.path + "/token", token + "\n"));
    HP_TRY(write_file_atomic(directory.path + "/job.json", job_document(spec, key)));
    HP_TRY(write_file_atomic(cluster_file(directory.path), cluster + "\n"));
    return sync_directory(paths.home() + "/jobs");
  };
  if (const Outcome filled = fill(); !filled.ok()) {
    (void)remove_tree(directory.path);
    return filled.error();
  }
  return directory;
}

Outcome link_job(const HomePaths& paths, JobId job, const SubmitDirectory& directory) {
  const std::string link = paths.job(job);
  if (::symlink(directory.name().c_str(), link.c_str()) == 0) {
    return sync_directory(paths.home() + "/jobs");
  }
  const Error error = errno_error("cannot create " + link);
  const std::string earlier = link_target(link);
  if (earlier == directory.name()) return Ok{};
  if (!same_cluster(paths.home() + "/jobs/" + earlier, directory.path)) return error;
  const std::string next = directory.path + "/link";
  if (::symlink(directory.name().c_str(), next.c_str()) != 0 && errno != EEXIST) {
    return errno_error("cannot create " + next);
  }
  if (::rename(next.c_str(), link.c_str()) != 0 && link_target(link) != directory.name()) {
    return errno_error("cannot replace " + link);
  }
  return sync_directory(paths.home() + "/jobs");
}

bool is_slurm_job(const HomePaths& paths, JobId job) {
  return link_target(paths.job(job)).starts_with("submit-");
}

std::vector<JobId> slurm_jobs(const HomePaths& paths) {
  std::vector<JobId> jobs;
  const auto names = list_directory(paths.home() + "/jobs");
  if (!names.ok()) return jobs;
  for (const std::string& name : *names) {
    const JobId job{number_of(name)};
    if (job.value != 0 && is_slurm_job(paths, job)) jobs.push_back(job);
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

std::string lost_job_directory(const HomePaths& paths, JobId job) {
  const auto jobs = path_exists(paths.jobs());
  if (!jobs.ok() || !*jobs) return "";
  const std::string target = link_target(paths.job(job));
  const std::string directory =
      target.starts_with("submit-") ? paths.jobs() + "/" + target : paths.job(job);
  const auto own = entry_exists(directory);
  return own.ok() && !*own ? directory : "";
}

std::string lost_job_directory(const HomePaths& paths, JobId job, const std::string& state) {
  if (state == "PENDING" && !is_slurm_job(paths, job)) return "";
  return lost_job_directory(paths, job);
}

Refusal read_refusal(const HomePaths& paths, JobId job) {
  constexpr size_t kMaxBytes = 1U << 20;
  auto text = read_file(paths.job(job) + "/refusal", kMaxBytes);
  if (!text.ok()) return {};
  while (text->ends_with("\n")) text->pop_back();
  const size_t space = std::min(text->find(' '), text->size());
  Refusal refusal{static_cast<int>(number_of(text->substr(0, space))), ""};
  if (space < text->size()) refusal.reason = text->substr(space + 1);
  return refusal;
}

Result<JobSpec> submitted_spec(const HomePaths& paths, JobId job) {
  HP_TRY_ASSIGN(const std::string text, read_file(paths.job_spec(job)));
  return job_spec_from_json(text);
}

Result<JobView> submitted_view(const HomePaths& paths, JobId job) {
  HP_TRY_ASSIGN(const JobDocument document, read_job_document(paths.job(job)));
  const JobSpec& spec = document.spec;
  JobView view = linked_view(paths, job);
  view.name = spec.name;
  view.total_steps = spec.train ? static_cast<uint64_t>(spec.train->steps) : 0;
  view.checkpoint_dir =
      spec.checkpoint.dir.empty() ? paths.default_checkpoints(job) : spec.checkpoint.dir;
  view.job_uuid = document.submit_key;
  view.chosen = spec.chosen;
  return view;
}

JobView linked_view(const HomePaths& paths, JobId job) {
  JobView view;
  view.job = job.value;
  view.owner = std::to_string(::geteuid());
  struct stat st {};
  if (::lstat(paths.job(job).c_str(), &st) == 0) {
    view.owner = std::to_string(st.st_uid);  // root may be looking
    view.submitted_at = WallTime(int64_t{st.st_mtim.tv_sec} * 1000);
  }
  return view;
}

}  // namespace hpctl
