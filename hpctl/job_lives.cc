// SPDX-License-Identifier: Apache-2.0
#include "hpctl/job_lives.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "hpctl/recorded_jobs.h"

namespace hpctl {
namespace {

class JobLives final : public JobSource {
 public:
  JobLives(std::unique_ptr<JobSource> live, std::unique_ptr<JobSource> record)
      : live_(std::move(live)), record_(std::move(record)) {}

  Result<std::vector<JobSummary>> list_jobs() override { return live_->list_jobs(); }
  Result<JobView> get_job(JobId job) override { return live_->get_job(job); }
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override {
    HP_TRY_ASSIGN(std::vector<EventView> events, live_->events(job, after_seq));
    if (events.empty()) return events;
    auto before = record_->events(job, after_seq);
    if (!before.ok()) return events;  // the record is best effort, the controller's word is not
    const uint64_t first = events.front().seq;
    std::erase_if(*before, [&](const EventView& event) { return event.seq >= first; });
    events.insert(events.begin(), before->begin(), before->end());
    return events;
  }
  Result<Explanation> why(JobId job) override {
    HP_TRY_ASSIGN(const std::vector<EventView> all, events(job, 0));
    return explain(all, job);
  }
  bool is_live() const override { return live_->is_live(); }
  ControllerClient* controller() override { return live_->controller(); }
  std::string notice(const JobView& job) const override { return live_->notice(job); }

 private:
  std::unique_ptr<JobSource> live_;
  std::unique_ptr<JobSource> record_;
};

class UntilItEnds final : public JobSource {
 public:
  UntilItEnds(std::unique_ptr<JobSource> live,
              std::function<std::unique_ptr<JobSource>()> open_record)
      : source_(std::move(live)), open_record_(std::move(open_record)) {}

  Result<std::vector<JobSummary>> list_jobs() override {
    return ask([](JobSource& source) { return source.list_jobs(); });
  }
  Result<JobView> get_job(JobId job) override {
    return ask([&](JobSource& source) { return source.get_job(job); });
  }
  Result<std::vector<EventView>> events(JobId job, uint64_t after_seq) override {
    return ask([&](JobSource& source) { return source.events(job, after_seq); });
  }
  Result<Explanation> why(JobId job) override {
    return ask([&](JobSource& source) { return source.why(job); });
  }
  bool is_live() const override { return source_->is_live(); }
  ControllerClient* controller() override { return source_->controller(); }
  std::string notice(const JobView& job) const override { return source_->notice(job); }

 private:
  template <typename Question>
  std::invoke_result_t<Question, JobSource&> ask(const Question& question) {
    auto answer = question(*source_);
    if (answer.ok() || answer.error().code != ErrorCode::kUnavailable || !source_->is_live()) {
      return answer;
    }
    source_ = open_record_();
    return question(*source_);
  }

  std::unique_ptr<JobSource> source_;
  std::function<std::unique_ptr<JobSource>()> open_record_;
};

}  // namespace

std::unique_ptr<JobSource> join_lives(std::unique_ptr<JobSource> live,
                                      std::unique_ptr<JobSource> record) {
  return std::make_unique<JobLives>(std::move(live), std::move(record));
}

std::unique_ptr<JobSource> until_it_ends(std::unique_ptr<JobSource> live,
                                         std::function<std::unique_ptr<JobSource>()> open_record) {
  return std::make_unique<UntilItEnds>(std::move(live), std::move(open_record));
}

}  // namespace hpctl
