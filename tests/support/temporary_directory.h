// SPDX-License-Identifier: Apache-2.0
// A directory of a test's own, removed with everything in it when the test ends.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "common/base/file.h"

namespace hpctl {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = "/tmp/hpctl-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { EXPECT_TRUE(remove_tree(path_).ok()); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace hpctl
