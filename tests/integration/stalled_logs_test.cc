// SPDX-License-Identifier: Apache-2.0
// A file server that does not answer while a job trains. The logs of every rank are FIFOs that
// nobody reads: whoever opens one for writing waits in the kernel, as with a hard NFS mount.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

constexpr std::chrono::seconds kLong{240};
constexpr int kRanks = 4;

// Lets the writer go on, and reads until it has ended.
std::string text_of(const std::string& fifo) {
  const UniqueFd file(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
  const auto text = read_all(file.get(), fifo, SIZE_MAX);
  return text.ok() ? *text : text.error().message;
}

// A pause of 5 s ended every node and with it all that the job had in memory.
TEST(StalledLogs, JobTrainsToItsEndWithoutARestart) {
  LocalCluster cluster;
  const TrainingJob job{.steps = 60, .heartbeat_timeout = "10s"};
  const JobId undisturbed = cluster.submit(job.yaml());
  ASSERT_EQ(cluster.wait_for_end(undisturbed, kLong), "FINISHED");
  const JobId stalled{undisturbed.value + 1};
  ASSERT_TRUE(make_directories(cluster.paths().job_logs(stalled)).ok());
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string log = cluster.paths().rank_log(stalled, Rank{rank});
    ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0) << log;
  }
  ASSERT_EQ(cluster.submit(job.yaml()).value, stalled.value);
  ASSERT_EQ(cluster.wait_for_end(stalled, kLong), "FINISHED")
      << cluster.hpctl({"events", to_string(stalled)}).out;
  const nlohmann::json after = cluster.status(stalled);
  EXPECT_EQ(after["generation"], 1) << after;
  EXPECT_EQ(after["restarts"], 0) << after;
  EXPECT_EQ(cluster.digest(stalled), cluster.digest(undisturbed));
  // The file server is back: the logs are written, and the writers end.
  std::vector<std::future<std::string>> logs;
  for (int rank = 0; rank < kRanks; ++rank) {
    logs.push_back(
        std::async(std::launch::async, text_of, cluster.paths().rank_log(stalled, Rank{rank})));
  }
  for (auto& log : logs) EXPECT_NE(log.get().find("generation 1 rank"), std::string::npos);
  cluster.stop_and_expect_no_leftovers(std::chrono::seconds(60));
}

}  // namespace
}  // namespace hpctl::testing
