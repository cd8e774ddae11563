// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "common/base/clock.h"
#include "hpctl/chaos_fit.h"
#include "hpctl/controller_client.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/interrupt_flag.h"
#include "hpctl/submit_directory.h"

namespace hpctl {
namespace {

constexpr std::chrono::milliseconds kLookInterval{100};
constexpr uint64_t kStepsToBeFound = 5;
constexpr std::chrono::milliseconds kQueueInterval{1000};  // the scheduler is asked each time

// Of one that may go unnoticed.
const char* why_unnoticed(FaultSign sign) {
  if (sign == FaultSign::kStraggler) {
    return "not found: it was not slow for long enough, or recovery.straggler is off; all ranks' "
           "steps took longer";
  }
  if (sign == FaultSign::kLimit) {
    return "not found: no limit of the job was passed, and nothing looks for messages that are "
           "only late";
  }
  return "not found: nothing looks at the values of parameters, and the job goes on with another "
         "result";
}

enum class Waited { kDone, kLate, kEnded, kInterrupted };

class ChaosRun {
 public:
  ChaosRun(const OpenJob& job, const ChaosPlan& plan, ChaosStart start,
           const std::function<void(const FaultResult&)>& tell)
      : job_(job), paths_(job.paths), id_(job.id), plan_(plan), start_(start), tell_(tell) {}

  Result<ChaosReport> run() {
    const InterruptFlag flag;
    HP_TRY(await_start());
    if (InterruptFlag::raised()) return interrupted();
    HP_TRY(begin());
    const int64_t began_ms = clock_.monotonic_ms();
    const int64_t lost_before_ms = view_.lost_ms;
    ChaosReport report{view_.job, view_.name, plan_.seed, plan_.faults.size()};
    for (const PlannedFault& planned : plan_.faults) {
      FaultResult result;
      result.fault = planned.fault;
      const bool goes_on = carry_out(planned, result);
      if (InterruptFlag::raised() && !result.injected) break;
      report.faults.push_back(result);
      tell_(result);
      if (!goes_on) break;
    }
    report.interrupted = InterruptFlag::raised();
    report.wall_ms = clock_.monotonic_ms() - began_ms;
    report.lost_ms = std::min(std::max<int64_t>(0, view_.lost_ms - lost_before_ms), report.wall_ms);
    report.state = view_.state;
    report.reason = view_.reason;
    return report;
  }

 private:
  // A job in a queue has no controller; whether it has been taken out of it, the scheduler knows.
  Outcome await_start() {
    while (start_ == ChaosStart::kSubmitted && !InterruptFlag::raised()) {
      const Outcome seen = look();
      if (seen.ok() && (view_.state == "RUNNING" || has_ended(view_.state))) return Ok{};
      if (!seen.ok() && seen.error().code != ErrorCode::kUnavailable) return seen;
      const auto known = seen.ok() ? Result<JobView>(view_) : job_.source->get_job(id_);
      if (known.ok() && has_ended(known->state)) {
        return Error{ErrorCode::kFailedPrecondition,
                     "job " + to_string(id_) + " ended before it ran: " + known->state};
      }
      std::this_thread::sleep_for(seen.ok() ? kLookInterval : kQueueInterval);
    }
    return Ok{};
  }

  ChaosReport interrupted() const {
    ChaosReport report{id_.value, view_.name, plan_.seed, plan_.faults.size()};
    report.state = view_.state;
    report.interrupted = true;
    return report;
  }

  // Everything is checked before the first fault.
  Outcome begin() {
    HP_TRY(look());
    const std::string name = "job " + to_string(id_);
    if (has_ended(view_.state)) {
      return Error{ErrorCode::kFailedPrecondition, name + " has already " + view_.state};
    }
    if (!view_.chaos) {
      return Error{ErrorCode::kFailedPrecondition, name + " " + kAllowsNoChaos};
    }
    HP_TRY(check_directory_answers(paths_.jobs()));
    const auto spec = submitted_spec(paths_, id_);
    if (std::string misfit = find_misfit(plan_, view_, spec.ok() ? &*spec : nullptr);
        !misfit.empty()) {
      return Error{ErrorCode::kInvalidArgument, std::move(misfit)};
    }
    history_.clear();
    return Ok{};
  }

  // ---- what is seen of the job ------------------------------------------------------------------

  Result<std::unique_ptr<ControllerClient>> connect() const {
    const bool has_files = directory_answers(paths_.jobs());
    if (has_files && is_slurm_job(paths_, id_)) return ControllerClient::connect(paths_, id_);
    auto client = ControllerClient::connect(paths_);
    if (client == nullptr) {
      return Error{ErrorCode::kUnavailable, "no controller of " + paths_.home() + " answers"};
    }
    return client;
  }

  // A job that ended may have taken its controller along.
  Outcome look() {
    if (client_ == nullptr) {
      auto connected = connect();
      if (!connected.ok()) {
        auto record = open_record(paths_, id_)->get_job(id_);
        if (!record.ok() || !has_ended(record->state)) return connected.error();
        view_ = std::move(*record);
        return Ok{};
      }
      client_ = std::move(*connected);
    }
    const Outcome seen = ask();
    if (!seen.ok() && seen.error().code == ErrorCode::kUnavailable) client_.reset();
    return seen;
  }

  // The state first: events that precede it are then surely in the answer.
  Outcome ask() {
    HP_TRY_ASSIGN(JobView seen, client_->get_job(id_));
    HP_TRY_ASSIGN(const std::vector<EventView> events, client_->events(id_, last_seq_));
    view_ = std::move(seen);
    for (const EventView& event : events) last_seq_ = std::max(last_seq_, event.seq);
    history_.insert(history_.end(), events.begin(), events.end());
    return Ok{};
  }

  // Looks until `done` says so after a look that was answered.
  Waited wait(int64_t for_ms, const std::function<bool()>& done) {
    const int64_t until_ms = clock_.monotonic_ms() + for_ms;
    for (;;) {
      if (look().ok() && done()) return Waited::kDone;
      if (has_ended(view_.state)) return Waited::kEnded;
      if (InterruptFlag::raised()) return Waited::kInterrupted;
      if (clock_.monotonic_ms() >= until_ms) return Waited::kLate;
      std::this_thread::sleep_for(kLookInterval);
    }
  }

  // ---- one fault --------------------------------------------------------------------------------

  // False: no other can follow it.
  bool carry_out(const PlannedFault& planned, FaultResult& result) {
    if (!wait_for_moment(planned, result) || !choose_target(planned, result)) return false;
    inject(result);
    if (!result.injected) return !InterruptFlag::raised() && client_ != nullptr;
    return follow(result);
  }

  std::string late(const std::string& what) const {
    return what + " within " + std::to_string(plan_.recover_within_ms / 1000) + " s";
  }
  std::string ended() const {
    return "the job ended before, " + view_.state +
           (view_.reason.empty() ? "" : ": " + view_.reason);
  }

  bool wait_for_moment(const PlannedFault& planned, FaultResult& result) {
    const auto trains = [this] { return view_.state == "RUNNING"; };
    Waited waited = wait(plan_.recover_within_ms, trains);
    if (waited == Waited::kDone && planned.after_ms > 0) {
      const int64_t due_ms = clock_.monotonic_ms() + planned.after_ms;
      waited = wait(INT64_MAX / 2, [&] { return clock_.monotonic_ms() >= due_ms; });
    }
    // As long as it goes on.
    while (waited == Waited::kDone && planned.at_step && view_.step < *planned.at_step) {
      const uint64_t seen = view_.step;
      waited = wait(plan_.recover_within_ms, [&] { return view_.step > seen; });
    }
    // It may have fallen meanwhile, by a fault that is not ours.
    if (waited == Waited::kDone) waited = wait(plan_.recover_within_ms, trains);
    if (waited == Waited::kEnded) result.problem = ended();
    if (waited == Waited::kLate) result.problem = late("the job did not complete a step");
    return waited == Waited::kDone;
  }

  bool choose_target(const PlannedFault& planned, FaultResult& result) {
    const FaultTarget target = target_of(planned.fault);
    if (target == FaultTarget::kController) return true;
    std::vector<std::pair<int32_t, std::string>> there;
    for (const WorkerView& worker : view_.workers) {
      const bool meant = planned.rank.value_or(worker.rank) == worker.rank;
      if (target == FaultTarget::kRank && meant) there.emplace_back(worker.rank, worker.node);
    }
    for (const NodeView& node : view_.nodes) {
      const bool meant = planned.node.empty() ? node.role == "active" : planned.node == node.name;
      if (target == FaultTarget::kNode && meant) there.emplace_back(-1, node.name);
    }
    std::sort(there.begin(), there.end());
    if (there.empty()) {
      result.problem = "the job has no such target any more";
      return false;
    }
    std::tie(result.rank, result.node) = there[planned.draw % there.size()];
    return true;
  }

  // Where the answer is lost, with the controller or by it, the history tells.
  void inject(FaultResult& result) {
    history_.clear();
    result.at_step = view_.step;
    nodes_ = view_.nodes;
    const auto injected = client_ == nullptr
                              ? Result<uint64_t>(Error{ErrorCode::kUnavailable, "nobody answers"})
                              : client_->inject(id_, result.fault, result.rank, result.node);
    if (!injected.ok() && injected.error().code != ErrorCode::kUnavailable) {
      result.problem = injected.error().message;
      return;
    }
    const auto is_it = [&](const EventView& event) {
      return event.type == "FaultInjected" && (!injected.ok() || event.seq == *injected);
    };
    if (!injected.ok()) client_.reset();
    wait(plan_.recover_within_ms, [&] {
      const auto found = std::find_if(history_.begin(), history_.end(), is_it);
      if (found == history_.end()) return client_ != nullptr && !injected.ok();
      result.injected = true;
      result.seq = found->seq;
      result.wall_ms = found->wall_ms;
      return true;
    });
    if (!result.injected) {
      result.problem = "not injected: " +
                       (injected.ok() ? "the history does not have it" : injected.error().message);
    }
  }

  // Some steps go on with it until it is over, and nothing comes of it, unless it passes a limit.
  // False: that it did, or that no other fault can follow it.
  bool goes_by(FaultResult& result) {
    const FaultTraits& traits = traits_of(result.fault);
    const int64_t over_ms = clock_.monotonic_ms() + traits.lasts_ms;
    const uint64_t enough_steps =
        result.at_step + static_cast<uint64_t>(traits.lasts_steps) + kStepsToBeFound;
    const bool shows_steps = view_.total_steps > 0;
    const Waited waited = wait(plan_.recover_within_ms + traits.lasts_ms, [&] {
      judge(result, history_after(result.seq), nodes_);
      const bool stepped = !shows_steps || view_.step >= enough_steps;
      const bool is_over = view_.state == "RUNNING" && clock_.monotonic_ms() >= over_ms;
      return result.found || !result.injected || (is_over && stepped);
    });
    judge(result, history_after(result.seq), nodes_);
    if (result.found) return false;
    if (!result.injected) return waited == Waited::kDone;
    if (!shows_steps) result.lost_steps.reset();
    result.problem = why_unnoticed(traits.sign);
    if (waited == Waited::kLate) result.problem = late("not back");
    if (waited == Waited::kInterrupted) result.problem = "interrupted";
    return waited == Waited::kDone;
  }

  // Until the job is as before.
  bool follow(FaultResult& result) {
    if (goes_unnoticed(result.fault)) {
      const bool goes_on = goes_by(result);
      if (!result.found) return goes_on;
    }
    const bool shows_steps = view_.total_steps > 0;
    const Waited waited = wait(plan_.recover_within_ms + traits_of(result.fault).lasts_ms, [&] {
      judge(result, history_after(result.seq), nodes_);
      if (!result.injected) return true;
      const bool stepped =
          stops_training(result.fault) || !shows_steps || view_.step > result.at_step;
      return view_.state == "RUNNING" && result.back_ms && stepped;
    });
    judge(result, history_after(result.seq), nodes_);
    if (!shows_steps) result.lost_steps.reset();
    if (waited == Waited::kInterrupted) result.problem = "interrupted";
    if (waited == Waited::kLate) {
      result.problem = late(result.found ? "not back" : "not found");
    }
    if (waited == Waited::kEnded && !result.found) result.problem = "the job finished before";
    const bool failed = waited == Waited::kEnded && view_.state != "FINISHED";
    if (failed) result.problem = "the job ended, " + view_.state + ": " + view_.reason;
    return waited == Waited::kDone;
  }

  std::vector<EventView> history_after(uint64_t seq) const {
    std::vector<EventView> after;
    for (const EventView& event : history_) {
      if (event.seq > seq) after.push_back(event);
    }
    return after;
  }

  const OpenJob& job_;
  const HomePaths paths_;
  const JobId id_;
  const ChaosPlan& plan_;
  const ChaosStart start_;
  const std::function<void(const FaultResult&)>& tell_;
  const SystemClock clock_;
  std::unique_ptr<ControllerClient> client_;
  JobView view_;
  std::vector<NodeView> nodes_;  // as they were when the present fault was injected
  uint64_t last_seq_ = 0;
  std::vector<EventView> history_;  // since the present fault
};

int exit_code_of(const ChaosReport& report) {
  if (report.interrupted) return kExitInterrupted;
  return is_good(report) ? kExitOk : kExitFailed;
}

}  // namespace

Result<ChaosReport> run_chaos(const OpenJob& job, const ChaosPlan& plan, ChaosStart start,
                              const std::function<void(const FaultResult&)>& tell) {
  return ChaosRun(job, plan, start, tell).run();
}

int run_chaos_and_report(const Invocation& invocation, const OpenJob& job, const ChaosPlan& plan,
                         ChaosStart start) {
  const Terminal& terminal = invocation.terminal;
  bool has_header = false;
  const auto told = run_chaos(job, plan, start, [&](const FaultResult& result) {
    if (invocation.json()) return;
    if (!std::exchange(has_header, true)) print_chaos_header(terminal);
    print_chaos_row(terminal, result);
  });
  if (!told.ok()) {
    const int status = report(terminal, told.error());
    return told.error().code == ErrorCode::kInvalidArgument ? kExitUsage : status;
  }
  if (invocation.json()) {
    terminal.out << to_json_text(*told) << "\n";
  } else {
    print_chaos_totals(terminal, *told);
  }
  return exit_code_of(*told);
}

}  // namespace hpctl
