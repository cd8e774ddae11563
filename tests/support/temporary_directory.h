// SPDX-License-Identifier: Apache-2.0
// A directory under /tmp that is gone when the test is over.
#pragma once

#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "common/base/file.h"

namespace hpctl::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = "/tmp/hpctl-test-XXXXXX";
    HP_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { [[maybe_unused]] const auto removed = remove_tree(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hpctl::testing
