// SPDX-License-Identifier: Apache-2.0
// The history of a job across a requeue: the controller that answers knows only the new life.
#include "hpctl/job_lives.h"

#include <gtest/gtest.h>

#include <optional>

#include "controller/core/core.h"

namespace hpctl {
namespace {

constexpr JobId kJob{7};
const uint64_t kSecondLife = core::seq_before_epoch(2).value;

EventView event(uint64_t seq, const std::string& type, uint64_t because = 0) {
  EventView view;
  view.seq = seq;
  view.type = type;
  view.job = kJob.value;
  view.cause = type + " " + std::to_string(seq);
  view.because = because;
  return view;
}

class Told final : public JobSource {
 public:
  explicit Told(std::vector<EventView> events) : events_(std::move(events)) {}
  explicit Told(ErrorCode failure) : failure_(failure) {}

  Result<std::vector<JobSummary>> list_jobs() override { return std::vector<JobSummary>{}; }
  Result<JobView> get_job(JobId) override { return JobView{}; }
  Result<std::vector<EventView>> events(JobId, uint64_t after_seq) override {
    if (failure_) return Error{*failure_, "no answer"};
    std::vector<EventView> after = events_;
    std::erase_if(after, [&](const EventView& e) { return e.seq <= after_seq; });
    return after;
  }
  Result<Explanation> why(JobId) override { return Explanation{}; }
  bool is_live() const override { return true; }

 private:
  std::vector<EventView> events_;
  std::optional<ErrorCode> failure_;
};

std::vector<EventView> first_life() {
  return {event(1, "JobSubmitted"), event(5, "JobRunning"), event(6, "NodeLost"),
          event(6, "JobRecovering"), event(9, "RequeueJob", 6)};
}
std::vector<EventView> second_life() {
  return {event(kSecondLife + 1, "JobAdopted"),
          event(kSecondLife + 2, "JobRunning", kSecondLife + 1)};
}

std::unique_ptr<JobSource> both_lives() {
  std::vector<EventView> record = first_life();
  record.push_back(second_life().front());  // what the controller wrote so far
  return join_lives(std::make_unique<Told>(second_life()), std::make_unique<Told>(record));
}

std::vector<std::string> types(const std::vector<EventView>& events) {
  std::vector<std::string> types;
  for (const EventView& e : events) types.push_back(e.type);
  return types;
}

TEST(JobLives, EventsOfAllLivesOnce) {
  const auto job = both_lives();
  EXPECT_EQ(types(job->events(kJob, 0).value()),
            (std::vector<std::string>{"JobSubmitted", "JobRunning", "NodeLost", "JobRecovering",
                                      "RequeueJob", "JobAdopted", "JobRunning"}));
  EXPECT_EQ(types(job->events(kJob, 6).value()),
            (std::vector<std::string>{"RequeueJob", "JobAdopted", "JobRunning"}));
  EXPECT_TRUE(job->events(kJob, kSecondLife + 2)->empty());
}

TEST(JobLives, WhyGoesBackThroughTheRequeue) {
  const auto why = both_lives()->why(kJob).value();
  EXPECT_EQ(types(why.chain), (std::vector<std::string>{"NodeLost", "JobRecovering", "RequeueJob",
                                                        "JobAdopted", "JobRunning"}));
  EXPECT_NE(why.summary.find("it began with: NodeLost 6"), std::string::npos) << why.summary;
}

// A controller was lost while nothing was wrong: that is where the story begins.
TEST(JobLives, WhyEndsAtAnAdoptionOfAJobThatRan) {
  const auto job = join_lives(
      std::make_unique<Told>(second_life()),
      std::make_unique<Told>(std::vector{event(1, "JobSubmitted"), event(5, "JobRunning", 1)}));
  EXPECT_EQ(types(job->why(kJob)->chain), (std::vector<std::string>{"JobAdopted", "JobRunning"}));
}

// A job was shown as FAILED, its controller ended, and `hpctl events` printed nothing.
TEST(JobLives, RecordAnswersOnceTheControllerHasEnded) {
  const auto job = until_it_ends(std::make_unique<Told>(ErrorCode::kUnavailable),
                                 [] { return std::make_unique<Told>(first_life()); });
  EXPECT_EQ(job->events(kJob, 0)->size(), first_life().size());
}

TEST(JobLives, ARefusalIsNoEnd) {
  const auto job = until_it_ends(std::make_unique<Told>(ErrorCode::kNotFound),
                                 [] { return std::make_unique<Told>(first_life()); });
  EXPECT_EQ(job->events(kJob, 0).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hpctl
