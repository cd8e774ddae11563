// SPDX-License-Identifier: Apache-2.0
// The file server with everything that nodes share stops to answer for a minute while a job trains:
// the job's directory, its logs, its checkpoints and the programs.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/process/pidfd.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/pausable_mount.h"
#include "tests/support/promise.h"
#include "tests/support/scoped_variable.h"

namespace hpctl::testing {
namespace {

constexpr std::chrono::seconds kLong{300};
constexpr milliseconds kOutage = std::chrono::seconds(60);

// The home is on a local disk, as hpctl asks for.
class SharedCluster {
 public:
  SharedCluster()
      : programs_(std::getenv("HPCTL_BIN")),
        server_(cluster.directory() + "/server"),
        shared_(cluster.directory() + "/shared"),
        variable_("HPCTL_BIN", shared_ + "/bin") {
    namespace fs = std::filesystem;
    for (const std::string& directory : {server_ + "/jobs", server_ + "/bin", shared_}) {
      fs::create_directories(directory);
    }
    fs::create_directories(cluster.paths().home());
    for (const auto& file : fs::directory_iterator(programs_)) {
      fs::copy(file.path(), server_ + "/bin");
    }
    fs::create_directory_symlink(shared_ + "/jobs", cluster.paths().jobs());
    mount_.emplace(server_, shared_);
  }

  bool mounted() const { return mount_->mounted(); }
  void stop_server(milliseconds outage = kOutage) {
    mount_->pause();
    ::poll(nullptr, 0, static_cast<int>(outage.count()));  // which is what is tested
    mount_->resume();
  }

  LocalCluster cluster;

 private:
  const std::string programs_;
  const std::string server_;
  const std::string shared_;
  std::optional<test::PausableMount> mount_;
  const ScopedVariable variable_;
};

// Holders and agents of both nodes.
std::vector<UniqueFd> supervisors_of(const nlohmann::json& status) {
  std::vector<UniqueFd> processes;
  for (size_t node = 0; node < 2; ++node) {
    for (const char* which : {"holder_pid", "agent_pid"}) {
      processes.push_back(open_pidfd(node_pid(status, node, which)));
    }
  }
  return processes;
}

bool runs(const UniqueFd& process) {
  pollfd ended{process.get(), POLLIN, 0};
  return process.valid() && ::poll(&ended, 1, 0) == 0;
}

// The holders wrote to it themselves: every node was ended after 5 s, with all that it had in
// memory, in the outage that it is for.
TEST(StalledStorage, WholeSharedDirectoryStopsForAMinute) {
  SharedCluster shared;
  if (!shared.mounted()) GTEST_SKIP() << "needs root and /dev/fuse";
  LocalCluster& cluster = shared.cluster;
  // Without the ledger, in which each rank writes each step before it goes on: training goes on.
  const TrainingJob job{.steps = 600, .heartbeat_timeout = "10s", .ledger = false};
  const JobId undisturbed = cluster.submit(job.yaml());
  ASSERT_EQ(cluster.wait_for_end(undisturbed, kLong), "FINISHED");
  const JobId stalled = cluster.submit(job.yaml());
  ASSERT_TRUE(cluster.wait_for_step(stalled, 50, kLong));
  const std::vector<UniqueFd> supervisors = supervisors_of(cluster.status(stalled));
  shared.stop_server();
  for (const UniqueFd& process : supervisors) EXPECT_TRUE(runs(process));
  ASSERT_EQ(cluster.wait_for_end(stalled, kLong), "FINISHED")
      << cluster.hpctl({"events", to_string(stalled)}).out;
  const nlohmann::json after = cluster.status(stalled);
  EXPECT_EQ(after["generation"], 1) << cluster.hpctl({"events", to_string(stalled)}).out;
  EXPECT_EQ(after["restarts"], 0) << after;
  EXPECT_EQ(cluster.digest(stalled), cluster.digest(undisturbed)) << broken_promise("digest");
  cluster.stop_and_expect_no_leftovers(std::chrono::seconds(60));
}

// All ranks wait in the write of a line, for longer than hang_timeout.
TEST(StalledStorage, StalledLedgerIsNoHang) {
  SharedCluster shared;
  if (!shared.mounted()) GTEST_SKIP() << "needs root and /dev/fuse";
  LocalCluster& cluster = shared.cluster;
  const TrainingJob wanted{.steps = 400, .hang_timeout = "8s", .heartbeat_timeout = "10s"};
  const JobId job = cluster.submit(wanted.yaml());
  ASSERT_TRUE(cluster.wait_for_step(job, 50, kLong));
  shared.stop_server(std::chrono::seconds(25));
  ASSERT_EQ(cluster.wait_for_end(job, kLong), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  const std::string events = cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_NE(events.find("waits for storage after step"), std::string::npos) << events;
  const nlohmann::json after = cluster.status(job);
  EXPECT_EQ(after["generation"], 1) << events;
  EXPECT_EQ(after["restarts"], 0) << events;
  const CommandResult ledger = cluster.hpctl({"checkpoint", "ledger", to_string(job)});
  EXPECT_EQ(ledger.exit_code, 0) << ledger.out << ledger.err << broken_promise("sample");
  cluster.stop_and_expect_no_leftovers(std::chrono::seconds(60));
}

// It hung in its first line. A full pipe stands for a log on a file server that does not answer.
TEST(StalledStorage, ControllerServesWhileItsOwnLogIsStalled) {
  LocalCluster cluster;
  ASSERT_TRUE(make_directories(cluster.paths().home()).ok());
  const std::string log = cluster.paths().controller_log();
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const UniqueFd pipe(::open(log.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string full(static_cast<size_t>(::fcntl(pipe.get(), F_GETPIPE_SZ)), '.');
  ASSERT_EQ(::write(pipe.get(), full.data(), full.size()), static_cast<ssize_t>(full.size()));
  const JobId job = cluster.submit(TrainingJob{.steps = 20}.yaml());
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED");
  // The file server is back.
  std::string text;
  while (text.find(" serving ") == std::string::npos) {
    pollfd readable{pipe.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 60'000), 1) << "its first line is lost";
    std::string chunk(1 << 16, '\0');
    const ssize_t n = ::read(pipe.get(), chunk.data(), chunk.size());
    text.append(chunk, 0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  cluster.stop_and_expect_no_leftovers(std::chrono::seconds(60));
}

}  // namespace
}  // namespace hpctl::testing
