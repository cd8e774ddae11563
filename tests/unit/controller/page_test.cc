// SPDX-License-Identifier: Apache-2.0
// The status page's server by itself: who gets in, who does not, and what a browser is told; and
// the samples of its plots. The page in a browser is tests/integration/page_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "common/net/host_port.h"
#include "controller/page/page_access.h"
#include "controller/page/page_history.h"
#include "controller/page/page_server.h"
#include "tests/support/hand_clock.h"
#include "tests/support/http_get.h"

namespace hpctl {
namespace {

using test::HandClock;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(PageAccess, ACodeCountsOnceAndItsSessionIsOfItsUid) {
  const HandClock clock;
  PageAccess access(clock);
  const std::string code = access.make_code(7).value();
  const std::string other = access.make_code(8).value();
  EXPECT_NE(code, other);
  EXPECT_EQ(access.of(code), std::nullopt) << "a code is no session";
  const auto session = access.redeem(code);
  ASSERT_TRUE(session);
  EXPECT_EQ(access.of(*session), 7U);
  EXPECT_EQ(access.redeem(code), std::nullopt);
  EXPECT_EQ(access.redeem(*session), std::nullopt);
  for (const char* nobody : {"", "0", "ffffffffffffffffffffffffffffffff"}) {
    EXPECT_EQ(access.redeem(nobody), std::nullopt);
    EXPECT_EQ(access.of(nobody), std::nullopt);
  }
  EXPECT_EQ(access.of(*access.redeem(other)), 8U);
}

TEST(PageAccess, CodesAndSessionsEnd) {
  HandClock clock;
  PageAccess access(clock);
  const std::string late = access.make_code(7).value();
  clock.now_ms += PageAccess::kCodeMs - 1;
  const auto session = access.redeem(access.make_code(7).value());
  clock.now_ms += 1;
  EXPECT_EQ(access.redeem(late), std::nullopt);
  ASSERT_TRUE(session);
  clock.now_ms += PageAccess::kSessionMs - 2;
  EXPECT_EQ(access.of(*session), 7U);
  clock.now_ms += 1;
  EXPECT_EQ(access.of(*session), std::nullopt);
}

TEST(PageAccess, TheOldestOfAUidGivesWayAndNobodyElses) {
  const HandClock clock;
  PageAccess access(clock);
  const std::string others = access.make_code(2).value();
  const std::string first = access.make_code(1).value();
  const std::string second = access.make_code(1).value();
  for (size_t i = 2; i <= PageAccess::kMostCodes; ++i) EXPECT_TRUE(access.make_code(1).ok());
  EXPECT_EQ(access.redeem(first), std::nullopt);
  EXPECT_TRUE(access.redeem(second));
  EXPECT_TRUE(access.redeem(others));
}

TEST(PageAccess, AreBoundedHoweverManyAsk) {
  const HandClock clock;
  PageAccess access(clock);
  const std::string first = access.make_code(0).value();
  const std::string second = access.make_code(1).value();
  for (uint32_t uid = 2; uid <= PageAccess::kMostOfAll; ++uid) {
    ASSERT_TRUE(access.make_code(uid).ok());
  }
  EXPECT_EQ(access.redeem(first), std::nullopt);
  EXPECT_TRUE(access.redeem(second));
}

TEST(PageHistory, KeepsAWholeJobInFewSamples) {
  PageHistory history;
  constexpr int64_t kSeconds = 100'000;
  for (int64_t i = 0; i <= kSeconds; ++i) {
    history.add(JobId{3}, {i * 1'000, static_cast<uint64_t>(i), 1.0, 2.0, 0.5});
    ASSERT_LT(history.of(JobId{3}).size(), PageHistory::kMostSamples);
  }
  const auto& samples = history.of(JobId{3});
  EXPECT_GE(samples.size(), PageHistory::kMostSamples / 3);
  EXPECT_EQ(samples.front().wall_ms, 0);
  EXPECT_GE(samples.back().wall_ms, (kSeconds - 600) * 1'000);
  for (size_t i = 1; i < samples.size(); ++i) {
    EXPECT_GT(samples[i].wall_ms, samples[i - 1].wall_ms);
  }
  EXPECT_TRUE(history.of(JobId{4}).empty());
}

TEST(PageHistory, AnEndedJobIsForgottenOnceManyHaveEndedSince) {
  PageHistory history;
  for (uint64_t job = 1; job <= 100; ++job) {
    history.add(JobId{job}, {1'000, 1, 1.0, 2.0, 0.5});
    history.end(JobId{job});
  }
  EXPECT_TRUE(history.of(JobId{1}).empty());
  EXPECT_EQ(history.of(JobId{100}).size(), 1U);
}

class PageServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = PageServer::open("127.0.0.1:0", access_, [this](uint32_t uid, const auto& asked) {
      asked_.push_back(std::to_string(uid) + " " + asked.path + " " + asked.id + " " + asked.after);
      if (asked.id == "9") return Result<std::string>(Error{ErrorCode::kNotFound, "no job 9"});
      return Result<std::string>("{\"a\":1}");
    });
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    port_ = HostPort::parse(server_->url().substr(std::string_view("http://").size()))->port;
  }
  // The Cookie header that a browser sends after following a link.
  std::string signed_in() {
    const std::string answer = http_get(port_, "/open?code=" + access_.make_code(7).value());
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 303 "));
    std::smatch cookie;
    EXPECT_TRUE(std::regex_search(
        answer, cookie,
        std::regex("Set-Cookie: (hpctl_[0-9]+=[0-9a-f]{32}); HttpOnly; SameSite=Strict; Path=/")));
    return "Cookie: a=b; " + cookie[1].str() + "\r\n";
  }

  const HandClock clock_;
  PageAccess access_{clock_};
  std::vector<std::string> asked_;
  std::unique_ptr<PageServer> server_;
  uint16_t port_ = 0;
};

TEST_F(PageServerTest, WhoFollowedALinkSeesThePageAndWhatItAsksFor) {
  const std::string cookie = signed_in();
  const std::string page = http_get(port_, "/", cookie);
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK"));
  std::smatch nonce;
  ASSERT_TRUE(std::regex_search(page, nonce, std::regex("script-src 'nonce-([0-9a-f]{32})'")));
  EXPECT_THAT(page, HasSubstr("<script nonce=\"" + nonce[1].str() + "\" src=\"/page.js\">"));
  EXPECT_THAT(page, Not(HasSubstr("{{NONCE}}")));
  EXPECT_THAT(page, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe")));
  EXPECT_THAT(http_get(port_, "/", cookie), Not(HasSubstr(nonce[1].str())));

  EXPECT_THAT(http_get(port_, "/api/jobs", cookie), HasSubstr("\r\n\r\n{\"a\":1}"));
  EXPECT_THAT(http_get(port_, "/api/events?id=3&after=17", cookie), HasSubstr("200 OK"));
  EXPECT_THAT(http_get(port_, "/api/job?id=9", cookie), HasSubstr("404 Not Found"));
  EXPECT_EQ(asked_,
            (std::vector<std::string>{"7 /api/jobs  ", "7 /api/events 3 17", "7 /api/job 9 "}));
  EXPECT_EQ(server_->requests(), 5U);
  EXPECT_THAT(http_get(port_, "/etc/passwd", cookie), HasSubstr("404 Not Found"));
}

// The page loads them, and nothing from elsewhere.
TEST_F(PageServerTest, ScriptsAreServedInASessionOnly) {
  const std::string cookie = signed_in();
  const std::string page = http_get(port_, "/", cookie);
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  for (const char* path : {"/uplot.js", "/uplot.css", "/plots.js", "/page.js"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\"") + path + "\"")) << path;
    EXPECT_THAT(http_get(port_, path, cookie), StartsWith("HTTP/1.1 200 OK")) << path;
    EXPECT_THAT(http_get(port_, path), StartsWith("HTTP/1.1 401 ")) << path;
  }
  EXPECT_THAT(http_get(port_, "/uplot.js", cookie), HasSubstr("Content-Type: text/javascript"));
}

TEST_F(PageServerTest, QuestionsCarryTheirParameters) {
  std::vector<std::string> found;
  const auto server = PageServer::open("127.0.0.1:0", access_, [&](uint32_t, const auto& asked) {
    found = {asked.from, asked.to, asked.points, asked.rank, asked.lines};
    return Result<std::string>("{}");
  });
  ASSERT_TRUE(server.ok()) << server.error().message;
  const std::string url = (*server)->url();
  const uint16_t port = HostPort::parse(url.substr(std::string_view("http://").size()))->port;
  const std::string answer = http_get(port, "/open?code=" + access_.make_code(7).value());
  std::smatch cookie;
  ASSERT_TRUE(
      std::regex_search(answer, cookie, std::regex("Set-Cookie: (hpctl_[0-9]+=[0-9a-f]+)")));
  http_get(port, "/api/series?id=1&from=2&to=3&points=4&rank=5&lines=6",
           "Cookie: " + cookie[1].str() + "\r\n");
  EXPECT_EQ(found, (std::vector<std::string>{"2", "3", "4", "5", "6"}));
}

TEST_F(PageServerTest, HeadOfALinkKeepsItsCode) {
  const std::string link = "/open?code=" + access_.make_code(7).value();
  const std::string head =
      http_send(port_, "HEAD " + link + " HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(head, Not(HasSubstr("Set-Cookie")));
  EXPECT_THAT(http_get(port_, link), HasSubstr("Set-Cookie"));
}

TEST_F(PageServerTest, NobodyElseIsToldAnything) {
  const std::string cookie = signed_in();
  const std::string code = access_.make_code(7).value();
  EXPECT_THAT(http_get(port_, "/open?code=" + code + "&job=3"), HasSubstr("Location: /#job=3\r\n"));
  const std::string refused[] = {
      http_get(port_, "/"),
      http_get(port_, "/api/jobs"),
      http_get(port_, "/api/jobs", "Cookie: hpctl_" + std::to_string(port_) + "=0\r\n"),
      http_get(port_, "/open"),
      http_get(port_, "/open?code="),
      http_get(port_, "/open?code=" + code),
      http_get(port_, "/open?code=" + std::string(4'000, 'f'))};
  for (const std::string& answer : refused) {
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << answer;
    EXPECT_THAT(answer, HasSubstr("run <code>hpctl open</code>"));
  }
  // Nor where a name of somebody else's leads here, or where something is to be changed.
  const auto ask = [&](const std::string& line, const std::string& host) {
    return http_send(port_, line + " HTTP/1.0\r\nHost: " + host + "\r\n" + cookie + "\r\n");
  };
  EXPECT_THAT(ask("GET /api/jobs", "evil.example"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("GET /api/jobs", "evil.example:" + std::to_string(port_)),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("POST /api/jobs", "localhost"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask("DELETE /", "localhost"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(http_send(port_, "GET / HTTP/1.0\r\n" + cookie + "\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_TRUE(asked_.empty());
  // A forwarded port is another than ours.
  for (const char* host : {"127.0.0.1:9", "localhost", "[::1]:9", "[::1]"}) {
    EXPECT_THAT(ask("GET /api/jobs", host), StartsWith("HTTP/1.1 200 ")) << host;
  }
}

TEST_F(PageServerTest, WhatIsTooLongOrNoRequestIsRefused) {
  const std::string cookie = signed_in();
  const std::string huge = http_get(port_, "/api/jobs", "X: " + std::string(100'000, 'x') + "\r\n");
  EXPECT_THAT(huge, Not(HasSubstr("200 OK")));
  EXPECT_THAT(http_send(port_, "nonsense\r\n\r\n"), Not(HasSubstr("200 OK")));
  EXPECT_THAT(http_send(port_, std::string(512, '\0') + "\r\n\r\n"), Not(HasSubstr("200 OK")));
  EXPECT_THAT(http_get(port_, "/api/jobs", cookie), HasSubstr("200 OK"));
  EXPECT_EQ(asked_.size(), 1U);
}

TEST_F(PageServerTest, AnAddressThatIsTakenOrNotOursIsAnError) {
  const auto taken = PageServer::open("127.0.0.1:" + std::to_string(port_), access_, {});
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message, HasSubstr("or the port is in use"));
  EXPECT_FALSE(PageServer::open("203.0.113.1:0", access_, {}).ok());
  EXPECT_FALSE(PageServer::open("nonsense", access_, {}).ok());
}

}  // namespace
}  // namespace hpctl
