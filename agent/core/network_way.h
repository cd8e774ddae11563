// SPDX-License-Identifier: Apache-2.0
// By which way the nodes of a network check exchange bytes, and whether NCCL took the one that the
// machine has. Pure.
//
// NCCL falls back to TCP without an error where its plugin for the node's network was not found or
// did not work: training is ten times slower, and nothing else says so. It tells in its log
// (NCCL_DEBUG=INFO, subsystems INIT and NET), in words that have been the same since 2.4:
//
//   NCCL INFO Using network Socket | IB | AWS Libfabric | Libfabric
//   NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)         aws-ofi-nccl
//   NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)
//   NCCL INFO NET/Plugin: Could not find: libnccl-net.so               why there is no plugin
//   NCCL WARN NET/OFI ...                                              why it gave up
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/word_enum.h"

namespace hpctl::agent {

enum class NetworkWay : uint8_t { kTcp, kNccl };
constexpr std::array<const char*, 2> words_of(NetworkWay) { return {"tcp", "nccl"}; }

// What a node can take part in, besides TCP.
struct NodeMeans {
  int gpus = 0;              // 0 = no NCCL here
  std::string nccl;          // its version
  std::string nccl_trouble;  // why not; "" where `gpus` is not 0
};

struct ChosenWay {
  NetworkWay way = NetworkWay::kTcp;
  std::map<int32_t, std::string> unable;  // nodes that cannot go that way, and why
};
// Unless it is said: NCCL where any node can, since a node that cannot beside others that can is a
// finding; else TCP.
ChosenWay choose_way(std::optional<NetworkWay> asked, const std::vector<NodeMeans>& nodes);

// What NCCL's log says of the network.
struct NcclNetwork {
  std::string network;  // "Socket", "IB", "Libfabric"; "" = it did not say
  std::string
      provider;  // of libfabric: "efa", "tcp"; "" = it does not use libfabric, or did not say
  std::string trouble;  // the last line in which the plugin complains
};
NcclNetwork read_nccl_log(std::string_view log);
// "Libfabric (efa)"
std::string to_text(const NcclNetwork& network);

// The nodes on which NCCL fell back, and what to do: those with EFA whose NCCL does not use it, and
// those that use another network than most of the nodes do. `networks`: by node, where it is known.
struct NodeNetwork {
  NcclNetwork nccl;
  int efa_devices = 0;
};
std::map<int32_t, std::string> find_fallbacks(const std::map<int32_t, NodeNetwork>& networks);

}  // namespace hpctl::agent
