// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/worker_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "common/process/process_stat.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl {
namespace {

// It shows no mark any more, and has its files yet.
TEST(KillMarked, AwaitsAChildThatIsEnding) {
  constexpr char kMark[] = "mark-of-nobody.";
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(HPCTL_LEADER_EXITS, HPCTL_LEADER_EXITS, nullptr);
    ::_exit(127);
  }
  ASSERT_GT(child, 0);
  EXPECT_TRUE(test::eventually([&] { return is_exiting(child); }));
  EXPECT_FALSE(kill_marked(kMark, 50));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(kill_marked(kMark, kProcessEndMs));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), child);
}

}  // namespace
}  // namespace hpctl
