// SPDX-License-Identifier: Apache-2.0
// Who is shown which jobs on the page of a home: the owner thread's state has those of two users.
#include "controller/page/page_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/json.h"

#include "common/base/check.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class IdleEffects final : public OwnerEffects {
 public:
  void committed(const Committed&) override {}
  void perform(const core::Action&, const core::State&) override {}
  std::vector<core::EventBody> sweep(int64_t) override { return {}; }
  void stalled(int64_t) override {}
};

core::State jobs_of_two() {
  core::State state;
  for (const uint32_t uid : {1000U, 1001U}) {
    core::Job job;
    job.id = JobId{uid - 999};
    job.spec.name = "of-" + std::to_string(uid);
    job.spec.env["TOKEN"] = "hunter2";
    job.spec.notify.webhook = "https://hooks.example/hunter2";
    job.owner_uid = uid;
    job.state = core::JobState::kFinished;
    state.jobs.emplace(job.id, job);
  }
  return state;
}

class PageAnswersTest : public ::testing::Test {
 protected:
  PageAnswersTest() { loop_.start(); }

  // The numbers of the jobs in the list.
  std::vector<int> listed(uint32_t uid) {
    const auto answer = answers_.answer(uid, {"/api/jobs", "", ""});
    EXPECT_TRUE(answer.ok());
    std::vector<int> numbers;
    const json document = json::parse(answer.value());
    for (const json& job : document.at("jobs")) numbers.push_back(job.at("job"));
    return numbers;
  }
  std::unique_ptr<Store> open(Store::Mode mode) {
    auto store = Store::open(directory_ / "db", mode);
    HP_CHECK(store.ok());
    return std::move(*store);
  }

  TemporaryDirectory directory_;
  const SystemClock clock_;
  IdleEffects effects_;
  OwnerLoop loop_{open(Store::Mode::kOwner), jobs_of_two(), clock_, effects_};
  EventFeed feed_{open(Store::Mode::kReader), std::chrono::milliseconds(20)};
  ProgressTable progress_;
  PageAnswers answers_{HomePaths(directory_.path()), loop_, feed_, progress_, "here", "x"};
};

TEST_F(PageAnswersTest, EachSeesHisOwnJobsAndRootSeesAll) {
  EXPECT_EQ(listed(1000), std::vector<int>{1});
  EXPECT_EQ(listed(1001), std::vector<int>{2});
  EXPECT_EQ(listed(1002), std::vector<int>{});
  EXPECT_EQ(listed(0), (std::vector<int>{1, 2}));
  for (const char* path : {"/api/job", "/api/events", "/api/series", "/api/heat", "/api/files"}) {
    EXPECT_TRUE(answers_.answer(1000, {path, "1", ""}).ok());
    EXPECT_TRUE(answers_.answer(0, {path, "2", ""}).ok());
    // Whose it is, or that it is there, is not his business.
    for (const char* job : {"2", "3", "of-1001"}) {
      const auto refused = answers_.answer(1000, {path, job, ""});
      ASSERT_FALSE(refused.ok()) << path << " " << job;
      EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
      EXPECT_THAT(refused.error().message, Not(HasSubstr("belongs to")));
    }
  }
}

TEST_F(PageAnswersTest, WhatIsNoQuestionIsRefused) {
  EXPECT_EQ(answers_.answer(0, {"/api/job", "", ""}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(answers_.answer(0, {"/api/events", "1", "x"}).error().code,
            ErrorCode::kInvalidArgument);
  for (const char* points : {"0", "-1", "x", "1000000"}) {
    const auto refused = answers_.answer(0, {"/api/series", "1", "", "", "", points});
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << points;
  }
  EXPECT_EQ(answers_.answer(0, {"/api/series", "1", "", "9", "3"}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(answers_.answer(0, {"/api/log", "1", "", "", "", "", "x"}).error().code,
            ErrorCode::kInvalidArgument);
}

// They may be secrets.
TEST_F(PageAnswersTest, TheJobFileHidesValuesOfTheEnvironment) {
  const std::string text = answers_.answer(1000, {"/api/files", "1", ""}).value();
  EXPECT_THAT(text, HasSubstr("TOKEN"));
  EXPECT_THAT(text, HasSubstr("webhook"));
  EXPECT_THAT(text, Not(HasSubstr("hunter2")));
}

}  // namespace
}  // namespace hpctl
