// SPDX-License-Identifier: Apache-2.0
#include "controller/leadership/options.h"
#include "common/base/host.h"
#include "common/net/host_port.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace hpctl {
namespace {

constexpr int64_t kMaxNumber = 4'294'967'295;  // a Slurm job id is a uint32

Result<int64_t> parse_number(const std::string& name, const std::string& text) {
  int64_t value = -1;
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (err != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxNumber) {
    return Error{ErrorCode::kInvalidArgument,
                 name + " wants a whole number, got \"" + text + "\"; see hpcontroller --help"};
  }
  return value;
}

}  // namespace

const char kControllerUsage[] =
    R"(usage: hpcontroller [--home DIR] [--metrics HOST:PORT] [--idle-exit SECONDS]
       hpcontroller --job-dir DIR --job N [--nodes LIST] [--successor] [...]
       hpcontroller --cluster --listen IP:PORT [--state-dir DIR] [--operators LIST] [...]
       hpcontroller --version | --help | --list-failpoints

Decides what runs: starts the nodes of each job, watches them, and after a fault starts the next
generation from the newest checkpoint. hpctl starts one by itself; one runs per home directory, or
per job of a cluster, where the batch script starts it, or the cluster controller of the head node.

  --home DIR             state of jobs and controller, on a local disk (default: $HPCTL_HOME, else
                         ~/.hpctl)
  --metrics HOST:PORT    serve /metrics (Prometheus) and /healthz; where the port is 0 or in use, on
                         any free one, and never a reason not to run; a file metrics-targets*.json
                         says where (default: $HPCTL_METRICS, else none)
  --page HOST:PORT       where the status page listens once `hpctl open` has asked for it; it does
                         not encrypt (default: $HPCTL_PAGE, else 127.0.0.1 and any free port)
  --idle-exit SECONDS    end after so long without live jobs and clients; 0 = never (default: 60)
  --detach               leave the caller: fork, and go on in a process without a parent
  --ready-fd N           write one byte to descriptor N when serving
  --list-failpoints      print the places where HPCTL_FAILPOINT=NAME can stop the process (tests)

For one job of a cluster, in place of --home:
  --job-dir DIR          the job's directory, on a file system that all its nodes see
  --job N                its number
  --node NAME            this machine (default: $SLURMD_NODENAME, else its host name)
  --nodes LIST           the job's nodes, A,B,...; those that train first (default: as its last
                         controller had them)
  --scheduler NAME       who starts agents: slurm, or none: they come by themselves (default: as
                         the last controller had it, else slurm)
  --listen IP:PORT       where agents and hpctl reach it with the job's token, DIR/token (default:
                         this node's address, any free port)
  --successor            take over from a controller that does not answer; an agent starts it so
  --told-to-end          as if SIGTERM came at once: the batch script got one before this ran
  --at HOST:PORT,...     have the first cluster controller of the list that can run it, and stay in
                         its place: until the job's verdict, cancelling the job on SIGTERM; where
                         none can, run it here
  --run-as U:G:GROUPS    from the cluster controller only

The cluster controller of a head node (docs/cluster-controller.md), in place of both; there may be
several, each on its node:
  --cluster              start, as its owner, the controller of every job that asks with a MUNGE
                         credential, and start it again when it dies; as root for every user,
                         otherwise for this one
  --listen IP:PORT       where to ask; the jobs' controllers listen on IP, any free port
  --state-dir DIR        which controllers run, and the audit log, on a local disk (default:
                         /var/lib/hpctl)
  --operators LIST       who may look at everybody's jobs, and quarantine, release, reboot and
                         replace their nodes: users, uids and %groups, A,B,%C (default:
                         $HPCTL_OPERATORS, else root and the user that it runs as)
  --readers LIST         who may look at them only (default: $HPCTL_READERS, else none)
  --ca DIR               prove itself by certificates of the authority there, which hpctl ca makes:
                         TLS for those who ask and for /metrics (default: $HPCTL_CA, else none)
  --plain-listen IP:PORT with --ca: answer without TLS there, those who have no bundle yet (default:
                         $HPCTL_PLAIN_LISTEN, else nowhere)

Local clients connect to a Unix socket in /tmp/hpctl-UID/; other users are refused. SIGTERM ends the
controller of a home cleanly; jobs go on and the next controller takes them over. It cancels the job
of a controller that has one job.

Exit codes: 0 ended as asked or idle; 1 or 4 a fault, named on stderr; 2 wrong usage; 3 another
controller runs on this home. With --job-dir: 0 the job finished; 1 it failed or was cancelled;
93 it failed and would fail again; 2 wrong usage; 3 another controller has the job; any other: this
process failed, start it again.
)";

namespace {

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream in(text);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

// Takes the option and its value; false when there is no such option.
Result<bool> take_value(ControllerOptions& options, const std::string& name,
                        const std::string& value) {
  int64_t number = 0;
  if (name == "--idle-exit" || name == "--ready-fd" || name == "--job") {
    HP_TRY_ASSIGN(number, parse_number(name, value));
  }
  if (name == "--home") {
    options.home = value;
  } else if (name == "--metrics") {
    options.metrics = value;
  } else if (name == "--page") {
    options.page = value;
  } else if (name == "--idle-exit") {
    options.idle_exit_seconds = number;
  } else if (name == "--ready-fd") {
    options.ready_fd = static_cast<int>(number);
  } else if (name == "--job-dir") {
    options.job_dir = value;
  } else if (name == "--job") {
    options.job = static_cast<uint64_t>(number);
  } else if (name == "--node") {
    options.node = value;
  } else if (name == "--nodes") {
    options.nodes = split_list(value);
  } else if (name == "--scheduler") {
    options.scheduler = value;
  } else if (name == "--listen") {
    options.listen = value;
  } else if (name == "--at") {
    options.cluster_at = value;
  } else if (name == "--state-dir") {
    options.state_dir = value;
  } else if (name == "--operators") {
    options.operators = value;
  } else if (name == "--readers") {
    options.readers = value;
  } else if (name == "--ca") {
    options.ca_dir = value;
  } else if (name == "--plain-listen") {
    options.plain_listen = value;
  } else if (name == "--run-as") {
    options.run_as = value;
  } else {
    return false;
  }
  return true;
}

bool take_flag(ControllerOptions& options, const std::string& name) {
  if (name == "--help" || name == "-h") {
    options.help = true;
  } else if (name == "--version") {
    options.version = true;
  } else if (name == "--list-failpoints") {
    options.list_failpoints = true;
  } else if (name == "--detach") {
    options.detach = true;
  } else if (name == "--successor") {
    options.successor = true;
  } else if (name == "--told-to-end") {
    options.told_to_end = true;
  } else if (name == "--cluster") {
    options.cluster = true;
  } else {
    return false;
  }
  return true;
}

Outcome check_directories(const ControllerOptions& options) {
  const std::string remedy = "give the directory another name";
  HP_TRY(check_path_is_text("--home", options.home, remedy));
  HP_TRY(check_path_is_text("--job-dir", options.job_dir, remedy));
  return check_path_is_text("--state-dir", options.state_dir, remedy);
}

Outcome check(const ControllerOptions& options) {
  const auto wrong = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what + "; see hpcontroller --help"};
  };
  if (options.job_dir.empty() != (options.job == 0))
    return wrong("--job-dir and --job go together");
  if (!options.job_dir.empty() && !options.home.empty()) {
    return wrong("--home and --job-dir exclude each other");
  }
  if (options.cluster && !(options.job_dir.empty() && options.home.empty())) {
    return wrong("--cluster excludes --home and --job-dir");
  }
  if (const auto listen = HostPort::parse(options.listen); options.cluster && !listen.ok()) {
    return wrong("--cluster wants --listen IP:PORT: " + listen.error().message);
  }
  if (options.cluster && options.ca_dir.empty() && !options.plain_listen.empty()) {
    return wrong(
        "--plain-listen is for --cluster with --ca (HPCTL_CA): without, --listen is plain");
  }
  HP_TRY(check_directories(options));
  const std::string& scheduler = options.scheduler;
  if (!scheduler.empty() && scheduler != kSchedulerSlurm && scheduler != kSchedulerNone) {
    return wrong("--scheduler wants slurm or none, got \"" + scheduler + "\"");
  }
  return Ok{};
}

std::string this_node() {
  const char* name = std::getenv("SLURMD_NODENAME");
  if (name != nullptr && *name != '\0') return name;
  return host_name();
}

}  // namespace

Result<ControllerOptions> parse_controller_options(int argc, const char* const* argv) {
  ControllerOptions options;
  if (const char* metrics = std::getenv("HPCTL_METRICS")) options.metrics = metrics;
  if (const char* page = std::getenv("HPCTL_PAGE")) options.page = page;
  if (const char* operators = std::getenv("HPCTL_OPERATORS")) options.operators = operators;
  if (const char* readers = std::getenv("HPCTL_READERS")) options.readers = readers;
  if (const char* ca = std::getenv("HPCTL_CA")) options.ca_dir = ca;
  if (const char* plain = std::getenv("HPCTL_PLAIN_LISTEN")) options.plain_listen = plain;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (take_flag(options, name)) continue;
    bool known = false;
    if (i + 1 < argc) {
      HP_TRY_ASSIGN(known, take_value(options, name, argv[++i]));
    }
    if (!known) {
      return Error{ErrorCode::kInvalidArgument,
                   "unknown or incomplete option " + name + "; see hpcontroller --help"};
    }
  }
  if (options.node.empty()) options.node = this_node();
  HP_TRY(check(options));
  return options;
}

}  // namespace hpctl
