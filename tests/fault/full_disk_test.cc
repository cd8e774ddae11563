// SPDX-License-Identifier: Apache-2.0
// The disk of the home becomes full while a job runs: a commit fails, and with it the controller
// ends at once, so that nobody is told what is not stored. When there is room again the next
// controller goes on from the last commit: training was not disturbed and nothing is lost.
// Needs root for a mount of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/rpc/controller_process.h"
#include "controller/engine/owner_loop.h"
#include "tests/fault/live_controller.h"

namespace hpctl {
namespace {

constexpr auto kCallTimeout = std::chrono::seconds(60);

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: a private mount";
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      GTEST_SKIP() << "mounts are not allowed here: " << std::strerror(errno);
    }
    controller_ = std::make_unique<test::LiveController>();
    home_ = controller_->paths().home();
    ASSERT_EQ(::mount("none", home_.c_str(), "tmpfs", 0, "size=8m"), 0) << std::strerror(errno);
    controller_->start();
    stub_ = controller_->stub();
  }
  void TearDown() override {
    stub_.reset();
    if (!home_.empty()) ::umount2(home_.c_str(), MNT_DETACH);
    controller_.reset();
  }

  void fill() {
    UniqueFd fd(::open(filler().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const std::string page(4096, 'x');
    while (::write(fd.get(), page.data(), page.size()) > 0) {
    }
    EXPECT_EQ(errno, ENOSPC);
  }
  std::string filler() const { return home_ + "/filler"; }

  grpc::Status submit(const JobSpec& spec, uint64_t& job) {
    v1::SubmitRequest request;
    request.set_spec_json(to_json_text(spec));
    request.set_submit_key(spec.name);
    v1::SubmitResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    const auto status = stub_->Submit(&context, request, &response);
    job = response.job();
    return status;
  }
  // The types of the job's events, in order, up to and including the first `last`.
  std::vector<std::string> events_until(uint64_t job, const std::string& last) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    v1::WatchEventsRequest request;
    request.set_job(std::to_string(job));
    request.set_follow(true);
    const auto stream = stub_->WatchEvents(&context, request);
    std::vector<std::string> types;
    for (v1::Event event; stream->Read(&event);) {
      types.push_back(event.type());
      if (types.back() == last) return types;
    }
    ADD_FAILURE() << "the stream ended without " << last << ": "
                  << stream->Finish().error_message();
    return types;
  }

  std::unique_ptr<test::LiveController> controller_;
  std::unique_ptr<v1::Controller::Stub> stub_;
  std::string home_;
};

TEST_F(FullDisk, TheControllerStopsAtTheFailedCommitAndLosesNothing) {
  const std::string gate_path = home_ + "/gate";
  ASSERT_EQ(::mkfifo(gate_path.c_str(), 0600), 0);
  const UniqueFd gate(::open(gate_path.c_str(), O_RDWR | O_CLOEXEC));
  uint64_t job = 0;
  const auto submitted = submit(test::gated_job("lasting", home_ + "/journal", gate_path), job);
  ASSERT_TRUE(submitted.ok()) << submitted.error_message();
  const auto before = events_until(job, "JobRunning");

  fill();
  JobSpec unlucky;
  unlucky.name = "unlucky";
  unlucky.command = {"true"};
  uint64_t refused = 0;
  EXPECT_EQ(submit(unlucky, refused).error_code(), grpc::StatusCode::UNAVAILABLE);
  const int status = controller_->wait_for_end();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitStoreFailed) << status;

  ASSERT_EQ(::unlink(filler().c_str()), 0);
  // Perhaps an agent has been quicker; either way one controller serves.
  const auto channel =
      ensure_controller(controller_->paths(), std::chrono::steady_clock::now() + kCallTimeout,
                        test::program("hpcontroller"));
  ASSERT_TRUE(channel.ok()) << channel.status();
  stub_ = v1::Controller::NewStub(*channel);
  uint64_t accepted = 0;
  EXPECT_TRUE(submit(unlucky, accepted).ok());
  EXPECT_EQ(accepted, job + 1) << "the refused submission left nothing";
  events_until(accepted, "JobFinished");

  ASSERT_TRUE(write_all(gate.get(), std::string(64, '\n'), gate_path).ok());
  const auto after = events_until(job, "JobFinished");
  ASSERT_GE(after.size(), before.size());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << "events are lost";
  std::istringstream lines(read_file(home_ + "/journal").value());
  int starts = 0;
  for (int generation = 0, rank = 0, pid = 0; lines >> generation >> rank >> pid; ++starts) {
    EXPECT_EQ(generation, 1) << "training was disturbed";
  }
  EXPECT_EQ(starts, 4);
}

}  // namespace
}  // namespace hpctl
