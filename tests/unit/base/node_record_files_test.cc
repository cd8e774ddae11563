// SPDX-License-Identifier: Apache-2.0
// Who looks again opens what has changed, and nothing that has is missed.
#include "common/job/node_record_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr int64_t kWrittenMs = 1'700'000'000'000;

NodeRecord lost(uint64_t job, const std::string& reason) {
  return {kWrittenMs, job, "p5-1", "i-1", NodeRecordKind::kLost, "key", reason};
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status;
}

class NodeRecordFilesTest : public ::testing::Test {
 protected:
  std::string path(uint64_t job) const { return directory_ / (std::to_string(job) + ".jsonl"); }
  void append(uint64_t job, const std::string& reason) const {
    ASSERT_TRUE(
        append_node_records(directory_.path(), std::to_string(job) + ".jsonl", {lost(job, reason)})
            .ok());
  }
  void write(const std::string& path, const std::string& reason) const {
    ASSERT_TRUE(write_file_atomic(path, to_json_line(lost(1, reason)) + "\n").ok());
  }
  // Of the records of the last look, in order.
  std::vector<std::string> reasons() {
    std::vector<std::string> found;
    for (const NodeRecord& record : files_.look()) found.push_back(record.reason);
    std::sort(found.begin(), found.end());
    return found;
  }

  using Reasons = std::vector<std::string>;
  TemporaryDirectory directory_;
  NodeRecordFiles files_{directory_.path()};
};

TEST_F(NodeRecordFilesTest, OpensWhatIsNewOrLonger) {
  for (uint64_t job = 1; job <= 100; ++job) append(job, "first");
  EXPECT_EQ(files_.look().size(), 100U);
  EXPECT_EQ(files_.opened(), 100U);
  EXPECT_EQ(files_.look().size(), 100U);
  EXPECT_EQ(files_.opened(), 0U);
  append(17, "second");
  append(101, "first");
  EXPECT_EQ(files_.look().size(), 102U);
  EXPECT_EQ(files_.opened(), 2U);
  ASSERT_EQ(::unlink(path(3).c_str()), 0);
  EXPECT_EQ(files_.look().size(), 101U);
  EXPECT_EQ(files_.opened(), 0U);
}

TEST_F(NodeRecordFilesTest, SeesAnotherFileOfTheSameSizeAndTime) {
  write(path(1), "old");
  EXPECT_EQ(reasons(), Reasons{"old"});
  const struct stat before = status_of(path(1));
  const timespec times[] = {before.st_atim, before.st_mtim};
  write(directory_ / "new", "new");
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory_ / "new").c_str(), times, 0), 0);
  ASSERT_EQ(std::rename((directory_ / "new").c_str(), path(1).c_str()), 0);
  const struct stat after = status_of(path(1));
  ASSERT_EQ(after.st_size, before.st_size);
  ASSERT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
  EXPECT_EQ(reasons(), Reasons{"new"});
  EXPECT_EQ(files_.opened(), 1U);
}

TEST_F(NodeRecordFilesTest, SeesAFileThatWasWrittenOver) {
  write(path(1), "old");
  EXPECT_EQ(reasons(), Reasons{"old"});
  const struct stat before = status_of(path(1));
  const timespec times[] = {before.st_atim, before.st_mtim};
  const UniqueFd fd(::open(path(1).c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(write_all(fd.get(), to_json_line(lost(1, "new")) + "\n", path(1)).ok());
  // Until the clock of the file system has moved.
  do {
    ASSERT_EQ(::utimensat(AT_FDCWD, path(1).c_str(), times, 0), 0);
  } while (status_of(path(1)).st_ctim.tv_nsec == before.st_ctim.tv_nsec);
  EXPECT_EQ(reasons(), Reasons{"new"});
}

TEST_F(NodeRecordFilesTest, WhatCannotBeReadIsAskedForAgain) {
  append(1, "one");
  ASSERT_EQ(::symlink("nowhere", path(2).c_str()), 0);
  ASSERT_EQ(::mkdir(path(3).c_str(), 0700), 0);
  EXPECT_EQ(reasons(), Reasons{"one"});
  ASSERT_EQ(::unlink(path(2).c_str()), 0);
  append(2, "two");
  EXPECT_EQ(reasons(), (Reasons{"one", "two"}));
}

// More than it keeps: the newest jobs' are kept, others are read each time, and all count.
TEST_F(NodeRecordFilesTest, KeepsSoMuch) {
  const uint64_t fit = NodeRecordFiles::kMaxKeptBytes / NodeRecordFiles::kMaxFileBytes;
  for (uint64_t job = 1; job <= fit + 3; ++job) {
    std::string text = to_json_line(lost(job, "why")) + "\n";
    text.resize(NodeRecordFiles::kMaxFileBytes, 'x');
    ASSERT_TRUE(write_file_atomic(path(job), text).ok());
  }
  ASSERT_TRUE(
      write_file_atomic(path(99), std::string(NodeRecordFiles::kMaxFileBytes + 1, 'x')).ok());
  EXPECT_EQ(files_.look().size(), fit + 3);
  EXPECT_EQ(files_.opened(), fit + 3) << "one is too long to be looked at";
  EXPECT_EQ(files_.look().size(), fit + 3);
  EXPECT_EQ(files_.opened(), 3U);
}

}  // namespace
}  // namespace hpctl
