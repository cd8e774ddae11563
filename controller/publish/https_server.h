// SPDX-License-Identifier: Apache-2.0
// Pages over HTTPS, for readers (Prometheus, curl): GET, one request a connection. It exists
// because civetweb, which serves them without TLS, opens libssl by itself, under a name that only
// machines with OpenSSL's development files have, and, in Debian's build, not with OpenSSL 3.
//
// One thread waits for all connections. Every client is a stranger: kMostConnections at a time, the
// others wait in the kernel. A connection is closed if it has not sent its request after kAskMs,
// handshake included, or has not read its answer after kReadMs; a request has at most
// kMostRequestBytes. The certificate is the one served at the moment of the handshake. No session
// outlives its connection, so an expired certificate admits no client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/authority/served_identity.h"
#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

class HttpsServer {
 public:
  static constexpr size_t kMostConnections = 8;
  static constexpr int kAskMs = 2'000;
  static constexpr int kReadMs = 10'000;
  static constexpr size_t kMostRequestBytes = 8U << 10;

  // The content of a path ("/metrics"), as Prometheus's text; nullopt = there is no such page. On
  // the server's thread.
  using Answer = std::function<std::optional<std::string>(const std::string& path)>;

  // `address` "IP:PORT", port 0 = any free one. kUnavailable where it cannot be listened on.
  // `served` outlives the server.
  static Result<std::unique_ptr<HttpsServer>> open(const std::string& address,
                                                   const ServedIdentity& served, Answer answer);
  ~HttpsServer();  // ends connections
  HttpsServer(const HttpsServer&) = delete;
  HttpsServer& operator=(const HttpsServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  HttpsServer(UniqueFd socket, UniqueFd stop_event, uint16_t port, const ServedIdentity& served,
              Answer answer);
  void run();

  const UniqueFd socket_;
  const UniqueFd stop_event_;
  const uint16_t port_;
  const ServedIdentity& served_;
  const Answer answer_;
  std::thread thread_;
};

}  // namespace hpctl
