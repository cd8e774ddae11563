// SPDX-License-Identifier: Apache-2.0
// Lemons over homes, with a real munged: what an operator's check says against a machine is known
// to all and to whom the cluster controller starts a controller for, and another check clears it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/fault/cluster_service.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::as_nobody;
using test::kCall;
using test::kPatienceMs;
using ::testing::HasSubstr;

class ClusterLemons : public test::ClusterController {
 protected:
  ClusterLemons() : ClusterController(test::job_with_a_spare()) {}
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: to be somebody else as well";
    ClusterController::SetUp();
  }
  json lemons_seen_by(const std::vector<std::string>& who) {
    const Said said = hpctl_of(who, {"nodes", "lemons", "-A", "--json"});
    EXPECT_EQ(said.code, 0) << said.text;
    return json::parse(said.text, nullptr, false).value("nodes", json::array());
  }
  Outcome judge(const std::string& node, bool passed) const {
    v1::NodeJudgement judgement;
    judgement.set_node(node);
    judgement.set_passed(passed);
    judgement.set_reason("memory: 3 bits flipped");
    return judge_node_at_each(address_, judgement, kCall);
  }
  // A judgement with a credential that somebody else has made.
  grpc::Status judge_with(const std::string& credential) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCall);
    v1::ClusterCall call;
    call.set_credential(credential);
    v1::ClusterAnswer answer;
    return v1::Cluster::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()))
        ->JudgeNode(&context, call, &answer);
  }
  std::string node_with_ranks() const {
    const auto status = cluster_.status();
    return status && status->workers_size() > 0 ? status->workers(0).node() : "none";
  }
};

// Once that made two points against n0: its machine is well.
TEST_F(ClusterLemons, AKilledProcessIsNoEvidenceAgainstItsMachine) {
  start_job();
  cluster_.kill_holder("n0");
  const auto has_recovered = [&] {
    const auto status = cluster_.status();
    return status && status->restarts() >= 1 && status->state() == "RUNNING";
  };
  ASSERT_TRUE(test::eventually(has_recovered, kPatienceMs)) << cluster_.logs();
  EXPECT_EQ(lemons_seen_by({}), json::array());
}

TEST_F(ClusterLemons, AJudgementIsKnownToAllAndOutlivesTheService) {
  EXPECT_EQ(lemons_seen_by(as_nobody()), json::array());
  ASSERT_TRUE(judge("n0", false).ok());
  const json seen = lemons_seen_by({});
  ASSERT_EQ(seen.size(), 1U) << seen.dump();
  EXPECT_EQ(seen[0].at("name"), "n0");
  EXPECT_EQ(seen[0].at("lemon"), true);
  EXPECT_THAT(seen[0].at("reason").get<std::string>(), HasSubstr("3 bits flipped"));
  EXPECT_EQ(lemons_seen_by(as_nobody()).size(), 1U);
  ::kill(service_, SIGTERM);
  ASSERT_TRUE(cluster_.wait_for(service_, kPatienceMs));
  start_service();
  EXPECT_EQ(lemons_seen_by({}).size(), 1U);
  ASSERT_TRUE(judge("n0", true).ok());
  EXPECT_EQ(lemons_seen_by({}), json::array()) << "an operator has checked it";
}

TEST_F(ClusterLemons, ANewControllerIsToldAndTheLemonIsTheSpare) {
  const Outcome judged = judge("n0", false);
  ASSERT_TRUE(judged.ok()) << judged.error().message;
  const json seen = lemons_seen_by(as_nobody());
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].at("lemon"), true);
  EXPECT_EQ(seen[0].at("checked"), true);
  start_job();
  EXPECT_EQ(node_with_ranks(), "n1");
}

TEST_F(ClusterLemons, WhoIsNoOperatorJudgesNobody) {
  v1::NodeJudgement judgement;
  judgement.set_nonce("n");
  judgement.set_node("n0");
  judgement.set_passed(true);
  const std::string payload = directory_ / "payload";
  ASSERT_TRUE(write_file_atomic(payload, judgement.SerializeAsString()).ok());
  ASSERT_EQ(::chmod(payload.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  std::vector<std::string> argv = as_nobody();
  for (const std::string& word :
       {std::string("/usr/bin/munge"), "--socket=" + munged_->socket(), "--input=" + payload}) {
    argv.push_back(word);
  }
  const std::string out = directory_ / "credential";
  ASSERT_EQ(cluster_.wait_for(cluster_.spawn(argv, out), kPatienceMs), 0);
  std::string credential = read_file(out).value();
  while (credential.ends_with('\n')) credential.pop_back();
  const grpc::Status refused = judge_with(credential);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED) << refused.error_message();
  const auto is_audited = [&] {
    const auto audit = read_file(directory_ / "state/audit.jsonl");
    return audit.ok() && audit->find("JudgeNode") != std::string::npos;
  };
  EXPECT_TRUE(test::eventually(is_audited, kPatienceMs)) << "a refusal is written down";
  judgement.set_node("../n0");
  const auto own = munge_encode(judgement.SerializeAsString(), std::nullopt);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(judge_with(*own).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace hpctl
