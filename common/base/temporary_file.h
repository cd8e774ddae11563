// SPDX-License-Identifier: Apache-2.0
// A file that gets its name only when all of it is on disk: written under a temporary name in the
// same directory, synced, renamed or linked, its directory synced. After a crash at any instruction
// the name has the old content (or none) or the new one. If it is destroyed before that, the
// temporary is removed. The temporary's name is unique among the writers of a directory, also among
// writers on other hosts that share it. One thread.
#pragma once

#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// A name beside `path` that no other writer of that directory takes, on whatever host: `path`,
// this, and what tells it from others.
inline constexpr char kTemporaryInfix[] = ".tmp.";
std::string temporary_name(const std::string& path);

// The directory that `path`, which ends in a name, is in.
std::string parent_of(const std::string& path);

class TemporaryFile {
 public:
  // Beside `path`, the name to be.
  static Result<TemporaryFile> create(const std::string& path);
  TemporaryFile(TemporaryFile&& other) noexcept;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile();

  int fd() const { return fd_.get(); }
  const std::string& name() const { return name_; }  // the temporary one, for errors

  Outcome append(std::string_view bytes);
  Outcome sync();
  // After sync(). Replaces what has the name.
  Outcome rename_into_place();
  // After sync(). kAlreadyExists when something has the name; atomic against racing creators on
  // local disks, NFS and Lustre.
  Outcome link_into_place();

 private:
  TemporaryFile(UniqueFd fd, std::string path, std::string name);

  UniqueFd fd_;
  std::string path_;
  std::string name_;  // "" once the file has its own
};

}  // namespace hpctl
