// SPDX-License-Identifier: Apache-2.0
// hpctl ca in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/file.h"
#include "common/base/json.h"
#include "hpctl/exit_codes.h"
#include "tests/support/command_run.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Ca : public ::testing::Test {
 protected:
  ~Ca() override { ::unsetenv("HPCTL_CA"); }
  CommandRun ca(std::vector<std::string> words) const {
    words.insert(words.begin(), "ca");
    words.insert(words.end(), {"--dir", path_});
    return run_hpctl(words);
  }
  nlohmann::json told(std::vector<std::string> words) const {
    words.emplace_back("--json");
    const CommandRun ran = ca(std::move(words));
    EXPECT_EQ(ran.status, kExitOk) << ran.err;
    return nlohmann::json::parse(ran.out, nullptr, false);
  }

  TemporaryDirectory root_;
  const std::string path_ = root_ / "ca";
};

TEST_F(Ca, IsMadeShownAndRotated) {
  EXPECT_EQ(ca({"show"}).status, kExitFailed);
  EXPECT_THAT(ca({"show"}).err, HasSubstr("hpctl ca make --dir " + path_));
  EXPECT_THAT(ca({"rotate"}).err, HasSubstr("there is no authority in " + path_));

  const CommandRun made = ca({"make", "--days", "100"});
  EXPECT_EQ(made.status, kExitOk) << made.err;
  EXPECT_EQ(made.err, "");
  EXPECT_THAT(made.out, AllOf(HasSubstr("bundle for callers: " + path_ + "/bundle.pem\n"),
                              HasSubstr("hpctl CA of "), HasSubstr("  part    signs\n"),
                              HasSubstr("  SHA-256 "), Not(HasSubstr("PRIVATE"))));
  const auto first = told({"show"});
  EXPECT_EQ(first.at("directory"), path_);
  EXPECT_EQ(first.at("bundle"), path_ + "/bundle.pem");
  EXPECT_EQ(first.at("changed"), false);
  EXPECT_EQ(first.at("rotation"), nullptr);
  EXPECT_EQ(first.at("authorities").size(), 1U);
  EXPECT_EQ(first.at("authorities")[0].at("signs"), true);

  const CommandRun again = ca({"make"});
  EXPECT_EQ(again.status, kExitOk);
  EXPECT_THAT(again.err, HasSubstr("there is one; nothing was changed"));
  EXPECT_EQ(again.out, made.out);

  const auto rotated = told({"rotate", "--spread", "3"});
  EXPECT_EQ(rotated.at("changed"), true);
  EXPECT_EQ(rotated.at("authorities").size(), 2U);
  EXPECT_EQ(rotated.at("authorities")[0].at("signs"), false);
  EXPECT_EQ(rotated.at("authorities")[1], first.at("authorities")[0]);
  EXPECT_GT(rotated.at("rotation").at("leaves"), rotated.at("rotation").at("signs_from"));
  EXPECT_THAT(ca({"show"}).out,
              AllOf(HasSubstr("  part    signs from 2"), HasSubstr("  part    signs, leaves it")));
  const CommandRun more = ca({"rotate"});
  EXPECT_EQ(more.status, kExitOk);
  EXPECT_THAT(more.err, HasSubstr("one follows already; nothing was changed"));
}

// Where the key is, is the same as for the service.
TEST_F(Ca, IsWhereTheServiceHasIt) {
  ::setenv("HPCTL_CA", path_.c_str(), 1);
  EXPECT_EQ(run_hpctl({"ca", "make"}).status, kExitOk);
  EXPECT_TRUE(is_accessible(path_ + "/bundle.pem"));
}

TEST_F(Ca, WrongWordsAreRefused) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"forge"},
                                                {"show", "--days", "3"},
                                                {"make", "--spread", "3"},
                                                {"make", "--days", "0"},
                                                {"rotate", "--days", "36", "--spread", "7"},
                                                {"rotate", "--spread", "x"}}) {
    EXPECT_EQ(ca(words).status, kExitUsage) << words[0];
  }
  EXPECT_FALSE(is_accessible(path_)) << "nothing of that was done";
}

}  // namespace
}  // namespace hpctl
