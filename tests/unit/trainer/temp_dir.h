// SPDX-License-Identifier: Apache-2.0
// A directory that exists as long as the test.
#pragma once

#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "common/base/file.h"

namespace hpctl::testing {

class TempDir {
 public:
  TempDir() {
    std::string name = "/tmp/hpctl-trainer-test-XXXXXX";
    HP_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() { static_cast<void>(remove_tree(path_)); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace hpctl::testing
