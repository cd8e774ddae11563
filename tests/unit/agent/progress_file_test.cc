// SPDX-License-Identifier: Apache-2.0
// The steps that a program reports, and other things that it may write instead.
#include "agent/holder/progress_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/plausible.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::agent {
namespace {

using std::chrono::seconds;

class Told : public ::testing::Test {
 protected:
  void write(const std::string& text, std::ios::openmode mode = std::ios::app) const {
    std::ofstream(path_, mode) << text;
    // Two writes within the clock's tick would look like one.
    const struct timespec times[2] = {{0, UTIME_OMIT}, {second_++, 0}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }
  void expect_step(uint64_t step) {
    const ProgressSample& sample = file_.sample();
    EXPECT_EQ(sample.mapped, step > 0);
    EXPECT_FALSE(sample.damaged);
    EXPECT_EQ(sample.step, step);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_ / "progress";
  ProgressFile file_{path_};
  // Of today: a limit that is meant for durations is passed by each such time.
  static constexpr time_t kBegin = 1'800'000'000;
  mutable time_t second_ = kBegin;
};

TEST_F(Told, TheLastCompleteLineCounts) {
  expect_step(0);  // there is no file
  write("");
  expect_step(0);
  write("1");
  expect_step(0);
  write("2\n");
  expect_step(12);
  write("13 4096\r\n14");
  expect_step(13);
  EXPECT_EQ(file_.sample().tokens, 4096U);
  write("\n");
  expect_step(14);
  EXPECT_EQ(file_.sample().tokens, 0U);
}

TEST_F(Told, AStepTakesWhatPassedBetweenTwoLines) {
  write("10\n");
  EXPECT_EQ(file_.sample().step_took, seconds(0));
  EXPECT_EQ(file_.sample().first_step, UnixTime(seconds(kBegin)));
  EXPECT_TRUE(std::isnan(file_.sample().loss));
  write("11\n");
  EXPECT_EQ(file_.sample().step_took, seconds(1));
  write("11\n");  // nothing new, and no new beginning
  EXPECT_EQ(file_.sample().step_took, seconds(1));
  write("15\n");
  EXPECT_EQ(file_.sample().step_took, std::chrono::milliseconds(500));
  write("3\n");  // the program has gone back
  EXPECT_EQ(file_.sample().step, 3U);
  EXPECT_EQ(file_.sample().first_step, UnixTime(seconds(kBegin)));
}

// The time of the file was cut to the greatest duration, which lies in 2001: of two steps more than
// a second apart none took any time, and a healthy program was taken for hung after ten minutes.
TEST_F(Told, AStepOfMinutesIsSeen) {
  write("1\n");
  expect_step(1);
  second_ += 600;
  write("2\n");
  expect_step(2);
  EXPECT_GE(file_.sample().step_took, seconds(600));
}

TEST_F(Told, TheFileMayBeWrittenAnewReplacedOrLong) {
  write("100\n");
  expect_step(100);
  write("101\n", std::ios::trunc);
  expect_step(101);
  std::ofstream(path_ + ".new") << "102\n";
  ASSERT_EQ(std::rename((path_ + ".new").c_str(), path_.c_str()), 0);
  expect_step(102);
  for (int step = 103; step < 1'000; ++step) write(std::to_string(step) + " 77\n");
  expect_step(999);
}

TEST_F(Told, WhatIsNoStepIsLeftOut) {
  write("5\n");
  expect_step(5);
  const std::vector<std::string> others = {"step 6",
                                           "-6",
                                           "6 7 8",
                                           "",
                                           "6.5",
                                           "18446744073709551616",
                                           "2000000000000000",
                                           "0x6",
                                           std::string(4096, '7')};
  for (const std::string& line : others) {
    write(line + "\n");
    EXPECT_TRUE(file_.sample().damaged) << line;
    EXPECT_EQ(file_.sample().step, 5U) << line;
  }
  write("0\n");  // no step is completed
  expect_step(5);
  write("6\n");
  expect_step(6);
}

TEST_F(Told, TheFilesTimeIsNotBelieved) {
  write("5\n");
  expect_step(5);
  for (const time_t second : {time_t{-5}, time_t{1} << 60}) {
    second_ = second;
    const std::string step = std::to_string(file_.sample().step + 1);
    write(step + "\n");
    EXPECT_EQ(std::to_string(file_.sample().step), step);
    EXPECT_TRUE(is_believable(file_.sample().step_took));
  }
}

TEST_F(Told, APipeOrALinkInItsPlaceHoldsNobodyUp) {
  write("5\n");
  expect_step(5);
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_step(5);
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  ASSERT_EQ(::symlink("/dev/zero", path_.c_str()), 0);
  expect_step(5);
}

TEST_F(Told, EachGenerationBeginsWithEmptyFilesAndLeavesNone) {
  const std::string directory = directory_ / "progress-of-job";
  ASSERT_TRUE(prepare_progress_files(directory, 1, {0, 1}).ok());
  const std::string old = progress_file_path(directory, 1, 1);
  std::ofstream(old) << "9\n";
  // The same order again, as after a lost connection.
  ASSERT_TRUE(prepare_progress_files(directory, 1, {0, 1}).ok());
  EXPECT_EQ(ProgressFile(old).sample().step, 9U);
  ASSERT_TRUE(prepare_progress_files(directory, 2, {1}).ok());
  EXPECT_FALSE(is_accessible(old));
  EXPECT_EQ(ProgressFile(progress_file_path(directory, 2, 1)).sample().step, 0U);
  remove_progress_file(directory, 2, 1);
  EXPECT_FALSE(is_accessible(directory));
}

}  // namespace
}  // namespace hpctl::agent
