// SPDX-License-Identifier: Apache-2.0
// `hpcontroller --at`, the batch script's part of a job whose controller runs at the cluster's.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include "common/base/file.h"
#include "common/job/job_files.h"
#include "common/rpc/cluster_client.h"
#include "controller/leadership/batch_proxy.h"
#include "controller/leadership/job_mode.h"
#include "tests/fault/cluster_service.h"
#include "tests/support/processes.h"

namespace hpctl {
namespace {

using test::ClusterController;
using test::gated_job;
using test::kCall;
using test::kHead;
using test::kNobody;
using test::kPatienceMs;
using ::testing::HasSubstr;

class StandIn : public ClusterController {
 protected:
  explicit StandIn(const JobSpec& spec = gated_job()) : ClusterController(spec) {}
  const sigset_t no_signals_{};
};

TEST_F(StandIn, EndsWithTheVerdict) {
  const pid_t batch_proxy = start_batch_proxy(address_);
  ASSERT_TRUE(cluster_.wait_for_epoch(1, kPatienceMs)) << log_text();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  expect_finish_undisturbed();
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFinished);
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
}

// More than it starts at once for one user: the others ask again.
TEST_F(StandIn, ManyJobsAtOnce) {
  constexpr uint64_t kJobs = 7;
  std::vector<std::string> directories;
  std::vector<pid_t> batch_proxies;
  for (uint64_t i = 1; i <= kJobs; ++i) {
    // Not the number of another test, which is its process id.
    const std::string job = std::to_string(cluster_.job().value + (i << 22));
    directories.push_back(directory_ / ("job-" + job));
    ASSERT_EQ(::mkdir(directories.back().c_str(), 0700), 0);
    for (const char* name : {"/token", "/job.json"}) {
      const std::string text = read_file(cluster_.job_dir() + name).value();
      ASSERT_TRUE(write_file_atomic(directories.back() + name, text).ok());
      ASSERT_EQ(::chmod((directories.back() + name).c_str(), 0600), 0);
    }
    batch_proxies.push_back(cluster_.spawn(
        {test::program("hpcontroller"), "--job-dir", directories.back(), "--job", job, "--node",
         "n0", "--nodes", "n0,n1", "--scheduler", "none", "--at", address_},
        directory_ / "stand-in.log"));
  }
  for (const std::string& job_dir : directories) {
    const auto begun = [&] { return newest_controller_epoch(job_dir).value() == 1; };
    ASSERT_TRUE(test::eventually(begun, kPatienceMs)) << log_text();
    EXPECT_EQ(newest_controller(job_dir).value()->node, kHead);
  }
  const auto list = list_cluster_jobs(address_, kCall);
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_EQ(list->jobs_size(), static_cast<int>(kJobs));
  // One that has no answer yet would begin a controller here, which leaves its directory.
  for (const pid_t batch_proxy : batch_proxies) ASSERT_TRUE(kill_process(batch_proxy));
  kill_service();
  for (const v1::ClusterJob& job : list->jobs()) {
    ASSERT_TRUE(kill_process(static_cast<pid_t>(job.pid())));
    EXPECT_TRUE(remove_tree("/tmp/hpctl-" + std::to_string(::geteuid()) + "/job-" +
                            std::to_string(job.job()) + "-" + kHead)
                    .ok());
  }
}

TEST_F(StandIn, ASignalCancelsTheJob) {
  const pid_t batch_proxy = start_batch_proxy(address_);
  ASSERT_TRUE(cluster_.wait_for_epoch(1, kPatienceMs)) << log_text();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  ASSERT_TRUE(runs()) << cluster_.logs();
  ::kill(batch_proxy, SIGTERM);
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFailed);
  EXPECT_EQ(cluster_.verdict(), kVerdictFailed);
}

// The proxy waited for the file server, and the job was never told. A named pipe stands for a file
// on a server that does not answer.
TEST_F(StandIn, SignalIsPassedOnWhileTheDirectoryIsSilent) {
  const pid_t batch_proxy = start_batch_proxy(address_);
  ASSERT_TRUE(cluster_.wait_for_epoch(1, kPatienceMs)) << log_text();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  ASSERT_TRUE(runs()) << cluster_.logs();
  const std::string verdict = verdict_path(cluster_.job_dir());
  ASSERT_EQ(::mkfifo(verdict.c_str(), 0600), 0);
  UniqueFd silence(::open(verdict.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(silence.valid());
  ::kill(batch_proxy, SIGTERM);
  EXPECT_TRUE(cluster_.wait_for_status(
      [](const v1::JobStatus& status) { return status.state() == "CANCELLED"; }, kPatienceMs))
      << cluster_.logs() << log_text();
  const auto is_written = [&] {
    struct stat st {};
    return ::stat(verdict.c_str(), &st) == 0 && S_ISREG(st.st_mode);
  };
  ASSERT_TRUE(test::eventually(is_written, kPatienceMs)) << cluster_.logs();
  silence.reset();  // the server is back
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFailed);
  EXPECT_EQ(cluster_.verdict(), kVerdictFailed);
}

// An agent may find that the job has ended before it has registered with the next controller, which
// then waits for it this long.
JobSpec job_with_a_short_limit() {
  JobSpec spec = gated_job();
  spec.limits.end_ms = 5'000;
  return spec;
}
class StandInBetween : public StandIn {
 protected:
  StandInBetween() : StandIn(job_with_a_short_limit()) {}
};

// It comes once, and there is no controller for some seconds: the next one is told.
TEST_F(StandInBetween, ASignalBetweenTwoControllersCancelsTheJob) {
  const pid_t batch_proxy = start_batch_proxy(address_);
  ASSERT_TRUE(cluster_.wait_for_epoch(1, kPatienceMs)) << log_text();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  ASSERT_TRUE(runs()) << cluster_.logs();
  kill_service();
  cluster_.kill_controller(1);
  ::kill(batch_proxy, SIGTERM);
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << cluster_.logs();
  EXPECT_EQ(cluster_.wait_for(batch_proxy, kPatienceMs), kVerdictFailed) << cluster_.logs();
}

// Nobody is left to write a verdict: the batch script must not wait for one until the time limit.
TEST_F(StandIn, GivesAJobBackThatHasNoController) {
  ControllerOptions options;
  options.job_dir = cluster_.job_dir();
  options.job = cluster_.job().value;
  options.nodes = cluster_.nodes();
  options.scheduler = kSchedulerNone;
  options.cluster_at = address_;
  const std::string log = directory_ / "stand-in.log";  // it says when it is admitted
  const UniqueFd file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd stderr_before(::dup(STDERR_FILENO));
  ASSERT_GE(::dup2(file.get(), STDERR_FILENO), 0);
  auto ended = std::async(std::launch::async, [&] {
    return batch_proxy(options, UniqueFd(::signalfd(-1, &no_signals_, SFD_CLOEXEC | SFD_NONBLOCK)),
                       2'000);
  });
  const auto admitted = [&] {
    return read_file(log).value().find("runs at the cluster's") != std::string::npos;
  };
  const bool in_time = test::eventually(admitted, kPatienceMs);
  ASSERT_GE(::dup2(stderr_before.get(), STDERR_FILENO), 0);
  ASSERT_TRUE(in_time) << log_text();
  kill_service();
  cluster_.kill_controller(1);
  EXPECT_EQ(ended.get(), kExitFault);
}

TEST_F(StandIn, RunsTheControllerItselfWhereNobodyElseDoes) {
  kill_service();
  start_batch_proxy(address_);
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->node, "n0");
  await_line("stand-in.log", "the job's controller runs here instead");
}

// The line of /proc/PID/status with this name: real, effective, saved and file system's.
std::string credential_of(uint64_t pid, const std::string& name) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status").value();
  const size_t begin = status.find(name + ":");
  return status.substr(begin, status.find('\n', begin) - begin);
}

TEST_F(StandIn, JobsOfTwoUsersRunAsTheirOwners) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: jobs of two uids";
  if (::access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "no setpriv";
  // With the rights that deploy/systemd leaves it.
  kill_service();
  start_service(
      {"/usr/bin/setpriv", "--no-new-privs", "--bounding-set=-all,+setuid,+setgid,+kill"});
  // Root's, and beside it one of nobody with the same number.
  ASSERT_TRUE(admit().ok());
  test::JobCluster other(gated_job());
  for (const char* name : {"", "/token", "/job.json"}) {
    ASSERT_EQ(::chown((other.job_dir() + name).c_str(), kNobody, kNobody), 0);
  }
  const std::string parent = other.job_dir().substr(0, other.job_dir().rfind('/'));
  ASSERT_EQ(::chmod(parent.c_str(), 0711), 0);
  const pid_t batch_proxy = other.spawn(
      {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
       test::program("hpcontroller"), "--job-dir", other.job_dir(), "--job", to_string(other.job()),
       "--node", "n0", "--nodes", "n0,n1", "--scheduler", "none", "--at", address_},
      directory_ / "nobody.log");
  const auto record = other.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record) << log_text() << read_file(directory_ / "nobody.log").value();
  const auto admitted = [&] {
    const std::string said = read_file(directory_ / "nobody.log").value();
    return said.find("runs at the cluster's") != std::string::npos;
  };
  ASSERT_TRUE(test::eventually(admitted, kPatienceMs)) << log_text();
  EXPECT_EQ(record->node, kHead);
  EXPECT_EQ(credential_of(record->pid, "Uid"), "Uid:\t65534\t65534\t65534\t65534");
  EXPECT_EQ(credential_of(record->pid, "Gid"), "Gid:\t65534\t65534\t65534\t65534");
  EXPECT_EQ(credential_of(record->pid, "Groups"), "Groups:\t65534 ");
  EXPECT_NE(record->pid, listed().pid());
  EXPECT_EQ(listed().job_dir(), cluster_.job_dir());  // a caller sees his own jobs only
  // Root sees both, which have the same number, and whose they are; nobody sees his own.
  nlohmann::json all;
  const auto are_told = [&] {
    all = everything_seen_by({}).at("jobs");
    return all.size() == 2 && !all[0].at("nodes").is_null() && !all[1].at("nodes").is_null();
  };
  ASSERT_TRUE(test::eventually(are_told, kPatienceMs)) << all.dump() << log_text();
  EXPECT_EQ(all[0].at("uid").get<std::string>() + " " + all[1].at("uid").get<std::string>(),
            "65534 0");
  const nlohmann::json own = everything_seen_by(test::as_nobody()).at("jobs");
  ASSERT_EQ(own.size(), 1U) << own.dump();
  EXPECT_EQ(own[0].at("uid"), "65534");
  ::kill(static_cast<pid_t>(record->pid), SIGKILL);
  const auto second = other.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << log_text();
  EXPECT_EQ(second->node, kHead);
  EXPECT_EQ(credential_of(second->pid, "Uid"), "Uid:\t65534\t65534\t65534\t65534");
  ::kill(batch_proxy, SIGKILL);
  const std::string state = "/tmp/hpctl-65534/job-" + to_string(other.job()) + "-" + kHead;
  ASSERT_TRUE(is_accessible(state));
  kill_service();
  ASSERT_TRUE(kill_process(static_cast<pid_t>(second->pid)));
  EXPECT_TRUE(remove_tree(state).ok());
}

TEST_F(StandIn, AServiceThatIsNotRootServesItsUserOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a service of another uid";
  kill_service();
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0711), 0);
  ASSERT_TRUE(remove_tree(directory_ / "state").ok());
  ASSERT_EQ(::mkdir((directory_ / "state").c_str(), 0700), 0);
  ASSERT_EQ(::chown((directory_ / "state").c_str(), kNobody, kNobody), 0);
  start_service({"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
  const auto refused = admit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("serves that user only"));
}

}  // namespace
}  // namespace hpctl
