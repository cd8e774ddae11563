// SPDX-License-Identifier: Apache-2.0
// How many come in at a time: no more than may be amid their handshake, in the order in which they
// came, and none whose peer has gone.
#include "controller/access/tcp_listener.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <vector>

#include "common/net/socket_address.h"

namespace hpctl {
namespace {

using namespace std::chrono_literals;

constexpr auto kAcceptPatience = 60s;  // a machine that is busy

std::string peer_name(uint16_t port) { return "ipv4:127.0.0.1:" + std::to_string(port); }

TEST(Handshakes, MakeRoomWhenACallHasComeOrTheirTimeIsOver) {
  Handshakes handshakes;
  const auto begin = Handshakes::Clock::now();
  for (size_t i = 0; i < Handshakes::kMost; ++i) {
    EXPECT_EQ(handshakes.until_room(begin), 0ms);
    handshakes.begin(static_cast<uint16_t>(1'000 + i), begin + std::chrono::milliseconds(i));
  }
  EXPECT_EQ(handshakes.until_room(begin + 100ms), Handshakes::kPatience - 100ms);
  handshakes.end("unix:");
  handshakes.end("fd:12");
  handshakes.end(peer_name(999));
  EXPECT_GT(handshakes.until_room(begin + 100ms), 0ms) << "none of these has begun";
  pollfd room{handshakes.room_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&room, 1, 0), 0);

  handshakes.end("ipv6:%5B2001:db8::1%5D:1000");
  EXPECT_EQ(::poll(&room, 1, 0), 1);
  EXPECT_EQ(handshakes.until_room(begin + 100ms), 0ms);
  handshakes.begin(2'000, begin + 100ms);
  EXPECT_EQ(handshakes.until_room(begin + 100ms), Handshakes::kPatience - 99ms);
  EXPECT_EQ(handshakes.until_room(begin + Handshakes::kPatience + 1ms), 0ms);
}

class TcpListenerTest : public testing::Test {
 protected:
  TcpListenerTest() {
    auto opened = TcpListener::open("127.0.0.1:0", handshakes_);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    listener_ = std::move(*opened);
  }
  ~TcpListenerTest() override { listener_->stop(); }

  UniqueFd connect() const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = SocketAddress::of("127.0.0.1", listener_->port()).value();
    EXPECT_EQ(::connect(fd.get(), address.get(), address.size()), 0);
    return fd;
  }
  void start() {
    listener_->start([this](UniqueFd connection) {
      const std::lock_guard lock(mutex_);
      accepted_.push_back(std::move(connection));
      changed_.notify_all();
    });
  }
  bool wait_until_accepted(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kAcceptPatience, [&] { return accepted_.size() >= count; });
  }
  // Whose connection came in as number `index`: the port of its other end.
  uint16_t peer_port(size_t index) {
    const std::lock_guard lock(mutex_);
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    EXPECT_EQ(::getpeername(accepted_.at(index).get(), reinterpret_cast<sockaddr*>(&peer), &size),
              0);
    return ntohs(peer.sin_port);
  }
  static uint16_t own_port(const UniqueFd& fd) {
    return SocketAddress::of_socket(fd.get()).value().port();
  }

  Handshakes handshakes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> accepted_;
  std::unique_ptr<TcpListener> listener_;
};

TEST_F(TcpListenerTest, LetsInAsManyAsMayBeAmidTheirHandshakeAndTheOthersInTurn) {
  std::vector<UniqueFd> peers;
  for (size_t i = 0; i < Handshakes::kMost + 3; ++i) peers.push_back(connect());
  const auto begin = std::chrono::steady_clock::now();
  start();
  ASSERT_TRUE(wait_until_accepted(Handshakes::kMost));
  for (size_t i = 0; i < Handshakes::kMost; ++i) EXPECT_EQ(peer_port(i), own_port(peers[i]));
  handshakes_.end(peer_name(own_port(peers[5])));  // a call has come
  ASSERT_TRUE(wait_until_accepted(Handshakes::kMost + 1));
  EXPECT_EQ(peer_port(Handshakes::kMost), own_port(peers[Handshakes::kMost]));
  // Nothing comes of the others: they have had their time.
  ASSERT_TRUE(wait_until_accepted(peers.size()));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, Handshakes::kPatience);
}

TEST_F(TcpListenerTest, WhoHasHungUpIsNotLetIn) {
  connect().reset();
  const UniqueFd waits = connect();
  start();
  ASSERT_TRUE(wait_until_accepted(1));
  EXPECT_EQ(peer_port(0), own_port(waits));
  listener_->stop();
  EXPECT_EQ(accepted_.size(), 1U);
}

TEST_F(TcpListenerTest, SaysWhereItCannotListen) {
  Handshakes others;
  const auto taken = TcpListener::open("127.0.0.1:" + std::to_string(listener_->port()), others);
  ASSERT_FALSE(taken.ok()) << "a port is not shared";
  EXPECT_EQ(taken.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(taken.error().message.find("in use"), std::string::npos) << taken.error().message;
  const auto elsewhere = TcpListener::open("192.0.2.1:0", others);
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_EQ(elsewhere.error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(TcpListener::open("localhost:0", others).ok()) << "no name is looked up";
}

}  // namespace
}  // namespace hpctl
