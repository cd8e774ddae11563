// SPDX-License-Identifier: Apache-2.0
#include "common/base/step_protocol.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "common/base/frame_stream.h"

namespace hpctl::step {
namespace {

// Every kind of message survives, and no shorter or longer packet is taken for it.
template <typename Variant, typename Decode>
void check_round_trip(const Variant& message, Decode decode) {
  const std::string packet = encode(message);
  const auto decoded = decode(packet);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->index(), message.index());
  EXPECT_EQ(encode(*decoded), packet);
  for (size_t length = 0; length < packet.size(); ++length) {
    EXPECT_FALSE(decode(packet.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(decode(packet + '\0').ok());
}

TEST(StepProtocol, RoundTrip) {
  const Hello hello{1, "token", 3, 4, "n2", 77, "10.0.0.2", 999};
  for (const ToController& message :
       {ToController(hello), ToController(Started{2, 88}), ToController(StartFailed{2, "no"}),
        ToController(Exited{2, 88, 5, 0}), ToController(Stopped{2, 998}),
        ToController(Ending{15})}) {
    check_round_trip(message, decode_to_controller);
  }
  for (const ToShim& message :
       {ToShim(Welcome{}), ToShim(Start{2, 1, 20, "9.0", "10.0.0.1", 999}), ToShim(Stop{2, 1000}),
        ToShim(Finish{137}), ToShim(Release{"why"})}) {
    check_round_trip(message, decode_to_shim);
  }
}

class FrameStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    raw_.reset(ends[0]);
    stream_.emplace(UniqueFd(ends[1]));
  }
  void write_raw(const std::string& bytes) {
    ASSERT_EQ(::write(raw_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  UniqueFd raw_;
  std::optional<FrameStream> stream_;
};

TEST_F(FrameStreamTest, AFrameMayArriveByteByByte) {
  const std::string bytes("\3\0\0\0abc\0\0\0\0", 11);  // "abc", then an empty one
  for (size_t i = 0; i + 5 < bytes.size(); ++i) {
    write_raw(bytes.substr(i, 1));
    const auto packet = stream_->receive();
    ASSERT_TRUE(packet.ok());
    EXPECT_FALSE(packet->has_value()) << i;
  }
  write_raw(bytes.substr(6));
  EXPECT_EQ(**stream_->receive(), "abc");
  EXPECT_EQ(**stream_->receive(), "");
  EXPECT_FALSE(stream_->receive()->has_value());
}

TEST_F(FrameStreamTest, AnOversizedFrameIsRefusedByItsLengthAlone) {
  write_raw(std::string("\1\0\1\0", 4));  // 65537
  const auto packet = stream_->receive();
  ASSERT_FALSE(packet.ok());
  EXPECT_EQ(packet.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FrameStreamTest, WhatAPeerSaidBeforeItWentIsStillRead) {
  write_raw(std::string("\2\0\0\0hi", 6));
  raw_.reset();
  EXPECT_EQ(**stream_->receive(), "hi");
  EXPECT_EQ(stream_->receive().error().code, ErrorCode::kUnavailable);
}

TEST_F(FrameStreamTest, APeerThatNeverReadsIsGivenUp) {
  const std::string packet(60'000, 'x');
  Outcome sent = Ok{};
  int packets = 0;
  while (sent.ok() && packets < 1000) {
    sent = stream_->send(packet);
    ++packets;
  }
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace hpctl::step
