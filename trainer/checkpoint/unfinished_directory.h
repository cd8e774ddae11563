// SPDX-License-Identifier: Apache-2.0
// A directory that gets its name when it is complete. Until then it lies beside that name and is
// locked; if it is destroyed before, it is removed. The remains of a killed process have no lock:
// the next process on this host that makes a directory of that name removes them. One thread.
#pragma once

#include <string>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class UnfinishedDirectory {
 public:
  // Empty, beside `target`, the name to be; missing directories above are made.
  static Result<UnfinishedDirectory> create(const std::string& target);
  UnfinishedDirectory(UnfinishedDirectory&& other) noexcept;
  UnfinishedDirectory& operator=(UnfinishedDirectory&&) = delete;
  ~UnfinishedDirectory();

  const std::string& path() const { return path_; }

  // An empty directory of that name gives way; anything else stays, and this fails.
  Outcome rename_into_place();

 private:
  UnfinishedDirectory(std::string path, std::string target, UniqueFd lock);

  std::string path_;  // "" once it has its name
  std::string target_;
  UniqueFd lock_;
};

}  // namespace hpctl
