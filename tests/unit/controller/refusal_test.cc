// SPDX-License-Identifier: Apache-2.0
// What the real programs say and leave behind when they must refuse: a home of another user, and a
// home on a disk that is full or read-only. Needs root for another uid and for mounts of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "common/base/file.h"
#include "tests/fault/live_controller.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Ran {
  int code = -1;
  std::string text;  // stdout and stderr
};

bool is_one_line(const std::string& text) {
  return !text.empty() && std::count(text.begin(), text.end(), '\n') == 1;
}

class Refusal : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: another uid and private mounts";
    ::chmod(dir_.path().c_str(), 0755);
    ASSERT_TRUE(write_file_atomic(job_, "name: refused\nworkload:\n  command: [\"true\"]\n").ok());
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(HomePaths(home_).socket_directory()).ok()); }
  Ran shell(const std::string& script) const {
    const std::string out = dir_ / "out";
    const std::string path = dir_ / "script";
    EXPECT_TRUE(write_file_atomic(path, script).ok());
    const int status = std::system(("timeout 60 sh " + path + " > " + out + " 2>&1").c_str());
    return {WEXITSTATUS(status), read_file(out).value()};
  }
  // `script` where the home is a fresh tmpfs of 4 pages, mounted with `options` and seen by nobody
  // else; skips aloud where mounts are not allowed.
  Ran on_disk(const std::string& options, const std::string& script) const {
    const std::string mount = "mount -t tmpfs -o size=16k," + options + " none " + home_;
    EXPECT_TRUE(make_directories(home_).ok());
    const std::string inner = dir_ / "inner";
    EXPECT_TRUE(write_file_atomic(inner, mount + " || exit 99\n" + script + "\n").ok());
    return shell("unshare -m true || exit 99\nexec unshare -m sh " + inner + "\n");
  }
  std::string submit() const {
    return "HPCTL_HOME=" + home_ + " " + test::program("hpctl") + " submit --local " + job_;
  }

  TemporaryDirectory dir_;
  const std::string home_ = dir_ / "home";
  const std::string job_ = dir_ / "job.yaml";
  const std::string fill_ = "dd if=/dev/zero of=" + home_ + "/fill bs=4k count=4 2> /dev/null\n";
};

TEST_F(Refusal, AnotherUidIsToldWhoseHomeItIs) {
  test::LiveController controller;
  controller.start();
  ::chmod(controller.paths().home().c_str(), 0755);
  // A copy, because the build's directory may be closed to others.
  const std::string copy = dir_ / "hpctl";
  std::filesystem::copy_file(test::program("hpctl"), copy);
  const std::string other = "setpriv --reuid 65534 --regid 65534 --clear-groups env HPCTL_HOME=" +
                            controller.paths().home() + " " + copy + " submit --local " + job_;
  const Ran refused = shell("exec " + other + "\n");
  EXPECT_EQ(refused.code, 1) << refused.text;
  EXPECT_TRUE(is_one_line(refused.text)) << refused.text;
  EXPECT_NE(refused.text.find("belongs to uid 0, you are uid 65534"), std::string::npos)
      << refused.text;
  EXPECT_TRUE(list_directory(controller.paths().jobs())->empty());
  EXPECT_FALSE(controller.ended()) << "the controller goes on";
}

TEST_F(Refusal, AnotherUidLearnsAndChangesNothing) {
  test::LiveController controller;
  controller.start();
  const std::string home = controller.paths().home();
  ::chmod(home.c_str(), 0755);
  const std::string copy = dir_ / "hpctl";
  std::filesystem::copy_file(test::program("hpctl"), copy);
  ASSERT_TRUE(
      write_file_atomic(job_, "name: hidden\nworkload:\n  command: [sleep, \"600\"]\n").ok());
  const std::string own = "HPCTL_HOME=" + home + " " + test::program("hpctl") + " ";
  ASSERT_EQ(shell(own + "submit --local " + job_).code, 0);
  for (const std::string verb : {"status 1", "cancel 1", "logs 1", "why 1", "events 1", "ps"}) {
    const Ran refused = shell("exec setpriv --reuid 65534 --regid 65534 --clear-groups env " +
                              std::string("HPCTL_HOME=") + home + " " + copy + " " + verb + "\n");
    EXPECT_NE(refused.code, 0) << verb << ": " << refused.text;
    EXPECT_TRUE(is_one_line(refused.text)) << verb << ": " << refused.text;
    EXPECT_EQ(refused.text.find("hidden"), std::string::npos) << verb << ": " << refused.text;
  }
  const Ran status = shell(own + "status hidden --json");
  EXPECT_EQ(status.code, 0) << status.text;
  EXPECT_EQ(status.text.find("CANCEL"), std::string::npos) << status.text;
}

// Its controller accepted the first job, aborted as it wrote the record of it, and did so again at
// each start.
TEST_F(Refusal, HomeThatIsNotUtf8IsRefused) {
  const std::string home = dir_ / "\xff-home";
  const std::string told = " has bytes that are not UTF-8, shown as ?; ";
  const std::string shown = dir_ / "?-home" + told;
  for (const std::string& command :
       {test::program("hpctl") + " submit --local " + job_, test::program("hpctl") + " ps",
        test::program("hpcontroller"), test::program("hpcontroller") + " --home " + home}) {
    const Ran ran = shell("HPCTL_HOME='" + home + "' " + command);
    EXPECT_THAT(ran.code, AnyOf(1, 2)) << command << ": " << ran.text;
    EXPECT_TRUE(is_one_line(ran.text)) << command << ": " << ran.text;
    EXPECT_THAT(ran.text, HasSubstr(shown)) << command;
  }
  EXPECT_FALSE(is_accessible(home)) << "nothing is made there";
}

TEST_F(Refusal, AFullDiskIsNamedByTheController) {
  const Ran ran =
      on_disk("rw", fill_ + test::program("hpcontroller") + " --home " + home_ +
                        "; code=$?; test -s " + home_ + "/controller.db && exit 98; exit $code");
  if (ran.code == 99) GTEST_SKIP() << "mounts are not allowed here: " << ran.text;
  EXPECT_EQ(ran.code, 1) << ran.text;
  EXPECT_TRUE(is_one_line(ran.text)) << ran.text;
  EXPECT_NE(ran.text.find("No space left on device"), std::string::npos) << ran.text;
}

TEST_F(Refusal, AFullDiskIsNamedBySubmit) {
  const Ran ran = on_disk(
      "rw", fill_ + submit() + "; code=$?; test -e " + home_ + "/jobs/1 && exit 98; exit $code");
  if (ran.code == 99) GTEST_SKIP() << "mounts are not allowed here: " << ran.text;
  EXPECT_EQ(ran.code, 3) << ran.text;
  EXPECT_TRUE(is_one_line(ran.text)) << ran.text;
  EXPECT_NE(ran.text.find("no space left on the disk of " + home_), std::string::npos) << ran.text;
}

TEST_F(Refusal, AReadOnlyDiskIsNamed) {
  const Ran submitted = on_disk("ro", submit());
  if (submitted.code == 99) GTEST_SKIP() << "mounts are not allowed here: " << submitted.text;
  EXPECT_EQ(submitted.code, 1) << submitted.text;
  EXPECT_TRUE(is_one_line(submitted.text)) << submitted.text;
  EXPECT_NE(submitted.text.find(home_ + " cannot be written"), std::string::npos) << submitted.text;
  const Ran started = on_disk("ro", "exec " + test::program("hpcontroller") + " --home " + home_);
  EXPECT_EQ(started.code, 1) << started.text;
  EXPECT_TRUE(is_one_line(started.text)) << started.text;
  EXPECT_NE(started.text.find("Read-only file system"), std::string::npos) << started.text;
}

}  // namespace
}  // namespace hpctl
