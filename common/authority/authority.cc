// SPDX-License-Identifier: Apache-2.0
#include "common/authority/authority.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "common/base/temporary_file.h"

namespace hpctl {
namespace {

constexpr mode_t kDirectoryMode = 0711;  // who knows the bundle's name may read it
constexpr mode_t kSecret = 0600;
constexpr mode_t kPublic = 0644;
constexpr size_t kMostAuthorities = 2;
constexpr int kMostSteps = 8;  // more than can be due

// Independent of the umask; no other process reads it in between.
Outcome replace(const std::string& path, const std::string& text, mode_t mode) {
  HP_TRY_ASSIGN(TemporaryFile file, TemporaryFile::create(path));
  if (::fchmod(file.fd(), mode) != 0) return errno_error("cannot set the mode of " + file.name());
  HP_TRY(file.append(text));
  HP_TRY(file.sync());
  return file.rename_into_place();
}

// `secret` = others may not read it either.
Outcome check_owner(const std::string& path, bool secret) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return errno_error("cannot stat " + path);
  const mode_t forbidden = secret ? 077 : 022;
  if (st.st_uid == ::geteuid() && (st.st_mode & forbidden) == 0) return Ok{};
  return Error{ErrorCode::kPermissionDenied,
               path + " must belong to uid " + std::to_string(::geteuid()) + " and " +
                   (secret ? "have mode 0600: it holds the key of the cluster's authority"
                           : "be writable by its owner only: the cluster's authority is there")};
}

std::string to_json(const AuthorityState& state) {
  auto list = nlohmann::ordered_json::array();
  for (const Authority& one : state.authorities) {
    list.push_back({{"certificate", one.identity.certificate},
                    {"private_key", one.identity.private_key},
                    {"spread_s", one.spread_s},
                    {"published_s", one.published_s},
                    {"signs_from_s", one.signs_from_s}});
  }
  return json_text(nlohmann::ordered_json({{"authorities", list}}), {.indent = 1}) + "\n";
}

Result<AuthorityState> from_json(const std::string& text) {
  AuthorityState state;
  nlohmann::json document;
  try {
    document = parse_json(text, {kMaxBundleBytes, 8, 64, true});
    for (const auto& row : document.at("authorities")) {
      Authority one;
      row.at("certificate").get_to(one.identity.certificate);
      row.at("private_key").get_to(one.identity.private_key);
      row.at("spread_s").get_to(one.spread_s);
      row.at("published_s").get_to(one.published_s);
      row.at("signs_from_s").get_to(one.signs_from_s);
      HP_TRY_ASSIGN(auto facts, read_certificates(one.identity.certificate, "certificate"));
      one.facts = std::move(facts.front());
      state.authorities.push_back(std::move(one));
    }
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kDataLoss, problem_in(document, e)};
  }
  if (state.authorities.empty() || state.authorities.size() > kMostAuthorities) {
    return Error{ErrorCode::kDataLoss, "there are " + std::to_string(state.authorities.size()) +
                                           " authorities in it, not one or two"};
  }
  return state;
}

Result<Authority> new_authority(const std::string& node, int64_t now_s, int64_t seconds,
                                int64_t spread_s) {
  Authority made;
  HP_TRY_ASSIGN(made.identity, make_authority(node, now_s, seconds));
  made.spread_s = spread_s;
  return made;
}

}  // namespace

const Authority& AuthorityState::signer(int64_t now_s) const {
  const Authority& next = newest();
  const bool may_sign = next.published_s > 0 && now_s >= next.signs_from_s;
  const bool nothing_to_lose = now_s > authorities.front().facts.ends_s;
  return may_sign || nothing_to_lose ? next : authorities.front();
}

std::optional<int64_t> AuthorityState::leaves_s() const {
  if (!is_rotating() || newest().published_s == 0) return std::nullopt;
  return newest().signs_from_s + kLeafSeconds + kSlackSeconds;
}

std::string AuthorityState::bundle() const {
  std::string text;
  for (auto one = authorities.rbegin(); one != authorities.rend(); ++one) {
    text += one->identity.certificate;
  }
  return text;
}

Result<AuthorityDirectory> AuthorityDirectory::open(const std::string& path) {
  AuthorityDirectory directory(path);
  HP_TRY_ASSIGN(const bool is_there, path_exists(directory.state_path()));
  if (!is_there) {
    return Error{ErrorCode::kNotFound, "there is no authority in " + path +
                                           "; make one with: hpctl ca make --dir " + path};
  }
  HP_TRY(check_owner(path, false));
  HP_TRY(check_owner(directory.state_path(), true));
  return directory;
}

Result<bool> AuthorityDirectory::make(const std::string& path, const std::string& node,
                                      int64_t now_s, int64_t seconds) {
  HP_TRY(make_directories(path, kDirectoryMode));
  HP_TRY(check_owner(path, false));
  const AuthorityDirectory directory(path);
  HP_TRY_ASSIGN(const UniqueFd held, directory.lock(Wait::kForOthers));
  HP_TRY_ASSIGN(const bool is_made, path_exists(directory.state_path()));
  if (is_made) return false;
  AuthorityState state;
  HP_TRY_ASSIGN(Authority first, new_authority(node, now_s, seconds, 0));
  state.authorities.push_back(std::move(first));
  HP_TRY(directory.write(state));
  return true;
}

Result<AuthorityState> AuthorityDirectory::read() const {
  HP_TRY_ASSIGN(const std::string text, read_file(state_path(), kMaxBundleBytes));
  auto state = from_json(text);
  if (state.ok()) return state;
  return Error{ErrorCode::kDataLoss,
               state_path() + " is damaged: " + state.error().message +
                   "; restore it from a copy, or move " + path_ +
                   " away, make another authority (hpctl ca make) and distribute its bundle"};
}

Result<UniqueFd> AuthorityDirectory::lock(Wait wait) const {
  const std::string path = path_ + "/lock";
  if (wait == Wait::kForNobody) return lock_file(path);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kSecret));
  if (!fd.valid()) return errno_error("cannot open lock file " + path);
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno_error("cannot lock " + path);
  }
  return fd;
}

Outcome AuthorityDirectory::write(const AuthorityState& state) const {
  return replace(state_path(), to_json(state), kSecret);
}

Result<bool> AuthorityDirectory::begin_rotation(const std::string& node, int64_t now_s,
                                                int64_t seconds, int64_t spread_s,
                                                Wait wait) const {
  HP_TRY_ASSIGN(const UniqueFd held, lock(wait));
  HP_TRY_ASSIGN(AuthorityState state, read());
  if (state.is_rotating()) return false;
  HP_TRY_ASSIGN(Authority next, new_authority(node, now_s, seconds, spread_s));
  state.authorities.push_back(std::move(next));
  HP_TRY(write(state));
  return true;
}

Result<bool> AuthorityDirectory::advance_once(int64_t now_s, Wait wait) const {
  HP_TRY_ASSIGN(const UniqueFd held, lock(wait));
  HP_TRY_ASSIGN(AuthorityState state, read());
  const auto published = read_file(bundle_path(), kMaxBundleBytes);
  if (!published.ok() || *published != state.bundle()) {
    HP_TRY(replace(bundle_path(), state.bundle(), kPublic));
    return true;
  }
  Authority& next = state.authorities.back();
  if (next.published_s == 0) {
    next.published_s = now_s;
    next.signs_from_s = now_s + next.spread_s;
    HP_TRY(write(state));
    return true;
  }
  const auto leaves_s = state.leaves_s();
  if (!leaves_s || now_s < *leaves_s) return false;
  state.authorities.erase(state.authorities.begin());
  HP_TRY(write(state));
  return true;
}

Outcome AuthorityDirectory::advance(int64_t now_s, Wait wait) const {
  for (int step = 0; step < kMostSteps; ++step) {
    HP_TRY_ASSIGN(const bool was_due, advance_once(now_s, wait));
    if (!was_due) return Ok{};
  }
  return Error{ErrorCode::kInternal, bundle_path() +
                                         " is not what was written there: is another "
                                         "program writing it?"};
}

}  // namespace hpctl
