// SPDX-License-Identifier: Apache-2.0
#include "controller/options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace hpctl {
namespace {

constexpr int64_t kMaxNumber = 1'000'000'000;

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
       hpcontroller --version | --help | --list-failpoints

Decides what runs: starts the nodes of each job, watches them, and after a fault starts the next
generation from the newest checkpoint. hpctl starts one by itself; one runs per home directory.

  --home DIR             state of jobs and controller, on a local disk (default: $HPCTL_HOME, else
                         ~/.hpctl)
  --metrics HOST:PORT    serve /metrics (Prometheus) and /healthz; port 0 takes a free one, named in
                         DIR/controller.json (default: $HPCTL_METRICS, else none)
  --idle-exit SECONDS    end after so long without live jobs and clients; 0 = never (default: 60)
  --detach               leave the caller: fork, and go on in a process that belongs to nobody
  --ready-fd N           write one byte to descriptor N when serving
  --list-failpoints      print the places where HPCTL_FAILPOINT=NAME can stop the process (tests)

Local clients connect to a Unix socket in /tmp/hpctl-UID/; other users are refused. SIGTERM ends the
controller cleanly; jobs go on and the next controller takes them over.

Exit codes: 0 ended as asked or idle; 1 a fault, named on stderr; 2 wrong usage; 3 another
controller runs on this home.
)";

Result<ControllerOptions> parse_controller_options(int argc, const char* const* argv) {
  ControllerOptions options;
  if (const char* metrics = std::getenv("HPCTL_METRICS")) options.metrics = metrics;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (name == "--version") {
      options.version = true;
    } else if (name == "--list-failpoints") {
      options.list_failpoints = true;
    } else if (name == "--detach") {
      options.detach = true;
    } else if (i + 1 < argc && name == "--home") {
      options.home = argv[++i];
    } else if (i + 1 < argc && name == "--metrics") {
      options.metrics = argv[++i];
    } else if (i + 1 < argc && name == "--idle-exit") {
      HP_TRY_ASSIGN(options.idle_exit_seconds, parse_number(name, argv[++i]));
    } else if (i + 1 < argc && name == "--ready-fd") {
      HP_TRY_ASSIGN(const int64_t fd, parse_number(name, argv[++i]));
      options.ready_fd = static_cast<int>(fd);
    } else {
      return Error{ErrorCode::kInvalidArgument,
                   "unknown or incomplete option " + name + "; see hpcontroller --help"};
    }
  }
  return options;
}

}  // namespace hpctl
