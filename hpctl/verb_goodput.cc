// SPDX-License-Identifier: Apache-2.0
// hpctl goodput: where a job's time went.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "common/base/clock.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace goodput_parts {
namespace {

constexpr const char* kHelp = R"(
Where the time of a job's life went, requeues included: what its start took, what faults cost, by
what was done meanwhile, and training, which is the rest. Goodput is the share of training in the
time since the first step; ETTR (effective training time ratio) in all the time since the job was
submitted, the queue's included.

Saving, evaluating and waiting for data are part of training here; so is, of a command that does not
tell its steps (docs/commands.md), whatever it did twice.

Examples:
  hpctl goodput quickstart
  hpctl goodput 3 --json | jq .goodput

Options:
  --json  one object: {"job", "name", "state", "faults", "wall_ms", "start_ms", "train_ms",
          "notice_ms", "restart_ms", "repeat_ms", "goodput", "ettr"}; the last two are null before
          the first step

Exit codes: 0 shown (whatever the state), 1 no such job
)";

// Of the time from the job's submission until its end, or now.
struct Account {
  int64_t wall_ms = 0;
  TimeSpent spent;
  int64_t train_ms = 0;

  int64_t since_first_step_ms() const { return wall_ms - spent.start_ms; }
};

Account account_of(const JobView& job) {
  Account account;
  const int64_t end = job.ended_wall_ms > 0 ? job.ended_wall_ms : SystemClock().wall_ms();
  account.wall_ms = std::max<int64_t>(0, end - job.submitted_wall_ms);
  account.spent = job.spent;
  if (job.spent.start_ms == 0) {  // no step yet, whatever was tried
    account.spent.start_ms = std::max<int64_t>(0, account.wall_ms - job.spent.lost_ms());
  }
  account.train_ms =
      std::max<int64_t>(0, account.wall_ms - account.spent.start_ms - account.spent.lost_ms());
  return account;
}

nlohmann::json ratio(int64_t part_ms, int64_t whole_ms) {
  if (part_ms <= 0 || whole_ms <= 0) return nullptr;
  return static_cast<double>(part_ms) / static_cast<double>(whole_ms);
}

void print_json(const Terminal& terminal, const JobView& job, const Account& account) {
  const nlohmann::json document = {
      {"job", job.job},
      {"name", job.name},
      {"state", job.state},
      {"faults", job.faults},
      {"wall_ms", account.wall_ms},
      {"start_ms", account.spent.start_ms},
      {"train_ms", account.train_ms},
      {"notice_ms", account.spent.notice_ms},
      {"restart_ms", account.spent.restart_ms},
      {"repeat_ms", account.spent.repeat_ms},
      {"goodput", ratio(account.train_ms, account.since_first_step_ms())},
      {"ettr", ratio(account.train_ms, account.wall_ms)}};
  terminal.out << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

void print_table(const Terminal& terminal, const JobView& job, const Account& account) {
  terminal.out << "job " << job.job << " " << printable(job.name) << "  "
               << paint(terminal, colour_of_state(job.state), job.state) << "\n";
  if (account.train_ms > 0) {
    terminal.out << "  goodput     "
                 << format_percent(account.train_ms, account.since_first_step_ms())
                 << " of the time since its first step, " << counted(job.faults, "fault") << "\n"
                 << "  ETTR        " << format_percent(account.train_ms, account.wall_ms) << " of "
                 << format_duration(account.wall_ms) << " since it was submitted\n\n";
  }
  Table table({"PART", "TIME", "SHARE", "WHAT"});
  const auto add = [&](const char* part, int64_t ms, const char* what) {
    table.add({part, format_duration(ms), format_percent(ms, account.wall_ms), what});
  };
  add("start", account.spent.start_ms, "from its submission to its first step");
  add("training", account.train_ms, "");
  add("notice", account.spent.notice_ms, "from the last step before a fault until it was known");
  add("restart", account.spent.restart_ms, "from there to the first step of the next generation");
  add("repeat", account.spent.repeat_ms, "from there to the step that had been reached");
  table.print(terminal);
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto job = open_job(invocation.arguments[0]);
  if (!job.ok()) return report(terminal, job.error());
  if (const auto notice = job->source->notice(job->view); !notice.empty()) {
    terminal.err << "hpctl: " << notice << "\n";
  }
  const Account account = account_of(job->view);
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
