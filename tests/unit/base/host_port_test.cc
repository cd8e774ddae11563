// SPDX-License-Identifier: Apache-2.0
// HOST:PORT cut in two, and gRPC's names of peers.
#include "common/net/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpctl {
namespace {

using ::testing::HasSubstr;

TEST(HostPort, IsANameOrAnAddressAndAPort) {
  struct Case {
    const char* text;
    const char* host;
    const char* bare;
    int port;
  };
  for (const auto& [text, host, bare, port] :
       {Case{"n1:7300", "n1", "n1", 7300},
        Case{"head.example:65535", "head.example", "head.example", 65535},
        Case{"192.0.2.1:80", "192.0.2.1", "192.0.2.1", 80},
        Case{"[::1]:50051", "[::1]", "::1", 50051},
        Case{"[2001:db8::1]:0", "[2001:db8::1]", "2001:db8::1", 0}}) {
    const auto parsed = HostPort::parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->host, host);
    EXPECT_EQ(parsed->bare_host(), bare);
    EXPECT_EQ(parsed->port, port);
    EXPECT_EQ(parsed->text(), text);
    EXPECT_EQ(parsed->with_port(9), std::string(host) + ":9");
  }
}

TEST(HostPort, WhatIsNoneIsShownWithWhatWasExpected) {
  for (const char* text :
       {"",        ":",       "n1",    ":80",      "n1:",        "n1:x",     "n1:8x",
        "n1: 80",  "n1:-1",   "n1:+1", "n1:65536", "::1:50051",  "[::1]",    "[::1]:",
        "[::1:80", "::1]:80", "[]:80", "[n1]:80",  "[[::1]]:80", "[::1]x:80"}) {
    const auto parsed = HostPort::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, HasSubstr("found \"" + std::string(text) + "\""));
    EXPECT_THAT(parsed.error().message, HasSubstr("expected HOST:PORT, such as n1:7300"));
  }
}

TEST(CallPeer, IsWhatEachReleaseOfGrpcWrites) {
  const auto v4 = CallPeer::parse("ipv4:192.0.2.1:4711");
  ASSERT_TRUE(v4);
  EXPECT_EQ(v4->origin(), "ipv4:192.0.2.1");
  EXPECT_EQ(v4->end.port, 4711);
  for (const char* text : {"ipv6:[2001:db8::1]:4711", "ipv6:%5B2001:db8::1%5D:4711"}) {
    const auto v6 = CallPeer::parse(text);
    ASSERT_TRUE(v6) << text;
    EXPECT_EQ(v6->origin(), "ipv6:[2001:db8::1]");
    EXPECT_EQ(v6->end.bare_host(), "2001:db8::1");
    EXPECT_EQ(v6->end.port, 4711);
  }
  for (const char* other :
       {"", "ipv4", "ipv4:", "ipv4:192.0.2.1", "unix:", "unix:@a:1", "fd:12", "local socket"}) {
    EXPECT_FALSE(CallPeer::parse(other)) << other;
  }
}

TEST(CallPeer, OnlyTheBracketsOfAnAddressAreEscaped) {
  const auto peer = CallPeer::parse("ipv6:%5Bfe80::1%5B%5D:4711");
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->end.host, "[fe80::1%5B]");
  const auto again = CallPeer::parse("ipv6:" + peer->end.text());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->end.host, peer->end.host);
}

}  // namespace
}  // namespace hpctl
