// SPDX-License-Identifier: Apache-2.0
// hpctl rm: removes a job that has ended.

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/job_removal.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace rm_parts {
namespace {

constexpr const char* kHelp = R"(
Removes a job that has ended, with its record, its logs and its directory HPCTL_HOME/jobs/JOB. Its
checkpoints stay, and a line says where. A job that lives, or whose state is not known, is refused.
The name and the number of the job mean nothing afterwards; no later job gets the number.

Examples:
  hpctl rm quickstart
  hpctl rm 3 --checkpoints

Options:
  --checkpoints  remove the checkpoints in the job's directory, too. Those in a checkpoint.dir of
                 the job file stay (hpctl checkpoint rm); those that a later job went on from are
                 refused
  --json         {"job", "name", "checkpoints": directory of those that stay, or ""}

Exit codes: 0 removed, 1 no such job, it has not ended, or a file could not be removed, 3 neither a
controller nor HPCTL_HOME answers
)";

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto job = open_removable(invocation.arguments[0]);
  if (!job.ok()) return report(terminal, job.error());
  if (!job->choice.empty()) terminal.err << "hpctl: " << job->choice << "\n";
  const auto removed = remove_job(
      *job, invocation.has("--checkpoints") ? CheckpointsOf::kRemoved : CheckpointsOf::kKept);
  if (!removed.ok()) return report(terminal, removed.error());
  if (invocation.json()) {
    terminal.out << json_text(nlohmann::ordered_json{{"job", job->id.value},
                                                     {"name", job->view.name},
                                                     {"checkpoints", removed->kept}})
                 << "\n";
    return kExitOk;
  }
  terminal.out << "job " << to_string(job->id) << " " << printable(job->view.name) << " is removed"
               << (removed->kept.empty() ? std::string()
                                         : "; its checkpoints stay in " + printable(removed->kept))
               << "\n";
  return kExitOk;
}

}  // namespace
}  // namespace rm_parts

Verb rm_verb() {
  return {"rm",
          "JOB [--checkpoints]",
          "remove a job that has ended",
          rm_parts::kHelp,
          1,
          1,
          {{"--checkpoints"}},
          rm_parts::run};
}

}  // namespace hpctl
