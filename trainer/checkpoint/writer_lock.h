// SPDX-License-Identifier: Apache-2.0
// A writer of DIRECTORY/NAME holds DIRECTORY/NAME.lock meanwhile, a file that names the writer. It
// is removed with its holder. After a kill the file stays without a holder, so the next writer
// takes it over. Missing directories are created, and removed if they stay empty. One thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class WriterLock {
 public:
  // kFailedPrecondition: another process has it; the message names that one and the remedy.
  static Result<WriterLock> take(const std::string& directory, const std::string& name);
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&&) = delete;
  ~WriterLock();

 private:
  explicit WriterLock(std::vector<std::string> made) : made_(std::move(made)) {}

  std::vector<std::string> made_;  // directories, the outermost first
  std::string path_;               // of the file; "" until it is held
  UniqueFd lock_;
};

}  // namespace hpctl
