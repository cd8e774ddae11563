// SPDX-License-Identifier: Apache-2.0
// Whoever is on the cluster's network does to the port of a job's controller what they can, while
// the job runs: garbage, floods of calls with tokens that are none, messages that are too large or
// make no sense, peers that say or read nothing; and what other users of its machine can do to the
// port of its status page. The job goes on, and the audit log stays small.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <regex>
#include <sstream>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "common/job/job_files.h"
#include "common/net/role_token.h"
#include "common/net/socket_address.h"
#include "common/rpc/job_channel.h"
#include "controller/access/tcp_access.h"
#include "tests/fault/job_cluster.h"
#include "tests/support/http_get.h"
#include "tests/support/raw_call.h"

namespace hpctl {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr int kFlood = 2'000;

void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

bool is_running(const v1::JobStatus& status) {
  return status.state() == "RUNNING" &&
         std::all_of(status.nodes().begin(), status.nodes().end(),
                     [](const auto& node) { return node.state() == "up"; });
}

class Strangers : public testing::Test {
 protected:
  void SetUp() override {
    controller_ = cluster_.start_all();
    ASSERT_TRUE(cluster_.wait_for_status(is_running, kPatienceMs)) << cluster_.logs();
    record_ = newest_controller(cluster_.job_dir()).value().value();
    token_ = read_token(cluster_.job_dir()).value();
  }
  // Nothing has happened to it.
  void expect_finish_undisturbed() {
    ASSERT_TRUE(cluster_.wait_for_status(is_running, kPatienceMs)) << cluster_.logs();
    const auto status = cluster_.shown();
    EXPECT_EQ(status.generation(), 1U);
    EXPECT_EQ(status.faults(), 0U);
    EXPECT_EQ(status.restarts(), 0U);
    EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), record_.epoch);
    cluster_.open_gate();
    EXPECT_EQ(cluster_.wait_for(controller_, kPatienceMs), kVerdictFinished) << cluster_.logs();
  }
  std::shared_ptr<grpc::Channel> connect(const std::string& token) const {
    return connect_address(record_.address, record_.certificate, token).value();
  }
  UniqueFd connect_plainly() const { return connect_plainly_to(record_.address); }
  static UniqueFd connect_plainly_to(const std::string& where) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = SocketAddress::parse(where).value();
    EXPECT_EQ(::connect(fd.get(), address.get(), address.size()), 0);
    return fd;
  }
  void wave(const std::string& token, int calls) const {
    const auto stub = v1::Controller::NewStub(connect(token));
    for (int i = 0; i < calls; ++i) {
      grpc::ClientContext context;
      set_deadline(context);
      v1::CancelRequest request;
      request.set_job(to_string(cluster_.job()));
      v1::CancelResponse response;
      EXPECT_FALSE(stub->Cancel(&context, request, &response).ok());
    }
  }

  test::JobCluster cluster_{test::gated_job()};
  pid_t controller_ = -1;
  ControllerRecord record_;
  std::string token_;
};

TEST_F(Strangers, AFloodOfCallsWithWrongTokens) {
  const std::vector<std::string> tokens = {
      std::string(64, '0'), agent_token(token_), person_token(token_, TokenRole::kReader, 1000, 0),
      person_token(token_, TokenRole::kOperator, 1000, 1)};  // its time is long over
  std::vector<std::future<void>> waves;
  waves.reserve(tokens.size());
  for (const std::string& token : tokens) {
    waves.push_back(std::async(std::launch::async, [&] { wave(token, kFlood); }));
  }
  for (auto& one : waves) one.get();
  expect_finish_undisturbed();

  const std::string path = cluster_.paths("n0").audit_log();
  std::istringstream in(read_file(path).value());
  int lines = 0;
  int64_t refused = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    const auto entry = nlohmann::json::parse(line);
    EXPECT_NE(entry.at("outcome"), "OK") << line;
    refused += entry.value("count", 1);
  }
  EXPECT_EQ(refused, 4 * kFlood) << "each is counted";
  EXPECT_LT(lines, 500);
}

TEST_F(Strangers, BytesThatAreNoTlsAndPeersThatStopAmidst) {
  Rng rng(7);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) {
    UniqueFd fd = connect_plainly();
    std::string bytes(static_cast<size_t>(rng.below(3'000)), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.below(256));
    // What looks like the beginning of a handshake, of a plain call, or of nothing.
    if (i % 4 == 1) bytes = "\x16\x03\x01\x02" + bytes;
    if (i % 4 == 2) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes;
    if (i % 4 == 3) bytes = bytes.substr(0, 1);
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 4 == 3) silent.push_back(std::move(fd));
  }
  expect_finish_undisturbed();
}

TEST_F(Strangers, MessagesThatAreTooLargeOrMakeNoSense) {
  for (const std::string& token : {std::string(64, '0'), agent_token(token_), token_}) {
    const auto channel = connect(token);
    for (const std::string method : {"/hpctl.v1.Controller/Cancel", "/hpctl.v1.AgentLink/Connect",
                                     "/hpctl.v1.Controller/NoSuchCall", "/"}) {
      for (const std::string& bytes :
           {std::string(kMaxMessageBytes + 1, '\xff'), std::string(100, '\xff'),
            std::string("\x0a\xff\xff\xff\xff\x0f", 6)}) {
        grpc::ClientContext context;
        set_deadline(context);
        const grpc::Status status = call_raw(channel, method, bytes, context);
        EXPECT_FALSE(status.ok()) << method;
        EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << method;
      }
    }
    // Headers beyond all measure.
    grpc::ClientContext context;
    set_deadline(context);
    context.AddMetadata("authorization", std::string(kMaxMetadataBytes, 'x'));
    v1::GetVersionResponse response;
    EXPECT_FALSE(v1::Controller::NewStub(channel)->GetVersion(&context, {}, &response).ok());
  }
  expect_finish_undisturbed();
}

// Of somebody who may look: follows the history over many streams and never reads.
TEST_F(Strangers, ReadersThatDoNotRead) {
  const std::string reader = person_token(token_, TokenRole::kReader, 1000, 0);
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<v1::Controller::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Event>>> streams;
  for (int i = 0; i < 4; ++i) {
    channels.push_back(connect(reader));
    stubs.push_back(v1::Controller::NewStub(channels.back()));
    for (int j = 0; j < kMaxCallsPerConnection; ++j) {
      v1::WatchEventsRequest request;
      request.set_job(to_string(cluster_.job()));
      request.set_follow(true);
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      streams.push_back(stubs.back()->WatchEvents(contexts.back().get(), request));
    }
  }
  ASSERT_TRUE(cluster_.wait_for_status(is_running, kPatienceMs)) << "others are answered";
  for (auto& context : contexts) context->TryCancel();
  for (auto& stream : streams) (void)stream->Finish();
  expect_finish_undisturbed();
}

// The page of a session, which the owner has got by a link.
class StrangersAtThePage : public Strangers {
 protected:
  void SetUp() override {
    Strangers::SetUp();
    if (HasFatalFailure()) return;
    grpc::ClientContext context;
    set_deadline(context);
    v1::OpenPageResponse opened;
    ASSERT_TRUE(cluster_.stub()->OpenPage(&context, {}, &opened).ok());
    std::smatch parts;
    const std::regex link("http://127.0.0.1:([0-9]+)(/open.*)");
    ASSERT_TRUE(std::regex_match(opened.url(), parts, link)) << opened.url();
    port_ = static_cast<uint16_t>(std::stoul(parts[1].str()));
    const std::string answer = http_get(port_, parts[2].str());
    const std::regex cookie("Set-Cookie: ([^;]*);");
    ASSERT_TRUE(std::regex_search(answer, parts, cookie)) << answer;
    cookie_ = "Cookie: " + parts[1].str() + "\r\n";
  }
  bool answers() const {
    return http_get(port_, "/api/jobs", cookie_).starts_with("HTTP/1.1 200 ");
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  uint16_t port_ = 0;
  std::string cookie_;
};

// Each holds a thread of the page's for its time to say something; the others wait in turn.
TEST_F(StrangersAtThePage, SilentOnesHoldItUpForAWhileAndNothingElse) {
  constexpr int kSilent = 20;  // on 8 threads, 5 s each
  ASSERT_TRUE(answers());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(connect_plainly_to(address()));
    // Nothing, or the beginning of a request.
    const std::string begin = i % 2 == 0 ? "" : "GET /api/jobs HTTP/1.1\r\nHost: loc";
    (void)::send(silent.back().get(), begin.data(), begin.size(), MSG_NOSIGNAL);
  }
  // The job's controller has threads of its own, and answers while the page does not.
  auto page = std::async(std::launch::async, [this] { return answers(); });
  ASSERT_TRUE(cluster_.wait_for_status(is_running, kPatienceMs)) << cluster_.logs();
  EXPECT_EQ(page.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(page.get());
  // Nor does the end of the job wait for long for those that are there still.
  for (int i = 0; i < kSilent; ++i) silent.push_back(connect_plainly_to(address()));
  expect_finish_undisturbed();
}

// Who is refused costs an answer, and who does not read it his time.
TEST_F(StrangersAtThePage, AFloodOfRequestsWithoutASession) {
  std::vector<std::future<int>> waves;
  for (int wave = 0; wave < 4; ++wave) {
    waves.push_back(std::async(std::launch::async, [this] {
      int refused = 0;
      for (int i = 0; i < 250; ++i) {
        refused += http_get(port_, "/api/jobs").starts_with("HTTP/1.1 401 ") ? 1 : 0;
      }
      return refused;
    }));
  }
  EXPECT_TRUE(answers()) << "amidst it";
  for (auto& wave : waves) EXPECT_EQ(wave.get(), 250);
  std::vector<UniqueFd> deaf;
  for (int i = 0; i < 8; ++i) {
    deaf.push_back(connect_plainly_to(address()));
    const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\n" + cookie_ + "\r\n";
    (void)::send(deaf.back().get(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(answers());
  expect_finish_undisturbed();
}

}  // namespace
}  // namespace hpctl
