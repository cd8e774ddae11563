// SPDX-License-Identifier: Apache-2.0
// An export or import that is asked to stop leaves nothing, and what a killed one has left the next
// one removes: no more than that. Where one writes, no other does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/temporary_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/inspect.h"

namespace hpctl {
namespace {

using testing::ElementsAre;

class InterruptedExchange : public testing::Test {
 protected:
  void SetUp() override {
    const SyntheticSave save{dir_ / "saved", {40, 3}, 2, 1, 2, {}};
    ASSERT_TRUE(save_synthetic(save).ok());
    step_dir_ = save.checkpoint_dir + "/step-40.g3";
  }

  std::vector<std::string> names() const { return list_directory(dir_.path()).value(); }
  // A directory of this name with a file in it, as a process that was killed leaves it.
  std::string leave(const std::string& name) const {
    EXPECT_TRUE(make_directories(dir_ / name).ok());
    EXPECT_TRUE(write_file_atomic(dir_ / name + "/model.safetensors.tmp", "part").ok());
    return dir_ / name;
  }

  TemporaryDirectory dir_;
  std::string step_dir_;
};

// After so many pieces.
StopAsked after(int pieces) {
  return [left = pieces]() mutable { return left-- == 0; };
}

TEST_F(InterruptedExchange, AStoppedExportLeavesNothing) {
  for (const int pieces : {0, 1, 5}) {
    const auto done = export_huggingface(step_dir_, dir_ / "out", {.stop_asked = after(pieces)});
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().message, "interrupted; nothing was written");
    EXPECT_THAT(names(), ElementsAre("saved"));
  }
}

TEST_F(InterruptedExchange, AStoppedImportLeavesNothing) {
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "model", {}).ok());
  ASSERT_TRUE(make_directories(dir_ / "there").ok());
  for (const char* in : {"in", "new/deeper/", "there", "there/in"}) {
    const auto done = import_huggingface(dir_ / "model", dir_ / in, after(1));
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().message, "interrupted; nothing was written");
    EXPECT_THAT(names(), ElementsAre("model", "saved", "there"));
    EXPECT_THAT(list_directory(dir_ / "there").value(), ElementsAre());
  }
}

// What the first one, in the middle of its work, sees of a second.
std::string refusal_of(const Result<HfReport>& second) {
  return second.ok() ? "" : second.error().message;
}
std::string being_written(const std::string& target) {
  return target + " is being written by process " + std::to_string(::getpid()) + " on " +
         host_name() + "; wait until that has ended, or name another directory";
}

TEST_F(InterruptedExchange, ASecondExportToTheSameNameIsRefused) {
  std::string refusal;
  const StopAsked second = [&] {
    refusal = refusal_of(export_huggingface(step_dir_, dir_ / "out/", {}));
    return false;
  };
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "out", {.stop_asked = second}).ok());
  EXPECT_EQ(refusal, being_written(dir_ / "out"));
  EXPECT_THAT(names(), ElementsAre("out", "saved"));
}

TEST_F(InterruptedExchange, ASecondImportIntoTheSameDirectoryIsRefused) {
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "model", {}).ok());
  std::string refusal;
  const StopAsked second = [&] {
    refusal = refusal_of(import_huggingface(dir_ / "model", dir_ / "in"));
    return false;
  };
  ASSERT_TRUE(import_huggingface(dir_ / "model", dir_ / "in", second).ok());
  EXPECT_EQ(refusal, being_written(dir_ / "in/step-0.g0"));
  EXPECT_THAT(list_directory(dir_ / "in").value(), ElementsAre("step-0.g0"));
  EXPECT_TRUE(verify_checkpoint(dir_ / "in/step-0.g0")->problems.empty());
}

// `exchange`, killed with SIGKILL in its middle.
void kill_in_the_middle(const std::function<Result<HfReport>(const StopAsked&)>& exchange) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    static_cast<void>(exchange([] { return ::raise(SIGKILL) != 0; }));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST_F(InterruptedExchange, AKilledOneDoesNotBlockTheNext) {
  kill_in_the_middle([&](const StopAsked& stop) {
    return export_huggingface(step_dir_, dir_ / "model", {.stop_asked = stop});
  });
  EXPECT_TRUE(is_accessible(dir_ / "model.lock")) << "it was killed while it wrote";
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "model", {}).ok());
  EXPECT_THAT(names(), ElementsAre("model", "saved"));
  kill_in_the_middle(
      [&](const StopAsked& stop) { return import_huggingface(dir_ / "model", dir_ / "in", stop); });
  EXPECT_THAT(list_directory(dir_ / "in").value(), ElementsAre("step-0.g0", "step-0.g0.lock"));
  ASSERT_TRUE(import_huggingface(dir_ / "model", dir_ / "in").ok());
  EXPECT_THAT(list_directory(dir_ / "in").value(), ElementsAre("step-0.g0"));
}

TEST_F(InterruptedExchange, WhatAKilledExportLeftIsRemovedByTheNextOne) {
  const std::string prefix = std::string("out") + kTemporaryInfix + host_name() + ".";
  leave(prefix + "999999.0");
  const std::string foreign = std::string("out") + kTemporaryInfix + "elsewhere.999999.0";
  leave(foreign);
  leave(prefix + "mine");
  const std::string running = leave(prefix + "999998.0");
  const UniqueFd lock(::open(running.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "out", {}).ok());
  EXPECT_THAT(names(), testing::UnorderedElementsAre("saved", "out", foreign, prefix + "mine",
                                                     prefix + "999998.0"));
}

TEST_F(InterruptedExchange, WhatAKilledImportLeftIsRemovedByTheNextOne) {
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "model", {}).ok());
  leave("in/step-0.g0");
  ASSERT_TRUE(import_huggingface(dir_ / "model", dir_ / "in").ok());
  EXPECT_THAT(list_directory(dir_ / "in/step-0.g0").value(),
              ElementsAre("huggingface", "manifest.json", testing::HasSubstr("safetensors")));
}

}  // namespace
}  // namespace hpctl
