// SPDX-License-Identifier: Apache-2.0
#include "controller/notify/webhook.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <memory>

#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr long kMostAnswer = 64 << 10;

struct Easy {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
};
struct List {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

size_t discard(char*, size_t size, size_t count, void* total) {
  long& read = *static_cast<long*>(total);
  read += static_cast<long>(size * count);
  return read <= kMostAnswer ? size * count : 0;
}

// The place of the certificates on another distribution than the build's.
const char* certificates() {
  for (const char* path :
       {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"}) {
    if (is_accessible(path)) return path;
  }
  return nullptr;
}

std::string host_of(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  const size_t end = url.find_first_of("/?#", begin);
  const std::string authority = url.substr(begin, end - begin);
  return authority.substr(authority.rfind('@') + 1);  // without what is before it
}

// Busy, or broken for now; everything else it would refuse again.
bool is_transient(long status) { return status >= 500 || status == 429 || status == 408; }

}  // namespace

Sent post_json(const std::string& url, const std::string& body,
               std::chrono::milliseconds patience) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, Easy> curl(ready == CURLE_OK ? curl_easy_init() : nullptr);
  if (curl == nullptr) return {false, true, "libcurl does not start"};
  const std::unique_ptr<curl_slist, List> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"));
  long answered = 0;
  const auto set = [&](CURLoption option, auto value) {
    curl_easy_setopt(curl.get(), option, value);
  };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, "hpctl/" HPCTL_VERSION);
  set(CURLOPT_POSTFIELDS, body.c_str());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(patience.count()));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // a resolver that hangs is not waited for
  set(CURLOPT_WRITEFUNCTION, discard);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&answered));
  if (const char* path = certificates()) set(CURLOPT_CAINFO, path);
  const CURLcode code = curl_easy_perform(curl.get());
  long status = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &status);
  const std::string host = host_of(url);
  if (status >= 200 && status < 300) return {true, false, ""};
  if (status != 0) return {false, is_transient(status), host + ": HTTP " + std::to_string(status)};
  return {false, true, host + ": " + curl_easy_strerror(code)};
}

}  // namespace hpctl
