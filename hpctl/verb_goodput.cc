// SPDX-License-Identifier: Apache-2.0
// hpctl goodput: where a job's time went.
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/time_account.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace goodput_parts {
namespace {

constexpr const char* kHelp = R"(
Prints where a job's time went, requeues included: its start, waits of its steps, the cost of faults
by phase, and training, which is the rest. Each moment counts once; the parts add up to the time
since the job was submitted, with the time in the queue. All ranks train and wait together, so the
figures hold for each rank. Where the waits of a step differ by rank, their mean counts. Goodput is
the share of training since the first step. ETTR (effective training time ratio) is its share of all
the time.

Evaluation counts as training. For a command that reports no steps (docs/commands.md), "train" is
its whole running time, and goodput and ETTR are unknown. A command's steps show no waits for
checkpoints and data.

Examples:
  hpctl goodput quickstart
  hpctl goodput 3 --json | jq .goodput

Options:
  --json  one object: {"job", "name", "state", "faults", "ranks", "wall_ms", "start_ms", "train_ms",
          "checkpoint_ms", "data_ms", "notice_ms", "decide_ms", "wait_ms", "restart_ms",
          "repeat_ms", "suspended_ms", "goodput", "ettr"}; the last two are null before the first
          step, and if the job reports no steps

Exit codes: 0 shown (whatever the state), 1 no such job, 3 neither its controller nor HPCTL_HOME
answers
)";

nlohmann::json or_null(const std::optional<double>& share) {
  return share ? nlohmann::json(*share) : nlohmann::json();
}

void print_json(const Terminal& terminal, const JobView& job, const TimeAccount& account) {
  nlohmann::json document = {{"job", job.job},
                             {"name", job.name},
                             {"state", job.state},
                             {"faults", job.faults},
                             {"ranks", job.workers.size()},
                             {"wall_ms", account.wall_ms},
                             {"goodput", or_null(goodput_of(account))},
                             {"ettr", or_null(ettr_of(account))}};
  for (const TimePart& part : parts_of(account)) document[part.name + std::string("_ms")] = part.ms;
  terminal.out << json_text(document) << "\n";
}

void print_table(const Terminal& terminal, const JobView& job, const TimeAccount& account) {
  terminal.out << "job " << job.job << " " << printable(job.name) << "  "
               << paint(terminal, colour_of_state(job.state), job.state) << "\n";
  if (!account.tells_steps) {
    terminal.out << "  goodput     not known: its program has told no step\n\n";
  } else if (account.training_ms > 0) {
    terminal.out << "  goodput     "
                 << format_percent(account.training_ms, account.since_first_step_ms())
                 << " of the time since its first step, " << counted(job.faults, "fault") << "\n"
                 << "  ETTR        " << format_percent(account.training_ms, account.wall_ms)
                 << " of " << format_duration(account.wall_ms)
                 << " since it was submitted, of each of "
                 << counted(static_cast<int64_t>(job.workers.size()), "rank") << "\n\n";
  }
  Table table({"PART", "TIME", "SHARE", "WHAT"});
  for (const TimePart& part : parts_of(account)) {
    table.add(
        {part.name, format_duration(part.ms), format_percent(part.ms, account.wall_ms), part.what});
  }
  table.print(terminal);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto job = open_job(invocation);
  if (!job.ok()) return report(terminal, job.error());
  if (const auto notice = job->source->notice(job->view); !notice.empty()) {
    terminal.err << "hpctl: " << notice << "\n";
  }
  const TimeAccount account = account_of(job->view, SystemClock().wall());
  if (invocation.json()) {
    print_json(terminal, job->view, account);
  } else {
    print_table(terminal, job->view, account);
  }
  return kExitOk;
}

}  // namespace
}  // namespace goodput_parts

Verb goodput_verb() {
  return {"goodput",
          "JOB",
          "where a job's time went: start, training, what faults cost",
          goodput_parts::kHelp,
          1,
          1,
          {},
          goodput_parts::run};
}

}  // namespace hpctl
