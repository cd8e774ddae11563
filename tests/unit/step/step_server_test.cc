// SPDX-License-Identifier: Apache-2.0
// The step's listener against real connections, proper and strange.
#include "controller/step/step_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

namespace hpctl::step {
namespace {

constexpr int kPatienceMs = 60'000;

class StepServerTest : public ::testing::Test {
 protected:
  void SetUp() override { make_server({}); }
  void make_server(const StrangerLimits& limits) {
    server_.reset();
    address_ = {};
    UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    ASSERT_EQ(::bind(listener.get(), generic(), size), 0);
    ASSERT_EQ(::listen(listener.get(), SOMAXCONN), 0);
    ASSERT_EQ(::getsockname(listener.get(), generic(), &size), 0);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    srun_.reset(ends[1]);
    server_ = std::make_unique<StepServer>(std::move(listener), UniqueFd(ends[0]), "right",
                                           StepSettings{"7.0", 20}, limits);
  }
  void TearDown() override {
    srun_.reset();
    if (thread_.joinable()) thread_.join();
  }
  void serve() {
    thread_ = std::thread([this] { server_->run(); });
  }

  FrameStream connect(const std::string& token = "right") {
    return connect(UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), token);
  }
  FrameStream connect(UniqueFd fd, const std::string& token = "right") {
    EXPECT_EQ(::connect(fd.get(), generic(), sizeof(address_)), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_SETFL, O_NONBLOCK), 0);
    FrameStream stream(std::move(fd));
    EXPECT_TRUE(stream.authenticate(token, FrameStream::Side::kDialled).ok());
    return stream;
  }
  static std::string hello(int32_t task) {
    Hello hello;
    hello.task = task;
    hello.tasks = 2;
    hello.node = "n1";
    hello.pid = 100 + static_cast<uint64_t>(task);
    return encode(ToController(hello));
  }
  // Index of the next message; -1 = the connection was closed, -2 = nothing came in time.
  static int next(FrameStream& stream) {
    for (;;) {
      const auto packet = stream.receive();
      if (!packet.ok()) return -1;
      if (packet->has_value()) {
        const auto message = decode_to_shim(**packet);
        return message.ok() ? static_cast<int>(message->index()) : -3;
      }
      pollfd wait{stream.fd(), POLLIN, 0};
      if (::poll(&wait, 1, kPatienceMs) <= 0) return -2;
    }
  }
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address_); }

  static inline const int kWelcome = static_cast<int>(ToShim(Welcome{}).index());
  static inline const int kRelease = static_cast<int>(ToShim(Release{}).index());
  static inline const int kStart = static_cast<int>(ToShim(Start{}).index());
  sockaddr_in address_{};
  UniqueFd srun_;
  std::unique_ptr<StepServer> server_;
  std::thread thread_;
};

TEST_F(StepServerTest, WhoeverDoesNotProveThatItKnowsTheTokenIsClosed) {
  serve();
  FrameStream silent = connect();
  for (const std::string token : {"wrong", "", "right!"}) {
    FrameStream stranger = connect(token);
    ASSERT_TRUE(stranger.send(hello(0)).ok());
    EXPECT_EQ(next(stranger), -1) << token;
  }
  for (const std::string& first :
       {encode(ToController(Started{1, 1})), std::string("garbage"), std::string()}) {
    FrameStream odd = connect();
    ASSERT_TRUE(odd.send(first).ok());
    EXPECT_EQ(next(odd), -1);
  }
  EXPECT_EQ(next(silent), -1);
}

// Who takes over the port of a dead controller can write down what shims say, and say it again.
TEST_F(StepServerTest, WhatWasSaidIsNotTakenTwice) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd eavesdropper(ends[0]);
  FrameStream task{UniqueFd(ends[1])};
  ASSERT_TRUE(task.authenticate("right", FrameStream::Side::kDialled).ok());
  ASSERT_TRUE(task.send(hello(0)).ok());
  std::string said(4096, '\0');
  const ssize_t size = ::read(eavesdropper.get(), said.data(), said.size());
  ASSERT_GT(size, 0);
  said.resize(static_cast<size_t>(size));
  EXPECT_EQ(said.find("right"), std::string::npos);
  serve();
  // The step ends when its last task has gone, so another task stays.
  FrameStream other = connect();
  ASSERT_TRUE(other.send(hello(1)).ok());
  ASSERT_EQ(next(other), kWelcome);
  // The number of bytes that the server answers; 0 = it closed the connection, -1 = neither.
  const auto play = [&] {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), generic(), sizeof(address_)), 0);
    EXPECT_EQ(::write(fd.get(), said.data(), said.size()), size);
    char byte = 0;
    pollfd wait{fd.get(), POLLIN, 0};
    return ::poll(&wait, 1, kPatienceMs) == 1 ? ::read(fd.get(), &byte, 1) : -1;
  };
  EXPECT_EQ(play(), 1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(play(), 0);
  // Nor does the server say a line about a task that it has: it does not read that far.
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("is here already"), std::string::npos);
}

TEST_F(StepServerTest, StrangersDoNotDisturbTheStep) {
  serve();
  FrameStream first = connect();
  ASSERT_TRUE(first.send(hello(0)).ok());
  EXPECT_EQ(next(first), kWelcome);
  FrameStream impostor = connect();
  ASSERT_TRUE(impostor.send(hello(0)).ok());  // its task is here already
  EXPECT_EQ(next(impostor), -1);
  FrameStream second = connect();
  ASSERT_TRUE(second.send(hello(1)).ok());
  EXPECT_EQ(next(second), kWelcome);
  EXPECT_EQ(next(first), kStart);
  EXPECT_EQ(next(second), kStart);
}

// The last one's Hello is read after that task has gone on without us.
TEST_F(StepServerTest, AnAnswerThatIsTooLateDoesNotBeginTheStep) {
  FrameStream first = connect();
  ASSERT_TRUE(first.send(hello(0)).ok());
  {
    FrameStream second = connect();
    ASSERT_TRUE(second.send(hello(1)).ok());
  }
  serve();
  EXPECT_EQ(next(first), kWelcome);
  EXPECT_EQ(next(first), kRelease);
}

// They would be waited for as long as the test may take.
constexpr StrangerLimits kPatient{3'600'000, 16};

TEST_F(StepServerTest, OfTooManySilentConnectionsTheOldestGoes) {
  make_server(kPatient);
  serve();
  FrameStream oldest = connect();
  std::vector<FrameStream> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect());
  EXPECT_EQ(next(oldest), -1);
  FrameStream task = connect();
  ASSERT_TRUE(task.send(hello(0)).ok());
  EXPECT_EQ(next(task), kWelcome);
}

// Without a descriptor for it nobody can be accepted: a silent one gives up its own.
TEST_F(StepServerTest, WithoutDescriptorsATaskIsHeardAllTheSame) {
  make_server(kPatient);
  serve();
  FrameStream silent = connect();
  FrameStream first = connect();
  ASSERT_TRUE(first.send(hello(0)).ok());
  EXPECT_EQ(next(first), kWelcome);  // so both have been accepted
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::vector<UniqueFd> all;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{256, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (UniqueFd fd(::dup(socket.get())); fd.valid(); fd.reset(::dup(socket.get()))) {
    all.push_back(std::move(fd));
  }
  FrameStream second = connect(std::move(socket));
  EXPECT_TRUE(second.send(hello(1)).ok());
  EXPECT_EQ(next(second), kWelcome);
  EXPECT_EQ(next(silent), -1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(StepServerTest, EndsWithSrun) {
  serve();
  FrameStream task = connect();
  ASSERT_TRUE(task.send(hello(0)).ok());
  EXPECT_EQ(next(task), kWelcome);
  srun_.reset();
  thread_.join();
  server_.reset();
  EXPECT_EQ(next(task), -1);
}

}  // namespace
}  // namespace hpctl::step
