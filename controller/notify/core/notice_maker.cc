// SPDX-License-Identifier: Apache-2.0
#include "controller/notify/core/notice_maker.h"

#include <algorithm>

#include "common/job/duration_text.h"
#include "common/job/time_account.h"

namespace hpctl {
namespace {

void append(std::vector<Notice>& to, std::vector<Notice> from) {
  for (Notice& notice : from) to.push_back(std::move(notice));
}

std::string why_action(const core::Job& job) { return "`hpctl why " + to_string(job.id) + "`"; }

}  // namespace

void NoticeMaker::recall(const core::Job& job, int64_t wall_ms) {
  if (job.state == core::JobState::kRecovering) recovering_since_ms_ = wall_ms;
}

Notice NoticeMaker::make(NoticeKind kind, const core::Job& job, std::string what,
                         int64_t wall_ms) const {
  Notice notice;
  notice.kind = kind;
  notice.job = job.id;
  notice.name = job.spec.name;
  notice.owner = std::to_string(job.owner_uid);
  notice.state = core::shown_state(job);
  notice.generation = job.generation.value;
  notice.step = std::max(step_, job.furthest_step);
  notice.what = std::move(what);
  notice.wall_ms = wall_ms;
  return notice;
}

std::vector<Notice> NoticeMaker::pass(Notice notice, const core::Job& job) {
  if (!job.spec.notify.wants(notice.kind)) return {};
  const int64_t wall_ms = notice.wall_ms;
  return gate_.pass(std::move(notice), wall_ms);
}

std::vector<Notice> NoticeMaker::take(const core::LogEntry& entry, const core::Job& job,
                                      int64_t wall_ms) {
  step_ = std::max(step_, entry.step);
  if (entry.type == "JobRecovering") {
    if (recovering_since_ms_ == 0) recovering_since_ms_ = wall_ms;
    return {};
  }
  if (entry.type == "JobRunning") {
    const int64_t since_ms = std::exchange(recovering_since_ms_, 0);
    if (since_ms == 0) return {};  // it starts, or grows
    const std::string cause = job.recent_faults.empty() ? "" : job.recent_faults.back().cause;
    return pass(make(NoticeKind::kRecovery, job,
                     "it trains again, " + format_duration(wall_ms - since_ms) +
                         " after: " + cause + "; " + entry.cause,
                     wall_ms),
                job);
  }
  if (entry.type == "NodeQuarantined") {
    Notice notice = make(NoticeKind::kQuarantine, job,
                         entry.node + " is in quarantine: " + entry.cause, wall_ms);
    notice.node = entry.node;
    notice.action = "`hpctl nodes " + to_string(job.id) + "`";
    notice.runbook = runbook_of(FindingKind::kNodeQuarantined);
    return pass(std::move(notice), job);
  }
  if (entry.type == "JobFailed" || entry.type == "JobTimeout") {
    const bool failed = entry.type == "JobFailed";
    Notice notice =
        make(NoticeKind::kFailure, job,
             (failed ? "it failed: " : "its time limit ended it: ") + entry.cause, wall_ms);
    notice.action = why_action(job);
    notice.runbook = runbook_of(FindingKind::kFailed);
    return pass(std::move(notice), job);
  }
  if (entry.type != "JobFinished") return {};
  return pass(
      make(NoticeKind::kFinished, job,
           "it finished after " +
               format_duration(
                   elapsed_ms(WallTime(job.submitted_wall_ms), WallTime(wall_ms)).value_or(0)) +
               ", restarts: " + std::to_string(job.restarts) + "; " + entry.cause,
           wall_ms),
      job);
}

std::vector<Notice> NoticeMaker::take(const std::vector<Finding>& findings, const core::Job& job,
                                      uint64_t step, int64_t wall_ms) {
  step_ = std::max(step_, step);
  std::vector<Notice> notices;
  const auto tell = [&](const Finding& finding, bool is_over) {
    const std::string kind = to_word(finding.kind);
    Notice notice =
        make(NoticeKind::kCritical, job, is_over ? "it is over: " + kind : finding.what, wall_ms);
    notice.finding = kind;
    notice.is_over = is_over;
    notice.node = finding.node;
    notice.action = is_over ? "" : finding.action;
    notice.runbook = runbook_of(finding.kind);
    append(notices, pass(std::move(notice), job));
  };
  std::map<std::pair<FindingKind, std::string>, Finding> critical;
  for (const Finding& finding : findings) {
    // The history reports the end of a job.
    if (finding.severity != Severity::kCritical || finding.kind == FindingKind::kFailed) continue;
    const std::pair key(finding.kind, finding.node);
    if (!critical_.contains(key)) tell(finding, false);
    critical.emplace(key, finding);
  }
  for (const auto& [key, finding] : critical_) {
    // The end of the job is reported with the job, and all its findings are over.
    if (!critical.contains(key) && !core::has_ended(job.state)) tell(finding, true);
  }
  critical_ = std::move(critical);
  append(notices, gate_.release(wall_ms));
  return notices;
}

}  // namespace hpctl
