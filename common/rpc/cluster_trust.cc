// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/cluster_trust.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>

#include <algorithm>
#include <csignal>

#include "common/authority/certificates.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/net/x509.h"
#include "common/rpc/cluster_conf.h"
#include "common/rpc/job_channel.h"

namespace hpctl {
namespace {

using std::chrono::system_clock;
using TlsContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using TlsStream = std::unique_ptr<BIO, decltype(&BIO_free_all)>;

constexpr char kCopy[] = "copy the head node's bundle (hpctl ca show says where it is) to ";

std::string day_of(int64_t seconds) { return format_wall_ms(seconds * 1'000).substr(0, 19) + "Z"; }

// Its verification is checked later, and does not end the handshake.
TlsContext context_with(const std::string& bundle) {
  TlsContext context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (context == nullptr) return context;
  for (const X509Certificate& one : certificates_from_pem(bundle)) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), one.get());
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  return context;
}

// OpenSSL writes to sockets so that a peer who hangs up ends this process by a signal: not while
// this lives. A signal that waited already goes on waiting.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t waiting;
    sigpending(&waiting);
    waited_ = sigismember(&waiting, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    constexpr timespec kNow{};
    if (!waited_) ::sigtimedwait(&pipe_, nullptr, &kNow);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool waited_ = false;
};

// False: the time is over.
bool wait_for(int fd, short events, system_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - system_clock::now()).count();
  pollfd ready{fd, events, 0};
  return left > 0 && ::poll(&ready, 1, static_cast<int>(left)) > 0;
}

// False: it failed, or the time is over.
bool connect(BIO* stream, system_clock::time_point deadline) {
  while (BIO_do_connect(stream) != 1) {
    int fd = -1;
    BIO_get_fd(stream, &fd);
    if (!BIO_should_retry(stream) || fd < 0 || !wait_for(fd, POLLOUT, deadline)) return false;
  }
  return true;
}

// Likewise.
bool shake_hands(SSL* session, system_clock::time_point deadline) {
  for (;;) {
    ERR_clear_error();
    const int done = SSL_connect(session);
    if (done == 1) return true;
    const int why = SSL_get_error(session, done);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return false;
    const short events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    if (!wait_for(SSL_get_fd(session), events, deadline)) return false;
  }
}

std::string what_it_shows(const SSL* session) {
  const X509Certificate shown(SSL_get1_peer_certificate(session));
  if (shown == nullptr) return "no certificate";
  const auto facts = read_certificates(to_pem(shown.get()), "its certificate");
  return facts.ok() ? "a certificate of \"" + facts->front().name + "\", until " +
                          day_of(facts->front().ends_s)
                    : "a certificate that cannot be read";
}

struct Shown {
  bool is_tls = false;
  long verdict = X509_V_OK;  // X509_verify_cert_error_string() has the words
  std::string certificate;
};

// The certificate that the peer shows to one more connection; nullopt = no connection.
std::optional<Shown> look_at(const std::string& address, const std::string& bundle,
                             system_clock::time_point deadline) {
  const WithoutSigpipe guard;
  const TlsContext context = context_with(bundle);
  const TlsStream stream(BIO_new_connect(address.c_str()), BIO_free_all);
  if (stream == nullptr || context == nullptr) return std::nullopt;
  BIO_set_nbio(stream.get(), 1);
  if (!connect(stream.get(), deadline)) return std::nullopt;
  int fd = -1;
  BIO_get_fd(stream.get(), &fd);
  const std::unique_ptr<SSL, decltype(&SSL_free)> session(SSL_new(context.get()), SSL_free);
  if (session == nullptr || SSL_set_fd(session.get(), fd) != 1 ||
      SSL_set1_host(session.get(), kClusterName) != 1) {
    return std::nullopt;
  }
  Shown shown;
  shown.is_tls = shake_hands(session.get(), deadline);
  if (!shown.is_tls) return shown;
  shown.verdict = SSL_get_verify_result(session.get());
  shown.certificate = what_it_shows(session.get());
  return shown;
}

}  // namespace

std::shared_ptr<grpc::Channel> ClusterTrust::channel_to(const std::string& address) const {
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (path_.empty()) {
    return grpc::CreateCustomChannel("dns:///" + address, grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  silence_handshakes();
  arguments.SetSslTargetNameOverride(kClusterName);
  return grpc::CreateCustomChannel("dns:///" + address, grpc::SslCredentials({bundle_, "", ""}),
                                   arguments);
}

std::optional<std::string> ClusterTrust::why_refused(const std::string& address,
                                                     system_clock::time_point deadline) const {
  const auto shown = look_at(address, bundle_, deadline);
  if (path_.empty()) {
    if (!shown || !shown->is_tls) return std::nullopt;
    return " speaks TLS, and there is no bundle of certificates here to know it by: set "
           "HPCTL_CLUSTER_CA=FILE, beside its address, to a copy of the head node's (hpctl ca show "
           "says where it is)";
  }
  if (!shown || (shown->is_tls && shown->verdict == X509_V_OK)) return std::nullopt;
  if (!shown->is_tls) {
    return " speaks no TLS, and " + path_ +
           " is to prove who it is: it has no authority (HPCTL_CA of the service), this is its "
           "port for callers without a bundle, or another program has the port";
  }
  const bool is_date = shown->verdict == X509_V_ERR_CERT_HAS_EXPIRED ||
                       shown->verdict == X509_V_ERR_CERT_NOT_YET_VALID;
  return " does not prove by " + path_ + " who it is: it shows " + shown->certificate + "; " +
         X509_verify_cert_error_string(shown->verdict) + "; " +
         (is_date ? "the clocks of the two machines must agree, and the service must be able to "
                    "renew it: journalctl -u hpcontroller on the head node"
                  : kCopy + path_ + ", unless another machine has that address");
}

Result<ClusterTrust> cluster_trust(int64_t now_s) {
  HP_TRY_ASSIGN(const std::string path, cluster_ca());
  if (path.empty()) return ClusterTrust("", "");
  const auto wrong = [&](const std::string& why) {
    return Error{
        ErrorCode::kInvalidArgument,
        why + "; cluster controllers are to be known by it (HPCTL_CLUSTER_CA): " + kCopy + path};
  };
  const auto bundle = read_file(path, kMaxBundleBytes);
  if (!bundle.ok()) return wrong(bundle.error().message);
  const auto all = read_certificates(*bundle, path);
  if (!all.ok()) return wrong(all.error().message);
  const auto newest = std::max_element(
      all->begin(), all->end(), [](const auto& a, const auto& b) { return a.ends_s < b.ends_s; });
  if (newest->ends_s < now_s) {
    return wrong(path + ": no certificate in it counts any more, the last one was \"" +
                 newest->name + "\", until " + day_of(newest->ends_s));
  }
  return ClusterTrust(path, *bundle);
}

}  // namespace hpctl
