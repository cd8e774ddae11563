// SPDX-License-Identifier: Apache-2.0
// Files of env.files: what a line may be, and what is said about one that is wrong.
#include "common/job/environment_file.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using Variables = std::map<std::string, std::string>;

std::string problem_of(const std::string& text) {
  const auto parsed = parse_environment_file(text, "/e");
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(EnvironmentFile, LinesAreVariables) {
  const auto parsed = parse_environment_file(
      "# keys\n\nA=1\n  export B=two words \r\nC='quoted $HOME'\nD=\"x=y\"\nE=\nA=2\nF='open",
      "/e");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  const Variables wanted = {{"A", "2"},   {"B", "two words"}, {"C", "quoted $HOME"},
                            {"D", "x=y"}, {"E", ""},          {"F", "'open"}};
  EXPECT_EQ(*parsed, wanted);
}

TEST(EnvironmentFile, MistakesNameTheLineAndNoValue) {
  EXPECT_EQ(problem_of("A=1\nsecret\n"), "env.files: /e:2: expected NAME=VALUE");
  EXPECT_EQ(problem_of("\n1A=secret\n"),
            "env.files: /e:2: expected the name of an environment variable before =");
  EXPECT_EQ(problem_of("RANK=3\n"),
            "env.files: /e:1: RANK is set by hpctl for every worker and cannot be set here");
  EXPECT_EQ(problem_of("A=\xff\n"), "env.files: /e:1: the value of A is not text in UTF-8");
}

TEST(EnvironmentFile, LaterFilesCount) {
  const TemporaryDirectory directory;
  const std::string a = directory.path() + "/a";
  const std::string b = directory.path() + "/b";
  ASSERT_TRUE(write_file_atomic(a, "X=a\nY=a\n").ok());
  ASSERT_TRUE(write_file_atomic(b, "X=b\n").ok());
  const auto read = read_environment_files({a, b});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, (Variables{{"X", "b"}, {"Y", "a"}}));
  EXPECT_TRUE(read_environment_files({})->empty());
  const auto missing = read_environment_files({a, b + "c"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message, "env.files: " + b +
                                         "c is missing; put the file there, or remove it from "
                                         "env.files");
}

}  // namespace
}  // namespace hpctl
