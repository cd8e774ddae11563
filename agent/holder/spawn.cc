// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/process/pidfd.h"

namespace hpctl {
namespace {

// The step that failed in the child: sent over the close-on-exec pipe.
enum class ChildStep : int { kDirectory, kDescriptors, kExec };
struct ChildFailure {
  ChildStep step;
  int error;
};

// All that the child touches, made before the fork.
struct Prepared {
  std::vector<std::string> programs;  // where it may be, in this order
  std::vector<char*> argv;
  std::vector<char*> env;
  std::vector<UniqueFd> sources;  // numbered above every target, so that dup2 overwrites none
  UniqueFd error_read;
  UniqueFd error_write;
  std::string oom_score;
  pid_t parent = 0;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// As execvp looks for it.
std::vector<std::string> places_of(const std::string& program,
                                   const std::vector<std::string>& env) {
  if (program.find('/') != std::string::npos) return {program};
  std::string_view path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& entry : env) {
    if (entry.starts_with("PATH=")) path = std::string_view(entry).substr(5);
  }
  std::vector<std::string> places;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    places.push_back(std::string(path.substr(begin, end - begin)) + "/" + program);
    begin = end + 1;
  }
  return places;
}

Result<Prepared> prepare(const SpawnPlan& plan) {
  Prepared prepared;
  prepared.programs = places_of(plan.program, plan.env);
  prepared.argv = pointers(plan.argv);
  prepared.env = pointers(plan.env);
  prepared.parent = ::getpid();
  const int first_free = static_cast<int>(plan.descriptors.size());
  for (const int fd : plan.descriptors) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, first_free));
    if (!copy.valid()) return errno_error("cannot duplicate a descriptor for " + plan.program);
    prepared.sources.push_back(std::move(copy));
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create a pipe");
  prepared.error_read.reset(ends[0]);
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return errno_error("cannot set up a pipe");
  const UniqueFd low_end(ends[1]);
  prepared.error_write.reset(::fcntl(low_end.get(), F_DUPFD_CLOEXEC, first_free));
  if (!prepared.error_write.valid()) return errno_error("cannot duplicate a pipe");
  if (plan.oom_score_increase > 0) {
    const auto own = read_file("/proc/self/oom_score_adj", 64);
    const int score = own.ok() ? std::atoi(own->c_str()) : 0;
    prepared.oom_score = std::to_string(std::min(1000, score + plan.oom_score_increase));
  }
  return prepared;
}

[[noreturn]] void fail_in_child(int error_fd, ChildStep step) {
  const ChildFailure failure{step, errno};
  [[maybe_unused]] const ssize_t n = ::write(error_fd, &failure, sizeof(failure));
  ::_exit(127);
}

void reset_signals() {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Runs between fork and exec: async-signal-safe calls only, no allocation.
[[noreturn]] void run_child(const SpawnPlan& plan, const Prepared& prepared) {
  const int error_fd = prepared.error_write.get();
  if (plan.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the request above; then no signal would reach us.
    if (::getppid() != prepared.parent) ::_exit(127);
  }
  // Without Yama this fails, and is not needed.
  if (plan.traceable) ::prctl(PR_SET_PTRACER, prepared.parent);
  ::setpgid(0, 0);
  reset_signals();
  if (!prepared.oom_score.empty()) {
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    // Best effort: without /proc the process still runs, only less likely to be the one ended.
    if (fd >= 0) {
      [[maybe_unused]] const ssize_t n =
          ::write(fd, prepared.oom_score.data(), prepared.oom_score.size());
      ::close(fd);
    }
  }
  const auto count = static_cast<int>(prepared.sources.size());
  for (int target = 0; target < count; ++target) {
    if (::dup2(prepared.sources[target].get(), target) < 0) {
      fail_in_child(error_fd, ChildStep::kDescriptors);
    }
  }
  if (error_fd > count) ::close_range(count, error_fd - 1, 0);
  ::close_range(error_fd + 1, ~0U, 0);
  // From here on the file system may keep it waiting, and it has nothing of its parent's any more.
  if (!plan.directory.empty() && ::chdir(plan.directory.c_str()) != 0) {
    fail_in_child(error_fd, ChildStep::kDirectory);
  }
  int error = ENOENT;
  for (const std::string& program : prepared.programs) {
    ::execve(program.c_str(), prepared.argv.data(), prepared.env.data());
    if (errno != ENOENT && errno != ENOTDIR) error = errno;
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) break;
  }
  errno = error;
  fail_in_child(error_fd, ChildStep::kExec);
}

Error describe(const SpawnedProcess& plan, const ChildFailure& failure) {
  if (failure.step == ChildStep::kDirectory) {
    return errno_error("cannot enter working directory " + plan.directory, failure.error);
  }
  if (failure.step == ChildStep::kDescriptors) {
    return errno_error("cannot set up descriptors of " + plan.program, failure.error);
  }
  if (failure.error == ENOENT && plan.program.find('/') == std::string::npos) {
    return {ErrorCode::kNotFound, "cannot find program " + plan.program +
                                      " in PATH; give its full path or extend PATH in env.set"};
  }
  Error error = errno_error("cannot execute " + plan.program, failure.error);
  if (failure.error == ENOEXEC) {
    error.code = ErrorCode::kInvalidArgument;
    error.message += "; a script needs a first line such as #!/bin/sh";
  }
  return error;
}

}  // namespace

std::optional<Outcome> SpawnedProcess::exec_outcome() const {
  if (!exec_pipe.valid()) return std::nullopt;
  ChildFailure failure{};
  ssize_t n = 0;
  do {
    n = ::read(exec_pipe.get(), &failure, sizeof(failure));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return std::nullopt;
  if (n == static_cast<ssize_t>(sizeof(failure))) return Outcome(describe(*this, failure));
  return Outcome(Ok{});
}

Result<SpawnedProcess> start_process(const SpawnPlan& plan) {
  HP_TRY_ASSIGN(Prepared prepared, prepare(plan));
  const pid_t pid = ::fork();
  if (pid < 0) {
    Error error = errno_error("cannot fork for " + plan.program);
    if (errno == EAGAIN) error.code = ErrorCode::kResourceExhausted;
    return error;
  }
  if (pid == 0) run_child(plan, prepared);
  // Also from here, so that the group exists whichever of the two runs first.
  ::setpgid(pid, pid);
  SpawnedProcess process{pid, open_pidfd(pid), std::move(prepared.error_read), plan.program,
                         plan.directory};
  if (!process.pidfd.valid()) {
    const Error error = errno_error("cannot watch process " + std::to_string(pid));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return error;
  }
  return process;
}

Result<SpawnedProcess> spawn_process(const SpawnPlan& plan) {
  HP_TRY_ASSIGN(SpawnedProcess process, start_process(plan));
  pollfd known{process.exec_pipe.get(), POLLIN, 0};
  while (::poll(&known, 1, -1) < 0 && errno == EINTR) {
  }
  const std::optional<Outcome> outcome = process.exec_outcome();
  process.exec_pipe.reset();
  if (outcome && !outcome->ok()) {
    ::waitpid(process.pid, nullptr, 0);
    return outcome->error();
  }
  return process;
}

namespace {

Result<HeardProcess> hear(std::vector<std::string> argv,
                          Result<SpawnedProcess> (*start)(const SpawnPlan& plan)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("cannot create a pipe");
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  if (::fcntl(read_end.get(), F_SETFL, O_NONBLOCK) != 0) return errno_error("cannot set up a pipe");
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnPlan plan;
  plan.program = argv.front();
  plan.argv = std::move(argv);
  plan.env = environment_with({});
  plan.descriptors = {null.get(), write_end.get(), STDERR_FILENO};
  HP_TRY_ASSIGN(SpawnedProcess process, start(plan));
  return HeardProcess{std::move(process), std::move(read_end)};
}

}  // namespace

Result<HeardProcess> spawn_heard(std::vector<std::string> argv) {
  return hear(std::move(argv), spawn_process);
}

Result<HeardProcess> start_heard(std::vector<std::string> argv) {
  return hear(std::move(argv), start_process);
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::map<std::string, std::string, std::less<>> merged;
  const auto put = [&](const std::string& entry) {
    merged[entry.substr(0, entry.find('='))] = entry;
  };
  for (char** entry = environ; *entry != nullptr; ++entry) put(*entry);
  for (const std::string& entry : changes) put(entry);
  std::vector<std::string> result;
  for (auto& [name, entry] : merged) result.push_back(std::move(entry));
  return result;
}

}  // namespace hpctl
