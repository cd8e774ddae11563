// SPDX-License-Identifier: Apache-2.0
// The real hpctl where its output goes to a full disk, to a reader that has gone or nowhere, and
// where its working directory is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "hpctl/exit_codes.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {
namespace {

// By the shell: `before`, then hpctl that prints its help, redirected.
CommandResult print_help(const std::string& redirection, const std::string& before = "") {
  const char* built = std::getenv("HPCTL_BIN");
  EXPECT_NE(built, nullptr) << "run by ctest, or set HPCTL_BIN to build/PRESET/bin";
  return run_command(
      {"/bin/sh", "-c", before + '"' + std::string(built) + "/hpctl\" --help " + redirection}, {});
}

TEST(StandardStreams, WhatDoesNotFitOnADiskIsNotTakenForDone) {
  const CommandResult result = print_help("> /dev/full");
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, ::testing::HasSubstr("the output could not be written"));
}

TEST(StandardStreams, NorIsItThatOfHpdata) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "text") << "a";
  const CommandResult result = run_command(
      {"/bin/sh", "-c",
       '"' + std::string(std::getenv("HPCTL_BIN")) + "/hpctl\" data prepare " + (dir / "text") +
           " --tokenizer=byte --out=" + (dir / "out") + " > /dev/full"},
      {});
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, ::testing::HasSubstr("the output could not be written"));
}

TEST(StandardStreams, AReaderThatHasGoneIsNoFailure) {
  const TemporaryDirectory dir;
  const std::string pipe = dir / "pipe";
  const CommandResult result =
      print_help(">&4", "mkfifo " + pipe + "; exec 3<>" + pipe + " 4>" + pipe + " 3<&-; ");
  EXPECT_EQ(result.exit_code, kExitOk);
  EXPECT_EQ(result.err, "");
}

TEST(WorkingDirectory, ARelativeHomeNeedsIt) {
  const TemporaryDirectory dir;
  const std::string gone = dir / "gone";
  const CommandResult result =
      run_command({"/bin/sh", "-c",
                   "mkdir " + gone + " && cd " + gone + " && rmdir " + gone +
                       " && HPCTL_HOME=home \"" + std::getenv("HPCTL_BIN") + "/hpctl\" ps"},
                  {});
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err,
              ::testing::HasSubstr("the home home is relative to the working directory, "
                                   "which is gone (No such file or directory)"));
}

TEST(StandardStreams, AClosedOneIsNothing) {
  const CommandResult result = print_help(">&-");
  EXPECT_EQ(result.exit_code, kExitOk);
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace hpctl::testing
