// SPDX-License-Identifier: Apache-2.0
// What the supervisor tells of the lives of a job's controller. In its place a script takes the
// order, says that it serves when the test lets it, and lives as long as the test.
#include "controller/cluster/supervisor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "common/base/file.h"
#include "tests/support/http_get.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::cluster {
namespace {

using ::testing::HasSubstr;

// A pipe by name, whose other end waits until something is written or this is gone.
class Gate {
 public:
  explicit Gate(const std::string& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(fd_.valid());
  }
  void let_one() { EXPECT_EQ(::write(fd_.get(), "\n", 1), 1); }

 private:
  UniqueFd fd_;
};

// How many controllers' metrics the supervisor told last.
class Told {
 public:
  void tell(size_t count) {
    const std::lock_guard lock(mutex_);
    count_ = count;
    changed_.notify_all();
  }
  void await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ == count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t count_ = 0;
};

class SupervisorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_file_atomic(dir_ / "report",
                                  report_line(ChildReport{"127.0.0.1:1", "none", 9'000, true}))
                    .ok());
    ASSERT_TRUE(write_file_atomic(program_, "#!/bin/sh\nread -r order\nread -r go <" +
                                                (dir_ / "serve") + "\ncat " + (dir_ / "report") +
                                                " >&0\nexec cat " + (dir_ / "end") + "\n")
                    .ok());
    ASSERT_EQ(::chmod(program_.c_str(), 0700), 0);
    ASSERT_TRUE(metrics_.ok()) << metrics_.error().message;
    ASSERT_TRUE(supervisor_.start().ok());
  }
  void TearDown() override { supervisor_.stop(); }

  v1::ClusterJob job() {
    const auto jobs = supervisor_.outlines(std::nullopt, {}, 2);
    EXPECT_EQ(jobs.size(), 1U);
    return jobs.empty() ? v1::ClusterJob() : jobs[0];
  }
  std::string scrape() const { return http_get((*metrics_)->port(), "/metrics"); }

  TemporaryDirectory dir_;
  const std::string program_ = dir_ / "controller";
  Gate serve_{dir_ / "serve"};
  Gate end_{dir_ / "end"};
  Told told_;
  Result<std::unique_ptr<Metrics>> metrics_ = Metrics::open("127.0.0.1:0");
  Supervisor supervisor_{
      {program_, "n0", "", ""},
      JobRows::open(dir_ / "rows").value(),
      metrics_->get(),
      [this](const Supervisor::MetricsPorts& ports) { told_.tell(ports.size()); }};
};

// Else the metric would rise with each start of one that never gets so far, and its alert be quiet.
TEST_F(SupervisorTest, AControllerServesFromWhenItSaysSoInThisLife) {
  v1::Admission admission;
  admission.set_job(7);
  admission.set_job_dir(dir_.path());
  serve_.let_one();
  const auto admitted = supervisor_.admit(::getuid(), ::getgid(), admission);
  ASSERT_TRUE(admitted.ok()) << admitted.error().message;
  told_.await(1);
  const v1::ClusterJob first = job();  // which waits until its numbers are told
  EXPECT_THAT(scrape(), HasSubstr("\nhpctl_cluster_jobs_serving 1\n"));

  ASSERT_EQ(::kill(static_cast<pid_t>(first.pid()), SIGKILL), 0);
  told_.await(0);
  const v1::ClusterJob second = job();
  EXPECT_EQ(second.restarts(), 1U);
  EXPECT_NE(second.pid(), first.pid());
  EXPECT_THAT(scrape(), HasSubstr("\nhpctl_cluster_jobs 1\n"));
  EXPECT_THAT(scrape(), HasSubstr("\nhpctl_cluster_jobs_serving 0\n"));

  serve_.let_one();
  told_.await(1);
  EXPECT_EQ(job().pid(), second.pid());
  EXPECT_THAT(scrape(), HasSubstr("\nhpctl_cluster_jobs_serving 1\n"));
}

}  // namespace
}  // namespace hpctl::cluster
