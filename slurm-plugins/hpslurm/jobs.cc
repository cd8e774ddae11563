// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/jobs.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>

#include "common/base/host.h"
#include "common/base/join.h"
#include "common/slurm/slurm_messages_json.h"
#include "slurm-plugins/hpslurm/names.h"
#include "slurm-plugins/hpslurm/sbatch.h"
#include "slurm-plugins/hpslurm/slurm_compat.h"

namespace hpctl::slurm {
namespace {

using nlohmann::json;

struct FreeJobs {
  void operator()(job_info_msg_t* jobs) const { slurm_free_job_info_msg(jobs); }
};
using JobsMessage = std::unique_ptr<job_info_msg_t, FreeJobs>;

// Slurm's structures hold char*, but do not write through those of a request.
char* mutable_text(const std::string& value) {
  return value.empty() ? nullptr : const_cast<char*>(value.c_str());
}

// Of a change to a job that has just been requeued: 2 s in all.
constexpr int kUpdateAttempts = 8;
constexpr useconds_t kUpdatePauseUs = 250'000;

uint32_t job_id(const json& arguments) { return arguments.at("job").get<uint32_t>(); }
std::string job_text(uint32_t id) { return "job " + std::to_string(id); }

std::string complete_gres(const std::string& gres) {
  std::string completed;
  for (size_t begin = 0; begin < gres.size();) {
    const size_t end = std::min(gres.find(',', begin), gres.size());
    std::string item = gres.substr(begin, end - begin);
    for (const char* prefix : {"gres:", "gres/"}) {
      if (item.rfind(prefix, 0) == 0) item.erase(0, 5);
    }
    completed += (completed.empty() ? "" : ",") + std::string(kGresPrefix) + item;
    begin = end + 1;
  }
  return completed;
}

// What sbatch adds to the environment of the job it submits.
std::vector<std::string> submission_environment(const SlurmSubmission& submission) {
  std::vector<std::string> environment = submission.environment;
  const mode_t mask = ::umask(022);
  ::umask(mask);
  std::array<char, 8> mask_text{};
  std::snprintf(mask_text.data(), mask_text.size(), "%04o", static_cast<unsigned>(mask) & 0777);
  environment.push_back("SLURM_SUBMIT_DIR=" + submission.work_dir);
  environment.push_back("SLURM_SUBMIT_HOST=" + host_name());
  environment.push_back("SLURM_UMASK=" + std::string(mask_text.data()));
  return environment;
}

void describe_resources(const SlurmSubmission& from, const std::string& gres, job_desc_msg_t& to) {
  const uint32_t cpus = std::max(from.cpus_per_task, 1U);
  to.min_nodes = from.nodes_min;
  to.max_nodes = std::max(from.nodes_max, from.nodes_min);
  to.num_tasks = from.nodes_min;
  to.ntasks_per_node = 1;
  to.min_cpus = from.nodes_min * cpus;
  if (from.cpus_per_task != 0) to.cpus_per_task = static_cast<uint16_t>(cpus);
  if (from.time_minutes != 0) to.time_limit = from.time_minutes;
  if (from.exclusive) to.shared = 0;
  if (from.all_memory) to.pn_min_memory = 0;
  if (from.memory_mb != 0) to.pn_min_memory = from.memory_mb;
  if (from.warning_signal != 0) {
    to.warn_flags = KILL_JOB_BATCH;  // the batch shell alone, as --signal=B: does
    to.warn_signal = static_cast<uint16_t>(from.warning_signal);
    to.warn_time = static_cast<uint16_t>(from.warning_seconds);
  }
  to.tres_per_node = mutable_text(gres);
  to.requeue = from.requeue ? 1 : 0;
  if (from.expedite && kExpeditedRequeue != 0) {
    to.bitflags = (to.bitflags == NO_VAL64 ? 0 : to.bitflags) | kExpeditedRequeue;
  }
  to.kill_on_node_fail = from.no_kill ? 0 : 1;
}

SlurmSubmission without_expedite(SlurmSubmission submission) {
  const std::string option = "--requeue=expedite";
  submission.expedite = false;
  const size_t at = submission.script.find("#SBATCH " + option + "\n");
  if (at != std::string::npos) {
    submission.script.replace(submission.script.find(option, at), option.size(), "--requeue");
  }
  return submission;
}

SlurmJob describe(const slurm_job_info_t& job) {
  SlurmJob out;
  out.id = JobId{job_id_of(job)};
  out.name = text(job.name);
  out.uid = job.user_id;
  out.state = job_state_name(job.job_state);
  out.flags = job_flag_names(job.job_state);
  out.reason = job_reason_name(job.state_reason);
  out.reason_detail = text(job.state_desc);
  out.comment = text(job.comment);
  out.partition = text(job.partition);
  // A pending job may still show the nodes of its former run.
  if ((job.job_state & JOB_STATE_BASE) != JOB_PENDING) out.nodes = expand_host_list(job.nodes);
  out.excluded_nodes = expand_host_list(job.exc_nodes);
  out.batch_host = text(job.batch_host);
  out.work_dir = text(job.work_dir);
  out.restart_count = job.restart_cnt;
  const int status = static_cast<int>(job.exit_code);
  if (WIFEXITED(status)) out.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) out.exit_signal = WTERMSIG(status);
  out.start_time_s = job.start_time;
  out.end_time_s = job.end_time;
  out.preempt_time_s = job.preempt_time;
  return out;
}

Result<SlurmJob> find_job(uint32_t id) {
  job_info_msg_t* raw = nullptr;
  if (slurm_load_job(&raw, job_handle(id), SHOW_ALL) != SLURM_SUCCESS) {
    return last_error(job_text(id));
  }
  const JobsMessage jobs(raw);
  if (jobs->record_count == 0) {
    return Error{ErrorCode::kNotFound, job_text(id) + " is not known to Slurm any more"};
  }
  return describe(jobs->job_array[0]);
}

Outcome update(uint32_t id, job_desc_msg_t& change, const std::string& what) {
  set_job_id(change, id);
  if (slurm_update_job(&change) == SLURM_SUCCESS) return Ok{};
  return last_error("cannot change the " + what + " of " + job_text(id));
}

}  // namespace

namespace {

Answer submit_once(const SlurmSubmission& submission) {
  if (!submission.options.empty()) return submit_by_sbatch(submission);
  const std::string gres = complete_gres(submission.tres_per_node);
  const std::vector<std::string> environment = submission_environment(submission);
  std::vector<char*> variables;
  for (const std::string& variable : environment) variables.push_back(mutable_text(variable));

  job_desc_msg_t description;
  slurm_init_job_desc_msg(&description);
  describe_resources(submission, gres, description);
  description.user_id = ::getuid();
  description.group_id = ::getgid();
  description.script = mutable_text(submission.script);
  description.name = mutable_text(submission.name);
  description.comment = mutable_text(submission.comment);
  description.work_dir = mutable_text(submission.work_dir);
  description.std_out = mutable_text(submission.output);
  description.std_err = mutable_text(submission.output);
  description.std_in = const_cast<char*>("/dev/null");
  description.open_mode = OPEN_MODE_APPEND;
  description.environment = variables.data();
  description.env_size = static_cast<uint32_t>(variables.size());
  description.partition = mutable_text(submission.partition);
  description.account = mutable_text(submission.account);
  description.qos = mutable_text(submission.qos);
  description.reservation = mutable_text(submission.reservation);
  description.features = mutable_text(submission.constraint);
  description.req_nodes = mutable_text(submission.nodelist);
  description.exc_nodes = mutable_text(submission.exclude);

  submit_response_msg_t* raw = nullptr;
  if (slurm_submit_batch_job(&description, &raw) != SLURM_SUCCESS || raw == nullptr) {
    Error refused = last_error("Slurm does not accept the job");
    // A node that the job names and Slurm does not know is a mistake of the job.
    if (refused.code == ErrorCode::kNotFound) refused.code = ErrorCode::kInvalidArgument;
    return refused;
  }
  const uint32_t id = job_id_of(*raw);
  slurm_free_submit_response_response_msg(raw);
  return json{{"job", id}};
}

}  // namespace

Answer submit(const json& arguments) {
  const auto submission = arguments.get<SlurmSubmission>();
  Answer answer = submit_once(submission);
  // slurmctld may run with another configuration than the one that was read here.
  const bool is_refused = !answer.ok() && answer.error().code != ErrorCode::kUnavailable;
  return is_refused && submission.expedite ? submit_once(without_expedite(submission)) : answer;
}

Answer load_job(const json& arguments) {
  HP_TRY_ASSIGN(const SlurmJob job, find_job(job_id(arguments)));
  return json(job);
}

Answer jobs_by_comment(const json& arguments) {
  const auto comment = arguments.at("comment").get<std::string>();
  job_info_msg_t* raw = nullptr;
  if (slurm_load_job_user(&raw, ::getuid(), SHOW_ALL) != SLURM_SUCCESS) {
    return last_error("cannot list jobs");
  }
  const JobsMessage jobs(raw);
  json found = json::array();
  for (uint32_t i = 0; i < jobs->record_count; ++i) {
    if (text(jobs->job_array[i].comment) == comment) found.push_back(describe(jobs->job_array[i]));
  }
  return found;
}

Answer cancel(const json& arguments) {
  const uint32_t id = job_id(arguments);
  if (slurm_kill_job(job_handle(id), SIGKILL, 0) == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE) {
    return json::object();
  }
  return last_error("cannot cancel " + job_text(id));
}

Answer complete(const json& arguments) {
  const uint32_t id = job_id(arguments);
  // A wait status, as that of the batch script.
  const auto status = (arguments.at("exit_code").get<uint32_t>() & 0xff) << 8;
  if (status != 0 && kExpeditedRequeue != 0) {
    // Slurm would put a job that asked for --requeue=expedite back into the queue, held.
    job_desc_msg_t change;
    slurm_init_job_desc_msg(&change);
    change.requeue = 0;
    [[maybe_unused]] const Outcome updated = update(id, change, "requeue");
  }
  if (complete_job(id, status) == SLURM_SUCCESS || errno == ESLURM_ALREADY_DONE) {
    return json::object();
  }
  return last_error("cannot end " + job_text(id));
}

Answer signal_job(const json& arguments) {
  const uint32_t id = job_id(arguments);
  const auto signal = arguments.at("signal").get<uint16_t>();
  const uint16_t flags = arguments.at("batch_script").get<bool>() ? KILL_JOB_BATCH : 0;
  if (slurm_kill_job(job_handle(id), signal, flags) == SLURM_SUCCESS) return json::object();
  return last_error("cannot signal " + job_text(id));
}

Answer requeue(const json& arguments) {
  const uint32_t id = job_id(arguments);
  const auto expected = arguments.at("expected_restarts").get<uint32_t>();
  HP_TRY_ASSIGN(const SlurmJob job, find_job(id));
  if (job.restart_count != expected) {
    return Error{ErrorCode::kFailedPrecondition,
                 job_text(id) + " has been restarted " + std::to_string(job.restart_count) +
                     " times, not " + std::to_string(expected) + ": not requeued again"};
  }
  std::vector<std::string> excluded = job.excluded_nodes;
  for (const auto& node : arguments.at("exclude").get<std::vector<std::string>>()) {
    if (std::find(excluded.begin(), excluded.end(), node) == excluded.end()) {
      excluded.push_back(node);
    }
  }
  if (slurm_requeue(job_handle(id), 0) != SLURM_SUCCESS) {
    return last_error("cannot requeue " + job_text(id));
  }
  if (excluded.size() == job.excluded_nodes.size()) return json::object();
  // The exclusion of a running job cannot be changed. Now it is pending, and Slurm lets it wait
  // until its nodes have been cleaned, so this comes in time.
  job_desc_msg_t change;
  slurm_init_job_desc_msg(&change);
  const std::string list = join(excluded, ",");
  change.exc_nodes = mutable_text(list);
  Outcome updated = update(id, change, "excluded nodes");
  // With slurmdbd a moment helps: it just registers the job. Without, a job that has lost a node
  // takes no change before its processes are gone, ours among them (docs/decisions/0903).
  for (int i = 0; !updated.ok() && errno == kAwaitsAccountingIndex && i < kUpdateAttempts; ++i) {
    ::usleep(kUpdatePauseUs);
    updated = update(id, change, "excluded nodes");
  }
  if (!updated.ok()) return json{{"warning", updated.error().message}};
  return json::object();
}

Answer keep_nodes(const json& arguments) {
  const std::string list = join(arguments.at("nodes").get<std::vector<std::string>>(), ",");
  job_desc_msg_t change;
  slurm_init_job_desc_msg(&change);
  change.req_nodes = mutable_text(list);
  HP_TRY(update(job_id(arguments), change, "nodes"));
  return json::object();
}

}  // namespace hpctl::slurm
