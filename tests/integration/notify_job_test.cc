// SPDX-License-Identifier: Apache-2.0
// A real job with a worker that is killed says so by itself, to a web server that first refuses and
// to a program; and hpctl watch tells how it stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>

#include "common/base/file.h"
#include "common/process/pidfd.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/scripted_http.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using test::ScriptedHttp;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NotifyTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return cluster_.directory() + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(write_file_atomic(path(name), text).ok());
  }
  JobId train(int steps, const std::string& notify, int max_restarts = 8) {
    TrainingJob job;
    job.steps = steps;
    job.max_restarts = max_restarts;
    // Beside other tests a machine that loads LibTorch may leave an agent no time for seconds.
    job.heartbeat_timeout = "10s";
    job.more = "notify: " + notify +
               "\nenv: {set: {LD_PRELOAD: " SLOW_READS ", SLOW_READS_WHILE: " + path("slow") +
               "}}\n";
    return cluster_.submit(job.yaml());
  }
  bool recovered(JobId job) const {
    return wait_until(
        cluster_.paths().job(job),
        [&] {
          const json now = cluster_.status(job);
          return now["restarts"] == 1 && now["state"] == "RUNNING";
        },
        seconds(60));
  }

  LocalCluster cluster_;
};

TEST_F(NotifyTest, ARecoveryAndTheEndAreTold) {
  ScriptedHttp server({500, ScriptedHttp::kCloses});
  write("url", server.url("/hook"));
  write("tell.sh", "#!/bin/sh\ncat >> \"$1\"\n");
  ASSERT_EQ(::chmod(path("tell.sh").c_str(), 0700), 0);
  // Its data comes slowly up to the kill: else a busy machine may leave no step for it.
  write("slow", "");
  const JobId job = train(60, "{webhook_file: " + path("url") + ", command: [" + path("tell.sh") +
                                  ", " + path("told") + "]}");
  ASSERT_TRUE(cluster_.wait_for_step(job, 5, seconds(60)));
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 2)));
  ASSERT_TRUE(remove_tree(path("slow")).ok());
  const auto requests = server.requests(3);
  ASSERT_GE(requests.size(), 3U) << "refused, cut off, taken";
  EXPECT_EQ(ScriptedHttp::body_of(requests[0]), ScriptedHttp::body_of(requests[2]));
  const json told = json::parse(ScriptedHttp::body_of(requests[2]));
  EXPECT_EQ(told["hpctl"]["kind"], "recovery");
  EXPECT_EQ(told["hpctl"]["job"], job.value);
  EXPECT_EQ(told["hpctl"]["generation"], 2);
  EXPECT_THAT(told["text"].get<std::string>(),
              AllOf(HasSubstr("tiny (job 1): it trains again, "),
                    HasSubstr("worker 2 on n1 died of SIGKILL at step"),
                    HasSubstr("generation 2 completed step")));
  ASSERT_EQ(cluster_.wait_for_end(job, seconds(120)), "FINISHED");
  const json ended = json::parse(ScriptedHttp::body_of(server.requests(4).at(3)));
  EXPECT_EQ(ended["hpctl"]["kind"], "finished");
  cluster_.stop_and_expect_no_leftovers(seconds(30));
  // The program has got the same two.
  const auto lines = read_file(path("told"));
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  EXPECT_EQ(*lines,
            ScriptedHttp::body_of(requests[2]) + ScriptedHttp::body_of(server.requests(4)[3]));
  const auto history = cluster_.events(job);
  EXPECT_FALSE(std::any_of(history.begin(), history.end(), [](const json& event) {
    return event["cause"].get<std::string>().find("127.0.0.1") != std::string::npos;
  })) << "the URL is in no event";
}

TEST_F(NotifyTest, WatchTellsHowItStands) {
  const JobId job = train(100'000, "{}", 1);
  ASSERT_TRUE(cluster_.wait_for_step(job, 5, seconds(60)));
  const auto once = [&] { return cluster_.hpctl({"watch", "tiny", "--once", "--json"}); };
  EXPECT_EQ(once().exit_code, 0) << once().out;
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 1)));
  ASSERT_TRUE(recovered(job));
  // The one restart that it has is spent.
  const CommandResult critical = once();
  EXPECT_EQ(critical.exit_code, 2);
  const json found = json::parse(critical.out);
  EXPECT_EQ(found["worst"], "critical");
  EXPECT_EQ(found["findings"][0]["kind"], "budget_low");
  EXPECT_THAT(found["findings"][0]["what"].get<std::string>(),
              HasSubstr("the next fault fails it: 0 of 1"));
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 0)));
  EXPECT_EQ(cluster_.wait_for_end(job, seconds(60)), "FAILED");
  EXPECT_EQ(json::parse(once().out)["findings"][0]["kind"], "failed");
  EXPECT_EQ(cluster_.hpctl({"watch", "--once"}).exit_code, 2);
  EXPECT_EQ(cluster_.hpctl({"watch", "nobody", "--once"}).exit_code, 3);
}

// What is not sent is said in the history, without the URL.
TEST_F(NotifyTest, AWebhookThatIsNotThereIsSaidInTheHistory) {
  ScriptedHttp server({404});
  const JobId job = train(100'000, "{webhook: '" + server.url("/secret") + "'}");
  ASSERT_TRUE(cluster_.wait_for_step(job, 5, seconds(60)));
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 3)));
  std::string said;
  ASSERT_TRUE(wait_until(
      cluster_.paths().job(job),
      [&] {
        for (const json& event : cluster_.events(job)) {
          if (event["type"] == "ControllerNoted") said = event["cause"].get<std::string>();
        }
        return !said.empty();
      },
      seconds(60)));
  EXPECT_EQ(said, "a notification was not sent (notify.webhook, attempts: 1): " + server.host() +
                      ": HTTP 404");
}

// As a service does it: until SIGTERM, with a heartbeat.
TEST_F(NotifyTest, AWatcherEndsOnASignal) {
  train(100'000, "{}");
  const std::string beat = path("beat");
  const pid_t watcher = ::fork();
  ASSERT_GE(watcher, 0);
  if (watcher == 0) {
    ::setenv("HPCTL_HOME", cluster_.paths().home().c_str(), 1);
    const std::string program = std::string(std::getenv("HPCTL_BIN")) + "/hpctl";
    ::execl(program.c_str(), program.c_str(), "watch", "--interval", "1", "--heartbeat",
            beat.c_str(), nullptr);
    ::_exit(127);
  }
  std::string first;
  std::string next;
  EXPECT_TRUE(wait_until(
      cluster_.directory(),
      [&] {
        const auto text = read_file(beat);
        if (text.ok() && first.empty()) first = *text;
        if (text.ok()) next = *text;
        return !first.empty() && next != first;
      },
      seconds(60)))
      << "it is written again and again";
  EXPECT_EQ(json::parse(next)["jobs"], 1);
  ASSERT_EQ(::kill(watcher, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(watcher, &status, 0), watcher);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hpctl::testing
