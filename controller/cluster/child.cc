// SPDX-License-Identifier: Apache-2.0
#include "controller/cluster/child.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "common/base/file.h"
#include "common/job/paths.h"
#include "common/net/host_port.h"
#include "controller/cluster/identity.h"
#include "controller/leadership/child_protocol.h"

namespace hpctl::cluster {
namespace {

// Variables that belong to the service and not to a user's process.
constexpr std::array kOfTheService = {"NOTIFY_SOCKET",    "INVOCATION_ID",   "JOURNAL_STREAM",
                                      "SYSTEMD_EXEC_PID", "MAINPID",         "MANAGERPID",
                                      "WATCHDOG_PID",     "WATCHDOG_USEC",   "LISTEN_PID",
                                      "LISTEN_FDS",       "STATE_DIRECTORY", "HPCTL_FAILPOINT",
                                      "HPCTL_METRICS",    "HPCTL_CA",        "HPCTL_PLAIN_LISTEN"};

void set_environment(const ChildOrder& order) {
  for (const char* name : kOfTheService) ::unsetenv(name);
  ::setenv("SLURM_RESTART_COUNT", std::to_string(order.restart_count).c_str(), 1);
  const passwd* entry = ::getpwuid(::getuid());
  if (entry == nullptr) {
    ::unsetenv("HOME");
    return;
  }
  ::setenv("HOME", entry->pw_dir, 1);
  ::setenv("USER", entry->pw_name, 1);
  ::setenv("LOGNAME", entry->pw_name, 1);
}

Outcome check_owner(const std::string& job_dir) {
  struct stat st {};
  if (::stat(job_dir.c_str(), &st) != 0) {
    return errno_error("uid " + std::to_string(::geteuid()) + " cannot look at " + job_dir +
                       " on the cluster controller's machine");
  }
  if (S_ISDIR(st.st_mode) && st.st_uid == ::geteuid()) return Ok{};
  return Error{ErrorCode::kPermissionDenied,
               job_dir + " must be a directory of uid " + std::to_string(::geteuid()) +
                   ", who asks; it belongs to uid " + std::to_string(st.st_uid)};
}

Outcome open_log(const ControllerOptions& options) {
  const auto paths = HomePaths::of_job(options.job_dir, JobId{options.job}, options.node);
  HP_TRY(make_directories_below(paths.home(), paths.node({}, options.node)));
  const std::string path = paths.controller_log();
  const UniqueFd log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.valid()) return errno_error("cannot write " + path);
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing.valid() || ::dup2(nothing.get(), STDIN_FILENO) < 0 ||
      ::dup2(log.get(), STDOUT_FILENO) < 0 || ::dup2(log.get(), STDERR_FILENO) < 0) {
    return errno_error("cannot redirect the output to " + path);
  }
  return Ok{};
}

Outcome begin(ControllerOptions& options) {
  HP_TRY_ASSIGN(const Identity identity, identity_from_text(options.run_as));
  HP_TRY(become(identity));
  HP_TRY_ASSIGN(const std::string line, read_line(options.report_fd, -1, kMaxOrderBytes));
  HP_TRY_ASSIGN(ChildOrder order, order_from_line(line));
  set_environment(order);
  options.metrics = order.metrics;  // not the service's, whose environment we had when it was read
  // The service's page is on that port. A wrong address is reported when the page is opened.
  if (const auto page = HostPort::parse(options.page); page.ok()) options.page = page->with_port(0);
  options.cluster_token = std::move(order.token);
  options.older_agents = order.older_agents;
  options.fleet_lemons = std::move(order.lemons);
  options.nodes = std::move(order.nodes);
  options.scheduler = std::move(order.scheduler);
  options.programs = std::move(order.programs);
  HP_TRY(check_owner(options.job_dir));
  if (::chdir("/") != 0) return errno_error("cannot change to /");
  return open_log(options);
}

}  // namespace

Result<ControllerOptions> begin_child(ControllerOptions options) {
  std::signal(SIGPIPE, SIG_IGN);
  UniqueFd channel(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!channel.valid()) return errno_error("--run-as is for the cluster controller only");
  options.report_fd = channel.get();
  if (const Outcome begun = begin(options); !begun.ok()) {
    (void)write_all(channel.get(), report_line(begun.error()), "the cluster controller");
    return begun.error();
  }
  channel.release();  // the Starter's from here on
  return options;
}

}  // namespace hpctl::cluster
