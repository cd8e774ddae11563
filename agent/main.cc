// SPDX-License-Identifier: Apache-2.0
// hpagent: the per-node program. `--holder` is what a scheduler starts; the other modes are started
// by the holder itself.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/agent.h"
#include "agent/guardian.h"
#include "agent/holder.h"
#include "agent/local_programs.h"
#include "agent/probes/check.h"
#include "common/base/log.h"

namespace {

constexpr char kUsage[] =
    R"(usage: hpagent --holder --home DIR --job JOB --node NAME --socket PATH
               [--launch ID] [--alive-limit MS] [--programs DIR]
       hpagent --holder --job-dir DIR --job JOB --node NAME [--programs DIR]
       hpagent check efa|net|gpu|host|fs|all|network [--json]
       hpagent --version | --help

Supervises the workers of one job on one node. hpctl's schedulers start it; people seldom need to.

  --home DIR     HPCTL_HOME of the job's controller
  --job-dir DIR  on a cluster: the job's directory, which all its nodes see; the controller is the
                 newest that DIR/controllers names
  --job JOB      number of the job
  --node NAME    name of this node within the job, e.g. n0
  --socket PATH  Unix socket of the controller
  --launch ID    the controller's order that starts it; seen only in its command line
  --alive-limit MS  an agent proper that shows no life for so long is replaced (1500)
  --programs DIR  where the release's other programs are, of an hpagent that runs from a copy

Where its file is on a file server, the holder copies it to /tmp/hpctl-UID/programs and runs from
there, so that no page fault waits for that server.

The holder takes DIR/jobs/JOB/nodes/NAME/lock (on a cluster /tmp/hpctl-UID/job-JOB-NAME/lock),
starts and watches the workers, and keeps a second process, the agent proper, which talks to the
controller. SIGTERM ends the workers, then the node.

Exit codes: 0 ended on request, or the node has a holder already; 1 a fault, named on stderr;
2 wrong usage.
)";

using Arguments = std::map<std::string, std::string>;

// "--name value" pairs after the mode; an empty map when they are not well formed.
Arguments parse(int argc, char** argv) {
  Arguments arguments;
  if (argc % 2 != 0) return {};
  for (int i = 2; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  const bool of_job = arguments.contains("--job-dir");
  const std::set<std::string> needed =
      of_job ? std::set<std::string>{"--job-dir", "--job", "--node"}
             : std::set<std::string>{"--home", "--job", "--node", "--socket"};
  for (const std::string& name : needed) {
    if (arguments[name].empty()) return {};
  }
  const size_t optional = arguments.count("--launch") + arguments.count("--alive-limit") +
                          arguments.count("--programs");
  return arguments.size() == needed.size() + optional ? arguments : Arguments();
}

hpctl::JobId job_of(const Arguments& arguments) {
  return hpctl::JobId{std::strtoull(arguments.at("--job").c_str(), nullptr, 10)};
}

hpctl::HomePaths paths_of(const Arguments& arguments) {
  const auto job_dir = arguments.find("--job-dir");
  if (job_dir == arguments.end()) return hpctl::HomePaths(arguments.at("--home"));
  return hpctl::HomePaths::of_job(job_dir->second, job_of(arguments), arguments.at("--node"));
}

bool is_copy(const Arguments& arguments) { return arguments.contains("--programs"); }

// `program`: what the agent and the guardian are started from.
int run_holder(const Arguments& arguments, const std::string& directory,
               const std::string& program) {
  hpctl::holder::HolderOptions options{paths_of(arguments),     job_of(arguments),
                                       arguments.at("--node"),  {program, "--agent"},
                                       {program, "--guardian"}, directory + "/hpstacks"};
  for (const auto& [name, value] : arguments) {
    options.agent_argv.insert(options.agent_argv.end(), {name, value});
  }
  hpctl::set_log_component("holder " + options.node);
  return hpctl::holder::run_holder(options);
}

int run_agent(const Arguments& arguments, const std::string& directory,
              const std::string& program) {
  hpctl::set_log_component("agent " + arguments.at("--node"));
  const auto limit = arguments.find("--alive-limit");
  const unsigned long limit_ms =
      limit == arguments.end() ? 0 : std::strtoul(limit->second.c_str(), nullptr, 10);
  const std::string data_directory =
      is_copy(arguments) ? std::filesystem::path(program).parent_path().string() : directory;
  return hpctl::agent::run_agent({paths_of(arguments), job_of(arguments), arguments.at("--node"),
                                  directory, HPCTL_VERSION, data_directory,
                                  static_cast<uint32_t>(limit_ms)});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--help") return std::fputs(kUsage, stdout) < 0 ? 1 : 0;
  if (mode == "--version") return std::puts("hpagent " HPCTL_VERSION) < 0 ? 1 : 0;
  if (mode == "--guardian" && argc == 3) {
    hpctl::set_log_component("guardian");
    return hpctl::holder::run_guardian(argv[2]);
  }
  const Arguments arguments = parse(argc, argv);
  if (is_copy(arguments)) hpctl::set_program_directory(arguments.at("--programs"));
  const auto directory = hpctl::program_directory();
  if (!directory.ok()) {
    std::fprintf(stderr, "hpagent: %s\n", directory.error().message.c_str());
    return 1;
  }
  if (mode == "check") return hpctl::agent::run_check({argv + 2, argv + argc}, *directory);
  if (mode == "--holder" && is_copy(arguments)) return run_holder(arguments, *directory, argv[0]);
  if (mode == "--holder" && !arguments.empty()) {
    std::vector<std::string> again(argv, argv + argc);
    again.insert(again.end(), {"--programs", *directory});
    hpctl::holder::run_from_local_copy(std::move(again));
    return run_holder(arguments, *directory, *directory + "/hpagent");
  }
  if (mode == "--agent" && !arguments.empty()) return run_agent(arguments, *directory, argv[0]);
  std::fputs("hpagent: wrong arguments; see hpagent --help\n", stderr);
  return 2;
}
