// SPDX-License-Identifier: Apache-2.0
// Records of controllers, the token and the verdict: what is accepted, and who wins a race.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/job/controller_beat.h"
#include "common/job/endpoint.h"
#include "common/job/job_files.h"
#include "common/net/node_address.h"
#include "common/net/socket_address.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

ControllerRecord some_record(uint64_t epoch) {
  ControllerRecord record;
  record.epoch = epoch;
  record.address = "10.0.0.7:4242";
  record.node = "n7";
  record.pid = 99;
  record.boot_id = "b";
  record.started_wall_ms = 5;
  record.nodes = {"n7", "n8"};
  record.scheduler = "slurm";
  record.restart_count = 2;
  return record;
}

TEST(Endpoint, TheHighestEpochIsTheController) {
  TemporaryDirectory dir;
  EXPECT_EQ(newest_controller_epoch(dir.path()).value(), 0U);
  EXPECT_FALSE(newest_controller(dir.path()).value());
  for (const uint64_t epoch : {1, 2, 10, 9}) {
    ASSERT_TRUE(create_controller_record(dir.path(), some_record(epoch)).ok());
  }
  ASSERT_TRUE(write_file_atomic(dir / "controllers/11.json.tmp", "x").ok());
  const auto newest = newest_controller(dir.path());
  ASSERT_TRUE(newest.ok() && *newest);
  EXPECT_EQ(to_json_text(**newest), to_json_text(some_record(10)));
}

TEST(Endpoint, OfRacingControllersOneGetsTheEpoch) {
  TemporaryDirectory dir;
  std::atomic<int> winners{0};
  std::atomic<int> losers{0};
  std::vector<std::thread> racers;
  for (int i = 0; i < 8; ++i) {
    racers.emplace_back([&, i] {
      ControllerRecord record = some_record(3);
      record.pid = static_cast<uint64_t>(i);
      const auto created = create_controller_record(dir.path(), record);
      if (created.ok()) ++winners;
      if (!created.ok() && created.error().code == ErrorCode::kAlreadyExists) ++losers;
    });
  }
  for (std::thread& racer : racers) racer.join();
  EXPECT_EQ(winners, 1);
  EXPECT_EQ(losers, 7);
}

TEST(Endpoint, ADamagedRecordIsNamed) {
  TemporaryDirectory dir;
  ASSERT_TRUE(create_controller_record(dir.path(), some_record(1)).ok());
  ASSERT_TRUE(write_file_atomic(dir / "controllers/2.json", to_json_text(some_record(1))).ok());
  const auto newest = newest_controller(dir.path());
  ASSERT_FALSE(newest.ok());
  EXPECT_NE(newest.error().message.find("controllers/2.json"), std::string::npos);
}

TEST(Token, OnlyAPrivateWholeOneIsRead) {
  TemporaryDirectory dir;
  EXPECT_EQ(read_token(dir.path()).error().code, ErrorCode::kNotFound);
  const std::string path = dir / "token";
  const std::string token(64, 'a');
  ASSERT_TRUE(write_file_atomic(path, token + "\n").ok());
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(read_token(dir.path()).error().code, ErrorCode::kPermissionDenied);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read_token(dir.path()).value(), token);
  for (const std::string& text :
       {token, token + "a\n", token.substr(1) + "\n", token.substr(1) + "A\n", std::string("\n")}) {
    ASSERT_TRUE(write_file_atomic(path, text).ok());
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    EXPECT_EQ(read_token(dir.path()).error().code, ErrorCode::kDataLoss) << text;
  }
}

// `hpctl cancel` of root on another user's job said that its token had leaked.
TEST(Token, RootReadsTheTokenOfTheOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t kAlice = 4'711;
  TemporaryDirectory dir;
  const std::string path = dir / "token";
  const std::string token(64, 'a');
  ASSERT_TRUE(write_file_atomic(path, token + "\n").ok());
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(::chown(path.c_str(), kAlice, kAlice), 0);
  const auto foreign = read_token(dir.path());  // the directory is not hers
  ASSERT_EQ(foreign.error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(foreign.error().message.find("who could read it"), std::string::npos);
  ASSERT_EQ(::chown(dir.path().c_str(), kAlice, kAlice), 0);
  EXPECT_EQ(read_token(dir.path()).value(), token);
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(read_token(dir.path()).error().code, ErrorCode::kPermissionDenied);
}

TEST(Token, Comparison) {
  EXPECT_TRUE(same_token("abc", "abc"));
  EXPECT_FALSE(same_token("abc", "abd"));
  EXPECT_FALSE(same_token("abc", "ab"));
  EXPECT_FALSE(same_token("", "a"));
}

TEST(Verdict, AFailureIsForgottenByARequeueAndTheRestStands) {
  TemporaryDirectory dir;
  EXPECT_FALSE(standing_verdict(dir.path(), 0).value());
  for (const int verdict : {kVerdictFinished, kVerdictFailed, kVerdictFailedForGood}) {
    ASSERT_TRUE(write_verdict(dir.path(), verdict, 3).ok());
    EXPECT_EQ(standing_verdict(dir.path(), 3).value(), verdict);
  }
  EXPECT_EQ(standing_verdict(dir.path(), 4).value(), kVerdictFailedForGood);
  ASSERT_TRUE(write_verdict(dir.path(), kVerdictFailed, 3).ok());
  EXPECT_FALSE(standing_verdict(dir.path(), 4).value());
  ASSERT_TRUE(write_file_atomic(dir / "verdict", "none\n").ok());
  EXPECT_EQ(standing_verdict(dir.path(), 3).error().code, ErrorCode::kDataLoss);
}

TEST(ControllerBeat, MovesOnlyWhileSomebodyMovesIt) {
  TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "controllers").ok());
  EXPECT_EQ(read_beat(dir.path()).value(), "");
  ASSERT_TRUE(write_beat(dir.path(), 1, 1).ok());
  const auto never = [] { return false; };
  EXPECT_FALSE(beat_moves(dir.path(), never).value());
  std::atomic<bool> ends = false;
  std::thread controller([&] {
    for (uint64_t count = 2; !ends; ++count) EXPECT_TRUE(write_beat(dir.path(), 1, count).ok());
  });
  EXPECT_TRUE(beat_moves(dir.path(), never).value());
  ends = true;
  controller.join();
}

TEST(ControllerBeat, NeedsMostOfTheNodes) {
  const std::vector<std::string> four = {"a", "b", "c", "d"};
  EXPECT_TRUE(is_majority({"b", "c", "d"}, four));
  EXPECT_TRUE(is_majority({"a", "d"}, four));
  EXPECT_FALSE(is_majority({"b", "c"}, four)) << "the half without the first node";
  EXPECT_FALSE(is_majority({"a", "x", "y"}, four));
  EXPECT_TRUE(is_majority({"a"}, {"a"}));
  EXPECT_FALSE(is_majority({}, {"a"}));
  EXPECT_FALSE(is_majority({}, {}));
}

TEST(SocketAddress, IsNumbersAndAPort) {
  const auto v4 = SocketAddress::parse("192.0.2.7:80");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->family(), AF_INET);
  EXPECT_EQ(v4->size(), sizeof(sockaddr_in));
  EXPECT_EQ(v4->ip(), "192.0.2.7");
  EXPECT_EQ(v4->port(), 80);
  const auto v6 = SocketAddress::parse("[2001:db8::7]:65535");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->family(), AF_INET6);
  EXPECT_EQ(v6->size(), sizeof(sockaddr_in6));
  EXPECT_EQ(v6->ip(), "2001:db8::7");
  EXPECT_EQ(v6->port(), 65535);
  EXPECT_EQ(SocketAddress::of("2001:db8::7", 0)->port(), 0);
  EXPECT_EQ(SocketAddress::parse_listener("192.0.2.7:0")->port(), 0);
  EXPECT_EQ(SocketAddress::parse_listener("[2001:db8::7]:80")->port(), 80);
  EXPECT_FALSE(SocketAddress::parse_listener("n1:0").ok());
  for (const char* text :
       {"", ":", ":80", "192.0.2.7", "192.0.2.7:", "192.0.2.7:0", "192.0.2.7:65536", "192.0.2.7:-1",
        "192.0.2.7:8x", "192.0.2.7: 80", "192.0.2.256:80", "[192.0.2.7]:80", "2001:db8::7:80",
        "[2001:db8::7]", "[2001:db8::7:80", "[]:80", "n1:80"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(address.error().message.find(std::string("\"") + text + "\""), std::string::npos);
  }
}

TEST(SocketAddress, OfASocketIsItsOwnEnd) {
  const auto any = SocketAddress::of("127.0.0.1", 0).value();
  const UniqueFd fd(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(fd.get(), any.get(), any.size()), 0);
  const auto bound = SocketAddress::of_socket(fd.get());
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->ip(), "127.0.0.1");
  EXPECT_NE(bound->port(), 0);
  EXPECT_FALSE(SocketAddress::of_socket(-1).ok());
}

TEST(NodeAddress, IsTheSideFromWhichThePeerIsReached) {
  EXPECT_EQ(node_address_towards("127.0.0.1:1"), "127.0.0.1");
  const UniqueFd v6(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto loopback = SocketAddress::parse("[::1]:9").value();
  if (v6.valid() && ::connect(v6.get(), loopback.get(), loopback.size()) == 0) {
    EXPECT_EQ(node_address_towards("[::1]:1"), "::1");
  }
  EXPECT_EQ(node_address_towards("not an address"), node_address());
  EXPECT_FALSE(node_address().empty());
}

// Of the job what we lack, and its PATH; nothing of Slurm's.
TEST(JobFiles, TheJobsEnvironmentFillsWhatIsNotThere) {
  TemporaryDirectory dir;
  EXPECT_FALSE(take_job_environment(dir.path()).ok());
  const std::string path = std::getenv("PATH");
  ::setenv("HPCTL_TEST_ONE", "of the job\nwith = and \xff", 1);
  ::setenv("HPCTL_TEST_TWO", "of the job", 1);
  ::setenv("SLURM_TEST", "of the batch step", 1);
  ::setenv("PATH", "/of/the/job", 1);
  ASSERT_TRUE(write_job_environment(dir.path()).ok());
  ::unsetenv("HPCTL_TEST_ONE");
  ::setenv("HPCTL_TEST_TWO", "of the node", 1);
  ::unsetenv("SLURM_TEST");
  ::setenv("PATH", path.c_str(), 1);
  ASSERT_TRUE(take_job_environment(dir.path()).ok());
  EXPECT_STREQ(std::getenv("HPCTL_TEST_ONE"), "of the job\nwith = and \xff");
  EXPECT_STREQ(std::getenv("HPCTL_TEST_TWO"), "of the node");
  EXPECT_EQ(std::getenv("SLURM_TEST"), nullptr);
  EXPECT_STREQ(std::getenv("PATH"), "/of/the/job");
  ::setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace hpctl
