// SPDX-License-Identifier: Apache-2.0
// HYPERPOD_HANG_RULES beside our hang detection. A file that cancels and one that hpctl restarts
// after would fight for the job.
#include "hpctl/second_watcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SecondWatcher : public ::testing::Test {
 protected:
  std::string told(const std::string& rules) {
    const std::string path = directory_ / "rules.json";
    EXPECT_TRUE(write_file_atomic(path, rules).ok());
    JobSpec spec;
    spec.env["HYPERPOD_HANG_RULES"] = path;
    return describe_second_watcher(spec);
  }

  TemporaryDirectory directory_;
};

TEST_F(SecondWatcher, IsNamed) {
  const std::string text = told(R"({"enabled": true})");
  EXPECT_THAT(text, HasSubstr("HyperPod watches for hangs beside hpctl"));
  EXPECT_THAT(text, Not(HasSubstr("its rules cancel the job")));
  EXPECT_EQ(told(R"({"enabled": false})"), "");
  EXPECT_EQ(describe_second_watcher(JobSpec{}), "");
}

TEST_F(SecondWatcher, ThatCancelsIsWarnedOf) {
  EXPECT_THAT(told(R"({"enabled": true, "rules": [{"limit": 600, "action": "CANCEL_JOB"}]})"),
              HasSubstr("its rules cancel the job"));
}

TEST_F(SecondWatcher, WhoseRulesCannotBeReadMayCancel) {
  EXPECT_THAT(told("no JSON"), HasSubstr("if its action is to cancel"));
  JobSpec spec;
  spec.env["HYPERPOD_HANG_RULES"] = directory_ / "on another machine.json";
  EXPECT_THAT(describe_second_watcher(spec), HasSubstr("if its action is to cancel"));
}

}  // namespace
}  // namespace hpctl
