// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/unfinished_directory.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/temporary_file.h"

namespace hpctl {
namespace {

// "PID.COUNT", the end of a temporary name.
bool is_process_and_count(std::string_view text) {
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && dot > 0 && dot + 1 < text.size() &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(dot), is_digit) &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(dot) + 1, text.end(), is_digit);
}

// As far as possible: they do no harm.
void remove_leftovers(const std::string& target) {
  const std::string parent = parent_of(target) + "/";
  const std::string prefix =
      target.substr(target.rfind('/') + 1) + kTemporaryInfix + host_name() + ".";
  const auto names = list_directory(parent);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(prefix)) continue;
    if (!is_process_and_count(std::string_view(name).substr(prefix.size()))) continue;
    const UniqueFd lock = lock_directory(parent + name);
    if (lock.valid()) static_cast<void>(remove_tree(parent + name));
  }
}

}  // namespace

UnfinishedDirectory::UnfinishedDirectory(std::string path, std::string target, UniqueFd lock)
    : path_(std::move(path)), target_(std::move(target)), lock_(std::move(lock)) {}

UnfinishedDirectory::UnfinishedDirectory(UnfinishedDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")),
      target_(std::move(other.target_)),
      lock_(std::move(other.lock_)) {}

UnfinishedDirectory::~UnfinishedDirectory() {
  if (!path_.empty()) static_cast<void>(remove_tree(path_));
}

Result<UnfinishedDirectory> UnfinishedDirectory::create(const std::string& target) {
  remove_leftovers(target);
  const std::string path = temporary_name(target);
  HP_TRY(make_directories(path));
  return UnfinishedDirectory(path, target, lock_directory(path));
}

Outcome UnfinishedDirectory::rename_into_place() {
  if (std::rename(path_.c_str(), target_.c_str()) != 0) {
    return errno_error("cannot rename " + path_ + " to " + target_);
  }
  path_.clear();
  return sync_directory(parent_of(target_));
}

}  // namespace hpctl
