// SPDX-License-Identifier: Apache-2.0
// Messages on a worker's control socket: every one survives the trip, nothing else does.
#include "common/worker/worker_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hpctl::control {
namespace {

TEST(WorkerControl, EveryMessageIsReadAsItself) {
  for (const ToWorker& sent : std::vector<ToWorker>{Join{7}, Abort{8}, Finish{}, Take{4},
                                                    Suffer{5, "hang-worker"}, Ping{6}}) {
    const auto received = decode_to_worker(encode(sent));
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_EQ(received->index(), sent.index());
    EXPECT_EQ(encode(*received), encode(sent));
  }
  const std::vector<FromWorker> answers = {Ready{}, Joined{7}, Aborted{8}, PeerLost{10}, Pong{11}};
  for (const FromWorker& sent : answers) {
    const auto received = decode_from_worker(encode(sent));
    ASSERT_TRUE(received.ok()) << received.error().message;
    EXPECT_EQ(received->index(), sent.index());
    EXPECT_EQ(encode(*received), encode(sent));
  }
  const auto aborted = decode_from_worker(encode(FromWorker(Aborted{9})));
  EXPECT_EQ(std::get<Aborted>(*aborted).generation, 9U);
}

TEST(WorkerControl, WhatIsTooShortTooLongOrUnknownIsRefused) {
  EXPECT_FALSE(decode_to_worker("").ok());
  EXPECT_FALSE(decode_to_worker("\x05").ok()) << "no sixth kind";
  EXPECT_FALSE(decode_from_worker("\x04").ok());
  for (const std::string& whole :
       {encode(ToWorker(Join{7})), encode(ToWorker(Abort{7})), encode(ToWorker(Finish{}))}) {
    EXPECT_FALSE(decode_to_worker(whole + "x").ok());
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(decode_to_worker(whole.substr(0, size)).ok()) << size;
    }
  }
  const std::string aborted = encode(FromWorker(Aborted{9}));
  for (size_t size = 0; size < aborted.size(); ++size) {
    EXPECT_FALSE(decode_from_worker(aborted.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace hpctl::control
