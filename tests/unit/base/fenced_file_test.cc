// SPDX-License-Identifier: Apache-2.0
#include "common/job/fenced_file.h"

#include <gtest/gtest.h>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

class FencedFile : public testing::Test {
 protected:
  std::string text() const { return read_file(path_).value(); }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_ / "record";
};

TEST_F(FencedFile, IsReplacedByItsOwner) {
  for (const char* text : {"1", "2"}) {
    EXPECT_EQ(replace_fenced(path_, text, [] { return true; }).value(), true);
  }
  EXPECT_EQ(text(), "2");
}

TEST_F(FencedFile, IsLeftAloneByWhoSeesANewerOwner) {
  EXPECT_EQ(replace_fenced(path_, "old", [] { return false; }).value(), false);
  EXPECT_TRUE(list_directory(directory_.path())->empty()) << "its temporary is gone as well";
}

// The newer one comes after the former has looked.
TEST_F(FencedFile, IsNotTakenBackByWhoWasInTheMiddleOfIt) {
  const auto replaced = replace_fenced(path_, "old", [this] {
    EXPECT_TRUE(remove_unfinished(path_).ok());
    EXPECT_TRUE(replace_fenced(path_, "new", [] { return true; }).ok());
    return true;
  });
  EXPECT_EQ(replaced.value(), false);
  EXPECT_EQ(text(), "new");
}

TEST_F(FencedFile, OnlyItsOwnUnfinishedOnesAreRemoved) {
  ASSERT_TRUE(write_file_atomic(path_, "new").ok());
  for (const char* name : {"record.tmp.n0.1.0", "record.tmp.n1.7.3", "records.tmp.n0.1.0"}) {
    ASSERT_TRUE(write_file_atomic(directory_ / name, "").ok());
  }
  ASSERT_TRUE(remove_unfinished(path_).ok());
  const std::vector<std::string> left = {"record", "records.tmp.n0.1.0"};
  EXPECT_EQ(list_directory(directory_.path()).value(), left);
}

}  // namespace
}  // namespace hpctl
