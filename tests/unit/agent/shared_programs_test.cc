// SPDX-License-Identifier: Apache-2.0
// A node whose programs are on a file server that stops to answer.
#include "common/base/private_directory.h"
#include "tests/support/pausable_mount.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::agent {
namespace {

using test::eventually;

class SharedPrograms : public ::testing::Test, public test::NodeUnderTest {
 protected:
  void SetUp() override {
    const std::string source = home_.path() + "/server";
    std::filesystem::rename(home_.path() + "/bin", source);
    std::filesystem::create_directory(home_.path() + "/bin");
    mount_ = std::make_unique<test::PausableMount>(source, home_.path() + "/bin");
    if (!mount_->mounted()) GTEST_SKIP() << "needs root and /dev/fuse";
  }
  static std::string program_of(pid_t pid) {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).string();
  }

  std::unique_ptr<test::PausableMount> mount_;
};

// Its text was on the file server: the next agent could not even be executed.
TEST_F(SharedPrograms, AgentIsReplacedWhileTheirServerDoesNotAnswer) {
  connect();
  const std::string copies = user_directory() + "/programs/";
  EXPECT_TRUE(program_of(holder_.pid).starts_with(copies)) << program_of(holder_.pid);
  EXPECT_TRUE(program_of(agent_pid()).starts_with(copies)) << program_of(agent_pid());
  mount_->pause();
  const pid_t first = agent_pid();
  kill_agent();
  EXPECT_NE(agent_pid(), first);
  EXPECT_EQ(start(1, 1, {0}, {"exit", "0"}).workers_size(), 1);
  EXPECT_EQ(exited().exit_code(), 0);
  mount_->resume();
}

}  // namespace
}  // namespace hpctl::agent
