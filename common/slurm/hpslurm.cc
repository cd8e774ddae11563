// SPDX-License-Identifier: Apache-2.0
#include "common/slurm/hpslurm.h"
#include "common/base/join.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/base/log.h"
#include "common/job/paths.h"
#include "common/slurm/hpslurm_process.h"
#include "common/slurm/slurm_messages_json.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr int64_t kStartMs = 10'000;
// libslurm's last words where it finds no slurm.conf, no sackd and no DNS record.
constexpr char kNoConfiguration[] = "Could not establish a configuration source";

bool mentions_munge(const std::string& text) {
  return text.find("unge") != std::string::npos;  // "Munge encode failed", "munged", "auth/munge"
}

// The content of a well-formed answer; every other answer is an error of the same kind as no
// answer.
Result<json> decode(const std::string& text) {
  const json answer = parse_json_or_discard(text);
  if (answer.is_object() && answer.contains("result")) return answer.at("result");
  try {
    const json& error = answer.at("error");
    return Error{error.at("kind").get<ErrorCode>(), error.at("message").get<std::string>()};
  } catch (const json::exception&) {
    return Error{ErrorCode::kUnavailable, "hpslurm answered nonsense"};
  }
}

template <typename T>
Result<T> as(const Result<json>& answer) {
  if (!answer.ok()) return answer.error();
  try {
    return answer->get<T>();
  } catch (const json::exception&) {
    return Error{ErrorCode::kInternal, "hpslurm is of another version than this program"};
  }
}

Outcome done(const Result<json>& answer) {
  if (!answer.ok()) return answer.error();
  return Ok{};
}

std::string state_text(SlurmNodeState state) { return json(state).get<std::string>(); }

}  // namespace

SlurmClient::SlurmClient(SlurmClientOptions options) : options_(std::move(options)) {}
SlurmClient::~SlurmClient() = default;

Outcome SlurmClient::start() {
  std::string program = options_.program;
  if (program.empty()) {
    HP_TRY_ASSIGN(const std::string directory, program_directory());
    program = directory + "/hpslurm";
  }
  if (!is_accessible(program)) {
    return Error{ErrorCode::kInternal,
                 "there is no " + program +
                     ": it is built where Slurm's headers are; install libslurm-dev (or configure "
                     "with -DSLURM_PREFIX=/opt/slurm) and run scripts/build.sh release hpslurm"};
  }
  HP_TRY_ASSIGN(process_, HpslurmProcess::start(program));
  // Its first answer needs no server: what keeps it from that is Slurm's configuration.
  const auto answer = exchange(json_text(json{{"call", "version"}, {"arguments", json::object()}}),
                               std::min(options_.call_deadline_ms, kStartMs));
  if (!answer.ok()) {
    const char* file = std::getenv("SLURM_CONF");
    const bool has_none = answer.error().message.find(kNoConfiguration) != std::string::npos;
    return Error{has_none ? ErrorCode::kInternal : answer.error().code,
                 "cannot read Slurm's configuration: check " +
                     std::string(file == nullptr ? "slurm.conf" : file) +
                     " and SLURM_CONF: " + answer.error().message};
  }
  HP_TRY_ASSIGN(version_, as<SlurmVersion>(decode(*answer)));
  return Ok{};
}

// A life that gave no answer is over; its last words say why.
Result<std::string> SlurmClient::exchange(const std::string& request, int64_t deadline_ms) {
  const SystemClock clock;
  auto answer = process_->exchange(request, clock.monotonic_ms() + deadline_ms);
  if (answer.ok()) return answer;
  const std::string words = process_->last_words();
  process_.reset();
  return Error{answer.error().code,
               answer.error().message + (words.empty() ? "" : " (" + words + ")")};
}

// An absent Slurm as a cause and a remedy.
Error SlurmClient::explain(const Error& problem) const {
  if (problem.code != ErrorCode::kUnavailable) return problem;
  if (mentions_munge(problem.message)) {
    return {problem.code,
            "munged does not answer on this machine: systemctl status munge: " + problem.message};
  }
  const std::string where =
      version_.controllers.empty() ? "" : " at " + join(version_.controllers, ",");
  return {problem.code,
          "slurmctld" + where + " does not answer; check with scontrol ping: " + problem.message};
}

Result<json> SlurmClient::call(const std::string& name, const json& arguments) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (process_ == nullptr) {
    if (const auto started = start(); !started.ok()) {
      process_.reset();
      return started.error();
    }
  }
  const auto text = exchange(json_text(json{{"call", name}, {"arguments", arguments}}),
                             options_.call_deadline_ms);
  if (!text.ok()) return explain(text.error());
  auto answer = decode(*text);
  if (answer.ok()) return answer;
  // libslurm keeps what it has read of a configuration or a key: a new life reads it again.
  if (answer.error().code == ErrorCode::kUnavailable) process_.reset();
  return explain(answer.error());
}

Result<SlurmVersion> SlurmClient::version() {
  return as<SlurmVersion>(call("version", json::object()));
}

Outcome SlurmClient::ping() { return done(call("ping", json::object())); }

Result<JobId> SlurmClient::submit(const SlurmSubmission& submission) {
  if (submission.comment.empty()) {
    return Error{ErrorCode::kInvalidArgument, "a submission needs a unique comment"};
  }
  Error last;
  for (int attempt = 0; attempt < options_.submit_attempts; ++attempt) {
    // An earlier attempt may have left a job behind although its answer was lost.
    if (attempt > 0) {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(options_.submit_pause_ms << (attempt - 1)));
      const auto found = find_by_comment(submission.comment);
      if (!found.ok()) {
        last = found.error();
        continue;
      }
      if (*found) return **found;
    }
    const auto answer = call("submit", submission);
    if (answer.ok()) {
      auto id = answer->contains("job") ? as<JobId>(answer->at("job"))
                                        : Error{ErrorCode::kInternal, "no job id"};
      if (!id.ok() || attempt == 0) return id;
      return keep_first(submission.comment, *id);
    }
    last = answer.error();
    if (last.code != ErrorCode::kUnavailable) return last;
  }
  return Error{last.code, "gave up after " + std::to_string(options_.submit_attempts) +
                              " attempts to submit; should one have arrived after all, squeue -o "
                              "'%i %k' shows it with comment " +
                              submission.comment + ": " + last.message};
}

Result<std::optional<JobId>> SlurmClient::find_by_comment(const std::string& comment) {
  HP_TRY_ASSIGN(const std::vector<SlurmJob> jobs, jobs_by_comment(comment));
  return jobs.empty() ? std::nullopt : std::optional<JobId>(jobs.front().id);
}

// A submission that slurmctld worked on while we looked for it has left a second job.
JobId SlurmClient::keep_first(const std::string& comment, JobId submitted) {
  const auto jobs = jobs_by_comment(comment);
  if (!jobs.ok() || jobs->empty()) return submitted;
  for (size_t i = 1; i < jobs->size(); ++i) {
    if (const auto cancelled = cancel(jobs->at(i).id); !cancelled.ok()) {
      log_warning("job " + to_string(jobs->at(i).id) + " is a second copy of job " +
                  to_string(jobs->front().id) + ", cancel it: " + cancelled.error().message);
    }
  }
  return jobs->front().id;
}

Result<SlurmJob> SlurmClient::job(JobId id) { return as<SlurmJob>(call("job", {{"job", id}})); }

Result<std::vector<SlurmJob>> SlurmClient::jobs_by_comment(const std::string& comment) {
  auto jobs = as<std::vector<SlurmJob>>(call("jobs_by_comment", {{"comment", comment}}));
  if (jobs.ok()) {
    std::sort(jobs->begin(), jobs->end(),
              [](const SlurmJob& a, const SlurmJob& b) { return a.id < b.id; });
  }
  return jobs;
}

Result<std::vector<SlurmNode>> SlurmClient::nodes(const std::vector<std::string>& names) {
  return as<std::vector<SlurmNode>>(call("nodes", {{"names", names}}));
}

Result<std::vector<SlurmReservation>> SlurmClient::reservations() {
  return as<std::vector<SlurmReservation>>(call("reservations", json::object()));
}

Outcome SlurmClient::cancel(JobId id) { return done(call("cancel", {{"job", id}})); }

Outcome SlurmClient::complete(JobId id, int exit_code) {
  return done(call("complete", {{"job", id}, {"exit_code", exit_code}}));
}

Outcome SlurmClient::signal(JobId id, int signal, bool batch_script) {
  return done(call("signal", {{"job", id}, {"signal", signal}, {"batch_script", batch_script}}));
}

Outcome SlurmClient::requeue(JobId id, uint32_t expected_restarts,
                             const std::vector<std::string>& exclude) {
  const auto answer = call(
      "requeue", {{"job", id}, {"expected_restarts", expected_restarts}, {"exclude", exclude}});
  if (answer.ok() && answer->contains("warning")) {
    log_warning("job " + to_string(id) + " is requeued, but " + json_text(answer->at("warning")));
  }
  return done(answer);
}

Outcome SlurmClient::keep_nodes(JobId id, const std::vector<std::string>& nodes) {
  return done(call("keep_nodes", {{"job", id}, {"nodes", nodes}}));
}

Outcome SlurmClient::update_node(const std::string& node, SlurmNodeState state,
                                 const std::string& reason) {
  const auto answer = call("update_node", {{"node", node}, {"state", state}, {"reason", reason}});
  if (answer.ok() || answer.error().code != ErrorCode::kPermissionDenied) return done(answer);
  return Error{ErrorCode::kPermissionDenied,
               "only a Slurm operator may change node " + node +
                   "; ask one to run: sudo scontrol update nodename=" + node + " state=" +
                   state_text(state) + (reason.empty() ? "" : " reason=\"" + reason + "\"")};
}

}  // namespace hpctl
