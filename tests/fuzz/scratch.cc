// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/scratch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/file.h"
#include "tests/fuzz/properties.h"

namespace hpctl::fuzz {
namespace {

class Scratch {
 public:
  Scratch() : owner_(::getpid()) {
    for (const char* place : {"/dev/shm", "/tmp"}) {
      path_ = std::string(place) + "/hpctl-fuzz-XXXXXX";
      if (::mkdtemp(path_.data()) != nullptr) return;
    }
    require(false, "no directory for files of harnesses in /dev/shm or /tmp");
  }
  ~Scratch() {
    if (::getpid() == owner_) (void)remove_tree(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  pid_t owner_;
  std::string path_;
};

void write_to(int fd, std::string_view bytes) {
  require(fd >= 0 && write_all(fd, bytes, "a file of a harness").ok(), "cannot write an input");
}

}  // namespace

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  write_to(fd_.get(), bytes);
}

const std::string& scratch() {
  static const Scratch directory;
  return directory.path();
}

std::string put_file(const std::string& name, std::string_view bytes) {
  const std::string path = scratch() + "/" + name;
  const auto open_file = [&] {
    return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  };
  UniqueFd fd = open_file();
  if (!fd.valid()) {
    require(make_directories(path.substr(0, path.rfind('/'))).ok(), "cannot make " + path);
    fd = open_file();
  }
  write_to(fd.get(), bytes);
  return path;
}

}  // namespace hpctl::fuzz
