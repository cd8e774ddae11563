// SPDX-License-Identifier: Apache-2.0
#include "common/job/paths.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "common/base/checksum.h"
#include "common/base/printable.h"
#include "common/base/private_directory.h"
#include "common/base/utf8.h"

namespace hpctl {
namespace {

constexpr size_t kMaxLocalName = 56;  // leaves room for "/tmp/hpctl-UID/" and the socket's name

std::string& given_program_directory() {
  static std::string directory;
  return directory;
}

std::string short_checksum(const std::string& text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex_digest().substr(0, 12);
}

std::string local_job_directory(JobId job, const std::string& node) {
  std::string name = "job-" + to_string(job) + "-" + node;
  if (name.size() > kMaxLocalName) {
    name = name.substr(0, kMaxLocalName - 13) + "-" + short_checksum(name);
  }
  return user_directory() + "/" + name;
}

Result<HomePaths> home_at(const std::string& home) {
  std::error_code error;
  static_cast<void>(std::filesystem::absolute(home, error));
  if (error) {
    return Error{ErrorCode::kFailedPrecondition,
                 "the home " + home + " is relative to the working directory, which is gone (" +
                     error.message() + "); set HPCTL_HOME to an absolute path"};
  }
  HomePaths paths(home);
  HP_TRY(check_path_is_text("the home", paths.home(), "set HPCTL_HOME to another directory"));
  return paths;
}

}  // namespace

HomePaths::HomePaths(const std::string& home)
    : home_(std::filesystem::absolute(home).lexically_normal().string()) {
  while (home_.size() > 1 && home_.back() == '/') home_.pop_back();
  state_ = home_;
}

HomePaths HomePaths::of_job(const std::string& job_dir, JobId job, const std::string& node) {
  HomePaths paths(job_dir);
  paths.node_ = node;
  paths.state_ = local_job_directory(job, node);
  return paths;
}

std::string HomePaths::controller_log() const {
  return is_one_job() ? node({}, node_) + "/controller.log" : home_ + "/controller.log";
}

std::string HomePaths::audit_log() const {
  return (is_one_job() ? node({}, node_) : home_) + "/audit.jsonl";
}

std::string HomePaths::node_lock(JobId id, const std::string& name) const {
  return (is_one_job() ? local_job_directory(id, name) : node(id, name)) + "/lock";
}

HomePaths HomePaths::with_socket_of(uid_t owner) const {
  HomePaths paths = *this;
  paths.socket_owner_ = owner;
  return paths;
}

std::string HomePaths::socket_directory() const {
  if (is_one_job()) return state_;
  const std::string base = socket_owner_ ? user_directory_of(*socket_owner_) : user_directory();
  return base + "/" + short_checksum(home_);
}

Result<HomePaths> home_from_environment() {
  if (const char* home = std::getenv("HPCTL_HOME"); home != nullptr && *home != '\0') {
    return home_at(home);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return home_at(std::string(home) + "/.hpctl");
  }
  return Error{ErrorCode::kFailedPrecondition,
               "neither HPCTL_HOME nor HOME is set; set HPCTL_HOME to a directory on a local disk"};
}

Outcome check_path_is_text(const std::string& what, const std::string& path,
                           const std::string& remedy) {
  std::error_code error;
  std::string full = path.empty() ? "" : std::filesystem::absolute(path, error).string();
  if (error) full = path;
  if (is_utf8(full)) return Ok{};
  return Error{ErrorCode::kInvalidArgument, what + " " + printable_line(full, PATH_MAX) +
                                                " has bytes that are not UTF-8, shown as ?; " +
                                                remedy};
}

Outcome prepare_socket_directory(const HomePaths& paths) {
  HP_TRY(own_private_directory(user_directory()));
  return own_private_directory(paths.socket_directory());
}

void set_program_directory(const std::string& directory) { given_program_directory() = directory; }

Result<std::string> program_directory() {
  if (!given_program_directory().empty()) return given_program_directory();
  std::array<char, PATH_MAX> buffer{};
  const ssize_t n = ::readlink("/proc/self/exe", buffer.data(), buffer.size() - 1);
  if (n <= 0) return errno_error("cannot read /proc/self/exe");
  const std::filesystem::path program(std::string(buffer.data(), static_cast<size_t>(n)));
  // The programs to call in a bundle (scripts/bundle.sh) are in BUNDLE/bin, which suit any machine;
  // the running one is BUNDLE/libexec/NAME or, where the bundle's own C library is needed, the
  // loader, BUNDLE/lib/glibc/ld-linux-x86-64.so.2.
  if (program.filename().string().starts_with("ld-linux")) {
    return (program.parent_path().parent_path().parent_path() / "bin").string();
  }
  const std::filesystem::path callable =
      program.parent_path().parent_path() / "bin" / program.filename();
  if (program.parent_path().filename() == "libexec" && ::access(callable.c_str(), X_OK) == 0) {
    return callable.parent_path().string();
  }
  return program.parent_path().string();
}

}  // namespace hpctl
