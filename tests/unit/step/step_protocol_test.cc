// SPDX-License-Identifier: Apache-2.0
#include "common/worker/step_protocol.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <optional>

#include "common/net/frame_stream.h"

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
  const Hello hello{1, 3, 4, "n2", 77, "10.0.0.2", 999};
  for (const ToController& message :
       {ToController(hello), ToController(Started{2, 88}), ToController(StartFailed{2, "no"}),
        ToController(Progress{2, 88, 17, 4096, 250, "S"}), ToController(Exited{2, 88, 5, 0}),
        ToController(Stopped{2, 998, "g2-rank0000.txt: rank 0 in f"}), ToController(Ending{15})}) {
    check_round_trip(message, decode_to_controller);
  }
  for (const ToShim& message :
       {ToShim(Welcome{}), ToShim(Start{2, 1, 20, "9.0", "10.0.0.1", 999}), ToShim(Stop{2, 1000}),
        ToShim(Finish{137, 1}), ToShim(Release{"why"})}) {
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

class ProvenStream : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    dialled_.emplace(UniqueFd(ends[0]));
    accepted_.emplace(UniqueFd(ends[1]));
  }
  void authenticate(const std::string& one, const std::string& other) {
    ASSERT_TRUE(dialled_->authenticate(one, FrameStream::Side::kDialled).ok());
    ASSERT_TRUE(accepted_->authenticate(other, FrameStream::Side::kAccepted).ok());
  }
  static ErrorCode refused(FrameStream& stream) {
    const auto packet = stream.receive();
    return packet.ok() ? ErrorCode::kInternal : packet.error().code;
  }

  std::optional<FrameStream> dialled_;
  std::optional<FrameStream> accepted_;
};

TEST_F(ProvenStream, CarriesPacketsBothWays) {
  authenticate("secret", "secret");
  EXPECT_FALSE(accepted_->send("too early").ok());
  for (const std::string text : {"one", "", "three"}) {
    ASSERT_TRUE(dialled_->send(text).ok());
    EXPECT_EQ(**accepted_->receive(), text);
    ASSERT_TRUE(accepted_->send(text + "!").ok());
    EXPECT_EQ(**dialled_->receive(), text + "!");
  }
}

TEST_F(ProvenStream, AnotherSecretIsNone) {
  authenticate("secret", "Secret");
  ASSERT_TRUE(dialled_->send("one").ok());
  EXPECT_EQ(refused(*accepted_), ErrorCode::kPermissionDenied);
  ASSERT_TRUE(accepted_->send("one").ok());
  EXPECT_EQ(refused(*dialled_), ErrorCode::kPermissionDenied);
}

TEST_F(ProvenStream, WhatIsInTheClearIsNotTaken) {
  ASSERT_TRUE(dialled_->authenticate("secret", FrameStream::Side::kDialled).ok());
  ASSERT_TRUE(accepted_->send("obey").ok());  // without proof
  EXPECT_EQ(refused(*dialled_), ErrorCode::kPermissionDenied);
}

// From one end to the other; changes a byte, twists the order, or sends it back.
TEST_F(ProvenStream, APacketChangedOrOutOfOrderIsNotTaken) {
  const auto pass_on = [](const std::function<std::string(std::string)>& change) {
    int ends[2];
    int others[2];
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
    ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, others);
    FrameStream from{UniqueFd(ends[0])};
    FrameStream to{UniqueFd(others[0])};
    const UniqueFd near(ends[1]);
    const UniqueFd far(others[1]);
    EXPECT_TRUE(from.authenticate("secret", FrameStream::Side::kDialled).ok());
    EXPECT_TRUE(to.authenticate("secret", FrameStream::Side::kAccepted).ok());
    EXPECT_TRUE(from.send("ab").ok() && from.send("cd").ok());
    std::string bytes(1024, '\0');
    bytes.resize(static_cast<size_t>(::read(near.get(), bytes.data(), bytes.size())));
    bytes = change(std::move(bytes));
    EXPECT_EQ(::write(far.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    return refused(to);
  };
  constexpr size_t kNonce = 4 + 32;
  constexpr size_t kPacket = 4 + 2 + 32;
  EXPECT_EQ(pass_on([](std::string b) { return b; }), ErrorCode::kInternal) << "taken";
  for (const size_t place : {size_t{4}, kNonce + 4, kNonce + kPacket - 1}) {
    const auto flip = [place](std::string b) {
      b[place] = static_cast<char>(b[place] ^ 1);
      return b;
    };
    EXPECT_EQ(pass_on(flip), ErrorCode::kPermissionDenied) << place;
  }
  const auto without_first = [](std::string b) {
    return b.substr(0, kNonce) + b.substr(kNonce + kPacket);
  };
  EXPECT_EQ(pass_on(without_first), ErrorCode::kPermissionDenied);
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
