// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/https_server.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <list>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/net/socket_address.h"
#include "common/net/x509.h"
#include "controller/access/accept.h"
#include "controller/publish/metrics_server.h"

namespace hpctl {
namespace {

using Steady = std::chrono::steady_clock;
using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using TlsSession = std::unique_ptr<SSL, decltype(&SSL_free)>;

// Null where OpenSSL does not take it.
TlsContext context_of(const TlsIdentity& identity) {
  TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  const auto chain = certificates_from_pem(identity.certificate);
  const X509Key key = key_from_pem(identity.private_key);
  if (context == nullptr || chain.size() != 1 || key == nullptr) return {nullptr, SSL_CTX_free};
  SSL_CTX* const raw = context.get();
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const bool taken = SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) == 1 &&
                     SSL_CTX_set_num_tickets(raw, 0) == 1 &&
                     SSL_CTX_use_certificate(raw, chain.front().get()) == 1 &&
                     SSL_CTX_use_PrivateKey(raw, key.get()) == 1;
  if (!taken) return {nullptr, SSL_CTX_free};
  return context;
}

std::string reply_to(const std::string& request, const HttpsServer::Answer& answer) {
  const size_t method_ends = request.find(' ');
  const size_t path_ends = request.find_first_of(" ?\r", method_ends + 1);
  std::string status = "400 Bad Request";
  std::string body = "only HTTP is spoken here\n";
  if (method_ends != std::string::npos && path_ends != std::string::npos) {
    const std::string path = request.substr(method_ends + 1, path_ends - method_ends - 1);
    const bool is_get = request.starts_with("GET ");
    auto page = is_get ? answer(path) : std::nullopt;
    status = page ? "200 OK" : is_get ? "404 Not Found" : "405 Method Not Allowed";
    body = page ? std::move(*page) : "there are /metrics and /healthz, for GET\n";
  }
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + kMetricsType +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" +
         body;
}

// One connection, from its handshake to the end of its answer. Nothing here waits: what cannot go
// on says for what.
class Exchange {
 public:
  Exchange(UniqueFd fd, TlsSession session) : fd_(std::move(fd)), session_(std::move(session)) {
    SSL_set_fd(session_.get(), fd_.get());
    SSL_set_accept_state(session_.get());
  }

  pollfd waits_for() const { return {fd_.get(), events_, 0}; }
  Steady::time_point deadline() const { return deadline_; }

  // False: it is over.
  bool go_on(const HttpsServer::Answer& answer) {
    ERR_clear_error();
    if (reply_.empty() && !read_request()) return may_wait();
    if (reply_.empty()) {
      reply_ = reply_to(request_, answer);
      deadline_ = Steady::now() + std::chrono::milliseconds(HttpsServer::kReadMs);
    }
    while (sent_ < reply_.size()) {
      result_ = SSL_write(session_.get(), reply_.data() + sent_,
                          static_cast<int>(std::min(reply_.size() - sent_, kChunk)));
      if (result_ <= 0) return may_wait();
      sent_ += static_cast<size_t>(result_);
    }
    SSL_shutdown(session_.get());  // says that this was all; no answer is waited for
    return false;
  }

 private:
  static constexpr size_t kChunk = 64U << 10;

  // Also what the handshake is done by. False: it is not whole.
  bool read_request() {
    std::array<char, 2048> chunk;
    while (request_.find("\r\n\r\n") == std::string::npos) {
      result_ = SSL_read(session_.get(), chunk.data(), chunk.size());
      if (result_ <= 0) return false;
      request_.append(chunk.data(), static_cast<size_t>(result_));
      is_too_long_ = request_.size() > HttpsServer::kMostRequestBytes;
      if (is_too_long_) return false;
    }
    return true;
  }
  bool may_wait() {
    const int why = is_too_long_ ? SSL_ERROR_SSL : SSL_get_error(session_.get(), result_);
    events_ = why == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
  }

  UniqueFd fd_;  // outlives the session
  TlsSession session_;
  Steady::time_point deadline_ = Steady::now() + std::chrono::milliseconds(HttpsServer::kAskMs);
  int result_ = 0;  // of the call that did not do
  short events_ = POLLIN;
  std::string request_;
  bool is_too_long_ = false;
  std::string reply_;  // "" = it has not asked yet
  size_t sent_ = 0;
};

// All that are there. One thread.
class Exchanges {
 public:
  Exchanges(const ServedIdentity& served, const HttpsServer::Answer& answer)
      : served_(served), answer_(answer) {}

  bool has_room() const { return all_.size() < HttpsServer::kMostConnections; }
  void add(UniqueFd connection) {
    const auto now = served_.get();
    if (now != shown_) {
      context_ = context_of(*now);
      if (context_ == nullptr) log_error(openssl_error("cannot serve metrics by TLS").message);
      shown_ = now;
    }
    TlsSession session(context_ == nullptr ? nullptr : SSL_new(context_.get()), SSL_free);
    if (session != nullptr) all_.emplace_back(std::move(connection), std::move(session));
  }
  void append_to(std::vector<pollfd>& waits) const {
    for (const Exchange& one : all_) waits.push_back(one.waits_for());
  }
  // `ready` as append_to() had them, in order.
  void go_on(const pollfd* ready, Steady::time_point now) {
    for (auto one = all_.begin(); one != all_.end(); ++ready) {
      // In this order: we may be the one who was late, and what has come is a request.
      const bool is_over = (ready->revents != 0 && !one->go_on(answer_)) || now >= one->deadline();
      one = is_over ? all_.erase(one) : std::next(one);
    }
  }
  // For poll(): -1 = for ever.
  int patience_ms(Steady::time_point now) const {
    if (all_.empty()) return -1;
    Steady::time_point next = all_.front().deadline();
    for (const Exchange& one : all_) next = std::min(next, one.deadline());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now).count();
    return static_cast<int>(std::max<int64_t>(left, 0));
  }

 private:
  const ServedIdentity& served_;
  const HttpsServer::Answer& answer_;
  std::shared_ptr<const TlsIdentity> shown_;
  TlsContext context_{nullptr, SSL_CTX_free};  // of that
  std::list<Exchange> all_;
};

// A peer that hangs up must not end the process by a signal.
void block_sigpipe() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

Result<std::unique_ptr<HttpsServer>> HttpsServer::open(const std::string& address,
                                                       const ServedIdentity& served,
                                                       Answer answer) {
  HP_TRY_ASSIGN(const auto wanted, SocketAddress::parse_listener(address));
  HP_TRY_ASSIGN(UniqueFd socket, listen_on(wanted));
  HP_TRY_ASSIGN(const auto bound, SocketAddress::of_socket(socket.get()));
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC));
  if (!stop_event.valid()) return errno_error("cannot create an eventfd");
  return std::unique_ptr<HttpsServer>(new HttpsServer(std::move(socket), std::move(stop_event),
                                                      bound.port(), served, std::move(answer)));
}

HttpsServer::HttpsServer(UniqueFd socket, UniqueFd stop_event, uint16_t port,
                         const ServedIdentity& served, Answer answer)
    : socket_(std::move(socket)),
      stop_event_(std::move(stop_event)),
      port_(port),
      served_(served),
      answer_(std::move(answer)),
      thread_([this] { run(); }) {}

HttpsServer::~HttpsServer() {
  ::eventfd_write(stop_event_.get(), 1);
  thread_.join();
}

void HttpsServer::run() {
  block_sigpipe();
  Exchanges exchanges(served_, answer_);
  for (;;) {
    std::vector<pollfd> waits = {{stop_event_.get(), POLLIN, 0},
                                 {exchanges.has_room() ? socket_.get() : -1, POLLIN, 0}};
    exchanges.append_to(waits);
    const int patience_ms = exchanges.patience_ms(Steady::now());
    if (::poll(waits.data(), waits.size(), patience_ms) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    exchanges.go_on(waits.data() + 2, Steady::now());
    if (waits[1].revents == 0) continue;
    sockaddr_storage peer{};
    UniqueFd connection = accept_connection(socket_.get(), stop_event_.get(), peer);
    if (connection.valid()) exchanges.add(std::move(connection));
  }
}

}  // namespace hpctl
