// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/network_way.h"

#include <algorithm>

namespace hpctl::agent {
namespace {

constexpr size_t kMaxWords = 200;  // of a line of the log that is passed on

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The text after `mark` in the line, up to one of `ends`.
std::optional<std::string> after(std::string_view line, std::string_view mark,
                                 std::string_view ends) {
  const size_t at = line.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + mark.size());
  return std::string(rest.substr(0, std::min(rest.find_first_of(ends), kMaxWords)));
}

void read_line(std::string_view line, UsedNetwork& network) {
  if (const auto name = after(line, "Using network ", "\r\n")) network.network = *name;
  for (const char* mark : {"NET/OFI Selected Provider is ", "NET/OFI Selected provider is "}) {
    if (const auto name = after(line, mark, " ,(\r\n")) network.provider = *name;
  }
  const bool complains = contains(line, "NCCL WARN NET/OFI") ||
                         (contains(line, "NET/Plugin") && contains(line, "ould not find"));
  if (!complains) return;
  const size_t at = line.find("NET/");
  network.trouble = line.substr(at, std::min(line.find_first_of("\r\n", at) - at, kMaxWords));
}

// A plugin that does not name its provider is believed.
bool uses_efa(const UsedNetwork& network) {
  return network.provider.starts_with("efa") ||
         (network.provider.empty() && contains(network.network, "Libfabric"));
}

std::string why_not_efa(const std::string& who, const NodeNetwork& node) {
  const std::string devices = std::to_string(node.efa_devices) + " EFA devices";
  std::string text = who + " goes through " + to_text(node.used) + " although the node has " +
                     devices + ", slow and without an error: ";
  if (!node.used.trouble.empty()) text += "\"" + node.used.trouble + "\"; ";
  if (node.used.provider.empty()) {
    return text + "have LD_LIBRARY_PATH name the directory of aws-ofi-nccl's libnccl-net.so, or " +
           "NCCL_NET_PLUGIN the plugin; NCCL_NET must not be Socket";
  }
  return text + "see fi_info -p efa and hpagent check efa; FI_PROVIDER must not be " +
         node.used.provider;
}

constexpr const char* kTooOld = "it is of a release that cannot";

void judge_nccl(const std::vector<NodeMeans>& nodes, ChosenWay& chosen) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].gpus > 0) continue;
    const auto node = static_cast<int32_t>(i);
    chosen.unable[node] = nodes[i].nccl_trouble.empty() ? kTooOld : nodes[i].nccl_trouble;
    chosen.left_out.insert(node);
  }
}

// The provider that libfabric chooses on most nodes; with a tie the first by name, which is efa
// before tcp.
std::string usual_provider(const std::vector<NodeMeans>& nodes) {
  std::map<std::string, size_t> count;
  for (const NodeMeans& node : nodes) {
    if (!node.fabric.empty()) ++count[node.fabric];
  }
  std::string usual;
  for (const auto& [provider, its_nodes] : count) {
    if (usual.empty() || its_nodes > count[usual]) usual = provider;
  }
  return usual;
}

void judge_fabric(const std::vector<NodeMeans>& nodes, ChosenWay& chosen) {
  const std::string usual = usual_provider(nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeMeans& means = nodes[i];
    const auto node = static_cast<int32_t>(i);
    const bool is_efa = means.fabric.starts_with("efa");
    if (means.fabric != usual || usual.empty()) chosen.left_out.insert(node);
    if (means.fabric.empty()) {
      chosen.unable[node] = means.fabric_trouble.empty() ? kTooOld : means.fabric_trouble;
    } else if (means.efa_devices > 0 && !is_efa) {
      chosen.fallbacks[node] =
          why_not_efa("it", {{"libfabric", means.fabric, means.fabric_trouble}, means.efa_devices});
    } else if (means.fabric != usual) {
      chosen.unable[node] = "its libfabric chooses " + means.fabric +
                            ", and most nodes' libfabric chooses " + usual +
                            ": compare FI_PROVIDER, LD_LIBRARY_PATH and the installed one";
    }
  }
}

// The network of most nodes; "" = no network is used by more than half of them.
std::string usual(const std::map<int32_t, NodeNetwork>& networks) {
  std::map<std::string, size_t> count;
  for (const auto& [node, network] : networks) ++count[to_text(network.used)];
  for (const auto& [name, nodes] : count) {
    if (2 * nodes > networks.size()) return name;
  }
  return "";
}

}  // namespace

ChosenWay choose_way(std::optional<NetworkWay> asked, const std::vector<NodeMeans>& nodes) {
  const bool has_nccl =
      std::any_of(nodes.begin(), nodes.end(), [](const NodeMeans& node) { return node.gpus > 0; });
  const bool has_efa = std::any_of(nodes.begin(), nodes.end(),
                                   [](const NodeMeans& node) { return node.efa_devices > 0; });
  ChosenWay chosen;
  chosen.way = asked.value_or(has_nccl  ? NetworkWay::kNccl
                              : has_efa ? NetworkWay::kFabric
                                        : NetworkWay::kTcp);
  if (chosen.way == NetworkWay::kNccl) judge_nccl(nodes, chosen);
  if (chosen.way == NetworkWay::kFabric) judge_fabric(nodes, chosen);
  return chosen;
}

UsedNetwork read_nccl_log(std::string_view log) {
  UsedNetwork network;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size() - 1) + 1;
    read_line(log.substr(0, end), network);
    log.remove_prefix(end);
  }
  return network;
}

std::string to_text(const UsedNetwork& network) {
  if (network.network.empty()) return "a network that it does not name";
  return network.network + (network.provider.empty() ? "" : " (" + network.provider + ")");
}

std::map<int32_t, std::string> find_fallbacks(const std::map<int32_t, NodeNetwork>& networks) {
  std::map<int32_t, std::string> found;
  const std::string most = usual(networks);
  for (const auto& [node, network] : networks) {
    if (network.used.network.empty()) continue;
    if (network.efa_devices > 0) {
      if (!uses_efa(network.used)) found[node] = why_not_efa("NCCL", network);
    } else if (!most.empty() && to_text(network.used) != most) {
      found[node] = "NCCL goes through " + to_text(network.used) + ", on most nodes through " +
                    most + ": compare the installed plugin, LD_LIBRARY_PATH and NCCL_*";
    }
  }
  return found;
}

}  // namespace hpctl::agent
