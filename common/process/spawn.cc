// SPDX-License-Identifier: Apache-2.0
#include "common/process/spawn.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

namespace hpctl {
namespace {

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  posix_spawn_file_actions_t* get() { return &actions_; }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

class Attributes {
 public:
  Attributes() { posix_spawnattr_init(&attributes_); }
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  posix_spawnattr_t* get() { return &attributes_; }

 private:
  posix_spawnattr_t attributes_{};
};

bool names_variable(const char* entry, const std::string& name) {
  return std::strncmp(entry, name.c_str(), name.size()) == 0 && entry[name.size()] == '=';
}

std::vector<char*> without(const std::vector<char*>& entries,
                           const std::vector<std::string>& names) {
  std::vector<char*> kept;
  for (char* entry : entries) {
    const bool dropped = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return names_variable(entry, name);
    });
    if (!dropped) kept.push_back(entry);
  }
  kept.push_back(nullptr);
  return kept;
}

std::vector<char*> our_environment() {
  std::vector<char*> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.push_back(*entry);
  return entries;
}

std::vector<char*> environment_of(const SpawnRequest& request) {
  if (!request.environment) return without(our_environment(), request.without_env);
  std::vector<char*> entries;
  for (const std::string& entry : *request.environment) {
    entries.push_back(const_cast<char*>(entry.c_str()));
  }
  return without(entries, request.without_env);
}

Result<pid_t> spawn(const std::vector<std::string>& arguments, const FileActions& files,
                    const std::vector<char*>& environment) {
  HP_CHECK(!arguments.empty());
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);

  Attributes attributes;
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(attributes.get(), &all);
  posix_spawnattr_setsigmask(attributes.get(), &none);
  posix_spawnattr_setflags(attributes.get(),
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int err =
      ::posix_spawn(&pid, argv[0], files.get(), attributes.get(), argv.data(), environment.data());
  if (err != 0) return errno_error("cannot start " + arguments[0], err);
  return pid;
}

}  // namespace

Result<pid_t> spawn_in_new_session(const SpawnRequest& request) {
  // The log is opened here, so that a read-only directory is reported as such.
  const UniqueFd log(
      ::open(request.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return errno_error("cannot open " + request.log_path);
  FileActions files;
  posix_spawn_file_actions_addopen(files.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(files.get(), log.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(files.get(), log.get(), STDERR_FILENO);
  int first_closed = STDERR_FILENO + 1;
  if (request.inherited_fd >= 0) {
    posix_spawn_file_actions_adddup2(files.get(), request.inherited_fd, kSpawnedFd);
    first_closed = kSpawnedFd + 1;
  }
  posix_spawn_file_actions_addclosefrom_np(files.get(), first_closed);
  return spawn(request.argv, files, environment_of(request));
}

Result<pid_t> spawn_with_stdio(const std::vector<std::string>& argv,
                               const std::array<int, 3>& descriptors) {
  FileActions files;
  for (int i = 0; i < 3; ++i) {
    posix_spawn_file_actions_adddup2(files.get(), descriptors.at(static_cast<size_t>(i)), i);
  }
  posix_spawn_file_actions_addclosefrom_np(files.get(), STDERR_FILENO + 1);
  return spawn(argv, files, without(our_environment(), {}));
}

}  // namespace hpctl
