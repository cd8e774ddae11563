// SPDX-License-Identifier: Apache-2.0
// hpctl logs: what the workers of a job wrote.
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/log_file.h"
#include "hpctl/open_job.h"
#include "hpctl/rank_logs.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace logs_parts {
namespace {

constexpr const char* kHelp = R"(
Prints what the workers wrote on stdout and stderr, all generations one after the other. With
several ranks each line begins with its rank.

Examples:
  hpctl logs quickstart
  hpctl logs quickstart -f --rank 0
  hpctl logs 3 --tail 0 | grep -i error

Options:
  -f, --follow  stay and print new lines until the job has ended
  --rank R      only this rank
  --tail N      the last N lines of each rank (default 100); 0 = all, rotated files included
  --json        a line each: {"rank", "line"}

Exit codes: 0 shown, 1 no such job or rank, 3 the file system of HPCTL_HOME does not answer
)";

constexpr int64_t kDefaultTail = 100;
constexpr std::chrono::milliseconds kPollInterval{200};
constexpr int kPollsPerStatus = 5;

using Logs = std::map<int64_t, LogFile>;  // by rank

class LogPrinter {
 public:
  LogPrinter(const Invocation& invocation, bool with_rank)
      : invocation_(invocation), with_rank_(with_rank) {}

  void print(int64_t rank, const std::vector<std::string>& lines) {
    std::ostream& out = invocation_.terminal.out;
    for (const std::string& line : lines) {
      if (invocation_.json()) {
        const nlohmann::ordered_json j = {{"rank", rank}, {"line", line}};
        out << json_text(j) << "\n";
        continue;
      }
      // A program that reads a pipe gets the bytes; a terminal must not be told what to do.
      if (with_rank_) out << "rank " << rank << " | ";
      out << (invocation_.terminal.live ? printable(line) : line) << "\n";
    }
  }

 private:
  const Invocation& invocation_;
  bool with_rank_;
};

// Adds the logs that have appeared; returns the ranks that are new.
std::vector<int64_t> find_logs(const HomePaths& paths, JobId job, std::optional<int64_t> only,
                               Logs& logs) {
  std::vector<int64_t> added;
  for (const int64_t rank : ranks_with_logs(paths, job)) {
    if (only && rank != *only) continue;
    const Rank id{static_cast<int32_t>(rank)};
    if (logs.try_emplace(rank, paths.rank_log(job, id)).second) added.push_back(rank);
  }
  return added;
}

// Says once that the directory of the logs does not answer.
class SilenceNote {
 public:
  SilenceNote(const Terminal& terminal, std::string directory)
      : terminal_(terminal), directory_(std::move(directory)) {}
  bool answers() {
    const Outcome outcome = check_directory_answers(directory_);
    if (!outcome.ok() && !std::exchange(is_told_, true)) {
      terminal_.err << "hpctl: " << printable(outcome.error().message)
                    << "; waiting until it answers" << std::endl;
    }
    return outcome.ok();
  }

 private:
  const Terminal& terminal_;
  const std::string directory_;
  bool is_told_ = false;
};

bool job_has_ended(const HomePaths& paths, JobId job) {
  const auto status = open_source(paths, job)->get_job(job);
  if (!status.ok()) return status.error().code != ErrorCode::kUnavailable;
  return has_ended(status->state);
}

// Until the job has ended or nobody reads any more.
void follow(const Invocation& invocation, const HomePaths& paths, JobId job,
            std::optional<int64_t> only, Logs& logs, LogPrinter& printer) {
  bool ended = false;
  SilenceNote silence(invocation.terminal, paths.jobs());
  for (int poll = 0; invocation.terminal.out.good(); ++poll) {
    if (!silence.answers()) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    const bool last = ended;
    find_logs(paths, job, only, logs);
    for (auto& [rank, log] : logs) printer.print(rank, log.read_new(last));
    invocation.terminal.out.flush();
    if (last) return;
    if (poll % kPollsPerStatus == 0) ended = job_has_ended(paths, job);
    if (!ended) std::this_thread::sleep_for(kPollInterval);
  }
}

Error no_logs(const JobView& job, std::optional<int64_t> rank, const HomePaths& paths) {
  if (rank && static_cast<size_t>(*rank) >= job.workers.size() && !job.workers.empty()) {
    return Error{ErrorCode::kNotFound, "job " + std::to_string(job.job) + " has no rank " +
                                           std::to_string(*rank) + "; its ranks are 0 to " +
                                           std::to_string(job.workers.size() - 1)};
  }
  return Error{ErrorCode::kNotFound, "job " + std::to_string(job.job) + " (" + job.state +
                                         ") has no logs yet in " + paths.job_logs(JobId{job.job})};
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto rank = number_option(invocation, "--rank", 0, 999'999'999);
  if (!rank.ok()) return report_usage(terminal, "logs", rank.error().message);
  const auto tail = number_option(invocation, "--tail", 0, 1'000'000'000);
  if (!tail.ok()) return report_usage(terminal, "logs", tail.error().message);
  const auto opened = open_job(invocation);
  if (!opened.ok()) return report(terminal, opened.error());
  const auto& [paths, id, source, job, choice] = *opened;
  const Outcome has_files = check_directory_answers(paths.jobs());
  if (!has_files.ok()) return report(terminal, has_files.error());

  Logs logs;
  const auto ranks = find_logs(paths, id, *rank, logs);
  const bool can_come = invocation.has("--follow") && !has_ended(job.state) &&
                        (!*rank || static_cast<size_t>(**rank) < job.workers.size());
  if (ranks.empty() && !can_come) return report(terminal, no_logs(job, *rank, paths));
  LogPrinter printer(invocation, !*rank);
  const auto count = static_cast<size_t>(tail->value_or(kDefaultTail));
  const bool stay = invocation.has("--follow");
  for (const int64_t r : ranks) {
    printer.print(r, logs.at(r).read_last(count));
    if (!stay) printer.print(r, logs.at(r).read_new(true));
  }
  if (stay) follow(invocation, paths, id, *rank, logs, printer);
  return kExitOk;
}

}  // namespace
}  // namespace logs_parts

Verb logs_verb() {
  return {"logs",
          "JOB [--follow] [--rank R] [--tail N]",
          "show what the workers printed",
          logs_parts::kHelp,
          1,
          1,
          {{"--follow", "-f"}, {"--rank", nullptr, "R"}, {"--tail", nullptr, "N"}},
          logs_parts::run};
}

}  // namespace hpctl
