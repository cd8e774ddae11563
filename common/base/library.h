// SPDX-License-Identifier: Apache-2.0
// A vendor's library, loaded where it is installed and never linked: the same program runs on
// machines that have it and on machines that do not.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

class Library {
 public:
  // The first of `names` that this process has loaded already, else the first that can be loaded. A
  // name with a slash is a path under $HPCTL_SYSROOT; a bare one is left to the loader, but only
  // where HPCTL_SYSROOT is not set: a test's machine has no other libraries than its own. kNotFound
  // tells what the loader said of the last.
  static Result<Library> open(const std::vector<std::string>& names);

  Library(Library&& other) noexcept;
  Library& operator=(Library&& other) = delete;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library();

  const std::string& name() const { return name_; }
  // The function of that name, in that version when one is given; nullptr when it has none.
  template <typename Function>
  Function* function(const char* symbol, const char* version = nullptr) const {
    return reinterpret_cast<Function*>(find(symbol, version));
  }

 private:
  Library(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  void* find(const char* symbol, const char* version) const;

  void* handle_;
  std::string name_;
};

}  // namespace hpctl
