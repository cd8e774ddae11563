// SPDX-License-Identifier: Apache-2.0
// The cluster's page shows each of two users the right jobs and what is known about their nodes. A
// session is worth no more than its uid is at the moment.
#include "controller/cluster/fleet_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>

#include "common/base/json.h"
#include "common/net/host_port.h"
#include "common/rpc/job_summary_wire.h"
#include "tests/support/hand_clock.h"
#include "tests/support/http_get.h"

namespace hpctl::cluster {
namespace {

using nlohmann::json;
using test::HandClock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr uid_t kAnna = 71'000;
constexpr uid_t kBert = 71'001;
constexpr uid_t kReader = 71'002;

JobSummary summary_of_job(uint64_t job, const std::string& state) {
  JobSummary summary;
  summary.job = JobId{job};
  summary.name = "job-" + std::to_string(job);
  summary.state = state;
  summary.taken_at = WallTime(100'000);
  summary.submitted_at = WallTime(40'000);
  summary.spent.start_ms = 10'000;
  summary.generation = 1;
  summary.step = 17;
  summary.nodes = {"n" + std::to_string(job), "shared"};
  summary.ranks = 4;
  return summary;
}

v1::ClusterJob listed(uid_t uid, const JobSummary& summary) {
  v1::ClusterJob job;
  job.set_uid(uid);
  job.set_job(summary.job.value);
  job.set_pid(1);
  fill(summary, *job.mutable_summary());
  return job;
}

class FleetAnswersTest : public ::testing::Test {
 protected:
  FleetAnswersTest() {
    JobSummary quarantined = summary_of_job(8, "RUNNING");
    quarantined.margins.emplace().quarantined = {"n8"};
    jobs_ = {listed(kAnna, summary_of_job(7, "RUNNING")),
             listed(kAnna, summary_of_job(9, "FAILED")),
             listed(kBert, summary_of_job(7, "RECOVERING")), listed(kBert, quarantined)};
    jobs_[1].mutable_summary()->set_ended_wall_ms(90'000);
    clock_.now_ms = 100'000;
  }
  json ask(uid_t uid, const std::string& path, const std::string& id = "") {
    const auto answer = answers_.answer(uid, {path, id, ""});
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return json::parse(answer.value());
  }
  std::vector<std::string> keys(uid_t uid) {
    std::vector<std::string> keys;
    const json answer = ask(uid, "/api/jobs");
    for (const json& job : answer.at("jobs")) keys.push_back(job.at("key"));
    return keys;
  }

  HandClock clock_;
  std::vector<v1::ClusterJob> jobs_;
  std::vector<FleetLemon> lemons_ = {{{"n1", "i-1", 4, 2, "Xid 79"}, 2, false},
                                     {{"n2", "", 0.5, 1, "a worker ended"}, 1, false}};
  int pictures_ = 0;
  FleetAnswers answers_{[this] {
                          ++pictures_;
                          return jobs_;
                        },
                        [this] { return lemons_; },
                        [](uid_t uid) { return uid == 0 || uid == kReader; },
                        clock_,
                        "head",
                        "x"};
};

TEST_F(FleetAnswersTest, EachIsShownWhatHeMaySee) {
  EXPECT_THAT(keys(kAnna), ElementsAre("71000.7", "71000.9"));
  EXPECT_THAT(keys(kBert), ElementsAre("71001.7", "71001.8"));
  EXPECT_THAT(keys(71'003), IsEmpty());
  for (const uid_t all : {uid_t{0}, kReader}) {
    EXPECT_THAT(keys(all), ElementsAre("71000.7", "71000.9", "71001.7", "71001.8"));
  }
  // Two jobs may have one number.
  EXPECT_EQ(ask(kAnna, "/api/job", "71000.7").at("state"), "RUNNING");
  EXPECT_EQ(ask(kReader, "/api/job", "71001.7").at("state"), "RECOVERING");
  for (const char* id : {"71001.7", "71001.8", "71000.10", "7", ""}) {
    const auto refused = answers_.answer(kAnna, {"/api/job", id, ""});
    ASSERT_FALSE(refused.ok()) << id;
    EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  }
  // Only the owner has the page of the job itself.
  EXPECT_EQ(ask(kAnna, "/api/job", "71000.7").at("commands")[0][0], "hpctl open 7");
  EXPECT_EQ(ask(kReader, "/api/job", "71000.7").at("commands")[0][0], "hpctl status 7");
  EXPECT_EQ(ask(kAnna, "/api/job", "71000.9").at("commands")[0][0], "hpctl status 9");
}

TEST_F(FleetAnswersTest, NodesAreThoseOfTheJobsThatOneSees) {
  // A job that is over has none.
  EXPECT_EQ(ask(kAnna, "/api/jobs").at("node_rows"),
            json::parse(R"([["n7", [0], ""], ["shared", [0], ""]])"));
  EXPECT_EQ(ask(0, "/api/jobs").at("node_rows"),
            json::parse(R"([["n7", [0, 2], ""], ["n8", [3], "in quarantine"],
                            ["shared", [0, 2, 3], ""]])"));
  // Everybody may know which machines are bad, and not who said it.
  EXPECT_EQ(ask(0, "/api/jobs").at("lemons"), json::parse(R"([["n1", 4.0, "Xid 79"]])"));
  EXPECT_EQ(ask(kBert, "/api/jobs").at("lemons"), json::parse(R"([["n1", 4.0, ""]])"));
}

TEST_F(FleetAnswersTest, FindingsAreAsHpctlWatchTellsThem) {
  const json jobs = ask(0, "/api/jobs").at("jobs");
  EXPECT_THAT(jobs[0].at("findings"), IsEmpty());
  EXPECT_EQ(jobs[1].at("findings")[0][0], "critical") << jobs[1];
  EXPECT_EQ(jobs[3].at("findings")[0][0], "warn") << jobs[3];
  EXPECT_THAT(jobs[3].at("findings")[0][1], HasSubstr("n8 is in quarantine"));
  // Since when it is so does not move with each picture.
  clock_.now_ms += 5'000;
  EXPECT_EQ(ask(0, "/api/jobs").at("jobs")[3].at("findings"), jobs[3].at("findings"));
}

TEST_F(FleetAnswersTest, OnePictureASecondIsTakenHoweverManyLook) {
  for (int i = 0; i < 10; ++i) ask(kAnna, "/api/jobs");
  ask(kBert, "/api/job", "71001.8");
  EXPECT_EQ(pictures_, 1);
  clock_.now_ms += FleetAnswers::kPictureMs;
  ask(kAnna, "/api/jobs");
  EXPECT_EQ(pictures_, 2);
}

TEST_F(FleetAnswersTest, OfVeryManyNodesThatAreNamedSomeAreShown) {
  jobs_.clear();
  JobSummary vast = summary_of_job(1, "RUNNING");
  vast.nodes.clear();
  for (size_t i = 0; i < FleetAnswers::kMostNodesShown * 3 / 4; ++i) {
    vast.nodes.push_back("a" + std::to_string(i));
  }
  jobs_.push_back(listed(kAnna, vast));
  for (std::string& name : vast.nodes) name.front() = 'b';
  vast.job = JobId{2};
  jobs_.push_back(listed(kAnna, vast));
  EXPECT_THAT(ask(kAnna, "/api/jobs").at("node_rows"), SizeIs(FleetAnswers::kMostNodesShown));
}

// A session over HTTP.
class FleetPageTest : public ::testing::Test {
 protected:
  // What a browser gets that follows a link for this uid.
  std::string jobs_for(uid_t uid) {
    const std::string url = page_.link(uid, uid).value();
    const size_t path = url.find("/open?");
    const size_t host = std::string_view("http://").size();
    const uint16_t port = HostPort::parse(url.substr(host, path - host)).value().port;
    const std::string answer = http_get(port, url.substr(path));
    std::smatch cookie;
    EXPECT_TRUE(std::regex_search(answer, cookie, std::regex("Set-Cookie: ([^;]*);"))) << answer;
    return http_get(port, "/api/jobs", "Cookie: " + cookie[1].str() + "\r\n");
  }

  HandClock clock_;
  FleetPage page_{
      [] {
        return std::vector<v1::ClusterJob>{listed(kAnna, summary_of_job(7, "RUNNING")),
                                           listed(kBert, summary_of_job(8, "RUNNING"))};
      },
      [] { return std::vector<FleetLemon>{}; },
      {OperatorAcl::parse("", "").value(), OperatorAcl::parse(std::to_string(kReader), "").value()},
      "",
      clock_,
      "head"};
};

TEST_F(FleetPageTest, ASessionShowsWhatItsUidMaySee) {
  EXPECT_THAT(jobs_for(kAnna), HasSubstr("job-7"));
  EXPECT_THAT(jobs_for(kAnna), Not(HasSubstr("job-8")));
  EXPECT_THAT(jobs_for(kBert), Not(HasSubstr("job-7")));
  for (const uid_t all : {kReader, uid_t{0}, ::geteuid()}) {
    EXPECT_THAT(jobs_for(all), HasSubstr("job-7"));
    EXPECT_THAT(jobs_for(all), HasSubstr("job-8"));
  }
  page_.stop();
  EXPECT_FALSE(page_.link(kAnna, kAnna).ok());
}

}  // namespace
}  // namespace hpctl::cluster
