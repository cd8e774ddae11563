// SPDX-License-Identifier: Apache-2.0
#include "hpctl/wait_for_job.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "common/base/clock.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/interrupt_flag.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

constexpr std::chrono::milliseconds kPollInterval{250};
constexpr int kPollsPerRecord = 4;
constexpr int kMaxLostControllers = 10;  // in a row, without an answer in between

class Waiter {
 public:
  Waiter(const HomePaths& paths, std::unique_ptr<JobSource> source, JobId job,
         ProgressDisplay* display)
      : paths_(paths), source_(std::move(source)), job_(job), display_(display) {}

  Result<WaitResult> wait() {
    const InterruptFlag flag;
    WaitResult result;
    int lost = 0;
    while (!InterruptFlag::raised()) {
      const Outcome polled = poll(result.job);
      if (polled.ok()) {
        lost = 0;
        if (has_ended(result.job.state)) return result;
      } else if (polled.error().code != ErrorCode::kUnavailable) {
        return polled.error();
      } else if (is_silent()) {
        source_ = open_source(paths_, job_);
      } else if (++lost > kMaxLostControllers) {
        return polled.error();
      } else if (const Outcome found = find_controller(lost == 1); !found.ok()) {
        if (lost == kMaxLostControllers) return found.error();
      }
      pause();
    }
    result.interrupted = true;
    return result;
  }

 private:
  // The state first: events that precede it are then surely in the answer.
  Outcome poll(JobView& job) {
    HP_TRY_ASSIGN(JobView seen, source_->get_job(job_));
    HP_TRY_ASSIGN(const std::vector<EventView> events, source_->events(job_, last_seq_));
    job = std::move(seen);
    for (size_t i = 0; i < events.size(); ++i) {
      last_seq_ = std::max(last_seq_, events[i].seq);
      if (display_ != nullptr && !is_left_out(events, i)) display_->tell(events[i]);
    }
    if (display_ != nullptr && !has_ended(job.state)) {
      display_->update(job, SystemClock().monotonic_ms());
    }
    return Ok{};
  }

  // Not worth telling, or about to be told again: a loss and the recovery that it begins have one
  // cause.
  static bool is_left_out(const std::vector<EventView>& events, size_t at) {
    if (!is_worth_telling(events[at])) return true;
    return std::any_of(events.begin() + static_cast<std::ptrdiff_t>(at) + 1, events.end(),
                       [&](const EventView& later) {
                         return is_worth_telling(later) && later.cause == events[at].cause;
                       });
  }

  // The job goes on without its directory, and a file server comes back.
  bool is_silent() {
    if (directory_answers(paths_.jobs())) return false;
    if (!std::exchange(is_silence_told_, true) && display_ != nullptr) {
      display_->tell(describe_verdict(paths_.jobs()) + "; waiting until it answers");
    }
    return true;
  }

  // A record is read less often, since Slurm is asked each time; every time it may be that a
  // controller answers again.
  void pause() {
    if (source_->is_live()) {
      std::this_thread::sleep_for(kPollInterval);
      return;
    }
    for (int i = 0; i < kPollsPerRecord && !InterruptFlag::raised(); ++i) {
      std::this_thread::sleep_for(kPollInterval);
    }
    source_ = open_source(paths_, job_);
  }

  Outcome find_controller(bool say) {
    if (is_slurm_job(paths_, job_)) {
      source_ = open_source(paths_, job_);
      return Ok{};
    }
    if (say && display_ != nullptr) {
      display_->tell("the controller does not answer; starting it again");
    }
    HP_TRY_ASSIGN(source_, ControllerClient::ensure(paths_));
    return Ok{};
  }

  const HomePaths& paths_;
  std::unique_ptr<JobSource> source_;
  JobId job_;
  ProgressDisplay* display_;
  uint64_t last_seq_ = 0;
  bool is_silence_told_ = false;
};

}  // namespace

Result<WaitResult> wait_for_job(const HomePaths& paths, std::unique_ptr<JobSource> source,
                                JobId job, ProgressDisplay* display) {
  return Waiter(paths, std::move(source), job, display).wait();
}

int report_end(const Invocation& invocation, const HomePaths& paths, const JobView& job) {
  const bool has_files = directory_answers(paths.jobs());
  if (invocation.json()) {
    invocation.terminal.out << to_json_text(job) << "\n";
  } else {
    print_end(invocation.terminal, job, paths.job_logs(JobId{job.job}),
              has_files ? paths.job_metrics(JobId{job.job}) : "");
  }
  if (job.state == "FINISHED") return kExitOk;
  const bool refused = has_files && read_refusal(paths, JobId{job.job}).status == kExitUsage;
  return job.state == "FAILED" && refused ? kExitUsage : kExitFailed;
}

int wait_and_report(const Invocation& invocation, const HomePaths& paths,
                    std::unique_ptr<JobSource> source, JobId job) {
  const Terminal& terminal = invocation.terminal;
  ProgressDisplay display(terminal);
  const auto waited =
      wait_for_job(paths, std::move(source), job, invocation.json() ? nullptr : &display);
  display.finish();
  if (!waited.ok()) return report(terminal, waited.error());
  if (!waited->interrupted) return report_end(invocation, paths, waited->job);
  const std::string id = to_string(job);
  terminal.err << "job " << id << " goes on; `hpctl status " << id << "` shows it, `hpctl cancel "
               << id << "` ends it\n";
  return kExitInterrupted;
}

}  // namespace hpctl
