// SPDX-License-Identifier: Apache-2.0
// The cluster controller with a real munged: whom it takes, whom it refuses, and what becomes of
// the jobs when their controllers, the service itself or munged die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/job_files.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/munge.h"
#include "tests/fault/cluster_service.h"
#include "tests/support/http_get.h"

namespace hpctl {
namespace {

using test::ClusterController;
using test::kCall;
using test::kHead;
using test::kNobody;
using test::kPatienceMs;
using ::testing::HasSubstr;

TEST_F(ClusterController, StartsTheJobsControllerAndStartsItAgain) {
  start_job();
  const v1::ClusterJob job = listed();
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->node, kHead);
  EXPECT_EQ(record->address, job.address());
  EXPECT_EQ(record->certificate, job.certificate());
  EXPECT_EQ(record->pid, job.pid());
  EXPECT_TRUE(accepts(job.address(), job.certificate(), job.token()));
  EXPECT_TRUE(accepts(job.address(), job.certificate(), read_token(cluster_.job_dir()).value()));
  EXPECT_FALSE(accepts(job.address(), job.certificate(),
                       std::string(job.token().rbegin(), job.token().rend())));

  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << log_text();
  EXPECT_EQ(second->node, kHead);
  ASSERT_TRUE(test::eventually([&] { return listed().address() == second->address; }, kPatienceMs));
  EXPECT_EQ(listed().certificate(), second->certificate);
  EXPECT_NE(second->certificate, record->certificate) << "each epoch has its own";
  EXPECT_EQ(listed().restarts(), 1U);
  // The token outlives the process.
  EXPECT_TRUE(accepts(second->address, second->certificate, job.token()));
  expect_finish_undisturbed();
  EXPECT_FALSE(is_accessible(paths().state())) << "left on the head node";
}

// The service's metrics tell of its jobs, and those of their controllers are beside them.
TEST_F(ClusterController, StartsControllersWhereItServesMetrics) {
  kill_service();
  const test::LoopbackPort metrics;
  start_service({"/usr/bin/env", "HPCTL_METRICS=" + metrics.address()});
  const auto targets = read_file(directory_ / "state/metrics-targets.json");
  ASSERT_TRUE(targets.ok()) << log_text();
  EXPECT_THAT(*targets, HasSubstr(metrics.address()));
  start_job();
  const std::string labels = "{job=\"" + to_string(cluster_.job()) + "\",name=\"cluster\",user=\"";
  const auto is_scraped = [&] {
    const std::string text = http_get(metrics.port(), "/metrics");
    return text.find("hpctl_cluster_job_nodes" + labels) != std::string::npos &&
           text.find("state=\"RUNNING\"} 1\n") != std::string::npos;
  };
  EXPECT_TRUE(test::eventually(is_scraped, kPatienceMs)) << http_get(metrics.port(), "/metrics");
  expect_finish_undisturbed();
}

// From a home that knows nothing of the job: address and token come by MUNGE.
TEST_F(ClusterController, HpctlFindsAJobOfAnotherHome) {
  start_job();
  ::setenv("HPCTL_CLUSTER", address_.c_str(), 1);
  ::setenv("HPCTL_HOME", (directory_ / "another").c_str(), 1);
  const std::string out = directory_ / "status";
  const auto ask = [&](const std::string& job) {
    return cluster_.wait_for(cluster_.spawn({test::program("hpctl"), "status", job, "--json"}, out),
                             kPatienceMs);
  };
  EXPECT_EQ(ask(to_string(cluster_.job())), 0) << read_file(out).value();
  EXPECT_THAT(read_file(out).value(), HasSubstr(R"("name":"cluster",)"));
  EXPECT_THAT(read_file(out).value(), HasSubstr(R"("state":"RUNNING",)"));
  EXPECT_EQ(ask("4294967295"), 1);
  ::unsetenv("HPCTL_CLUSTER");
  ::unsetenv("HPCTL_HOME");
  EXPECT_EQ(ask(to_string(cluster_.job())), 1) << "without a cluster controller";
}

// What the job does, asked of its controller: also of one that another service has started.
TEST_F(ClusterController, ListsWhatJobsDoForWhoMaySeeThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: to be somebody else as well";
  start_job();
  nlohmann::json listed;
  const auto is_told = [&] {
    listed = everything_seen_by({});
    return listed.at("jobs").size() == 1 && listed.at("jobs")[0].at("state") == "RUNNING";
  };
  ASSERT_TRUE(test::eventually(is_told, kPatienceMs)) << listed.dump() << log_text();
  EXPECT_EQ(listed.at("all_users"), true);
  const auto& job = listed.at("jobs")[0];
  EXPECT_EQ(job.at("job"), cluster_.job().value);
  EXPECT_EQ(job.at("name"), "cluster");
  EXPECT_EQ(job.at("uid"), "0");
  EXPECT_EQ(job.at("user"), "root");
  EXPECT_EQ(job.at("nodes"), nlohmann::json({"n0", "n1"}));
  EXPECT_EQ(job.at("restarts"), 0);
  EXPECT_EQ(job.at("doubt"), "");

  const nlohmann::json theirs = everything_seen_by(test::as_nobody());
  EXPECT_EQ(theirs.at("all_users"), false);
  EXPECT_TRUE(theirs.at("jobs").empty()) << theirs.dump();

  kill_service();
  start_service();
  EXPECT_TRUE(test::eventually(is_told, kPatienceMs)) << "of a job that it found\n" << log_text();

  // Nobody gets by this what steers a job.
  const auto listings = list_summaries(address_, kCall);
  ASSERT_TRUE(listings.at(0).jobs.ok());
  const v1::ClusterJob& told = listings[0].jobs->jobs(0);
  EXPECT_EQ(told.token() + told.address() + told.certificate() + told.job_dir(), "");
  expect_finish_undisturbed();
}

TEST_F(ClusterController, IsStartedAgainAndFindsWhatRuns) {
  start_job();
  const v1::ClusterJob before = listed();
  kill_service();
  start_service();
  const v1::ClusterJob after = listed();
  EXPECT_EQ(after.pid(), before.pid());
  EXPECT_EQ(after.address(), before.address());
  // Asked again, it starts nothing.
  const auto again = admit();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->pid(), before.pid());
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  // A controller that is no child of this service is started again like any other.
  cluster_.kill_controller(1);
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << log_text();
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(newest_controller(cluster_.job_dir()).value()->node, kHead);
  expect_finish_undisturbed();
}

TEST_F(ClusterController, StartsWhatDiedWhileItWasAway) {
  start_job();
  kill_service();
  ::kill(static_cast<pid_t>(newest_controller(cluster_.job_dir()).value()->pid), SIGKILL);
  start_service();
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << log_text();
  expect_finish_undisturbed();
}

TEST_F(ClusterController, WithoutItAnAgentStartsTheSuccessor) {
  start_job();
  kill_service();
  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << cluster_.logs();
  EXPECT_NE(second->node, kHead);
  ASSERT_TRUE(runs()) << cluster_.logs();
  // Back again, it finds the successor and leaves the job to it.
  start_service();
  EXPECT_TRUE(test::eventually([&] { return listed().job() == 0; }, kPatienceMs)) << log_text();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 2U);
  expect_finish_undisturbed();
}

TEST_F(ClusterController, ARequeueReplacesTheController) {
  const auto first = admit();
  ASSERT_TRUE(first.ok()) << first.error().message;
  v1::Admission later = admission();
  later.set_restart_count(1);
  const auto second = admit_to_cluster(address_, later, kCall);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_NE(second->pid(), first->pid());
  EXPECT_NE(second->token(), first->token());
  EXPECT_EQ(newest_controller(cluster_.job_dir()).value()->restart_count, 1U);
  // What belongs to the life before is an echo.
  const auto echo = admit();
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(echo->pid(), second->pid());
}

TEST_F(ClusterController, RefusesWhatIsNotGenuine) {
  EXPECT_EQ(ask_with("").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ask_with("MUNGE:AwQFAAA=:").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const std::string credential = question();
  EXPECT_TRUE(ask_with(credential).ok());
  const grpc::Status replayed = ask_with(credential);
  EXPECT_EQ(replayed.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(replayed.error_message(), HasSubstr("Replayed"));
  const grpc::Status not_for_it = ask_with(question(::geteuid() + 1));
  EXPECT_THAT(not_for_it.error_message(), HasSubstr("Unauthorized"));
  const grpc::Status no_question = ask_with(munge_encode("", std::nullopt).value());
  EXPECT_EQ(no_question.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ClusterController, RefusesAnExpiredCredential) {
  if (::access("/usr/bin/munge", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/munge";
  const std::string file = directory_ / "credential";
  const pid_t munge = cluster_.spawn({"/usr/bin/munge", "--socket=" + munged_->socket(), "--ttl=1",
                                      "--no-input", "--output=" + file},
                                     directory_ / "munge.log");
  ASSERT_EQ(cluster_.wait_for(munge, kPatienceMs), 0);
  std::string credential = read_file(file).value();
  credential.pop_back();
  ::poll(nullptr, 0, 2'500);  // its time, in whole seconds
  EXPECT_THAT(ask_with(credential).error_message(), HasSubstr("Expired"));
}

TEST_F(ClusterController, RefusesWhatTheJobsOwnerMayNot) {
  v1::Admission wrong = admission();
  wrong.set_job_dir("/nonexistent/job");
  const auto absent = admit_to_cluster(address_, wrong, kCall);
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/job"));
  wrong.set_job_dir("job");
  EXPECT_FALSE(admit_to_cluster(address_, wrong, kCall).ok());
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a directory of another uid";
  const std::string other = directory_ / "other";
  ASSERT_EQ(::mkdir(other.c_str(), 0755), 0);
  ASSERT_EQ(::chown(other.c_str(), kNobody, kNobody), 0);
  wrong.set_job_dir(other);
  const auto others = admit_to_cluster(address_, wrong, kCall);
  ASSERT_FALSE(others.ok());
  EXPECT_EQ(others.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(others.error().message, HasSubstr("belongs to uid 65534"));
  EXPECT_EQ(listed().job(), 0U);
}

TEST_F(ClusterController, SaysThatMungedIsAway) {
  start_job();
  const std::string credential = question();
  munged_->stop();
  const auto client = list_cluster_jobs(address_, kCall);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message, HasSubstr("munged does not answer"));
  const grpc::Status server = ask_with(credential);
  EXPECT_EQ(server.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(server.error_message(), HasSubstr("munged does not answer"));
  munged_->start();
  expect_finish_undisturbed();
}

}  // namespace
}  // namespace hpctl
