// SPDX-License-Identifier: Apache-2.0
// The command line of hpagent: its usage, and "--name value" pairs after the mode.
#pragma once

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "common/job/ids.h"
#include "common/job/paths.h"

namespace hpctl::agent {

inline constexpr char kUsage[] =
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
inline Arguments parse(int argc, char** argv) {
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

inline JobId job_of(const Arguments& arguments) {
  return JobId{std::strtoull(arguments.at("--job").c_str(), nullptr, 10)};
}

inline HomePaths paths_of(const Arguments& arguments) {
  const auto job_dir = arguments.find("--job-dir");
  if (job_dir == arguments.end()) return HomePaths(arguments.at("--home"));
  return HomePaths::of_job(job_dir->second, job_of(arguments), arguments.at("--node"));
}

// Returns whether this hpagent runs from a local copy.
inline bool is_copy(const Arguments& arguments) { return arguments.contains("--programs"); }

}  // namespace hpctl::agent
