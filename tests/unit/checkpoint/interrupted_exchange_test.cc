// SPDX-License-Identifier: Apache-2.0
// An export or import that is asked to stop leaves nothing, and what a killed one has left the next
// one removes: no more than that.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/node_address.h"
#include "common/base/temporary_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/huggingface.h"

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

TEST_F(InterruptedExchange, AStoppedImportLeavesNothingOfTheCheckpoint) {
  ASSERT_TRUE(export_huggingface(step_dir_, dir_ / "model", {}).ok());
  const auto done = import_huggingface(dir_ / "model", dir_ / "in", after(1));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "interrupted; nothing was written");
  EXPECT_THAT(list_directory(dir_ / "in").value(), ElementsAre());
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
              ElementsAre("manifest.json", testing::HasSubstr("safetensors")));
}

}  // namespace
}  // namespace hpctl
