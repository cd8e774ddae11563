// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/metrics_server.h"

#include <civetweb.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string_view>

namespace hpctl {
namespace {

bool send_text(mg_connection* connection, const std::string& text) {
  return text.empty() || mg_write(connection, text.data(), text.size()) > 0;
}

bool send_head(mg_connection* connection, const char* status, size_t bytes) {
  return send_text(connection, std::string("HTTP/1.1 ") + status + "\r\nContent-Type: " +
                                   kMetricsType + "\r\nContent-Length: " + std::to_string(bytes) +
                                   "\r\nConnection: close\r\n\r\n");
}

}  // namespace

std::unique_ptr<MetricsServer> MetricsServer::open(const std::string& address, Answer answer) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(answer)));
  const std::string threads = std::to_string(kMetricsThreads);
  const std::string patience = std::to_string(kMetricsRequestMs);
  // civetweb's own default waits 30 s for a request.
  std::array<const char*, 13> options = {"listening_ports",
                                         address.c_str(),
                                         "num_threads",
                                         threads.c_str(),
                                         "request_timeout_ms",
                                         patience.c_str(),
                                         "enable_keep_alive",
                                         "no",
                                         "tcp_nodelay",
                                         "1",
                                         "linger_timeout_ms",
                                         patience.c_str(),
                                         nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &MetricsServer::on_request;
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // of strangers
  server->context_ = mg_start(&callbacks, server.get(), options.data());
  std::array<mg_server_port, 1> ports{};
  if (server->context_ == nullptr ||
      mg_get_server_ports(server->context_, ports.size(), ports.data()) != 1) {
    return nullptr;
  }
  server->port_ = static_cast<uint16_t>(ports[0].port);
  return server;
}

MetricsServer::~MetricsServer() {
  if (context_ != nullptr) mg_stop(context_);
}

int MetricsServer::on_request(mg_connection* connection) {
  static_cast<const MetricsServer*>(mg_get_user_data(mg_get_context(connection)))
      ->serve(connection);
  return 1;  // answered, whatever it was
}

void MetricsServer::serve(mg_connection* connection) const {
  const mg_request_info& info = *mg_get_request_info(connection);
  const std::string_view method = info.request_method;
  if (method != "GET" && method != "HEAD") {
    send_head(connection, "405 Method Not Allowed", 0);
    return;
  }
  const auto pieces = answer_(info.local_uri == nullptr ? "" : info.local_uri);
  if (!pieces) {
    send_head(connection, "404 Not Found", 0);
    return;
  }
  const size_t bytes =
      std::accumulate(pieces->begin(), pieces->end(), size_t{0},
                      [](size_t sum, const std::string& piece) { return sum + piece.size(); });
  if (!send_head(connection, "200 OK", bytes) || method == "HEAD") return;
  for (const std::string& piece : *pieces) {
    if (!send_text(connection, piece)) return;
  }
}

}  // namespace hpctl
