// SPDX-License-Identifier: Apache-2.0
// Which way a network check goes, what NCCL's log says of the network, and sums and bytes that are
// known.
#include "agent/nodecheck/core/network_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/nodecheck/core/known_bytes.h"
#include "agent/nodecheck/core/known_sums.h"

namespace hpctl::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

const NodeMeans kGpuNode{8, "2.27.7", "", 0, "", ""};
const NodeMeans kBareNode{0, "", "no CUDA runtime: it is not there", 0, "", ""};

TEST(NetworkWay, IsNcclWhereAnyNodeCanAndTheOthersAreNamed) {
  EXPECT_EQ(choose_way(std::nullopt, {kBareNode, kBareNode}).way, NetworkWay::kTcp);
  const ChosenWay chosen = choose_way(std::nullopt, {kGpuNode, kBareNode, NodeMeans{}});
  EXPECT_EQ(chosen.way, NetworkWay::kNccl);
  EXPECT_EQ(chosen.unable.at(1), "no CUDA runtime: it is not there");
  EXPECT_EQ(chosen.unable.at(2), "it is of a release that cannot");
  EXPECT_FALSE(chosen.unable.contains(0));
}

TEST(NetworkWay, WhatIsAskedForIsDone) {
  const ChosenWay tcp = choose_way(NetworkWay::kTcp, {kGpuNode, kBareNode});
  EXPECT_EQ(tcp.way, NetworkWay::kTcp);
  EXPECT_THAT(tcp.unable, IsEmpty());
  EXPECT_THAT(choose_way(NetworkWay::kNccl, {kBareNode}).unable, ElementsAre(Key(0)));
}

const NodeMeans kEfaNode{0, "", "no GPU", 4, "efa", ""};
const NodeMeans kFellBack{
    0, "", "no GPU", 4, "tcp;ofi_rxm", "fi_getinfo for provider efa: No data"};
const NodeMeans kPlainNode{0, "", "no GPU", 0, "tcp;ofi_rxm", ""};

TEST(NetworkWay, IsLibfabricWhereThereIsEfaAndNoNccl) {
  EXPECT_EQ(choose_way(std::nullopt, {kEfaNode, kBareNode}).way, NetworkWay::kFabric);
  EXPECT_EQ(choose_way(std::nullopt, {kEfaNode, kGpuNode}).way, NetworkWay::kNccl);
  EXPECT_EQ(choose_way(std::nullopt, {kPlainNode}).way, NetworkWay::kTcp);
}

TEST(NetworkWay, OverLibfabricThoseWithTheUsualProviderMeet) {
  const ChosenWay chosen = choose_way(
      NetworkWay::kFabric, {kEfaNode, kFellBack, kEfaNode, kPlainNode, kBareNode, kEfaNode});
  EXPECT_THAT(chosen.left_out, ElementsAre(1, 3, 4));
  EXPECT_THAT(chosen.fallbacks, ElementsAre(Key(1)));
  EXPECT_THAT(chosen.fallbacks.at(1), HasSubstr("libfabric (tcp;ofi_rxm) although the node has 4"));
  EXPECT_THAT(chosen.fallbacks.at(1), HasSubstr("fi_getinfo for provider efa: No data"));
  EXPECT_THAT(chosen.unable, ElementsAre(Key(3), Key(4)));
  EXPECT_THAT(chosen.unable.at(3), HasSubstr("tcp;ofi_rxm, and most nodes' libfabric chooses efa"));
}

TEST(NetworkWay, WhereAllFellBackTheyMeetAndAllAreNamed) {
  const ChosenWay chosen = choose_way(NetworkWay::kFabric, {kFellBack, kFellBack});
  EXPECT_THAT(chosen.left_out, IsEmpty());
  EXPECT_THAT(chosen.fallbacks, ElementsAre(Key(0), Key(1)));
  EXPECT_THAT(choose_way(NetworkWay::kFabric, {kEfaNode, kFellBack}).left_out, ElementsAre(1))
      << "of as many EFA";
  EXPECT_THAT(choose_way(NetworkWay::kFabric, {kBareNode}).left_out, ElementsAre(0));
}

// As NCCL 2.27 and aws-ofi-nccl 1.16 write, and as older ones did.
constexpr char kEfaLog[] =
    "ip-10-1-0-5:812:830 [0] NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)\n"
    "ip-10-1-0-5:812:830 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct "
    "(found 16 nics)\n"
    "ip-10-1-0-5:812:830 [0] NCCL INFO Using network Libfabric\n";
constexpr char kOldEfaLog[] =
    "n1:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)\n"
    "n1:21:21 [0] NCCL INFO Using network AWS Libfabric\r\n";
constexpr char kSocketLog[] =
    "n2:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n"
    "n2:1:1 [0] NCCL INFO NET/IB : No device found.\n"
    "n2:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.0.6<0>\n"
    "n2:1:1 [0] NCCL INFO Using network Socket";
constexpr char kGaveUpLog[] =
    "n3:1:1 [0] get_ofi_provider:312 NCCL WARN NET/OFI Could not find any optimal provider\n"
    "n3:1:1 [0] NCCL INFO Using network Socket\n";

TEST(NcclLog, SaysWhichNetworkIsUsed) {
  EXPECT_EQ(to_text(read_nccl_log(kEfaLog)), "Libfabric (efa)");
  EXPECT_EQ(to_text(read_nccl_log(kOldEfaLog)), "AWS Libfabric (efa)");
  EXPECT_EQ(to_text(read_nccl_log(kSocketLog)), "Socket");
  EXPECT_EQ(read_nccl_log(kSocketLog).trouble, "NET/Plugin: Could not find: libnccl-net.so");
  EXPECT_EQ(read_nccl_log(kGaveUpLog).trouble, "NET/OFI Could not find any optimal provider");
  EXPECT_EQ(read_nccl_log("").network, "");
  EXPECT_EQ(read_nccl_log("\n\nNCCL WARN NET/OFI").trouble, "NET/OFI");
}

TEST(Fallback, OfANodeWithEfaIsNamedWithItsCauseAndWhatToDo) {
  const std::map<int32_t, NodeNetwork> networks = {{0, {read_nccl_log(kEfaLog), 16}},
                                                   {1, {read_nccl_log(kSocketLog), 16}},
                                                   {2, {read_nccl_log(kGaveUpLog), 16}}};
  const auto found = find_fallbacks(networks);
  EXPECT_THAT(found, ElementsAre(Key(1), Key(2)));
  EXPECT_THAT(found.at(1), HasSubstr("Socket although the node has 16 EFA devices"));
  EXPECT_THAT(found.at(1), HasSubstr("Could not find: libnccl-net.so"));
  EXPECT_THAT(found.at(1), HasSubstr("LD_LIBRARY_PATH"));
}

TEST(Fallback, ToAnotherProviderOfLibfabricIsOneToo) {
  const UsedNetwork tcp{"AWS Libfabric", "tcp", ""};
  const auto found = find_fallbacks({{0, {tcp, 4}}});
  EXPECT_THAT(found.at(0), HasSubstr("AWS Libfabric (tcp)"));
  EXPECT_THAT(found.at(0), HasSubstr("FI_PROVIDER must not be tcp"));
  EXPECT_THAT(find_fallbacks({{0, {{"Libfabric", "", ""}, 4}}}), IsEmpty())
      << "which provider it is it did not say";
}

TEST(Fallback, WithoutEfaTheOneThatDiffersFromMostIsNamed) {
  const UsedNetwork ib{"IB", "", ""};
  const UsedNetwork socket{"Socket", "", ""};
  EXPECT_THAT(find_fallbacks({{0, {ib, 0}}, {1, {ib, 0}}, {2, {socket, 0}}}), ElementsAre(Key(2)));
  EXPECT_THAT(find_fallbacks({{0, {ib, 0}}, {1, {socket, 0}}}), IsEmpty()) << "which is usual?";
  EXPECT_THAT(find_fallbacks({{0, {socket, 0}}, {1, {socket, 0}}}), IsEmpty());
  EXPECT_THAT(find_fallbacks({{0, {ib, 0}}, {1, {ib, 0}}, {2, {{}, 0}}}), IsEmpty());
}

TEST(KnownBytes, DifferByStreamAndMessageAndSayWhereTheyAreWrong) {
  constexpr size_t kMessage = 4'096;
  const std::string block = known_bytes(3, kMessage);
  EXPECT_NE(block, known_bytes(2, kMessage));
  const auto message = [&](uint64_t number) {
    return block.substr(known_offset(number), kMessage);
  };
  WrongBytes wrong;
  for (uint64_t number = 0; number < 2 * kTurns; ++number) {
    compare_known(message(number), block, number, wrong);
  }
  EXPECT_EQ(wrong.messages, 0U);
  compare_known(message(8), block, 0, wrong);
  EXPECT_EQ(wrong.messages, 1U) << "memory that still holds an older message";
  WrongBytes flipped;
  std::string arrived = message(kTurns + 5);
  arrived[4'000] ^= 1;
  compare_known(arrived, block, kTurns + 5, flipped);
  compare_known(message(1), block, 2, flipped);
  EXPECT_EQ(flipped.messages, 2U);
  EXPECT_EQ(flipped.first_message, kTurns + 5);
  EXPECT_EQ(flipped.first_byte, 4'000U);
}

TEST(KnownSums, AreExactInEveryOrderAndDifferByPlaceAndRank) {
  std::vector<float> expected;
  for (size_t place = 0; place < 1'000; ++place) {
    float backwards = 0;
    for (int rank = kMostSummedRanks; rank-- > 0;) backwards += known_value(rank, place);
    expected.push_back(known_sum(kMostSummedRanks, place));
    EXPECT_EQ(backwards, expected.back());
    EXPECT_LT(expected.back(), 1 << 24);
  }
  EXPECT_NE(known_value(0, 1), known_value(0, 2));
  EXPECT_NE(known_value(0, 1), known_value(1, 1));
  std::vector<float> sums = expected;
  EXPECT_EQ(find_wrong_sums(sums.data(), expected).count, 0U);
  sums[17] += 1;
  sums[400] = 0;
  EXPECT_EQ(find_wrong_sums(sums.data(), expected).count, 2U);
  EXPECT_EQ(find_wrong_sums(sums.data(), expected).first, 17U);
}

}  // namespace
}  // namespace hpctl::agent
