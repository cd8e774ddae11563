// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/munge.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/net/unix_address.h"

namespace hpctl {
namespace {

// munge.h
struct Context;
constexpr int kSuccess = 0;
constexpr int kErrorSocket = 6;
constexpr int kErrorTimeout = 7;
constexpr int kErrorBadCredential = 8;  // from here on it is the credential
constexpr int kErrorExpired = 15;
constexpr int kErrorRewound = 16;
constexpr int kErrorReplayed = 17;
constexpr int kOptionSocket = 8;
constexpr int kOptionReaderUid = 9;

struct Library {
  Context* (*create)() = nullptr;
  void (*destroy)(Context*) = nullptr;
  int (*set)(Context*, int, ...) = nullptr;
  int (*get)(Context*, int, ...) = nullptr;
  const char* (*words)(Context*) = nullptr;
  int (*encode)(char**, Context*, const void*, int) = nullptr;
  int (*decode)(const char*, Context*, void**, int*, uid_t*, gid_t*) = nullptr;
  std::string trouble;  // "" = all of the above are there
};

template <typename Function>
void find(void* handle, const char* symbol, Function& function, std::string& trouble) {
  function = reinterpret_cast<Function>(::dlsym(handle, symbol));
  if (function == nullptr) trouble = std::string("libmunge.so.2 has no ") + symbol;
}

Library load() {
  Library library;
  void* handle = nullptr;
  // A bundle's own loader looks nowhere else (scripts/bundle.sh).
  for (const char* name :
       {"libmunge.so.2", "/usr/lib64/libmunge.so.2", "/usr/lib/x86_64-linux-gnu/libmunge.so.2"}) {
    handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
  }
  if (handle == nullptr) {
    const char* said = ::dlerror();
    library.trouble = said == nullptr ? "libmunge.so.2 cannot be loaded" : said;
    return library;
  }
  find(handle, "munge_ctx_create", library.create, library.trouble);
  find(handle, "munge_ctx_destroy", library.destroy, library.trouble);
  find(handle, "munge_ctx_set", library.set, library.trouble);
  find(handle, "munge_ctx_get", library.get, library.trouble);
  find(handle, "munge_ctx_strerror", library.words, library.trouble);
  find(handle, "munge_encode", library.encode, library.trouble);
  find(handle, "munge_decode", library.decode, library.trouble);
  return library;
}

const Library& munge() {
  static const Library library = load();  // for as long as the process lives
  return library;
}

using ContextPtr = std::unique_ptr<Context, void (*)(Context*)>;
using Buffer = std::unique_ptr<void, void (*)(void*)>;

std::string socket_of(Context* context) {
  char* path = nullptr;
  return munge().get(context, kOptionSocket, &path) == kSuccess && path != nullptr ? path : "";
}

Error munged_is_away(const std::string& socket, const std::string& why) {
  return Error{ErrorCode::kUnavailable, "munged does not answer on this machine (" + socket +
                                            "): " + why + "; see systemctl status munge"};
}

Outcome check_munged(const std::string& path) {
  const int trouble = unix_listener_trouble(path);
  if (trouble == 0) return Ok{};
  return munged_is_away(path, std::strerror(trouble));
}

Result<ContextPtr> open_context() {
  if (!munge().trouble.empty()) {
    return Error{ErrorCode::kNotFound, "no libmunge on this machine: " + munge().trouble +
                                           "; install the package libmunge2"};
  }
  ContextPtr context(munge().create(), munge().destroy);
  if (context == nullptr) return Error{ErrorCode::kResourceExhausted, "libmunge has no memory"};
  if (const char* path = std::getenv("HPCTL_MUNGE_SOCKET"); path != nullptr && *path != '\0') {
    if (munge().set(context.get(), kOptionSocket, path) != kSuccess) {
      return Error{ErrorCode::kInvalidArgument,
                   std::string("HPCTL_MUNGE_SOCKET: ") + munge().words(context.get())};
    }
  }
  HP_TRY(check_munged(socket_of(context.get())));
  return context;
}

Error explain(int code, Context* context) {
  const char* said = munge().words(context);
  const std::string words = said == nullptr ? "error " + std::to_string(code) : said;
  if (code == kErrorSocket || code == kErrorTimeout) {
    return munged_is_away(socket_of(context), words);
  }
  if (code < kErrorBadCredential) return Error{ErrorCode::kInternal, "munge: " + words};
  std::string remedy = "; both machines must have the same /etc/munge/munge.key";
  if (code == kErrorExpired || code == kErrorRewound) {
    remedy = "; the clocks of the two machines must agree";
  }
  if (code == kErrorReplayed) remedy = "; a credential counts once";
  return Error{ErrorCode::kPermissionDenied, "munge refuses the credential: " + words + remedy};
}

}  // namespace

Result<std::string> munge_encode(const std::string& payload, std::optional<uid_t> reader) {
  if (payload.size() > kMaxMungePayload) {
    return Error{ErrorCode::kInvalidArgument,
                 "a credential carries at most " + std::to_string(kMaxMungePayload) + " bytes"};
  }
  HP_TRY_ASSIGN(const ContextPtr context, open_context());
  int code = reader ? munge().set(context.get(), kOptionReaderUid, *reader) : kSuccess;
  char* text = nullptr;
  if (code == kSuccess) {
    code = munge().encode(&text, context.get(), payload.data(), static_cast<int>(payload.size()));
  }
  const Buffer owned(text, std::free);
  if (code != kSuccess) return explain(code, context.get());
  return std::string(text);
}

Result<MungeIdentity> munge_decode(const std::string& credential) {
  if (credential.empty()) return Error{ErrorCode::kPermissionDenied, "there is no credential"};
  HP_TRY_ASSIGN(const ContextPtr context, open_context());
  MungeIdentity identity;
  void* payload = nullptr;
  int size = 0;
  const int code = munge().decode(credential.c_str(), context.get(), &payload, &size, &identity.uid,
                                  &identity.gid);
  const Buffer owned(payload, std::free);  // also of a credential that is refused
  if (code != kSuccess) return explain(code, context.get());
  if (size > 0)
    identity.payload.assign(static_cast<const char*>(payload), static_cast<size_t>(size));
  return identity;
}

}  // namespace hpctl
