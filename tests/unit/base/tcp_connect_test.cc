// SPDX-License-Identifier: Apache-2.0
// Connections with a deadline: to a listener, to a port where nobody listens, and to one whose
// queue is full, which answers nothing.
#include "common/net/tcp_connect.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "common/net/wait_for_fd.h"
#include "tests/support/loopback_port.h"

namespace hpctl {
namespace {

constexpr int64_t kPatienceMs = 10'000;
constexpr int64_t kShortMs = 50;

SocketAddress address_of(const test::LoopbackPort& port) {
  return SocketAddress::parse(port.address()).value();
}

TEST(ConnectTcp, IsAConnectionThatDoesNotBlock) {
  const test::LoopbackPort port;
  ASSERT_EQ(::listen(port.fd(), 1), 0);
  const auto connection = connect_tcp(address_of(port), deadline_in(kPatienceMs));
  ASSERT_TRUE(connection.ok()) << connection.error().message;
  char byte = 0;
  EXPECT_EQ(::read(connection->get(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  const UniqueFd other(::accept4(port.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(::write(other.get(), "x", 1), 1);
  const auto said = wait_for_fd(connection->get(), POLLIN, deadline_in(kPatienceMs));
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(*said, POLLIN);
  EXPECT_EQ(::read(connection->get(), &byte, 1), 1);
}

TEST(ConnectTcp, ARefusalIsSaidAtOnce) {
  const test::LoopbackPort port;
  const auto connection = connect_tcp(address_of(port), kNoDeadline);
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().message, "cannot connect: Connection refused");
}

TEST(ConnectTcp, WaitsForAnAnswerUntilTheDeadline) {
  const test::LoopbackPort port;
  ASSERT_EQ(::listen(port.fd(), 0), 0);
  // A queue takes one more than it was told to.
  const auto first = connect_tcp(address_of(port), deadline_in(kPatienceMs));
  ASSERT_TRUE(first.ok());
  const int64_t deadline_ms = deadline_in(kShortMs);
  const auto connection = connect_tcp(address_of(port), deadline_ms);
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code, ErrorCode::kUnavailable);
  EXPECT_GE(deadline_in(0), deadline_ms);
}

TEST(WaitForFd, SaysWhatIsReadyAlsoAfterTheDeadline) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const auto nothing = wait_for_fd(reader.get(), POLLIN, deadline_in(0));
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, ErrorCode::kUnavailable);
  writer.reset();
  const auto end = wait_for_fd(reader.get(), POLLIN, deadline_in(-kShortMs));
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(*end, POLLHUP);
}

}  // namespace
}  // namespace hpctl
