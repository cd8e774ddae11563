// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_server.h"

#include <civetweb.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/random_hex.h"
#include "common/net/host_port.h"
#include "controller/page/page.h"
#include "controller/page/page_script.h"
#include "controller/page/plots.h"
#include "third_party/uplot/uPlot.iife.min.h"
#include "third_party/uplot/uPlot.min.h"

namespace hpctl {
namespace {

constexpr const char* kPageThreads = "8";
constexpr const char* kPageRequestMs = "5000";
constexpr size_t kMostParameter = 128;
constexpr std::string_view kNonce = "{{NONCE}}";  // in page.html

// Beside the page, which names them with its nonce.
struct Asset {
  std::string_view path;
  const char* type;
  const char* text;
};
constexpr std::array<Asset, 4> kAssets = {{{"/uplot.js", "text/javascript", kUplot},
                                           {"/uplot.css", "text/css", kUplotStyle},
                                           {"/plots.js", "text/javascript", kPlots},
                                           {"/page.js", "text/javascript", kPageScript}}};
constexpr std::array<std::string_view, 7> kQuestions = {
    "/api/jobs", "/api/job", "/api/events", "/api/series", "/api/log", "/api/heat", "/api/files"};

constexpr const char* kNoSession =
    "<!doctype html><meta charset=utf-8><title>hpctl</title><p>This page is opened by a link that "
    "counts once: run <code>hpctl open</code> and follow what it prints.";

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::string headers = {};  // further ones, each with its end of line
};

const char* phrase_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
    case ErrorCode::kPermissionDenied:  // no word about what others have
      return 404;
    default:
      return 503;
  }
}

void send_reply(mg_connection* connection, const Reply& reply) {
  const bool has_body = std::strcmp(mg_get_request_info(connection)->request_method, "HEAD") != 0;
  const std::string head =
      "HTTP/1.1 " + std::to_string(reply.status) + " " + phrase_of(reply.status) +
      "\r\nContent-Type: " + reply.type +
      "; charset=utf-8\r\nContent-Length: " + std::to_string(reply.body.size()) +
      "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff"
      "\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n" +
      reply.headers + "\r\n";
  if (mg_write(connection, head.data(), head.size()) <= 0 || !has_body) return;
  mg_write(connection, reply.body.data(), reply.body.size());
}

void send_html(mg_connection* connection, int status, const std::string& text) {
  send_reply(connection,
             {status, "text/html", text,
              "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"});
}

// "" = absent, or longer than any that means something.
std::string query_value(const char* query, const char* name) {
  if (query == nullptr) return "";
  std::array<char, kMostParameter> value{};
  const int length = mg_get_var(query, std::strlen(query), name, value.data(), value.size());
  return length > 0 ? std::string(value.data(), static_cast<size_t>(length)) : "";
}

std::string cookie_value(mg_connection* connection, const std::string& name) {
  const char* header = mg_get_header(connection, "Cookie");
  if (header == nullptr) return "";
  std::array<char, kMostParameter> value{};
  const int length = mg_get_cookie(header, name.c_str(), value.data(), value.size());
  return length > 0 ? std::string(value.data(), static_cast<size_t>(length)) : "";
}

}  // namespace

Result<std::unique_ptr<PageServer>> PageServer::open(const std::string& address, PageAccess& access,
                                                     Answer answer) {
  const auto parsed = HostPort::parse(address);
  if (!parsed.ok()) {
    return Error{parsed.error().code, "HPCTL_PAGE or --page: " + parsed.error().message};
  }
  std::unique_ptr<PageServer> server(new PageServer(parsed->host, access, std::move(answer)));
  const std::vector<const char*> options = {"listening_ports",
                                            address.c_str(),
                                            "num_threads",
                                            kPageThreads,
                                            "request_timeout_ms",
                                            kPageRequestMs,
                                            "linger_timeout_ms",
                                            kPageRequestMs,
                                            "enable_keep_alive",
                                            "no",
                                            "tcp_nodelay",
                                            "1",
                                            nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &PageServer::on_request;
  // civetweb's messages about strangers' requests do not belong in our log; our own mistakes are
  // our errors.
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };
  server->context_ = mg_start(&callbacks, server.get(), const_cast<const char**>(options.data()));
  std::array<mg_server_port, 1> ports{};
  if (server->context_ == nullptr ||
      mg_get_server_ports(server->context_, ports.size(), ports.data()) != 1) {
    return Error{ErrorCode::kUnavailable,
                 "there is no status page: cannot listen on " + address +
                     " (HPCTL_PAGE or --page); it is not an address of this machine, or the port "
                     "is in use: with port 0 any free one is taken"};
  }
  server->port_ = static_cast<uint16_t>(ports[0].port);
  server->url_ = "http://" + parsed->with_port(server->port_);
  return server;
}

PageServer::PageServer(std::string host, PageAccess& access, Answer answer)
    : host_(std::move(host)), access_(access), answer_(std::move(answer)) {}

PageServer::~PageServer() {
  if (context_ != nullptr) mg_stop(context_);
}

// Browsers do not tell cookies of one host apart by port.
std::string PageServer::cookie_name() const { return "hpctl_" + std::to_string(port_); }

bool PageServer::has_our_host(mg_connection* connection) const {
  const char* header = mg_get_header(connection, "Host");
  if (header == nullptr) return false;
  // The port may be ssh's forwarding port, or be left out.
  const auto parsed = HostPort::parse(header);
  const std::string host = parsed.ok() ? parsed->host : header;
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == host_;
}

int PageServer::on_request(mg_connection* connection) {
  static_cast<PageServer*>(mg_get_user_data(mg_get_context(connection)))->serve(connection);
  return 1;  // answered, whatever it was
}

void PageServer::serve(mg_connection* connection) {
  const mg_request_info& info = *mg_get_request_info(connection);
  const std::string_view method = info.request_method;
  const std::string path = info.local_uri == nullptr ? "" : info.local_uri;
  if (method != "GET" && method != "HEAD") {
    return send_reply(connection, {405, "text/plain", "only GET\n", "Allow: GET, HEAD\r\n"});
  }
  if (!has_our_host(connection)) {
    return send_reply(connection, {403, "text/plain", "not a name of this server\n"});
  }
  if (path == "/open") {
    // A chat or mail program that previews a link asks with HEAD. That must not use up its code.
    if (method == "HEAD") return send_html(connection, 200, "");
    return open_session(connection, info.query_string);
  }
  const auto uid = access_.of(cookie_value(connection, cookie_name()));
  if (!uid) return send_html(connection, 401, kNoSession);
  ++requests_;
  if (path == "/") return send_page(connection);
  for (const Asset& asset : kAssets) {
    if (path == asset.path) return send_reply(connection, {200, asset.type, asset.text});
  }
  if (std::find(kQuestions.begin(), kQuestions.end(), path) == kQuestions.end()) {
    return send_reply(connection, {404, "text/plain", "there is no such page\n"});
  }
  const auto value = [&](const char* name) { return query_value(info.query_string, name); };
  const auto answer = answer_(*uid, {path, value("id"), value("after"), value("from"), value("to"),
                                     value("points"), value("rank"), value("lines")});
  if (answer.ok()) return send_reply(connection, {200, "application/json", *answer});
  send_reply(connection,
             {status_of(answer.error().code), "text/plain", answer.error().message + "\n"});
}

void PageServer::open_session(mg_connection* connection, const char* query) {
  const auto session = access_.redeem(query_value(query, "code"));
  if (!session) return send_html(connection, 401, kNoSession);
  const std::string job = query_value(query, "job");
  const bool is_number = !job.empty() && job.find_first_not_of("0123456789") == std::string::npos;
  send_reply(connection, {303, "text/plain", "",
                          "Set-Cookie: " + cookie_name() + "=" + *session +
                              "; HttpOnly; SameSite=Strict; Path=/\r\nLocation: /" +
                              (is_number ? "#job=" + job : "") + "\r\n"});
}

// Only what has this answer's nonce runs.
void PageServer::send_page(mg_connection* connection) const {
  const auto nonce = random_key();
  if (!nonce.ok()) return send_reply(connection, {503, "text/plain", nonce.error().message + "\n"});
  std::string page = kPage;
  for (size_t at = 0; (at = page.find(kNonce, at)) != std::string::npos;) {
    page.replace(at, kNonce.size(), *nonce);
  }
  send_reply(connection,
             {200, "text/html", page,
              "Content-Security-Policy: default-src 'none'; script-src 'nonce-" + *nonce +
                  "'; style-src 'nonce-" + *nonce +
                  "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                  "frame-ancestors 'none'\r\n"});
}

}  // namespace hpctl
