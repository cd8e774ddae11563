// SPDX-License-Identifier: Apache-2.0
// hpctl watch: what somebody should know of the jobs, as it begins and ends; or once, for whatever
// runs checks. Detectors are in common/watch.
//
// Another thread asks for each round: an answer may take seconds, and a signal must not wait for
// it.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "hpctl/job_source.h"
#include "hpctl/user_file.h"
#include "hpctl/verbs.h"
#include "hpctl/watch_report.h"
#include "hpctl/watch_round.h"

namespace hpctl {
namespace watch_parts {
namespace {

constexpr int64_t kDefaultIntervalSeconds = 10;
constexpr int64_t kLongestIntervalSeconds = 3600;

constexpr const char* kHelp = R"(
Watches one job, all jobs of this HPCTL_HOME, or with -A all jobs that you may see (`hpctl ps
--help`). It prints a line when a finding begins and when it ends. docs/cli.md lists the findings
with their thresholds, docs/runbook.md what to do. With JOB, it exits when the job ends. It starts
no controller.

Some findings compare two looks: loss_not_finite, generation_orphaned, and goodput_fell for a job
older than six hours. With --once these are missing.

Examples:
  hpctl watch quickstart
  hpctl watch -A --json | my-pager
  hpctl watch -A --once || mail-operators
  hpctl watch -A --heartbeat /run/hpctl-watch.json

Options:
  -A, --all-users   all jobs that you may see
  --once            look once, print all findings, exit with their severity
  --interval S      seconds from one look to the next, 1 to 3600 (default 10)
  --heartbeat FILE  update this file after each successful look; alert if it goes stale
  --json            a line per change: {"time", "change": "begins" | "ends", "finding": {"kind",
                    "severity", "job", "name", "user", "uid", "node", "since_ms", "what", "do",
                    "runbook"}}; with --once {"worst", "jobs", "findings": [...], "notes"}

Exit codes: Nagios's, by the last look: 0 no finding, 1 warn, 2 critical, 3 unknown: wrong
arguments, no such job, or no controller answers
)";

struct Wanted {
  std::optional<std::string> job;  // an id or a name; nullopt = all
  bool everywhere = false;
  bool json = false;
  bool once = false;
  int64_t interval_ms = 0;
  std::string heartbeat;  // "" = none
};

int cannot_tell(const Terminal& terminal, const Error& error) {
  report(terminal, error);
  return kWatchUnknown;
}

int cannot_use(const Terminal& terminal, const Error& error) {
  report_usage(terminal, "watch", error.message);
  return kWatchUnknown;
}

Result<Wanted> wanted_of(const Invocation& invocation) {
  Wanted wanted;
  if (!invocation.arguments.empty()) wanted.job = invocation.arguments[0];
  wanted.everywhere = invocation.has("--all-users");
  wanted.json = invocation.json();
  wanted.once = invocation.has("--once");
  const auto mistake = [](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, what};
  };
  if (wanted.job && wanted.everywhere) return mistake("either JOB or -A");
  HP_TRY_ASSIGN(const auto seconds,
                number_option(invocation, "--interval", 1, kLongestIntervalSeconds));
  if (seconds && wanted.once) return mistake("--once looks once: there is no --interval");
  wanted.interval_ms = seconds.value_or(kDefaultIntervalSeconds) * 1000;
  if (invocation.has("--heartbeat")) {
    wanted.heartbeat = invocation.options.at("--heartbeat");
    if (wanted.heartbeat.empty()) return mistake("--heartbeat needs a file");
  }
  return wanted;
}

// Says each thing once, until it is something else.
class Complaints {
 public:
  explicit Complaints(const Terminal& terminal) : terminal_(terminal) {}
  void say(const std::vector<std::string>& now) {
    for (const std::string& what : now) {
      if (std::find(said_.begin(), said_.end(), what) != said_.end()) continue;
      terminal_.err << "hpctl: " << printable(what) << "\n";
    }
    terminal_.err.flush();
    said_ = now;
  }

 private:
  const Terminal& terminal_;
  std::vector<std::string> said_;
};

class Watcher {
 public:
  Watcher(const Terminal& terminal, Wanted wanted)
      : terminal_(terminal),
        wanted_(std::move(wanted)),
        watch_(wanted_.job.has_value()),
        complaints_(terminal) {}

  int once() {
    const auto round = ask_about(wanted_.job, wanted_.everywhere);
    if (!round.ok()) return cannot_tell(terminal_, round.error());
    complaints_.say(round->notes);
    watch_.look(round->jobs, SystemClock().wall());
    print_present(terminal_, watch_, round->jobs.size(), round->notes, wanted_.json);
    if (const auto beat = write_heartbeat(round->jobs.size()); !beat.ok()) {
      return cannot_tell(terminal_, beat.error());
    }
    return watch_status(watch_.worst());
  }

  int run() {
    const UniqueFd signals = take_signals();
    for (bool is_first = true;; is_first = false) {
      Asked asked(wanted_);
      if (is_raised(signals, asked.fd(), -1)) leave_while_asked();
      const auto round = asked.take();
      const Outcome went = round.ok() ? take(*round) : Outcome(round.error());
      if (is_first && !went.ok()) return cannot_tell(terminal_, went.error());
      std::vector<std::string> troubles = round.ok() ? round->notes : std::vector<std::string>{};
      if (!went.ok()) troubles.push_back(went.error().message);
      complaints_.say(troubles);
      const bool nobody_reads = !terminal_.out.good();
      if (nobody_reads || (round.ok() && is_over(*round))) break;
      if (is_raised(signals, -1, wanted_.interval_ms)) break;
    }
    return watch_status(watch_.worst());
  }

 private:
  // A round under way, on a thread of its own.
  class Asked {
   public:
    explicit Asked(const Wanted& wanted)
        : thread_([this, job = wanted.job, everywhere = wanted.everywhere] {
            round_ = ask_about(job, everywhere);
            ::eventfd_write(done_.get(), 1);
          }) {}
    ~Asked() {
      if (thread_.joinable()) thread_.join();
    }
    Asked(const Asked&) = delete;
    Asked& operator=(const Asked&) = delete;

    int fd() const { return done_.get(); }  // readable when it is answered
    // Once; waits for the answer.
    Result<WatchRound> take() {
      thread_.join();
      return std::move(round_);
    }

   private:
    const UniqueFd done_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    Result<WatchRound> round_ = Error{ErrorCode::kUnavailable, "not asked"};
    std::thread thread_;  // last: it uses the above
  };

  // Before any thread is there that would be interrupted instead.
  static UniqueFd take_signals() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&taken, signal);
    ::pthread_sigmask(SIG_BLOCK, &taken, nullptr);
    return UniqueFd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  // Whether a signal asks for the end, before `other` is readable or the time is over (-1 = never).
  static bool is_raised(const UniqueFd& signals, int other, int64_t wait_ms) {
    pollfd ready[] = {{signals.get(), POLLIN, 0}, {other, POLLIN, 0}};
    ::poll(ready, 2, static_cast<int>(wait_ms));
    return ready[0].revents != 0;
  }

  // There may be no answer yet. Without destructors nothing waits for it.
  [[noreturn]] void leave_while_asked() {
    terminal_.out.flush();
    std::_Exit(watch_status(watch_.worst()));
  }

  Outcome take(const WatchRound& round) {
    const WallTime now = SystemClock().wall();
    print_changes(terminal_, watch_.look(round.jobs, now), now, wanted_.json);
    if (wanted_.job && !round.jobs.empty()) {
      wanted_.job = to_string(round.jobs[0].summary.job);  // another may get its name
    }
    return write_heartbeat(round.jobs.size());
  }

  bool is_over(const WatchRound& round) const {
    return wanted_.job && !round.jobs.empty() && has_ended(round.jobs[0].summary.state);
  }

  Outcome write_heartbeat(size_t jobs) const {
    if (wanted_.heartbeat.empty()) return Ok{};
    return write_user_file(wanted_.heartbeat, heartbeat_json(watch_, jobs, SystemClock().wall()));
  }

  const Terminal& terminal_;
  Wanted wanted_;
  FleetWatch watch_;
  Complaints complaints_;
};

int run(Invocation& invocation) {
  auto wanted = wanted_of(invocation);
  if (!wanted.ok()) return cannot_use(invocation.terminal, wanted.error());
  const bool once = wanted->once;
  Watcher watcher(invocation.terminal, std::move(*wanted));
  return once ? watcher.once() : watcher.run();
}

}  // namespace
}  // namespace watch_parts

Verb watch_verb() {
  return {"watch",
          "[JOB] [-A] [--once]",
          "tell when something is wrong with the jobs, or one job",
          watch_parts::kHelp,
          0,
          1,
          {{"--all-users", "-A"},
           {"--once"},
           {"--interval", nullptr, "S"},
           {"--heartbeat", nullptr, "FILE"}},
          watch_parts::run,
          {},
          kWatchUnknown};
}

}  // namespace hpctl
