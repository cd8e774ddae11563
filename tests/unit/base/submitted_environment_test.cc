// SPDX-License-Identifier: Apache-2.0
// What a job takes from the shell that submitted it, and who may read it.
#include "common/job/submitted_environment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <ctime>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using Entries = std::vector<std::string>;

class SubmittedEnvironment : public ::testing::Test {
 protected:
  Entries read(uint64_t job) const {
    const auto found = read_submitted_environment(paths_, JobId{job});
    EXPECT_TRUE(found.ok()) << found.error().message;
    if (!found.ok()) return {"error"};
    return found->value_or(Entries{"none"});
  }

  TemporaryDirectory directory_;
  HomePaths paths_{directory_.path() + "/home"};
};

TEST_F(SubmittedEnvironment, SessionAndSchedulerStay) {
  for (const char* variable : {"PATH=/bin", "HF_TOKEN=x", "OMP_NUM_THREADS=4", "TERM=xterm",
                               "EMPTY=", "BASH_FUNC_module%%=() { :; }", "XDG_CACHE_HOME=/c"}) {
    EXPECT_TRUE(travels_with_job(variable)) << variable;
  }
  for (const char* variable :
       {"HPCTL_HOME=/h", "SLURM_JOB_ID=1", "SLURM_CONF=/etc", "SBATCH_QOS=q", "LD_PRELOAD=x.so",
        "SSH_AUTH_SOCK=/s", "DISPLAY=:0", "XDG_SESSION_ID=3", "XDG_RUNTIME_DIR=/run", "TMUX=/t",
        "TMUX_PANE=%1", "PWD=/x", "_=/bin/env", "no variable", "=x"}) {
    EXPECT_FALSE(travels_with_job(variable)) << variable;
  }
}

TEST_F(SubmittedEnvironment, FollowsTheJobAndEndsWithIt) {
  const Entries given = {"A=1", "TWO=lines\nof text", "SSH_TTY=/dev/pts/0", "PATH=/bin"};
  ASSERT_TRUE(write_submitted_environment(paths_, "key", given).ok());
  EXPECT_EQ(read(3), Entries{"none"}) << "before the job has a number";
  ASSERT_TRUE(adopt_submitted_environment(paths_, JobId{3}, "key").ok());
  const Entries taken = {"A=1", "TWO=lines\nof text", "PATH=/bin"};
  EXPECT_EQ(read(3), taken);
  ASSERT_TRUE(adopt_submitted_environment(paths_, JobId{3}, "key").ok()) << "a second launch";
  ASSERT_TRUE(adopt_submitted_environment(paths_, JobId{4}, "other").ok());
  EXPECT_EQ(read(3), taken);
  EXPECT_EQ(read(4), Entries{"none"});
  ASSERT_TRUE(remove_submitted_environment(paths_, JobId{3}).ok());
  ASSERT_TRUE(remove_submitted_environment(paths_, JobId{3}).ok()) << "a second end";
  EXPECT_EQ(read(3), Entries{"none"});
}

TEST_F(SubmittedEnvironment, OfAKilledSubmissionIsGoneAfterADay) {
  for (const char* key : {"killed", "recent"}) {
    ASSERT_TRUE(write_submitted_environment(paths_, key, {"HF_TOKEN=secret"}).ok());
  }
  const std::string directory = paths_.home() + "/submitting/";
  const timespec then{::time(nullptr) - 25 * 3600, 0};
  const std::array<timespec, 2> times{then, then};
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory + "killed.env").c_str(), times.data(), 0), 0);
  ASSERT_TRUE(write_submitted_environment(paths_, "next", {}).ok());
  EXPECT_EQ(list_directory(directory).value(), (Entries{"next.env", "recent.env"}));
}

TEST_F(SubmittedEnvironment, OnlyItsOwnerMayReadIt) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(write_submitted_environment(paths_, "key", {"HF_TOKEN=secret"}).ok());
  ::umask(before);
  struct stat st {};
  const std::string path = paths_.home() + "/submitting/key.env";
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777U, 0600U);
  EXPECT_FALSE(write_submitted_environment(paths_, "key", {}).ok()) << "keys differ";
  discard_submitted_environment(paths_, "key");
  EXPECT_NE(::stat(path.c_str(), &st), 0);
}

}  // namespace
}  // namespace hpctl
