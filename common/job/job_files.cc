// SPDX-License-Identifier: Apache-2.0
#include "common/job/job_files.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "common/base/bounded_json.h"
#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kTokenDigits = 64;
constexpr size_t kMaxEnvironmentBytes = 16U << 20;

std::string environment_path(const std::string& job_dir) { return job_dir + "/environment"; }

// Whose token this process may use: root also the token of the directory's owner.
bool is_token_of_ours(const std::string& job_dir, uid_t owner) {
  if (owner == ::geteuid()) return true;
  struct stat directory {};
  return ::geteuid() == 0 && ::stat(job_dir.c_str(), &directory) == 0 && directory.st_uid == owner;
}

}  // namespace

std::string verdict_path(const std::string& job_dir) { return job_dir + "/verdict"; }

Result<JobDocument> read_job_document(const std::string& job_dir) {
  const std::string path = job_dir + "/job.json";
  HP_TRY_ASSIGN(const std::string text, read_file(path));
  JobDocument document;
  auto spec = job_spec_from_json(text);
  if (!spec.ok()) return Error{ErrorCode::kDataLoss, path + ": " + spec.error().message};
  document.spec = std::move(*spec);
  nlohmann::json json;
  try {
    json = parse_json(text);
    json.at("uid").get_to(document.uid);
    json.at("submit_key").get_to(document.submit_key);
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, path + " is damaged: " + problem_in(json, e)};
  }
  return document;
}

Result<std::string> read_token(const std::string& job_dir) {
  const std::string path = job_dir + "/token";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return errno_error("cannot read the job's token " + path);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return errno_error("cannot stat " + path);
  if (S_ISREG(st.st_mode) && !is_token_of_ours(job_dir, st.st_uid)) {
    return Error{ErrorCode::kPermissionDenied, path + " belongs to uid " +
                                                   std::to_string(st.st_uid) + ", you are uid " +
                                                   std::to_string(::geteuid())};
  }
  if (!S_ISREG(st.st_mode) || (st.st_mode & 077) != 0) {
    return Error{ErrorCode::kPermissionDenied,
                 path +
                     " must be a file of its owner with mode 0600; who could read it has the "
                     "job: cancel it and submit again"};
  }
  std::array<char, kTokenDigits + 2> buffer{};
  const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
  const std::string text(buffer.data(), n > 0 ? static_cast<size_t>(n) : 0);
  const std::string token = text.substr(0, kTokenDigits);
  if (text != token + "\n" || token.size() != kTokenDigits ||
      token.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Error{ErrorCode::kDataLoss, path + " is damaged: expected " +
                                           std::to_string(kTokenDigits) + " hexadecimal digits"};
  }
  return token;
}

bool same_token(const std::string& a, const std::string& b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

uint64_t restart_count() {
  const char* text = std::getenv("SLURM_RESTART_COUNT");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

Outcome write_job_environment(const std::string& job_dir) {
  std::string text;
  for (char** entry = environ; *entry != nullptr; ++entry) text.append(*entry).push_back('\0');
  return write_file_atomic(environment_path(job_dir), text);
}

Outcome take_job_environment(const std::string& job_dir) {
  HP_TRY_ASSIGN(const std::string text, read_file(environment_path(job_dir), kMaxEnvironmentBytes));
  for (size_t begin = 0; begin < text.size();) {
    const std::string variable = text.c_str() + begin;
    begin += variable.size() + 1;
    const size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos || variable.starts_with("SLURM")) continue;
    const std::string name = variable.substr(0, equals);
    ::setenv(name.c_str(), variable.c_str() + equals + 1, name == "PATH" ? 1 : 0);
  }
  return Ok{};
}

Result<bool> write_verdict(const std::string& job_dir, int verdict, uint64_t restart_count,
                           const IsOurs& is_ours) {
  return replace_fenced(verdict_path(job_dir),
                        std::to_string(verdict) + " " + std::to_string(restart_count) + "\n",
                        is_ours);
}

Result<std::optional<int>> standing_verdict(const std::string& job_dir, uint64_t restart_count) {
  const auto text = read_file(verdict_path(job_dir), 64);
  if (!text.ok()) {
    if (text.error().code == ErrorCode::kNotFound) return std::optional<int>();
    return text.error();
  }
  std::istringstream in(*text);
  int verdict = -1;
  uint64_t restarts = 0;
  if (!(in >> verdict >> restarts)) {
    return Error{ErrorCode::kDataLoss, verdict_path(job_dir) + " is damaged: not two numbers"};
  }
  const bool stands = restarts == restart_count || verdict != kVerdictFailed;
  return stands ? std::optional(verdict) : std::nullopt;
}

}  // namespace hpctl
