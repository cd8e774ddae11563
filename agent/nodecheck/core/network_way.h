// SPDX-License-Identifier: Apache-2.0
// The transport by which the nodes of a network check exchange bytes, and whether NCCL, or
// libfabric, used the machine's network. Pure.
//
// NCCL falls back to TCP without an error if its plugin for the node's network was not found or did
// not work: training is ten times slower, and only its log shows that (NCCL_DEBUG=INFO, subsystems
// INIT and NET), in words that have been the same since 2.4:
//
//   NCCL INFO Using network Socket | IB | AWS Libfabric | Libfabric
//   NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)         aws-ofi-nccl
//   NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
//   NCCL INFO NET/Plugin: Could not find: libnccl-net.so               why there is no plugin
//   NCCL WARN NET/OFI ...                                              why it gave up
//
// libfabric does the same: if its efa provider cannot be used, fi_getinfo offers tcp. The check
// requests both.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/word_enum.h"

namespace hpctl::agent {

enum class NetworkWay : uint8_t { kTcp, kNccl, kFabric };
constexpr std::array<const char*, 3> words_of(NetworkWay) { return {"tcp", "nccl", "fabric"}; }

// The transports that a node supports, besides TCP.
struct NodeMeans {
  int gpus = 0;              // 0 = no NCCL here
  std::string nccl;          // its version
  std::string nccl_trouble;  // why not; "" where `gpus` is not 0
  int efa_devices = 0;
  std::string fabric;          // the provider that libfabric chooses; "" = none, or not asked
  std::string fabric_trouble;  // why there is none, or why it is not efa
};

struct ChosenWay {
  NetworkWay way = NetworkWay::kTcp;
  std::map<int32_t, std::string> unable;     // nodes that cannot go that way, and why
  std::map<int32_t, std::string> fallbacks;  // those whose libfabric fell back; what to do
  std::set<int32_t> left_out;                // take no part: of both kinds
};
// The default transport: NCCL if any node can, since a node that cannot beside others that can is a
// finding; else libfabric if any node has EFA; else TCP. Over libfabric only nodes of one provider
// reach each other: the one that most have.
ChosenWay choose_way(std::optional<NetworkWay> asked, const std::vector<NodeMeans>& nodes);

// The network that carried a node's bytes, from NCCL's log or from libfabric.
struct UsedNetwork {
  std::string network;  // "Socket", "IB", "Libfabric", "libfabric 1.17"; "" = it did not say
  std::string
      provider;  // of libfabric: "efa", "tcp"; "" = it does not use libfabric, or did not say
  std::string trouble;  // the last line in which the plugin complains; why not efa
};
UsedNetwork read_nccl_log(std::string_view log);
// "Libfabric (efa)"
std::string to_text(const UsedNetwork& network);

// The nodes on which NCCL fell back, and what to do: those with EFA whose NCCL does not use it, and
// those that use another network than most of the nodes do. `networks`: by node, where it is known.
struct NodeNetwork {
  UsedNetwork used;
  int efa_devices = 0;
};
std::map<int32_t, std::string> find_fallbacks(const std::map<int32_t, NodeNetwork>& networks);

}  // namespace hpctl::agent
