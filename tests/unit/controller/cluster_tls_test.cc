// SPDX-License-Identifier: Apache-2.0
// A cluster controller that proves itself by an authority's certificates, over real sockets: who
// has the bundle believes that one and nobody else, and notices nothing of a rotation. MUNGE has no
// part here (tests/fault/cluster_ca_test.cc).
//
// OpenSSL compares certificates with the clock. So the times that are given lie around now, where
// all that is made at them counts: a leaf does from a day before to a day after.
#include <curl/curl.h>
#include <gmock/gmock.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/net/socket_address.h"
#include "common/rpc/cluster_trust.h"
#include "controller/access/reloading_credentials.h"
#include "controller/access/tcp_access.h"
#include "controller/cluster/certificate_renewer.h"
#include "controller/publish/https_server.h"
#include "controller/publish/metrics.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::cluster {
namespace {

using std::chrono::system_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Wait = AuthorityDirectory::Wait;

constexpr std::chrono::seconds kCall{60};
constexpr int64_t kHour = 3'600;
constexpr int64_t kYear = 365 * kDaySeconds;

int64_t now_s() { return SystemClock().wall_ms() / 1'000; }

// An authority in a directory of its own.
class MadeAuthority {
 public:
  explicit MadeAuthority(int64_t at_s) {
    EXPECT_TRUE(AuthorityDirectory::make(path(), "head", at_s, kYear).value());
    EXPECT_TRUE(open().advance(at_s, Wait::kForOthers).ok());
  }
  std::string path() const { return root_ / "ca"; }
  AuthorityDirectory open() const { return AuthorityDirectory::open(path()).value(); }
  std::string bundle() const { return read_file(open().bundle_path()).value(); }
  std::unique_ptr<CertificateRenewer> keeper(int64_t at_s) const {
    auto opened = CertificateRenewer::open(path(), {{"localhost"}, {"127.0.0.1"}}, at_s);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(opened).value();
  }

 private:
  TemporaryDirectory root_;
};

// Answers whoever comes in, and remembers by which connections.
class AnsweringCluster final : public v1::Cluster::Service {
 public:
  grpc::Status ListJobs(grpc::ServerContext* context, const v1::ClusterCall*,
                        v1::ClusterAnswer* answer) override {
    const std::lock_guard lock(mutex_);
    peers_.insert(context->peer());
    answer->set_credential("heard");
    return grpc::Status::OK;
  }
  std::set<std::string> peers() const {
    const std::lock_guard lock(mutex_);
    return peers_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> peers_;
};

class Server {
 public:
  // `served` null = plain TCP.
  explicit Server(const ServedIdentity* served)
      : credentials_(served == nullptr ? grpc::InsecureServerCredentials()
                                       : reloading_credentials(*served)) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    int port = 0;
    add_tcp_listener(builder, "127.0.0.1:0", credentials_, port);
    server_ = builder.BuildAndStart();
    EXPECT_GT(port, 0);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~Server() { server_->Shutdown(system_clock::now()); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& address() const { return address_; }
  std::set<std::string> peers() const { return service_.peers(); }

 private:
  AnsweringCluster service_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

grpc::Status call(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + kCall);
  v1::ClusterAnswer answer;
  grpc::Status status = v1::Cluster::NewStub(channel)->ListJobs(&context, {}, &answer);
  if (status.ok()) {
    EXPECT_EQ(answer.credential(), "heard");
  }
  return status;
}

ClusterTrust with(const std::string& bundle) { return {"/etc/hpctl/ca.pem", bundle}; }

// "" = a new connection was let in and answered; else why not.
std::string refusal(const Server& server, const ClusterTrust& trust) {
  const grpc::Status status = call(trust.channel_to(server.address()));
  const auto why = trust.why_refused(server.address(), system_clock::now() + kCall);
  EXPECT_EQ(status.ok(), !why.has_value()) << status.error_message() << why.value_or("");
  return status.ok() ? "" : why.value_or(status.error_message());
}

TEST(ClusterTls, TheRightBundleIsLetIn) {
  const MadeAuthority authority(now_s());
  const MadeAuthority of_second_head(now_s());
  const auto keeper = authority.keeper(now_s());
  const Server server(&keeper->served());
  EXPECT_EQ(refusal(server, with(authority.bundle())), "");
  EXPECT_EQ(refusal(server, with(of_second_head.bundle() + authority.bundle())), "")
      << "bundles of several heads can be put together";
}

TEST(ClusterTls, AnotherAuthoritysCertificateIsRefused) {
  const MadeAuthority authority(now_s());
  const MadeAuthority other(now_s());
  const auto keeper = other.keeper(now_s());
  const Server server(&keeper->served());
  EXPECT_THAT(refusal(server, with(authority.bundle())),
              AllOf(HasSubstr("does not prove by /etc/hpctl/ca.pem"),
                    HasSubstr("a certificate of \"cluster.hpctl\""),
                    HasSubstr("unable to get local issuer certificate"),
                    HasSubstr("copy the head node's bundle")));
  EXPECT_THAT(server.peers(), IsEmpty()) << "it was told nothing";
}

// Of the same authority, and for something else: the certificate of a job's controller, say.
TEST(ClusterTls, ACertificateWithAnotherNameIsRefused) {
  ServedIdentity served;
  const TlsIdentity own = make_tls_identity().value();
  served.set(own);
  const Server server(&served);
  EXPECT_THAT(refusal(server, with(own.certificate)), HasSubstr("hostname mismatch"));
  EXPECT_THAT(server.peers(), IsEmpty());
}

TEST(ClusterTls, ALeafThatHasRunOutIsRefused) {
  const MadeAuthority authority(now_s() - 3 * kDaySeconds);
  const auto keeper = authority.keeper(now_s() - 2 * kDaySeconds);
  const Server server(&keeper->served());
  EXPECT_THAT(refusal(server, with(authority.bundle())),
              AllOf(HasSubstr("certificate has expired"), HasSubstr("the clocks of the two"),
                    HasSubstr("journalctl -u hpcontroller")));
  EXPECT_THAT(server.peers(), IsEmpty());
  keeper->tick(now_s());
  EXPECT_EQ(refusal(server, with(authority.bundle())), "") << "renewed without a restart";
}

TEST(ClusterTls, AServerWithoutTlsIsRefusedAndToldNothing) {
  const MadeAuthority authority(now_s());
  const Server server(nullptr);
  EXPECT_THAT(refusal(server, with(authority.bundle())),
              AllOf(HasSubstr("speaks no TLS"), HasSubstr("/etc/hpctl/ca.pem")));
  EXPECT_THAT(server.peers(), IsEmpty());
  EXPECT_EQ(refusal(server, ClusterTrust("", "")), "") << "who has no bundle is served as ever";
}

TEST(ClusterTls, WhoHasNoBundleGetsNoFurtherThanTheHandshake) {
  const MadeAuthority authority(now_s());
  const auto keeper = authority.keeper(now_s());
  const Server server(&keeper->served());
  EXPECT_THAT(refusal(server, ClusterTrust("", "")),
              AllOf(HasSubstr(" speaks TLS"), HasSubstr("HPCTL_CLUSTER_CA=FILE")));
  EXPECT_THAT(server.peers(), IsEmpty());
}

TEST(ClusterTls, NothingIsSaidOfAnAddressWhereNobodyIs) {
  std::string address;
  {
    const Server server(nullptr);
    address = server.address();
  }
  const MadeAuthority authority(now_s());
  EXPECT_EQ(with(authority.bundle()).why_refused(address, system_clock::now() + kCall),
            std::nullopt);
}

// One connection through all of it, and new ones of callers with what they may have by then.
TEST(ClusterTls, ARotationIsNotNoticed) {
  const int64_t begin_s = now_s() - 23 * kHour;
  const int64_t signs_s = begin_s + kHour;
  const int64_t leaves_s = signs_s + kLeafSeconds + kSlackSeconds;
  const MadeAuthority authority(begin_s);
  const auto keeper = authority.keeper(begin_s);
  const Server server(&keeper->served());
  const std::string old_bundle = authority.bundle();
  const auto live = with(old_bundle).channel_to(server.address());
  ASSERT_TRUE(call(live).ok());
  const std::set<std::string> its_connection = server.peers();
  ASSERT_EQ(its_connection.size(), 1U);
  const auto expect_live = [&] {
    const std::set<std::string> before = server.peers();
    EXPECT_TRUE(call(live).ok());
    EXPECT_EQ(server.peers(), before) << "it had to connect again";
  };

  ASSERT_TRUE(authority.open().begin_rotation("head", begin_s, kYear, kHour).value());
  keeper->tick(begin_s);  // as much as hpctl ca does, where that one dies at once
  const std::string both = authority.bundle();
  EXPECT_EQ(read_certificates(both, "bundle")->size(), 2U);
  expect_live();
  EXPECT_EQ(refusal(server, with(old_bundle)), "");
  EXPECT_EQ(refusal(server, with(both)), "");

  keeper->tick(signs_s - 1);
  EXPECT_EQ(refusal(server, with(old_bundle)), "") << "until the last moment";
  ServedIdentity last_of_old;
  last_of_old.set(*keeper->served().get());
  keeper->tick(signs_s);
  expect_live();
  EXPECT_EQ(refusal(server, with(both)), "");
  EXPECT_THAT(refusal(server, with(old_bundle)), HasSubstr("copy the head node's bundle"))
      << "who did not get the new bundle in time";

  keeper->tick(leaves_s);
  const std::string new_bundle = authority.bundle();
  EXPECT_EQ(read_certificates(new_bundle, "bundle")->size(), 1U);
  expect_live();
  EXPECT_EQ(refusal(server, with(both)), "");
  EXPECT_EQ(refusal(server, with(new_bundle)), "");
  EXPECT_THAT(refusal(server, with(old_bundle)), HasSubstr("does not prove"));

  // Whoever has got hold of the old one's key is believed by nobody who has the new bundle.
  const Server impostor(&last_of_old);
  EXPECT_EQ(refusal(impostor, with(old_bundle)), "");
  EXPECT_THAT(refusal(impostor, with(new_bundle)), HasSubstr("does not prove"));
}

TEST(CertificateRenewer, RenewsLongBeforeTheEndAndNotWithoutNeed) {
  const MadeAuthority authority(now_s());
  const auto keeper = authority.keeper(now_s());
  const auto first = keeper->served().get();
  keeper->tick(now_s() + 1);
  EXPECT_EQ(keeper->served().get(), first);
  keeper->tick(now_s() + kRenewSeconds + 1);
  EXPECT_NE(keeper->served().get(), first);
  EXPECT_EQ(keeper->authority_ends_s() / kDaySeconds, (now_s() + kYear) / kDaySeconds);
  const auto second = keeper->served().get();
  keeper->tick(now_s() - 30 * kDaySeconds);
  EXPECT_NE(keeper->served().get(), second)
      << "a clock was set back: nobody could believe that one";
}

TEST(CertificateRenewer, KeepsTheLeafThereIsWhereTheAuthorityCannotBeRead) {
  const MadeAuthority authority(now_s());
  const auto keeper = authority.keeper(now_s());
  const auto first = keeper->served().get();
  const std::string path = authority.path() + "/authority.json";
  const std::string good = read_file(path).value();
  ASSERT_TRUE(write_file_atomic(path, "{").ok());
  keeper->tick(now_s() + kRenewSeconds + 1);
  EXPECT_EQ(keeper->served().get(), first);
  ASSERT_TRUE(write_file_atomic(path, good).ok());
  keeper->tick(now_s() + kRenewSeconds + 1);
  EXPECT_NE(keeper->served().get(), first);
}

TEST(CertificateRenewer, AnAuthorityThatCountsNoMoreIsSaid) {
  const MadeAuthority authority(now_s() - 2 * kYear);
  const auto opened = CertificateRenewer::open(authority.path(), {}, now_s());
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message,
              AllOf(HasSubstr(authority.path()), HasSubstr("hpctl ca rotate")));
}

class ClusterTrustConf : public ::testing::Test {
 protected:
  ClusterTrustConf() { ::setenv("HPCTL_CLUSTER_CA", path().c_str(), 1); }
  ~ClusterTrustConf() override { ::unsetenv("HPCTL_CLUSTER_CA"); }
  std::string path() const { return root_ / "ca.pem"; }
  std::string problem(int64_t at_s) const {
    const auto trust = cluster_trust(at_s);
    return trust.ok() ? "" : trust.error().message;
  }
  TemporaryDirectory root_;
};

TEST_F(ClusterTrustConf, ABundleThatCannotBeUsedIsNotPassedOver) {
  EXPECT_THAT(problem(now_s()),
              AllOf(HasSubstr("cannot open " + path()), HasSubstr("copy the head node's bundle"),
                    HasSubstr("HPCTL_CLUSTER_CA")));
  ASSERT_TRUE(write_file_atomic(path(), "nothing").ok());
  EXPECT_THAT(problem(now_s()), HasSubstr(path() + ": there is no certificate in it"));
  const MadeAuthority authority(now_s());
  ASSERT_TRUE(write_file_atomic(path(), authority.bundle()).ok());
  EXPECT_EQ(problem(now_s()), "");
  EXPECT_THAT(problem(now_s() + kYear + 60), HasSubstr("no certificate in it counts any more"));
}

// ---- metrics by HTTPS ---------------------------------------------------------------------------

struct Fetched {
  CURLcode code = CURLE_OK;
  long status = 0;
  std::string body;
};

size_t append(char* data, size_t size, size_t count, void* to) {
  static_cast<std::string*>(to)->append(data, size * count);
  return size * count;
}

// As curl --cacert BUNDLE does. `name` is what is asked for, at the loopback.
Fetched fetch(uint16_t port, const std::string& path, const std::string& bundle,
              const std::string& name = "127.0.0.1", const char* method = "GET") {
  Fetched fetched;
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(),
                                                                 curl_easy_cleanup);
  const std::string at = std::to_string(port);
  const std::string url = "https://" + name + ":" + at + path;
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> way(
      curl_slist_append(nullptr, (name + ":" + at + ":127.0.0.1:" + at).c_str()),
      curl_slist_free_all);
  curl_blob ca{const_cast<char*>(bundle.data()), bundle.size(), CURL_BLOB_COPY};
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_CONNECT_TO, way.get());
  curl_easy_setopt(curl.get(), CURLOPT_CAINFO_BLOB, &ca);
  curl_easy_setopt(curl.get(), CURLOPT_CUSTOMREQUEST, method);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, kCall.count());
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &fetched.body);
  fetched.code = curl_easy_perform(curl.get());
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &fetched.status);
  return fetched;
}

UniqueFd connect_to(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = SocketAddress::of("127.0.0.1", port).value();
  EXPECT_EQ(::connect(fd.get(), address.get(), address.size()), 0);
  return fd;
}

class HttpsMetrics : public ::testing::Test {
 protected:
  HttpsMetrics() {
    auto opened = Metrics::open(
        "127.0.0.1:0", [this] { ++scrapes_; }, &keeper_->served());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    metrics_ = std::move(opened).value();
  }
  uint16_t port() const { return metrics_->port(); }

  const MadeAuthority authority_{now_s() - 23 * kHour};
  const std::unique_ptr<CertificateRenewer> keeper_ = authority_.keeper(now_s());
  std::atomic<int> scrapes_ = 0;
  std::unique_ptr<Metrics> metrics_;
};

TEST_F(HttpsMetrics, AreServedToWhoHasTheBundle) {
  metrics_->certificates(1'800'000'000, 1'900'000'000);
  for (const char* name : {"127.0.0.1", "localhost", "cluster.hpctl"}) {
    const Fetched page = fetch(port(), "/metrics", authority_.bundle(), name);
    EXPECT_EQ(page.code, CURLE_OK) << name << ": " << curl_easy_strerror(page.code);
    EXPECT_EQ(page.status, 200);
    EXPECT_THAT(page.body, HasSubstr("hpctl_build_info{version="));
    EXPECT_THAT(page.body,
                HasSubstr("hpctl_cluster_certificate_expiry_timestamp_seconds 1800000000\n"));
    EXPECT_THAT(page.body, HasSubstr("hpctl_cluster_ca_expiry_timestamp_seconds 1900000000\n"));
  }
  EXPECT_EQ(scrapes_, 3);
  EXPECT_THAT(fetch(port(), "/healthz", authority_.bundle()).body,
              HasSubstr("hpctl_controller_up 1"));
  EXPECT_EQ(fetch(port(), "/metrics?x=1", authority_.bundle()).status, 200);
  EXPECT_EQ(fetch(port(), "/", authority_.bundle()).status, 404);
  EXPECT_EQ(fetch(port(), "/metrics", authority_.bundle(), "127.0.0.1", "POST").status, 405);
}

TEST_F(HttpsMetrics, AreRefusedByWhoHasAnotherBundleOrAsksForAnotherName) {
  const MadeAuthority other(now_s());
  EXPECT_EQ(fetch(port(), "/metrics", other.bundle()).code, CURLE_PEER_FAILED_VERIFICATION);
  EXPECT_EQ(fetch(port(), "/metrics", authority_.bundle(), "head.example").code,
            CURLE_PEER_FAILED_VERIFICATION);
  EXPECT_EQ(scrapes_, 0);
}

TEST_F(HttpsMetrics, AreServedWithTheLeafOfTheMoment) {
  const std::string old_bundle = authority_.bundle();
  ASSERT_TRUE(authority_.open().begin_rotation("head", now_s() - kHour, kYear, kHour).value());
  keeper_->tick(now_s() - kHour);
  EXPECT_EQ(fetch(port(), "/metrics", old_bundle).code, CURLE_OK);
  keeper_->tick(now_s());
  EXPECT_EQ(fetch(port(), "/metrics", old_bundle).code, CURLE_PEER_FAILED_VERIFICATION);
  EXPECT_EQ(fetch(port(), "/metrics", authority_.bundle()).code, CURLE_OK);
}

// Each of them has its time, and then it is the next one's turn.
TEST_F(HttpsMetrics, StrangersWhoDoNotAskKeepNobodyOut) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < 2 * HttpsServer::kMostConnections; ++i) {
    silent.push_back(connect_to(port()));
    if (i % 2 == 0) {
      EXPECT_EQ(::write(silent.back().get(), "\x16\x03\x01", 3), 3);  // as TLS begins
    }
  }
  EXPECT_EQ(fetch(port(), "/metrics", authority_.bundle()).code, CURLE_OK);
  char byte = 0;
  EXPECT_EQ(::read(silent.front().get(), &byte, 1), 0) << "closed";
}

TEST_F(HttpsMetrics, WhatIsNoRequestIsNotAnswered) {
  const UniqueFd plain = connect_to(port());
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  EXPECT_EQ(::write(plain.get(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer(1024, '\0');
  while (::read(plain.get(), answer.data(), answer.size()) > 0) {
    EXPECT_EQ(answer[0], '\x15') << "an alert of TLS, and nothing else";
  }
  EXPECT_NE(fetch(port(), "/metrics?" + std::string(HttpsServer::kMostRequestBytes, 'x'),
                  authority_.bundle())
                .code,
            CURLE_OK);
  EXPECT_EQ(scrapes_, 0);
  EXPECT_EQ(fetch(port(), "/metrics", authority_.bundle()).code, CURLE_OK);
}

TEST_F(HttpsMetrics, AnAnswerOfManyRecordsIsWhole) {
  std::vector<FleetJob> jobs(kMaxFleetJobs);
  for (size_t j = 0; j < jobs.size(); ++j) {
    jobs[j].summary.job = JobId{j + 1};
    jobs[j].summary.name = "a-job-with-a-name-" + std::to_string(j);
    jobs[j].summary.state = "RUNNING";
  }
  metrics_->fleet(jobs);
  const Fetched page = fetch(port(), "/metrics", authority_.bundle());
  EXPECT_EQ(page.code, CURLE_OK) << curl_easy_strerror(page.code);
  EXPECT_GT(page.body.size(), 500'000U);
  EXPECT_THAT(page.body, HasSubstr("a-job-with-a-name-999"));
}

}  // namespace
}  // namespace hpctl::cluster
