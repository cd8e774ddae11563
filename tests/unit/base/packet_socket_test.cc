// SPDX-License-Identifier: Apache-2.0
// What a process sent before it ended arrives, whatever it had left unread itself: an agent that
// ends its node tells the holder and is gone, and the holder may just have answered it.
#include "common/net/packet_socket.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace hpctl {
namespace {

class PacketSockets : public ::testing::Test {
 protected:
  PacketSockets() {
    auto pair = PacketSocket::make_pair();
    EXPECT_TRUE(pair.ok());
    ours_.emplace(std::move(pair->first));
    theirs_.emplace(std::move(pair->second));
  }
  void expect_two_and_the_end() {
    for (const char* bytes : {"one", "two"}) {
      const auto packet = ours_->receive();
      ASSERT_TRUE(packet.ok() && packet->has_value()) << bytes;
      EXPECT_EQ((*packet)->bytes, bytes);
    }
    const auto end = ours_->receive();
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, ErrorCode::kUnavailable);
  }

  std::optional<PacketSocket> ours_;
  std::optional<PacketSocket> theirs_;
};

TEST_F(PacketSockets, WhatWasSentBeforeTheEndArrives) {
  ASSERT_TRUE(theirs_->send_now("one").ok());
  ASSERT_TRUE(theirs_->send_now("two").ok());
  theirs_.reset();
  expect_two_and_the_end();
}

TEST_F(PacketSockets, AlsoFromOneWhoHadNotReadEverything) {
  ASSERT_TRUE(theirs_->send_now("one").ok());
  ASSERT_TRUE(theirs_->send_now("two").ok());
  ASSERT_TRUE(ours_->send_now("unread").ok());
  theirs_.reset();
  expect_two_and_the_end();
}

TEST_F(PacketSockets, AlsoWhereMoreIsQueuedForIt) {
  ASSERT_TRUE(theirs_->send_now("one").ok());
  ASSERT_TRUE(theirs_->send_now("two").ok());
  while (!ours_->has_queued()) ASSERT_TRUE(ours_->send_or_queue(std::string(10'000, 'x')).ok());
  theirs_.reset();
  EXPECT_FALSE(ours_->flush().ok());
  expect_two_and_the_end();
}

}  // namespace
}  // namespace hpctl
