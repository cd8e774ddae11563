// SPDX-License-Identifier: Apache-2.0
// Notifications against a real web server that misbehaves, and real programs that do.
#include "controller/notify/notifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "common/base/file.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"
#include "tests/support/scripted_http.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using test::ScriptedHttp;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Pauses that are soon over, and as much time for an answer as a busy machine takes for it: what
// is sent again because the server had no turn would be counted, too.
const NotifierLimits kQuick = {
    seconds(60), seconds(60), {milliseconds(5), milliseconds(5), milliseconds(5)}};
constexpr seconds kPatience{30};

Notice notice(const std::string& what) {
  Notice notice;
  notice.job = JobId{3};
  notice.name = "tiny";
  notice.what = what;
  return notice;
}

class Notifications : public ::testing::Test {
 protected:
  std::unique_ptr<Notifier> make(NotifierLimits limits = kQuick, bool is_guest = false) {
    return std::make_unique<Notifier>(
        std::move(limits), is_guest, [this] { return may_send_.load(); },
        [this](JobId, const std::string& what) {
          const std::lock_guard lock(mutex_);
          complaints_.push_back(what);
        });
  }
  std::vector<std::string> complaints() {
    const std::lock_guard lock(mutex_);
    return complaints_;
  }
  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string read(const std::string& name) const {
    const auto text = read_file(path(name));
    return text.ok() ? *text : "";
  }
  // A program of these lines.
  NotifySpec program(const std::string& name, const std::string& lines) const {
    EXPECT_TRUE(write_file_atomic(path(name), "#!/bin/sh\n" + lines + "\n").ok());
    EXPECT_EQ(::chmod(path(name).c_str(), 0700), 0);
    NotifySpec to;
    to.command = {path(name), "an argument"};
    return to;
  }
  static NotifySpec webhook(const std::string& url) {
    NotifySpec to;
    to.webhook = url;
    return to;
  }
  std::string log() const { return path("notify.log"); }

  TemporaryDirectory directory_;
  std::atomic<bool> may_send_{true};
  std::mutex mutex_;
  std::vector<std::string> complaints_;
};

TEST_F(Notifications, AreSentAgainUntilTheyAreTaken) {
  ScriptedHttp server({ScriptedHttp::kCloses, 500, 200});
  const auto notifier = make();
  notifier->post(webhook(server.url("/hook?secret=x")), notice("it is so"), log());
  const auto requests = server.requests(3);
  ASSERT_EQ(requests.size(), 3U);
  for (const std::string& request : requests) {
    EXPECT_THAT(request, AllOf(HasSubstr("POST /hook?secret=x HTTP/1.1\r\n"),
                               HasSubstr("Content-Type: application/json\r\n")));
    EXPECT_EQ(ScriptedHttp::body_of(request), notice_json(notice("it is so")));
  }
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_EQ(server.requests(3).size(), 3U) << "what was taken is not sent again";
  EXPECT_THAT(complaints(), IsEmpty());
}

// Again and again, where the server has no turn within the time for an answer.
TEST_F(Notifications, WhatIsNotAnsweredIsSentAgain) {
  ScriptedHttp server({ScriptedHttp::kSaysNothing});
  const auto notifier =
      make({milliseconds(300), seconds(60), std::vector<milliseconds>(1'000, milliseconds(5))});
  notifier->post(webhook(server.url("/")), notice("it is so"), log());
  const auto requests = server.requests(2);
  ASSERT_GE(requests.size(), 2U);
  EXPECT_EQ(ScriptedHttp::body_of(requests[1]), notice_json(notice("it is so")));
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_THAT(complaints(), IsEmpty());
}

TEST_F(Notifications, WhatIsNeverTakenIsSaidOnceWithoutTheSecret) {
  ScriptedHttp server({503, 503, 503, 503, 503, 503, 503, 503, 200, 404});
  const auto notifier = make();
  const NotifySpec to = webhook(server.url("/hook?secret=x"));
  notifier->post(to, notice("one"), log());
  notifier->post(to, notice("two"), log());
  notifier->post(to, notice("three"), log());  // is taken
  notifier->post(to, notice("four"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_EQ(server.requests(0).size(), 10U) << "four attempts twice, and one of what is refused";
  EXPECT_THAT(
      complaints(),
      ElementsAre("a notification was not sent (notify.webhook, attempts: 4): " + server.host() +
                      ": HTTP 503",
                  "a notification was not sent (notify.webhook, attempts: 1): " + server.host() +
                      ": HTTP 404"));
}

TEST_F(Notifications, WhereNobodyListens) {
  std::string url;
  {
    const ScriptedHttp gone;
    url = gone.url("/");
  }
  const auto notifier = make();
  notifier->post(webhook(url), notice("one"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  ASSERT_EQ(complaints().size(), 1U);
  EXPECT_THAT(complaints()[0], HasSubstr("Couldn't connect to server"));
}

TEST_F(Notifications, AWebhookThatHangsHoldsNobodyUp) {
  const std::deque<int> silent(500, ScriptedHttp::kSaysNothing);
  constexpr seconds kLimit{60};
  std::optional<ScriptedHttp> hangs(std::in_place, silent);
  ScriptedHttp takes;
  const auto notifier = make({kLimit, seconds(10), {}});
  const auto begun = steady_clock::now();
  for (int i = 0; i < 1'000; ++i) notifier->post(webhook(hangs->url("/")), notice("one"), log());
  EXPECT_LT(steady_clock::now() - begun, kLimit) << "nothing of it waits for an answer";
  EXPECT_EQ(hangs->requests(1).size(), 1U);
  Notice other = notice("another job's");
  other.job = JobId{4};
  notifier->post(webhook(takes.url("/")), other, log());
  EXPECT_EQ(takes.requests(1).size(), 1U);
  hangs.reset();  // which ends the attempt
}

TEST_F(Notifications, TheEndWaitsForNoHungWebhookLongerThanItIsTold) {
  constexpr milliseconds kLeft{1'500};
  const std::deque<int> silent(500, ScriptedHttp::kSaysNothing);
  ScriptedHttp hangs(silent);
  // A second and a half is left for attempts, the rest for a busy machine to come back from them.
  const auto notifier =
      make({milliseconds(300), seconds(10), {seconds(60)}, milliseconds(kPatience) - kLeft});
  for (int i = 0; i < 100; ++i) notifier->post(webhook(hangs.url("/")), notice("one"), log());
  hangs.requests(1);
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_LE(hangs.requests(0).size(), Notifier::kWaiting + 2);
}

TEST_F(Notifications, TheUrlIsReadFromItsFileEachTime) {
  ScriptedHttp server;
  NotifySpec to;
  to.webhook_file = path("url");
  const auto notifier = make();
  const auto write_url = [&](const std::string& text) {
    EXPECT_TRUE(write_file_atomic(path("url"), text).ok());
  };
  write_url(server.url("/first") + "\n");
  notifier->post(to, notice("one"), log());
  EXPECT_THAT(server.requests(1)[0], HasSubstr("POST /first "));
  write_url(server.url("/second"));
  notifier->post(to, notice("two"), log());
  EXPECT_THAT(server.requests(2)[1], HasSubstr("POST /second "));
  write_url("ftp://elsewhere/secret");
  notifier->post(to, notice("three"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  ASSERT_EQ(complaints().size(), 1U);
  EXPECT_THAT(complaints()[0], AllOf(HasSubstr("url: expected a URL that begins with https://"),
                                     Not(HasSubstr("secret"))));
}

TEST_F(Notifications, AGuestSendsNothingButHttps) {
  ScriptedHttp server;
  NotifySpec to = program("tell", "touch \"$(dirname \"$0\")\"/ran");
  to.webhook = server.url("/");
  const auto notifier = make(kQuick, true);
  notifier->post(to, notice("one"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_THAT(server.requests(0), IsEmpty());
  EXPECT_FALSE(is_accessible(path("ran")));
  EXPECT_EQ(complaints().size(), 2U);
}

TEST_F(Notifications, OfAControllerThatWasSucceededAreNotSent) {
  ScriptedHttp server;
  may_send_ = false;
  const auto notifier = make();
  notifier->post(webhook(server.url("/")), notice("one"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_THAT(server.requests(0), IsEmpty());
  EXPECT_THAT(complaints(), IsEmpty());
}

TEST_F(Notifications, ACommandGetsTheDocument) {
  const NotifySpec to = program("tell", "cd \"$(dirname \"$0\")\"; cat > got; echo \"with $1\"");
  const auto notifier = make();
  notifier->post(to, notice("one"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_EQ(read("got"), notice_json(notice("one")));
  EXPECT_EQ(read("notify.log"), "with an argument\n");
  EXPECT_THAT(complaints(), IsEmpty());
}

TEST_F(Notifications, ACommandThatFailsIsSaid) {
  const auto notifier = make();
  notifier->post(program("tell", "exit 7"), notice("one"), log());
  NotifySpec missing;
  missing.command = {path("missing")};
  Notice other = notice("two");
  other.job = JobId{4};
  notifier->post(missing, other, log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  EXPECT_THAT(complaints(),
              ::testing::UnorderedElementsAre(
                  HasSubstr("tell exited with code 7; see "),
                  AllOf(HasSubstr("attempts: 1"), HasSubstr("missing: No such file"))));
}

TEST_F(Notifications, ACommandThatHangsIsEndedWithWhatItStarted) {
  const auto notifier = make({seconds(4), milliseconds(1'000), {}});
  notifier->post(program("tell", "cd \"$(dirname \"$0\")\"; sleep 1000 & echo $! > child; wait"),
                 notice("one"), log());
  EXPECT_THAT(notifier->stop(kPatience), IsEmpty());
  ASSERT_EQ(complaints().size(), 1U);
  EXPECT_THAT(complaints()[0], HasSubstr("tell was ended after 1000 ms"));
  const std::string child = read("child");
  if (child.empty()) return;  // the shell had no turn within its second
  const pid_t pid = std::stoi(child);
  EXPECT_TRUE(await_end(open_pidfd(pid)) || !process_runs(pid)) << broken_promise("leftover");
}

}  // namespace
}  // namespace hpctl
