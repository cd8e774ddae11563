// SPDX-License-Identifier: Apache-2.0
// File systems that answer, and ones that hang whoever asks.
#include "agent/nodecheck/probes/mounts.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/fd.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::agent {
namespace {

using std::chrono::milliseconds;

TEST(Mounts, ThoseOverTheNetwork) {
  const auto found = network_mounts(
      "/dev/nvme0n1p1 / ext4 rw 0 0\n"
      "10.0.0.1@tcp:/abc /fsx lustre rw,flock 0 0\n"
      "fs-1.efs:/ /home/with\\040space nfs4 rw 0 0\n"
      "s3 /data fuse.mount-s3 ro 0 0\n"
      "fusectl /sys/fs/fuse/connections fusectl rw 0 0\n"
      "broken line\n\n");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].path, "/fsx");
  EXPECT_EQ(found[0].type, "lustre");
  EXPECT_EQ(found[1].path, "/home/with space");
  EXPECT_EQ(found[2].type, "fuse.mount-s3");
  std::string many;
  for (int i = 0; i < 1'000; ++i) many += "a /m" + std::to_string(i) + " nfs rw 0 0\n";
  EXPECT_EQ(network_mounts(many).size(), kMostMounts);
}

TEST(Mounts, ADirectoryThatAnswersIsWrittenToAndLeftAsItWas) {
  const TemporaryDirectory directory;
  const auto health =
      ask_mounts({{directory.path(), ""}, {directory.path(), "nfs"}}, milliseconds(5'000));
  ASSERT_EQ(health.size(), 2U);
  for (const MountHealth& mount : health) {
    EXPECT_TRUE(mount.answered);
    EXPECT_EQ(mount.trouble, "");
  }
  EXPECT_TRUE(list_directory(directory.path())->empty());
  EXPECT_EQ(ask_mounts({{directory / "missing", "nfs"}}, milliseconds(5'000))[0].trouble,
            std::strerror(ENOENT));
}

// A hung mount: whoever asks does not come back.
int hang(const char*, bool) {
  for (;;) ::pause();
}

TEST(Mounts, AHungOneIsWaitedForUntilTheDeadline) {
  const auto health = ask_mounts({{"/hung", "nfs"}}, milliseconds(50), hang);
  EXPECT_FALSE(health[0].answered);
}

// A byte for each that has answered; read where a mount hangs.
int answered_fds[2];

// The one that hangs has not answered when the other two have.
int hang_until_others_answer(const char* path, bool) {
  char byte = 0;
  if (std::strstr(path, "hung") != nullptr) {
    for (int others = 0; others < 2; ++others) {
      if (::read(answered_fds[0], &byte, 1) != 1) break;
    }
    ::_exit(1);
  }
  const ssize_t told = ::write(answered_fds[1], &byte, 1);
  return told == 1 && std::strstr(path, "stale") == nullptr ? 0 : ESTALE;
}

TEST(Mounts, AHungOneKeepsNobodyWaiting) {
  ASSERT_EQ(::pipe2(answered_fds, O_CLOEXEC), 0);
  const UniqueFd reader(answered_fds[0]);
  const UniqueFd writer(answered_fds[1]);
  const auto health = ask_mounts({{"/hung", "nfs"}, {"/fine", "nfs"}, {"/stale", "nfs4"}},
                                 milliseconds(60'000), hang_until_others_answer);
  EXPECT_FALSE(health[0].answered);
  EXPECT_TRUE(health[1].answered);
  EXPECT_EQ(health[1].trouble, "");
  EXPECT_EQ(health[2].trouble, std::strerror(ESTALE));
  const Finding finding = judge_mounts(health, 300);
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_EQ(finding.reason,
            "/hung (nfs): no answer within 300 ms, /stale (nfs4): Stale file handle");
}

}  // namespace
}  // namespace hpctl::agent
