// SPDX-License-Identifier: Apache-2.0
// The directory of a running job goes away and comes back. Nobody makes it again, the controller
// answers without it, and a recovery waits for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <string>

#include "common/base/file.h"
#include "tests/integration/local_cluster.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{120};

class GoneDirectory : public ::testing::Test {
 protected:
  bool eventually(const std::function<bool()>& done) const {
    return wait_until(cluster_.directory(), done, kLong);
  }
  bool is_running(JobId job, uint64_t generation) const {
    return eventually([&] {
      const json status = cluster_.status(job);
      return status["state"] == "RUNNING" && status["generation"] == generation;
    });
  }
  bool is_noted(JobId job, const std::string& words) const {
    return eventually([&] {
      for (const json& event : cluster_.events(job)) {
        if (event["cause"].get<std::string>().find(words) != std::string::npos) return true;
      }
      return false;
    });
  }

  // `checkpoint`: a line of the job file, or none.
  void lose_and_find(const std::string& checkpoint) {
    const std::string gate = cluster_.directory() + "/gate";
    const JobId job = cluster_.submit(
        "name: homeless\nnodes: 1\n"
        "workload: {command: [/bin/sh, -c, 'until [ -e " +
        gate + " ]; do sleep 0.05; done']}\nenv: none\n" + checkpoint);
    ASSERT_TRUE(is_running(job, 1)) << cluster_.status(job);
    const std::string directory = cluster_.paths().job(job);
    const std::string away = cluster_.directory() + "/away";
    ASSERT_EQ(std::rename(directory.c_str(), away.c_str()), 0);
    EXPECT_TRUE(is_noted(job, "the job's directory " + directory + " is gone"));
    EXPECT_EQ(cluster_.status(job)["state"], "RUNNING");
    EXPECT_THAT(cluster_.hpctl({"watch", to_string(job), "--once"}).out,
                HasSubstr("its directory is gone: " + directory));
    ASSERT_EQ(::kill(cluster_.status(job)["workers"][0]["pid"].get<pid_t>(), SIGKILL), 0);
    EXPECT_TRUE(eventually([&] {
      const json status = cluster_.status(job);
      return status["state"] == "RECOVERING" &&
             status["reason"].get<std::string>().find(directory + " is gone") != std::string::npos;
    })) << cluster_.status(job);
    EXPECT_FALSE(is_accessible(directory)) << "somebody has made it again";
    ASSERT_EQ(std::rename(away.c_str(), directory.c_str()), 0);
    EXPECT_TRUE(is_running(job, 2)) << cluster_.status(job);
    EXPECT_TRUE(is_noted(job, "is there again"));
    EXPECT_THAT(cluster_.hpctl({"watch", to_string(job), "--once"}).out,
                ::testing::Not(HasSubstr("is gone")));
    ASSERT_TRUE(write_file_atomic(gate, "").ok());
    EXPECT_EQ(cluster_.wait_for_end(job, kLong), "FINISHED");
    cluster_.stop_and_expect_no_leftovers(kLong);
  }

  LocalCluster cluster_;
};

TEST_F(GoneDirectory, IsNotMadeAgainAndARecoveryWaitsForIt) {
  lose_and_find("checkpoint: {dir: " + cluster_.directory() + "/checkpoints}\n");
}

TEST_F(GoneDirectory, IsNotMadeAgainForTheCheckpointsInIt) { lose_and_find(""); }

}  // namespace
}  // namespace hpctl::testing
