// SPDX-License-Identifier: Apache-2.0
// Metrics over HTTP (civetweb), for any client: GET PATH, answered with text that is made at every
// request. Answers leave in pieces, so there is no second copy of them, and uncompressed:
// compressing some megabytes takes longer than sending them.
//
// A connection without a request in kMetricsRequestMs is closed; kMetricsThreads of them at once do
// not keep others waiting for longer than that.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct mg_context;
struct mg_connection;

namespace hpctl {

// Prometheus's text format.
inline constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
inline constexpr int kMetricsThreads = 8;
inline constexpr int kMetricsRequestMs = 2'000;

class MetricsServer {
 public:
  // On a thread of the server's, several at once; nullopt: there is nothing of this path.
  using Answer = std::function<std::optional<std::vector<std::string>>(const std::string& path)>;

  // `address` HOST:PORT; port 0 = any free one. Null: the address is not ours, or in use.
  static std::unique_ptr<MetricsServer> open(const std::string& address, Answer answer);
  ~MetricsServer();  // waits for answers in hand
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  explicit MetricsServer(Answer answer) : answer_(std::move(answer)) {}
  static int on_request(mg_connection* connection);
  void serve(mg_connection* connection) const;

  const Answer answer_;
  uint16_t port_ = 0;
  mg_context* context_ = nullptr;
};

}  // namespace hpctl
