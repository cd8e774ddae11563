// SPDX-License-Identifier: Apache-2.0
// Readers and operators, appointed at the cluster controller, with a real munged: what they see of
// another's job and may do with its nodes, what they may not, and what the audit logs say of it.
// The job is root's; who is appointed is nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/net/role_token.h"
#include "common/rpc/munge.h"
#include "tests/fault/cluster_service.h"
#include "tests/support/whole_lines.h"

namespace hpctl {
namespace {

using test::as_nobody;
using test::kCall;
using test::kPatienceMs;
using ::testing::HasSubstr;
using ::testing::Not;

class ClusterRoles : public test::ClusterController {
 protected:
  ClusterRoles() : ClusterController(test::job_with_a_spare()) {}
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: to be somebody else as well";
    ClusterController::SetUp();
  }
  void start_with(const std::vector<std::string>& options) {
    kill_service();
    start_service({}, options);
    start_job();
  }
  std::string job() const { return to_string(cluster_.job()); }
  Said nobodys(const std::vector<std::string>& words) { return hpctl_of(as_nobody(), words); }
  // "CALL ROLE UID OUTCOME" of each line.
  static std::vector<std::string> audited(const std::string& path) {
    std::vector<std::string> lines;
    const auto text = read_file(path);
    for (const std::string& line : test::whole_lines(text.ok() ? *text : "")) {
      const auto entry = nlohmann::json::parse(line);
      lines.push_back(entry.at("call").get<std::string>() + " " + entry.value("role", "-") + " " +
                      std::to_string(entry.value("uid", -1L)) + " " +
                      entry.at("outcome").get<std::string>());
    }
    return lines;
  }
  void expect_audited(const std::string& path, const std::string& line) const {
    const auto has = [&] {
      const auto lines = audited(path);
      return std::find(lines.begin(), lines.end(), line) != lines.end();
    };
    EXPECT_TRUE(test::eventually(has, kPatienceMs)) << line << "\n" << read_file(path).value();
  }
  std::string audit_of_service() const { return directory_ / "state/audit.jsonl"; }
  std::string audit_of_job() const { return paths().audit_log(); }
  // The token that nobody was given, by asking as he does.
  v1::ClusterJob opened_by_root() const {
    const auto answers = open_job_at_each(address_, cluster_.job(), kCall);
    EXPECT_TRUE(answers.at(0).ok() && answers[0]->jobs_size() == 1);
    return answers[0].ok() && answers[0]->jobs_size() == 1 ? answers[0]->jobs(0) : v1::ClusterJob();
  }
};

TEST_F(ClusterRoles, AUserSeesNothingOfAnothersJob) {
  start_with({});
  const Said status = nobodys({"status", job()});
  EXPECT_EQ(status.code, 1) << status.text;
  EXPECT_THAT(status.text, HasSubstr("no job"));
  EXPECT_EQ(nobodys({"nodes", "quarantine", "n1", "--job", job()}).code, 1);
  EXPECT_TRUE(everything_seen_by(as_nobody()).at("jobs").empty());
  expect_audited(audit_of_service(), "OpenJob user 65534 PERMISSION_DENIED");
  expect_audited(audit_of_service(), "Admit administrator 0 OK");
  expect_finish_undisturbed();
}

TEST_F(ClusterRoles, AReaderLooksAndGivesNoOrders) {
  start_with({"--readers", "nobody"});
  const Said status = nobodys({"status", job()});
  EXPECT_EQ(status.code, 0) << status.text;
  EXPECT_THAT(status.text, HasSubstr("RUNNING"));
  EXPECT_EQ(nobodys({"why", job()}).code, 0);
  const auto seen = everything_seen_by(as_nobody());
  EXPECT_EQ(seen.at("all_users"), true);
  ASSERT_EQ(seen.at("jobs").size(), 1U);
  const Said order = nobodys({"nodes", "quarantine", "n1", "--job", job()});
  EXPECT_EQ(order.code, 1) << order.text;
  EXPECT_THAT(order.text, HasSubstr("a reader"));
  expect_audited(audit_of_service(), "OpenJob reader 65534 OK");
  expect_audited(audit_of_job(), "QuarantineNode reader 65534 PERMISSION_DENIED");
  const Said refused =
      hpctl_of({}, {"audit", "--file", audit_of_job(), "--refused", "--who", "nobody"});
  EXPECT_EQ(refused.code, 0) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("refused  put a node into quarantine"));
  EXPECT_EQ(hpctl_of(as_nobody(), {"audit", "--file", audit_of_service()}).code, 1);
  expect_finish_undisturbed();
}

TEST_F(ClusterRoles, AnOperatorOrdersAboutNodesAndNotAboutTheJob) {
  start_with({"--operators", "%nogroup"});
  const Said quarantined =
      nobodys({"nodes", "quarantine", "n1", "--job", job(), "--reason", "link flaps"});
  EXPECT_EQ(quarantined.code, 0) << quarantined.text;
  const auto status = cluster_.status();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->nodes(1).role(), "quarantined");
  EXPECT_THAT(status->nodes(1).note(), HasSubstr("link flaps"));
  EXPECT_THAT(nobodys({"events", job()}).text, HasSubstr("uid 65534 quarantines n1"));
  EXPECT_EQ(nobodys({"nodes", "release", "n1", "--job", job()}).code, 0);
  EXPECT_NE(nobodys({"cancel", job()}).code, 0);
  EXPECT_NE(nobodys({"open", job()}).code, 0);
  expect_audited(audit_of_service(), "OpenJob operator 65534 OK");
  expect_audited(audit_of_job(), "QuarantineNode operator 65534 OK");
  expect_audited(audit_of_job(), "ReleaseNode operator 65534 OK");
  expect_finish_undisturbed();
}

// What steers the job is not in what an appointed one is given, and counts for an hour only; who
// has left the list gets no other.
TEST_F(ClusterRoles, TheTokenOfAnOperatorIsNotTheJobs) {
  start_with({"--operators", "65534"});
  const v1::ClusterJob opened = opened_by_root();
  EXPECT_EQ(opened.role(), "operator");
  EXPECT_THAT(opened.token(), Not(HasSubstr(listed().token())));
  const auto stub = v1::Controller::NewStub(
      connect_address(opened.address(), opened.certificate(), opened.token()).value());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCall);
  v1::CancelRequest request;
  request.set_job(job());
  v1::CancelResponse response;
  EXPECT_EQ(stub->Cancel(&context, request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_FALSE(accepts(opened.address(), opened.certificate(),
                       "owner" + opened.token().substr(sizeof "operator" - 1)));
  kill_service();
  start_service();
  EXPECT_EQ(nobodys({"nodes", "quarantine", "n1", "--job", job()}).code, 1);
  EXPECT_TRUE(accepts(opened.address(), opened.certificate(), opened.token()))
      << "a job's controller is asked to forget nobody";
  expect_finish_undisturbed();
}

// The token of an admission that is over opens nothing at the next.
TEST_F(ClusterRoles, AnOldTokenOpensNothing) {
  start_with({});
  const v1::ClusterJob first = listed();
  const v1::ClusterJob opened = opened_by_root();
  v1::Admission later = admission();
  later.set_restart_count(1);
  const auto second = admit_to_cluster(address_, later, kCall);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(accepts(second->address(), second->certificate(), second->token()));
  for (const std::string& old : {first.token(), opened.token(), agent_token(first.token())}) {
    EXPECT_FALSE(accepts(second->address(), second->certificate(), old));
  }
}

// Everybody may have a link to the page of all jobs, where each sees what he may; who got one is
// known.
TEST_F(ClusterRoles, ALinkToThePageIsGivenToEachAndWrittenDown) {
  const test::LoopbackPort page;
  start_with({"--page", page.address()});
  const Said link = nobodys({"open", "-A"});
  EXPECT_EQ(link.code, 0) << link.text;
  EXPECT_THAT(link.text, HasSubstr("http://" + page.address() + "/open?code="));
  const Said json = nobodys({"open", "-A", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.text).at("node"), test::kHead) << json.text;
  expect_audited(audit_of_service(), "OpenPage user 65534 OK");
  EXPECT_EQ(nobodys({"open", "-A", job()}).code, 2);
  EXPECT_EQ(nobodys({"open", job()}).code, 1) << "the job's own page is its owner's";
  kill_service();
  const Said nothing = nobodys({"open", "-A"});
  EXPECT_EQ(nothing.code, 3) << nothing.text;
  start_service();
  expect_finish_undisturbed();
}

TEST_F(ClusterRoles, AListThatIsNoneIsNoReasonToServe) {
  kill_service();
  const pid_t service =
      cluster_.spawn({test::program("hpcontroller"), "--cluster", "--listen", address_,
                      "--state-dir", directory_ / "state", "--operators", "alice bob"},
                     directory_ / "wrong");
  EXPECT_EQ(cluster_.wait_for(service, kPatienceMs), 1);
  EXPECT_THAT(read_file(directory_ / "wrong").value(), HasSubstr("--operators or HPCTL_OPERATORS"));
}

// Of strangers, too: genuine credentials that are no question, and what is no credential.
TEST_F(ClusterRoles, RefusalsAreWrittenDownAndBounded) {
  start_with({});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(ask_with("MUNGE:AwQFAAA=:").ok());
  EXPECT_FALSE(ask_with(munge_encode("", std::nullopt).value()).ok());
  expect_audited(audit_of_service(), "further refused calls - -1 REFUSED");
  EXPECT_LT(audited(audit_of_service()).size(), 50U);
  EXPECT_THAT(read_file(audit_of_service()).value(),
              HasSubstr(R"("outcome":"PERMISSION_DENIED","why":"munge refuses)"));
  expect_finish_undisturbed();
}

}  // namespace
}  // namespace hpctl
