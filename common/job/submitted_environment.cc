// SPDX-License-Identifier: Apache-2.0
#include "common/job/submitted_environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kMostSubmittedBytes = 16U << 20;
constexpr time_t kSubmissionSeconds = time_t{24} * 3600;  // by then its job has been launched

constexpr std::array<std::string_view, 9> kPrefixesThatStay = {
    "HPCTL_", "SLURM",        "SRUN_", "SBATCH_",      "SALLOC_",
    "SSH_",   "XDG_SESSION_", "TMUX",  "TORCHELASTIC_"};
constexpr std::array<std::string_view, 17> kNamesThatStay = {"LD_PRELOAD",
                                                             "DISPLAY",
                                                             "WAYLAND_DISPLAY",
                                                             "XAUTHORITY",
                                                             "XDG_RUNTIME_DIR",
                                                             "XDG_SEAT",
                                                             "XDG_VTNR",
                                                             "DBUS_SESSION_BUS_ADDRESS",
                                                             "STY",
                                                             "WINDOW",
                                                             "WINDOWID",
                                                             "GPG_AGENT_INFO",
                                                             "GPG_TTY",
                                                             "PWD",
                                                             "OLDPWD",
                                                             "SHLVL",
                                                             "_"};

std::string submitting_directory(const HomePaths& paths) { return paths.home() + "/submitting"; }

// What a submission that was killed left behind. Best effort: the next one looks again.
void sweep_submissions(const std::string& directory) {
  const auto names = list_directory(directory);
  if (!names.ok()) return;
  const time_t oldest = ::time(nullptr) - kSubmissionSeconds;
  for (const std::string& name : *names) {
    const std::string path = directory + "/" + name;
    struct stat st {};
    if (::lstat(path.c_str(), &st) == 0 && st.st_mtime < oldest) ::unlink(path.c_str());
  }
}

std::string submitting_path(const HomePaths& paths, const std::string& submit_key) {
  return submitting_directory(paths) + "/" + submit_key + ".env";
}

std::string submitted_path(const HomePaths& paths, JobId job) {
  return paths.job(job) + "/submitted.env";
}

}  // namespace

bool travels_with_job(std::string_view variable) {
  const size_t equals = variable.find('=');
  if (equals == 0 || equals == std::string_view::npos) return false;
  const std::string_view name = variable.substr(0, equals);
  const bool stays =
      std::find(kNamesThatStay.begin(), kNamesThatStay.end(), name) != kNamesThatStay.end() ||
      std::any_of(kPrefixesThatStay.begin(), kPrefixesThatStay.end(),
                  [&](std::string_view prefix) { return name.starts_with(prefix); });
  return !stays;
}

Outcome write_submitted_environment(const HomePaths& paths, const std::string& submit_key,
                                    const std::vector<std::string>& variables) {
  std::string text;
  for (const std::string& variable : variables) {
    if (travels_with_job(variable)) text.append(variable).push_back('\0');
  }
  HP_TRY(make_directories(submitting_directory(paths), 0700));
  sweep_submissions(submitting_directory(paths));
  const std::string path = submitting_path(paths, submit_key);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return errno_error("cannot create " + path);
  HP_TRY(write_all(fd.get(), text, path));
  if (::fsync(fd.get()) != 0) return errno_error("cannot sync " + path);
  return Ok{};
}

void discard_submitted_environment(const HomePaths& paths, const std::string& submit_key) {
  ::unlink(submitting_path(paths, submit_key).c_str());
}

Outcome adopt_submitted_environment(const HomePaths& paths, JobId job,
                                    const std::string& submit_key) {
  const std::string from = submitting_path(paths, submit_key);
  HP_TRY_ASSIGN(const bool is_new, path_exists(from));
  if (!is_new) return Ok{};
  HP_TRY(make_directories(paths.job(job)));
  const std::string to = submitted_path(paths, job);
  // Nodes of one job are launched at once: another launch may have moved it.
  if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT) {
    return errno_error("cannot move " + from + " to " + to);
  }
  return Ok{};
}

Result<std::optional<std::vector<std::string>>> read_submitted_environment(const HomePaths& paths,
                                                                           JobId job) {
  HP_TRY_ASSIGN(const auto text,
                read_file_if_there(submitted_path(paths, job), kMostSubmittedBytes));
  if (!text) return std::optional<std::vector<std::string>>();
  std::vector<std::string> variables;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\0', begin), text->size());
    variables.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  std::erase_if(variables, [](const std::string& variable) { return !travels_with_job(variable); });
  return std::optional(std::move(variables));
}

Outcome remove_submitted_environment(const HomePaths& paths, JobId job) {
  const std::string path = submitted_path(paths, job);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Ok{};
  return errno_error("cannot remove " + path);
}

}  // namespace hpctl
