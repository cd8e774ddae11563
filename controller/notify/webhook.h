// SPDX-License-Identifier: Apache-2.0
// One POST to a webhook, by libcurl: https with the certificates of the system, or http; no
// redirects, and only the status of the answer is read. Proxies come from the environment
// (https_proxy, no_proxy). Blocks at most as long as it may; any thread.
#pragma once

#include <chrono>
#include <string>

namespace hpctl {

struct Sent {
  bool ok = false;
  bool worth_a_retry = false;  // it may be taken later
  std::string trouble;         // without the URL, which may be a secret; "" = ok
};

Sent post_json(const std::string& url, const std::string& body, std::chrono::milliseconds patience);

}  // namespace hpctl
