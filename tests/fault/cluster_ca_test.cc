// SPDX-License-Identifier: Apache-2.0
// A cluster controller with an authority of its own, and everybody who calls it: hpctl, the batch
// script's proxy, agents. Who has a bundle goes by it; nobody goes on without the proof.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/job_files.h"
#include "common/rpc/cluster_client.h"
#include "tests/fault/cluster_service.h"

namespace hpctl {
namespace {

using test::kCall;
using test::kHead;
using test::kPatienceMs;
using test::kSecondHead;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ClusterCa : public test::ClusterController {
 protected:
  void SetUp() override {
    ClusterController::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    kill_service();
    ca("make", kHead);
    ca("make", kSecondHead);
    start_service({}, {"--ca", ca_of(kHead), "--plain-listen", plain_port_.address()});
    believe({kHead});
    ::setenv("HPCTL_CLUSTER_CA", bundle_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("HPCTL_CLUSTER_CA");
    ClusterController::TearDown();
  }

  std::string ca_of(const std::string& head) const { return directory_ / ("ca-" + head); }
  nlohmann::json ca(const std::string& what, const std::string& head,
                    std::vector<std::string> words = {}) {
    words.insert(words.begin(), {"ca", what, "--dir", ca_of(head), "--json"});
    const Said said = hpctl_of({}, words);
    EXPECT_EQ(said.code, 0) << said.text;
    const size_t begin = said.text.find('{');
    return nlohmann::json::parse(said.text.substr(std::min(begin, said.text.size())), nullptr,
                                 false);
  }
  // The callers' copy: the bundles of these heads.
  void believe(const std::vector<std::string>& heads) const {
    std::string text;
    for (const std::string& head : heads) text += read_file(ca_of(head) + "/bundle.pem").value();
    ASSERT_TRUE(write_file_atomic(bundle_, text).ok());
  }
  std::string why_not_listed(const std::string& address) const {
    const auto list = list_cluster_jobs(address, kCall);
    return list.ok() ? "" : list.error().message;
  }
  void start_second() {
    second_service_ = spawn_service(
        {kSecondHead, second_port_.address(), directory_ / "state2", directory_ / "second.log"}, {},
        {"--ca", ca_of(kSecondHead)});
    ::setenv("HPCTL_CLUSTER", (address_ + "," + second_port_.address()).c_str(), 1);  // of agents
  }
  void lose_first_head() {
    kill_service();
    cluster_.kill_controller(1);
    ::unsetenv("HPCTL_CLUSTER");
  }

  const std::string bundle_ = directory_ / "ca.pem";
  const test::LoopbackPort plain_port_;
  const test::LoopbackPort second_port_;
  pid_t second_service_ = -1;
};

TEST_F(ClusterCa, AJobRunsByIt) {
  const pid_t batch_proxy = start_batch_proxy(address_);
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record) << log_text() << read_file(directory_ / "stand-in.log").value();
  EXPECT_EQ(record->node, kHead);
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(everything_seen_by({}).at("jobs").size(), 1U);
  expect_finish_undisturbed();
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFinished);
}

TEST_F(ClusterCa, HpctlGoesByItsBundleAlone) {
  EXPECT_EQ(hpctl_of({}, {"ps", "-A"}).code, 0);

  believe({kSecondHead});
  const Said refused = hpctl_of({}, {"ps", "-A"});
  EXPECT_EQ(refused.code, 3) << refused.text;
  EXPECT_THAT(refused.text, AllOf(HasSubstr("the cluster controller at " + address_ +
                                            " does not prove by " + bundle_ + " who it is"),
                                  HasSubstr("copy the head node's bundle")));
  ASSERT_TRUE(remove_tree(bundle_).ok());
  const Said lost = hpctl_of({}, {"ps", "-A"});
  EXPECT_EQ(lost.code, 3) << lost.text;
  EXPECT_THAT(lost.text, AllOf(HasSubstr("cannot open " + bundle_), HasSubstr("HPCTL_CLUSTER_CA")));
}

TEST_F(ClusterCa, ThePortForThoseWithoutABundleIsForThemAlone) {
  EXPECT_EQ(why_not_listed(address_), "");
  EXPECT_THAT(why_not_listed(plain_port_.address()), HasSubstr(" speaks no TLS"));
  ::unsetenv("HPCTL_CLUSTER_CA");
  EXPECT_EQ(why_not_listed(plain_port_.address()), "");
  EXPECT_THAT(why_not_listed(address_), HasSubstr(address_ + " speaks TLS"));
}

// Of the second head, whose authority is another one.
TEST_F(ClusterCa, AnAgentAsksAHeadThatItsBundleProves) {
  believe({kHead, kSecondHead});
  start_second();
  start_job();
  lose_first_head();
  const auto record = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(record) << cluster_.logs();
  EXPECT_EQ(record->node, kSecondHead) << cluster_.logs();
  expect_finish_undisturbed_at(second_port_.address());
}

TEST_F(ClusterCa, AnAgentDoesNotAskOneThatItDoesNotProve) {
  start_second();
  start_job();
  lose_first_head();
  const auto record = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(record) << cluster_.logs();
  EXPECT_THAT(record->node, Not(kSecondHead));
  const auto is_said = [&] {
    return cluster_.logs().find(" does not prove by " + bundle_) != std::string::npos;
  };
  EXPECT_TRUE(test::eventually(is_said, kPatienceMs)) << cluster_.logs();
  ASSERT_TRUE(runs()) << "its node has the successor\n" << cluster_.logs();
  believe({kSecondHead});
  expect_finish_undisturbed_at(second_port_.address());
}

TEST_F(ClusterCa, ABatchScriptRunsTheControllerItselfRatherThanAskAnybody) {
  believe({kSecondHead});
  const pid_t batch_proxy = start_batch_proxy(address_);
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record) << log_text();
  EXPECT_EQ(record->node, "n0");
  await_line("stand-in.log", " does not prove by " + bundle_);
  await_line("stand-in.log", "the job's controller runs here instead");
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  believe({kHead});
  expect_finish_undisturbed();
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFinished);
}

TEST_F(ClusterCa, IsRotatedWhileAJobRuns) {
  start_job();
  const nlohmann::json before = ca("show", kHead);
  EXPECT_EQ(before.at("rotation"), nullptr);
  const nlohmann::json after = ca("rotate", kHead, {"--spread", "0"});
  EXPECT_EQ(after.at("changed"), true);
  EXPECT_EQ(after.at("authorities").size(), 2U);
  EXPECT_EQ(after.at("authorities")[1].at("sha256"), before.at("authorities")[0].at("sha256"));
  EXPECT_EQ(after.at("authorities")[0].at("signs"), true);
  // The copy is the old one: as soon as the new authority signs, it proves nothing any more.
  const auto is_refused = [&] { return !why_not_listed(address_).empty(); };
  EXPECT_TRUE(test::eventually(is_refused, kPatienceMs)) << log_text();
  believe({kHead});
  EXPECT_EQ(why_not_listed(address_), "");
  EXPECT_EQ(ca("rotate", kHead).at("changed"), false) << "one follows already";
  // The service has the same process, and the job is undisturbed.
  await_line("service.log",
             "certificates are of " + after.at("authorities")[0].at("name").get<std::string>());
  expect_finish_undisturbed();
}

TEST_F(ClusterCa, WithoutItsAuthorityItDoesNotBegin) {
  kill_service();
  const std::string out = directory_ / "refused";
  const pid_t started =
      cluster_.spawn({test::program("hpcontroller"), "--cluster", "--listen", address_,
                      "--state-dir", directory_ / "state", "--ca", directory_ / "none"},
                     out);
  EXPECT_EQ(cluster_.wait_for(started, kPatienceMs), 1);
  EXPECT_THAT(read_file(out).value(),
              AllOf(HasSubstr("there is no authority in " + (directory_ / "none")),
                    HasSubstr("hpctl ca make --dir")));
}

}  // namespace
}  // namespace hpctl
