// SPDX-License-Identifier: Apache-2.0
#include "common/base/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "common/base/host.h"

namespace hpctl {

Result<Library> Library::open(const std::vector<std::string>& names) {
  const char* root = std::getenv("HPCTL_SYSROOT");
  const bool is_real_machine = root == nullptr || *root == '\0';
  std::string said = "no library of that name is sought under HPCTL_SYSROOT";
  for (const std::string& name : names) {
    void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle != nullptr) return Library(handle, name);
  }
  for (const std::string& name : names) {
    const bool is_path = name.find('/') != std::string::npos;
    if (!is_path && !is_real_machine) continue;
    const std::string file = is_path ? system_path(name) : name;
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return Library(handle, file);
    if (const char* error = ::dlerror()) said = error;
  }
  return Error{ErrorCode::kNotFound, said};
}

Library::Library(Library&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

Library::~Library() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* Library::find(const char* symbol, const char* version) const {
  if (version != nullptr) {
    if (void* found = ::dlvsym(handle_, symbol, version)) return found;
  }
  return ::dlsym(handle_, symbol);
}

}  // namespace hpctl
