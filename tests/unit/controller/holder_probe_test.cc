// SPDX-License-Identifier: Apache-2.0
#include "controller/agents/holder_probe.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>

#include "agent/holder/probe_port.h"
#include "tests/support/loopback_port.h"

namespace hpctl {
namespace {

using core::HolderProbe;
using Patience = std::chrono::milliseconds;

TEST(HolderProbe, ALiveHolderAnswersAndADeadOneIsRefused) {
  std::optional<holder::ProbePort> port;
  {
    auto opened = holder::ProbePort::open(false);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    port.emplace(std::move(*opened));
  }
  const test::LoopbackPort closed;
  const std::string alive = "127.0.0.1:" + std::to_string(port->port());
  const auto answers = probe_holders({alive, closed.address()}, Patience(60'000));
  EXPECT_EQ(answers, (std::vector{HolderProbe::kAnswered, HolderProbe::kRefused}));
  EXPECT_TRUE(port->accept_one());
  port.reset();
  EXPECT_EQ(probe_holders({alive}, Patience(60'000)), std::vector{HolderProbe::kRefused});
}

// As of a node that is gone: whoever does not take connections is not answered for, once the
// kernel's queue is full.
TEST(HolderProbe, WhoDoesNotAnswerInTimeHasNotAnswered) {
  const test::LoopbackPort full;
  ASSERT_EQ(::listen(full.fd(), 0), 0);
  const auto is_answered = [&] {
    return probe_holders({full.address()}, Patience(50))[0] == HolderProbe::kAnswered;
  };
  for (int i = 0; i < 8 && is_answered(); ++i) {
  }
  EXPECT_EQ(probe_holders({full.address()}, Patience(50)), std::vector{HolderProbe::kUnanswered});
}

TEST(HolderProbe, WhatIsNoAddressIsNotAsked) {
  const auto answers = probe_holders(
      {"", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", "n1:80", "127.0.0.1:80x"}, Patience(50));
  EXPECT_EQ(answers, std::vector(6, HolderProbe::kNotAsked));
}

TEST(HolderProbe, OfNobodyNobodyAnswers) { EXPECT_TRUE(probe_holders({}, Patience(50)).empty()); }

}  // namespace
}  // namespace hpctl
