// SPDX-License-Identifier: Apache-2.0
// Two cluster controllers, as on two head nodes: the second takes over when the first is killed or
// stopped, the first stands back when it goes on, and of both at once one starts the controller.
// The job goes on undisturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>

#include "common/base/file.h"
#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "common/rpc/cluster_client.h"
#include "controller/cluster/supervisor.h"
#include "tests/fault/cluster_service.h"
#include "tests/support/processes.h"

namespace hpctl {
namespace {

using test::kCall;
using test::kHead;
using test::kPatienceMs;
using test::kSecondHead;
using ::testing::HasSubstr;

class TwoHeads : public test::ClusterController {
 protected:
  void SetUp() override {
    ClusterController::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    second_service_ =
        spawn_service({kSecondHead, second_address_, directory_ / "state2", second_log()});
    ::setenv("HPCTL_CLUSTER", both_.c_str(), 1);  // of the agents
  }
  void TearDown() override {
    ::unsetenv("HPCTL_CLUSTER");
    ClusterController::TearDown();
    if (HasFailure()) std::printf("== second\n%s\n", read_file(second_log()).value().c_str());
  }
  std::string second_log() const { return directory_ / "second.log"; }

  // Those of the job that a cluster controller has started and that run.
  std::vector<pid_t> controllers() const {
    std::vector<pid_t> found = cluster_.processes();
    std::erase_if(found, [](pid_t pid) {
      const auto command = read_file("/proc/" + std::to_string(pid) + "/cmdline");
      return !command.ok() || command->find("--run-as") == std::string::npos;
    });
    return found;
  }
  void expect_one_controller() const {
    const auto is_newest_alone = [&] {
      const auto newest = newest_controller(cluster_.job_dir());
      const auto running = controllers();
      return newest.ok() && *newest && running.size() == 1 &&
             running.front() == static_cast<pid_t>((*newest)->pid);
    };
    EXPECT_TRUE(test::eventually(is_newest_alone, kPatienceMs)) << log_text();
  }
  void expect_second_took_over() const {
    const auto record = cluster_.wait_for_epoch(2, kPatienceMs);
    ASSERT_TRUE(record) << cluster_.logs();
    ASSERT_EQ(record->node, kSecondHead) << cluster_.logs();
    const auto listed = [&] { return listed_at(second_address_).address() == record->address; };
    EXPECT_TRUE(test::eventually(listed, kPatienceMs)) << read_file(second_log()).value();
  }
  bool eventually_all_agents_said(const std::string& words) const {
    const auto has_said = [&](const std::string& node) {
      const auto said = read_file(cluster_.paths(node).node_log(cluster_.job(), node));
      return said.ok() && said->find(words) != std::string::npos;
    };
    return test::eventually([&] { return std::ranges::all_of(cluster_.nodes(), has_said); },
                            kPatienceMs);
  }
  Result<v1::ClusterJob> admit_at_second() const {
    return admit_to_cluster(second_address_, admission(), kCall);
  }

  const test::LoopbackPort second_port_;
  const std::string second_address_ = second_port_.address();
  const std::string both_ = address_ + "," + second_address_;
  pid_t second_service_ = -1;
};

TEST_F(TwoHeads, TheSecondTakesOverAndIsFound) {
  start_job();
  kill_service();
  cluster_.kill_controller(1);
  expect_second_took_over();
  ASSERT_TRUE(runs()) << cluster_.logs();
  // From a home that knows nothing of the job.
  ::setenv("HPCTL_HOME", (directory_ / "another").c_str(), 1);
  const std::string out = directory_ / "status";
  const pid_t hpctl =
      cluster_.spawn({test::program("hpctl"), "status", to_string(cluster_.job()), "--json"}, out);
  ::unsetenv("HPCTL_HOME");
  EXPECT_EQ(cluster_.wait_for(hpctl, kPatienceMs), 0) << read_file(out).value();
  EXPECT_THAT(read_file(out).value(), HasSubstr(R"("state":"RUNNING",)"));
  // The first, which comes back, leaves the job to it.
  start_service();
  EXPECT_TRUE(test::eventually([&] { return listed().job() == 0; }, kPatienceMs)) << log_text();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 2U);
  expect_finish_undisturbed_at(second_address_);
}

TEST_F(TwoHeads, AFrozenFirstIsPassedOverAndStandsBack) {
  start_job();
  const auto first = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(first) << cluster_.logs();
  ::kill(service_, SIGSTOP);
  ::kill(static_cast<pid_t>(first->pid), SIGSTOP);
  expect_second_took_over();
  const auto answer = admit_to_cluster(both_, admission(), kCall);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->pid(), listed_at(second_address_).pid());
  ::kill(service_, SIGCONT);
  ::kill(static_cast<pid_t>(first->pid), SIGCONT);
  EXPECT_TRUE(test::eventually([&] { return listed().job() == 0; }, kPatienceMs)) << log_text();
  expect_one_controller();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 2U);
  expect_finish_undisturbed_at(second_address_);
}

// The service of the first alone: its jobs' controllers go on, and the second takes none of them.
TEST_F(TwoHeads, WhatGoesOnIsLeftAlone) {
  start_job();
  kill_service();
  const auto refused = admit_at_second();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kAlreadyExists) << refused.error().message;
  EXPECT_EQ(listed_at(second_address_).job(), 0U);
  expect_one_controller();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  expect_finish_undisturbed_at(second_address_);
}

TEST_F(TwoHeads, ANewJobBeginsAtTheSecond) {
  kill_service();
  const pid_t batch_proxy = start_batch_proxy(both_);
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record) << read_file(second_log()).value();
  EXPECT_EQ(record->node, kSecondHead);
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  expect_finish_undisturbed_at(second_address_);
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFinished);
}

TEST_F(TwoHeads, OfBothAskedAtOnceOneStartsTheController) {
  auto first = std::async(std::launch::async, [&] { return admit(); });
  const auto second = admit_at_second();
  EXPECT_TRUE(first.get().ok() || second.ok());
  expect_one_controller();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  expect_finish_undisturbed();
}

// The first has the job's row and starts its controller again, while the second is asked to.
TEST_F(TwoHeads, OfBothSuccessorsOneFollows) {
  start_job();
  kill_service();
  cluster_.kill_controller(1);
  auto second = std::async(std::launch::async, [&] { return admit_at_second(); });
  start_service();
  const auto admitted = second.get();
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << log_text();
  expect_one_controller();
  EXPECT_EQ(admitted.ok(), newest_controller(cluster_.job_dir()).value()->node == kSecondHead);
  expect_finish_undisturbed();
}

// It may only have had no turn: its node takes connections.
TEST_F(TwoHeads, ASilentSecondIsAskedAgain) {
  start_job();
  kill_service();
  ::kill(second_service_, SIGSTOP);
  cluster_.kill_controller(1);
  ASSERT_TRUE(eventually_all_agents_said(second_address_ + " does not answer")) << cluster_.logs();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  ::kill(second_service_, SIGCONT);
  expect_second_took_over();
  expect_finish_undisturbed_at(second_address_);
}

// It does not begin what it could not find again; the job's agents do without it.
TEST_F(TwoHeads, WithoutAPlaceForItsRowsTheAgentsSucceed) {
  start_job();
  ASSERT_TRUE(remove_tree(directory_ / "state2/jobs").ok());
  kill_service();
  cluster_.kill_controller(1);
  const auto record = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(record) << cluster_.logs();
  EXPECT_NE(record->node, kSecondHead);
  EXPECT_THAT(cluster_.logs(), HasSubstr("state2/jobs"));
  expect_finish_undisturbed_at(second_address_);
}

// A controller of each of these never comes to serve: its job.json is a pipe that nobody writes.
class StuckStarts {
 public:
  StuckStarts(const std::string& cluster, const v1::Admission& like, size_t count) {
    for (uint64_t i = 1; i <= count; ++i) {
      v1::Admission admission = like;
      admission.set_job(like.job() + (i << 22));  // not the number of another test
      admission.set_job_dir(directory_ / std::to_string(i));
      EXPECT_EQ(::mkdir(admission.job_dir().c_str(), 0700), 0);
      const std::string token = admission.job_dir() + "/token";
      EXPECT_TRUE(write_file_atomic(token, read_file(like.job_dir() + "/token").value()).ok());
      EXPECT_EQ(::chmod(token.c_str(), 0600), 0);
      EXPECT_EQ(::mkfifo((admission.job_dir() + "/job.json").c_str(), 0600), 0);
      admission.set_wait_ms(1);
      const auto job = admit_to_cluster(cluster, admission, kCall);
      EXPECT_TRUE(job.ok()) << job.error().message;
      if (job.ok()) jobs_.push_back(*job);
    }
  }
  ~StuckStarts() { end(); }
  StuckStarts(const StuckStarts&) = delete;
  StuckStarts& operator=(const StuckStarts&) = delete;

  void end() {
    for (const v1::ClusterJob& job : jobs_) {
      EXPECT_TRUE(kill_process(static_cast<pid_t>(job.pid())));
      const auto paths = HomePaths::of_job(job.job_dir(), JobId{job.job()}, kSecondHead);
      EXPECT_TRUE(remove_tree(paths.state()).ok());
    }
    jobs_.clear();
  }

 private:
  TemporaryDirectory directory_;
  std::vector<v1::ClusterJob> jobs_;
};

// As after the loss of a head with many jobs: who finds it busy does not take the job away from it.
TEST_F(TwoHeads, ABusySecondIsAskedAgain) {
  start_job();
  StuckStarts stuck(second_address_, admission(), cluster::kMaxStartingOfUser);
  kill_service();
  cluster_.kill_controller(1);
  ASSERT_TRUE(eventually_all_agents_said("of those starting")) << cluster_.logs();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  stuck.end();
  expect_second_took_over();
  expect_finish_undisturbed_at(second_address_);
}

TEST_F(TwoHeads, SaysWhyNoneAnswers) {
  kill_service();
  ::kill(second_service_, SIGKILL);
  ASSERT_TRUE(cluster_.wait_for(second_service_, kPatienceMs));
  const auto answer = list_cluster_jobs(both_, kCall);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(answer.error().message, HasSubstr(address_ + " does not answer"));
  EXPECT_THAT(answer.error().message, HasSubstr(second_address_ + " does not answer"));
}

}  // namespace
}  // namespace hpctl
