// SPDX-License-Identifier: Apache-2.0
// The client against an hpslurm that dies, hangs and lies: every fault becomes one error with cause
// and remedy, the next call works, and a submission never leaves two jobs behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/net/frame.h"
#include "common/slurm/hpslurm.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Client : public testing::Test {
 protected:
  Client() { ::setenv("FAKE_HPSLURM", directory_.path().c_str(), 1); }

  static constexpr int64_t kHangMs = 3'000;  // also for a start of the program

  static SlurmClientOptions options() {
    SlurmClientOptions options;
    options.program = std::string(std::getenv("HPCTL_BIN")) + "/../tests/fake_hpslurm";
    options.call_deadline_ms = 60'000;  // that a busy machine takes long is no hang
    options.submit_attempts = 3;
    options.submit_pause_ms = 1;
    return options;
  }
  void happens(const std::string& fault) {
    std::ofstream(directory_ / "faults", std::ios::app) << fault << "\n";
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::ifstream in(directory_ / name);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  // Every fault of `ping` is an error that contains `words`, and the call after it works.
  void expect_one_error(const std::string& fault, const std::string& words) {
    happens("ping " + fault);
    const auto failed = client_->ping();
    ASSERT_FALSE(failed.ok()) << fault;
    EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(failed.error().message, HasSubstr(words));
    const auto after = client_->ping();
    EXPECT_TRUE(after.ok()) << after.error().message;
  }

  void gives_up_soon() {
    SlurmClientOptions impatient = options();
    impatient.call_deadline_ms = kHangMs;
    client_.emplace(impatient);
  }

  TemporaryDirectory directory_;
  std::optional<SlurmClient> client_{std::in_place, options()};
};

SlurmSubmission submission() {
  SlurmSubmission out;
  out.comment = "hpctl:key-1";
  return out;
}

TEST_F(Client, StartsOneProgramForManyCalls) {
  EXPECT_TRUE(client_->ping().ok());
  EXPECT_TRUE(client_->ping().ok());
  const auto version = client_->version();
  ASSERT_TRUE(version.ok());
  EXPECT_THAT(version->controllers, ElementsAre("ctl1", "ctl2"));
  EXPECT_THAT(lines("calls"), ElementsAre("version", "ping", "ping", "version"));
}

TEST_F(Client, AFatalErrorOfLibslurmSaysItsCause) {
  expect_one_error("die hpslurm: fatal: out of sorts",
                   "does not answer; check with scontrol ping: hpslurm exited with code 1 "
                   "(hpslurm: fatal: out of sorts)");
}

TEST_F(Client, AnUnreadableConfigurationIsNamed) {
  ::setenv("SLURM_CONF", "/etc/x.conf", 1);
  happens("version die hpslurm: fatal: Unable to process configuration file");
  const auto failed = client_->ping();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message,
            "cannot read Slurm's configuration: check /etc/x.conf and SLURM_CONF: hpslurm "
            "exited with code 1 (hpslurm: fatal: Unable to process configuration file)");
  EXPECT_TRUE(client_->ping().ok());
}

TEST_F(Client, AnHpslurmThatHangsIsReplacedAfterTheDeadline) {
  gives_up_soon();
  const SystemClock clock;
  const int64_t begin = clock.monotonic_ms();
  expect_one_error("hang", "slurmctld at ctl1,ctl2 does not answer; check with scontrol ping");
  EXPECT_GE(clock.monotonic_ms() - begin, kHangMs);
}

TEST_F(Client, NonsenseIsAnError) {
  expect_one_error("garbage", "hpslurm answered nonsense");
  expect_one_error("torn", "in the middle of a message");
  expect_one_error("huge", "its length would be 4294967295 bytes");
}

TEST_F(Client, MungeIsNamed) {
  expect_one_error("die error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"",
                   "munged does not answer on this machine: systemctl status munge");
  expect_one_error("refuse unavailable Protocol authentication error of munge",
                   "systemctl status munge");
}

TEST_F(Client, AMissingProgramSaysHowToGetIt) {
  SlurmClientOptions absent = options();
  absent.program = directory_ / "nothing";
  SlurmClient client(absent);
  const auto failed = client.ping();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kInternal) << "kNotFound would say that a job is gone";
  EXPECT_THAT(failed.error().message, HasSubstr("libslurm-dev"));
}

TEST_F(Client, MachineWithoutSlurmIsNoSilence) {
  happens("version die hpslurm: fatal: Could not establish a configuration source");
  const auto failed = client_->job(JobId{7});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kInternal) << failed.error().message;
}

TEST_F(Client, ARefusalIsNotRetried) {
  happens("submit refuse invalid_argument Invalid partition name specified");
  const auto job = client_->submit(submission());
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(job.error().message, "Invalid partition name specified");
  EXPECT_THAT(lines("calls"), ElementsAre("version", "submit"));
}

TEST_F(Client, SubmitWaitsForSlurmctld) {
  happens("submit refuse unavailable Unable to contact slurm controller");
  happens("submit refuse unavailable Unable to contact slurm controller");
  const auto job = client_->submit(submission());
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_THAT(lines("jobs"), ElementsAre("100 hpctl:key-1"));
}

TEST_F(Client, SubmitGivesUpAfterItsAttempts) {
  for (int i = 0; i < 3; ++i)
    happens("submit refuse unavailable Unable to contact slurm controller");
  const auto job = client_->submit(submission());
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(job.error().message, HasSubstr("gave up after 3 attempts"));
  EXPECT_THAT(job.error().message, HasSubstr("slurmctld at ctl1,ctl2 does not answer"));
  EXPECT_TRUE(lines("jobs").empty());
}

TEST_F(Client, ALostAnswerLeavesOneJob) {
  happens("submit accept-and-die killed");
  const auto job = client_->submit(submission());
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(*job, JobId{100});
  EXPECT_THAT(lines("jobs"), ElementsAre("100 hpctl:key-1"));
}

TEST_F(Client, WhileNobodyCanTellNothingIsSubmittedAgain) {
  happens("submit accept-and-die killed");
  happens("jobs_by_comment refuse unavailable Unable to contact slurm controller");
  const auto job = client_->submit(submission());
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(*job, JobId{100});
  EXPECT_THAT(lines("jobs"), ElementsAre("100 hpctl:key-1"));
}

TEST_F(Client, AJobThatAppearsLateIsCancelled) {
  gives_up_soon();
  happens("submit hang");
  happens("submit accept-late");  // the first submission arrives just before the second
  const auto job = client_->submit(submission());
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(*job, JobId{100});
  EXPECT_THAT(lines("cancelled"), ElementsAre("101"));
}

TEST_F(Client, NodeChangesNeedAnOperator) {
  happens("update_node refuse permission_denied Access/permission denied");
  const auto refused = client_->update_node("n1", SlurmNodeState::kFail, "Action:Replace");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message,
              HasSubstr("sudo scontrol update nodename=n1 state=FAIL reason=\"Action:Replace\""));
}

TEST(Frame, TravelsInPieces) {
  std::array<int, 2> pair{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
  const UniqueFd a(pair[0]);
  UniqueFd b(pair[1]);
  const SystemClock clock;
  EXPECT_EQ(read_frame(a.get(), clock.monotonic_ms() + 10).error().code, ErrorCode::kUnavailable);
  ASSERT_TRUE(write_all(b.get(), std::string("\x03\0\0\0ab", 6), "socket").ok());
  EXPECT_EQ(read_frame(a.get(), clock.monotonic_ms() + 10).error().code, ErrorCode::kUnavailable);
  // Nobody reads: the writer gives up at its deadline rather than for ever.
  const std::string big(size_t{8} << 20, 'x');
  EXPECT_EQ(write_frame(b.get(), big, clock.monotonic_ms() + 10).error().code,
            ErrorCode::kUnavailable);
  b.reset();
  EXPECT_EQ(write_frame(a.get(), "x", kNoDeadline).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hpctl
