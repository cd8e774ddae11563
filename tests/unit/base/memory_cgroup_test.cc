// SPDX-License-Identifier: Apache-2.0
// Files as a kernel writes them, of cgroup v2, v1, and neither. The real thing is in holder_test.
#include "common/process/memory_cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

class MemoryCgroup : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const TemporaryDirectory root_;
};

TEST_F(MemoryCgroup, OfVersionTwoTheLeastLimitOnTheWayUpCounts) {
  put("/proc/self/cgroup", "0::/slurm/job_1\n");
  put("/sys/fs/cgroup/slurm/memory.max", "2147483648\n");
  put("/sys/fs/cgroup/slurm/job_1/memory.max", "max\n");
  const std::string events = "/sys/fs/cgroup/slurm/job_1/memory.events";
  put(events, "low 0\nhigh 0\nmax 7\noom 3\noom_kill 3\noom_group_kill 0\n");
  EXPECT_EQ(memory_limit_bytes(root_.path()), uint64_t{2} << 30);
  OomKills kills(root_.path());
  EXPECT_FALSE(kills.take_one()) << "these were before";
  put(events, "low 0\nhigh 0\nmax 9\noom 5\noom_kill 5\noom_group_kill 0\n");
  EXPECT_TRUE(kills.take_one());
  EXPECT_TRUE(kills.take_one());
  EXPECT_FALSE(kills.take_one());
  EXPECT_THAT(kills.describe(), HasSubstr("memory limit is 2048 MiB"));
  put(events, "oom_kill 6\n");
  kills.forget();
  EXPECT_FALSE(kills.take_one());
}

TEST_F(MemoryCgroup, OfVersionOne) {
  put("/proc/self/cgroup", "4:memory:/job\n3:cpuset:/\n0::/\n");
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/job/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  OomKills kills(root_.path());
  put("/sys/fs/cgroup/memory/job/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_TRUE(kills.take_one());
  EXPECT_THAT(kills.describe(), HasSubstr("no cgroup limits its memory"));
}

// A root cgroup of version 2 has no such files.
TEST_F(MemoryCgroup, WithoutOneTheMachineCounts) {
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/vmstat", "pgmajfault 12\noom_kill 8\ndrop_pagecache 0\n");
  OomKills kills(root_.path());
  EXPECT_FALSE(kills.take_one());
  put("/proc/vmstat", "oom_kill 9\n");
  EXPECT_TRUE(kills.take_one());
  EXPECT_EQ(memory_limit_bytes(root_.path()), 0U);
}

TEST_F(MemoryCgroup, NothingIsToldWhereNothingCanBeRead) {
  OomKills kills(root_.path());
  EXPECT_FALSE(kills.take_one());
}

}  // namespace
}  // namespace hpctl
