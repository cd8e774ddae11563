// SPDX-License-Identifier: Apache-2.0
// hpctl cancel: ends a job.

#include <sys/stat.h>

#include <memory>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/slurm/hpslurm.h"
#include "hpctl/controller_client.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/submit_directory.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace cancel_parts {
namespace {

constexpr const char* kHelp = R"(
Ends a job and releases its nodes. The workers get SIGTERM, and SIGKILL after 25 s; a training job
saves the step under way. Checkpoints and logs stay. If a local job's controller is not running,
hpctl starts it. Slurm ends a job that waits in the queue, or whose controller does not answer. If
the file system of HPCTL_HOME does not answer, the job's controller is found without it where that
is possible: a local job's, one on this machine, one at a cluster controller.

Examples:
  hpctl cancel quickstart
  hpctl cancel 3

Options:
  --json  {"job", "state"}

Exit codes: 0 the job is cancelled or being cancelled, 1 no such job or it has ended otherwise,
3 no controller could be started, or the file system of HPCTL_HOME does not answer
)";

// In order by the job's controller if it answers, else by Slurm.
Result<std::string> cancel_on_slurm(const Terminal& terminal, const OpenJob& job) {
  ControllerClient* const found = job.source->controller();
  if (found != nullptr && !job.lost_directory().empty()) return found->cancel(job.id);
  const auto client = ControllerClient::connect(job.paths, job.id);
  if (client.ok()) {
    const auto state = (*client)->cancel(job.id);
    if (state.ok() || state.error().code != ErrorCode::kUnavailable) return state;
  } else if (job.view.state != "PENDING") {
    terminal.err << "hpctl: " << client.error().message << "; asking Slurm to end the job\n";
  }
  SlurmClient slurm;
  HP_TRY(slurm.cancel(job.id));
  HP_TRY_ASSIGN(const JobView after, open_source(job.paths, job.id)->get_job(job.id));
  return after.state;
}

// By the controller that was found without the job's directory, which does not answer.
Result<std::string> cancel_without_files(const OpenJob& job) {
  if (auto* const controller = job.source->controller()) return controller->cancel(job.id);
  return Error{ErrorCode::kUnavailable, job.notice()};
}

// What else ends a job whose controller cannot be found because its directory is silent.
Error with_scancel(Error error, const std::string& word) {
  const auto paths = home_from_environment();
  if (error.code != ErrorCode::kUnavailable || !id_in(word) || !paths.ok()) return error;
  if (directory_answers(paths->jobs())) return error;
  error.message += ". If " + word + " is a job of Slurm, `scancel " + word + "` ends it";
  return error;
}

// The running controller of a local job; null = none runs. It is a process of the home's owner, and
// root may cancel another user's job.
std::unique_ptr<ControllerClient> connect_to_owners(const HomePaths& paths) {
  struct stat home {};
  if (::stat(paths.home().c_str(), &home) != 0) return nullptr;
  return ControllerClient::connect(paths.with_socket_of(home.st_uid));
}

// The state of the job after the request.
Result<std::string> cancel(const Terminal& terminal, const OpenJob& job) {
  if (job.view.state == "CANCELLED") return job.view.state;
  if (has_ended(job.view.state)) {
    return Error{ErrorCode::kFailedPrecondition,
                 "job " + to_string(job.id) + " has already " + job.view.state};
  }
  if (!job.has_files()) return cancel_without_files(job);
  if (is_slurm_job(job.paths, job.id)) return cancel_on_slurm(terminal, job);
  // Where none runs, one is started, but not in another user's home.
  if (const auto running = connect_to_owners(job.paths)) return running->cancel(job.id);
  HP_TRY_ASSIGN(const auto client, ControllerClient::ensure(job.paths));
  return client->cancel(job.id);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto job = open_job(invocation);
  const std::string& word = invocation.arguments[0];
  if (!job.ok()) return report(terminal, with_scancel(job.error(), word));
  const auto state = cancel(terminal, *job);
  if (!state.ok()) return report(terminal, with_scancel(state.error(), word));
  const JobId id = job->id;
  if (invocation.json()) {
    terminal.out << json_text(nlohmann::ordered_json{{"job", id.value}, {"state", *state}}) << "\n";
  } else if (*state == "CANCELLED") {
    terminal.out << "job " << to_string(id) << " is CANCELLED\n";
  } else {
    terminal.out << "job " << to_string(id) << " is being cancelled (now " << *state << ")\n";
  }
  return kExitOk;
}

}  // namespace
}  // namespace cancel_parts

Verb cancel_verb() {
  return {"cancel", "JOB", "end a job", cancel_parts::kHelp, 1, 1, {}, cancel_parts::run};
}

}  // namespace hpctl
