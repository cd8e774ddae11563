// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/job_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "common/base/file.h"
#include "common/process/pidfd.h"
#include "common/process/process_stat.h"
#include "common/process/spawn.h"
#include "common/slurm/hyperpod.h"
#include "controller/cluster/identity.h"
#include "controller/leadership/child_protocol.h"

namespace hpctl::cluster {
namespace {

constexpr timeval kOrderPatience = {5, 0};  // the child does nothing but read

// When it was started; 0 = no such process.
uint64_t start_ticks(pid_t pid) {
  constexpr int kStartTimeField = 22;
  return std::strtoull(process_stat(pid, kStartTimeField).c_str(), nullptr, 10);
}

}  // namespace

Result<JobProcess> JobProcess::start(const JobProcessSettings& settings, JobRow& row) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return errno_error("cannot make a pair of sockets");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDTIMEO, &kOrderPatience, sizeof kOrderPatience);
  std::vector<std::string> argv = {settings.program,
                                   "--run-as",
                                   to_text(Identity{row.key.uid, row.gid, row.groups}),
                                   "--job-dir",
                                   row.job_dir,
                                   "--job",
                                   std::to_string(row.key.job),
                                   "--node",
                                   settings.node};
  if (!settings.listen.empty()) argv.insert(argv.end(), {"--listen", settings.listen});
  HP_TRY_ASSIGN(const pid_t pid,
                spawn_with_stdio(argv, {theirs.get(), STDERR_FILENO, STDERR_FILENO}));
  UniqueFd pidfd = open_pidfd(pid);  // our child: the number is its own until we reap it
  JobProcess process(pid, std::move(pidfd), std::move(ours));
  if (!process.pidfd_.valid()) {
    const Error error = errno_error("cannot watch process " + std::to_string(pid));
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return error;
  }
  row.pid = pid;
  row.start_ticks = start_ticks(pid);
  row.boot_id = identify_machine().boot_id;
  row.address.clear();
  row.certificate.clear();
  row.metrics_port = 0;
  row.takes_roles = false;
  return process;
}

std::optional<JobProcess> JobProcess::find(const JobRow& row) {
  if (row.pid <= 0 || row.boot_id != identify_machine().boot_id) return std::nullopt;
  UniqueFd pidfd = open_pidfd(row.pid);
  if (!pidfd.valid() || row.start_ticks == 0 || start_ticks(row.pid) != row.start_ticks) {
    return std::nullopt;
  }
  return JobProcess(row.pid, std::move(pidfd), UniqueFd());
}

Outcome JobProcess::order(const JobProcessSettings& settings, const JobRow& row) {
  const ChildOrder order{
      row.token,         row.nodes,
      row.scheduler,     row.programs,
      row.restart_count, settings.metrics,
      row.older_agents,  settings.lemons ? settings.lemons() : std::vector<LemonScore>{}};
  HP_TRY(write_all(channel_.get(), to_line(order), "the job's controller"));
  // From here on only what is there is read.
  if (::fcntl(channel_.get(), F_SETFL, O_NONBLOCK) != 0)
    return errno_error("cannot set O_NONBLOCK");
  return Ok{};
}

std::optional<Result<ChildReport>> JobProcess::read_report() {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(channel_.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (n > 0) said_.append(buffer.data(), static_cast<size_t>(n));
  const size_t end = said_.find('\n');
  if (n > 0 && end == std::string::npos && said_.size() < kMaxReportBytes) return std::nullopt;
  channel_.reset();
  if (end == std::string::npos) return std::nullopt;
  return report_from_line(said_.substr(0, end));
}

std::optional<int> JobProcess::reap() {
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void JobProcess::kill() const { signal_pidfd(pidfd_, SIGKILL); }

void JobProcess::await_end(int timeout_ms) const {
  pollfd ended{pidfd_.get(), POLLIN, 0};
  while (::poll(&ended, 1, timeout_ms) < 0 && errno == EINTR) {
  }
}

}  // namespace hpctl::cluster
