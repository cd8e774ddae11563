// SPDX-License-Identifier: Apache-2.0
// Root's `hpctl cancel` of another user's local job. It looked for the user's controller among
// root's own, found none, and said whose home that is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "tests/integration/local_cluster.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr seconds kLong{60};

class TwoUsers : public ::testing::Test {
 protected:
  static constexpr uid_t kNobody = 65534;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
    if (!is_accessible("/usr/bin/setpriv")) GTEST_SKIP() << "no setpriv";
    theirs_ = cluster_.directory() + "/theirs";
    ASSERT_EQ(::chmod(cluster_.directory().c_str(), 0711), 0);
    ASSERT_EQ(::mkdir(theirs_.c_str(), 0700), 0);
    ASSERT_EQ(::chown(theirs_.c_str(), kNobody, kNobody), 0);
  }
  // What carries their home in its environment: the controller waits for another job.
  void TearDown() override {
    if (IsSkipped()) return;
    const json version = json::parse(as_nobody({"version", "--json"}).out, nullptr, false);
    const auto controller = version.is_object() ? version.value("controller", json()) : json();
    const pid_t pid = controller.is_object() ? controller.value("pid", 0) : 0;
    if (pid > 0) ::kill(pid, SIGTERM);
    const auto ended = [&] { return pid <= 0 || ::kill(pid, 0) != 0; };
    EXPECT_TRUE(wait_until(theirs_, ended, kLong));
  }

  static std::string program() {
    const char* bin = std::getenv("HPCTL_BIN");
    return std::string(bin == nullptr ? "" : bin) + "/hpctl";
  }
  std::vector<std::string> environment() const {
    return {"HPCTL_HOME=" + theirs_, "HOME=" + theirs_};
  }
  CommandResult as_nobody(std::vector<std::string> words) const {
    words.insert(words.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                 "--clear-groups", program()});
    return run_command(words, environment(), kLong);
  }
  CommandResult as_root(std::vector<std::string> words) const {
    words.insert(words.begin(), program());
    return run_command(words, environment(), kLong);
  }

  LocalCluster cluster_;
  std::string theirs_;
};

TEST_F(TwoUsers, RootCancelsUnderItsOwnName) {
  const std::string file = cluster_.directory() + "/job.yaml";
  ASSERT_TRUE(write_file_atomic(file, "name: theirs\nworkload: {command: [sleep, '1000']}\n").ok());
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  const auto submitted = as_nobody({"submit", "--local", file, "--json"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string id = json::parse(submitted.out)["job"].dump();
  const auto state = [&] {
    const json shown = json::parse(as_nobody({"status", id, "--json"}).out, nullptr, false);
    return shown.is_object() ? shown.value("state", "") : "";
  };
  ASSERT_TRUE(wait_until(
      theirs_, [&] { return state() == "RUNNING"; }, kLong))
      << state();
  const auto cancelled = as_root({"cancel", id});
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_THAT(cancelled.err, Not(HasSubstr("token")));
  EXPECT_TRUE(wait_until(
      theirs_, [&] { return state() == "CANCELLED"; }, kLong))
      << state();
  const auto audit = as_nobody({"audit", id, "--json"});
  EXPECT_THAT(audit.out, HasSubstr(R"("call":"Cancel","uid":0,)")) << audit.err;
}

}  // namespace
}  // namespace hpctl::testing
