// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/nodes.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "common/slurm/slurm_messages_json.h"
#include "slurm-plugins/hpslurm/names.h"
#include "slurm-plugins/hpslurm/slurm_compat.h"

namespace hpctl::slurm {
namespace {

using nlohmann::json;

// Up to so many nodes are asked for one by one; above, the whole table costs slurmctld less.
constexpr size_t kSingleNodes = 8;
constexpr uint16_t kShow = SHOW_ALL | SHOW_MIXED;

struct FreeNodes {
  void operator()(node_info_msg_t* nodes) const { slurm_free_node_info_msg(nodes); }
};
using NodesMessage = std::unique_ptr<node_info_msg_t, FreeNodes>;
struct FreeReservations {
  void operator()(reserve_info_msg_t* list) const { slurm_free_reservation_info_msg(list); }
};

std::string release(long number) {
  const std::string minor = std::to_string(SLURM_VERSION_MINOR(number));
  return std::to_string(SLURM_VERSION_MAJOR(number)) + "." + (minor.size() < 2 ? "0" : "") + minor +
         "." + std::to_string(SLURM_VERSION_MICRO(number));
}

std::vector<std::string> controllers() {
  std::vector<std::string> hosts;
  if (&slurm_conf == nullptr || slurm_conf.control_machine == nullptr) return hosts;
  for (uint32_t i = 0; i < slurm_conf.control_cnt; ++i) {
    hosts.push_back(text(slurm_conf.control_machine[i]));
  }
  return hosts;
}

SlurmNode describe(const node_info_t& node) {
  SlurmNode out;
  out.name = text(node.name);
  out.address = text(node.node_addr);
  out.state = node_state_name(node.node_state);
  out.flags = node_flag_names(node.node_state);
  out.reason = text(node.reason);
  out.features = text(node.features);
  out.gres = text(node.gres);
  out.instance_id = text(instance_id_of(node));
  out.instance_type = text(instance_type_of(node));
  out.boot_time_s = node.boot_time;
  out.slurmd_start_time_s = node.slurmd_start_time;
  return out;
}

void append(const NodesMessage& message, const std::set<std::string>& wanted, json& out) {
  for (uint32_t i = 0; i < message->record_count; ++i) {
    const node_info_t& node = message->node_array[i];
    if (node.name == nullptr) continue;  // hidden from this user
    if (wanted.empty() || wanted.contains(node.name)) out.push_back(describe(node));
  }
}

uint32_t state_number(SlurmNodeState state) {
  switch (state) {
    case SlurmNodeState::kDown:
      return NODE_STATE_DOWN;
    case SlurmNodeState::kDrain:
      return NODE_STATE_DRAIN;
    case SlurmNodeState::kFail:
      return NODE_STATE_FAIL;
    case SlurmNodeState::kResume:
      break;
  }
  return NODE_RESUME;
}

}  // namespace

Answer version(const json&) {
  const bool has_conf = &slurm_conf != nullptr;
  const std::string cluster = has_conf ? text(slurm_conf.cluster_name) : "";
  const std::string parameters = has_conf ? text(slurm_conf.slurmctld_params) : "";
  return json(SlurmVersion{release(SLURM_VERSION_NUMBER), release(slurm_api_version()),
                           controllers(), cluster,
                           kExpeditedRequeue != 0 && allows_expedited_requeue(parameters)});
}

Answer ping(const json&) {
  const int count = std::max<int>(1, static_cast<int>(controllers().size()));
  for (int i = 0; i < count; ++i) {
    if (slurm_ping(i) == SLURM_SUCCESS) return json::object();
  }
  return last_error("slurmctld does not answer");
}

Answer load_nodes(const json& arguments) {
  const auto names = arguments.at("names").get<std::set<std::string>>();
  json found = json::array();
  node_info_msg_t* raw = nullptr;
  if (names.empty() || names.size() > kSingleNodes) {
    if (slurm_load_node(0, &raw, kShow) != SLURM_SUCCESS) return last_error("cannot list nodes");
    append(NodesMessage(raw), names, found);
  } else {
    for (std::string name : names) {
      if (slurm_load_node_single(&raw, name.data(), kShow) != SLURM_SUCCESS) {
        return last_error("node " + name);
      }
      append(NodesMessage(raw), names, found);
    }
  }
  std::set<std::string> missing = names;
  for (const json& node : found) missing.erase(node.at("name").get<std::string>());
  if (missing.empty()) return found;
  return Error{ErrorCode::kNotFound, "Slurm knows no node " + *missing.begin()};
}

Answer update_node(const json& arguments) {
  auto node = arguments.at("node").get<std::string>();
  auto reason = arguments.at("reason").get<std::string>();
  update_node_msg_t update;
  slurm_init_update_node_msg(&update);
  update.node_names = node.data();
  update.node_state = state_number(arguments.at("state").get<SlurmNodeState>());
  if (!reason.empty()) {
    update.reason = reason.data();
    set_reason_uid(update, ::getuid());
  }
  if (slurm_update_node(&update) == SLURM_SUCCESS) return json::object();
  return last_error("cannot change node " + node);
}

Answer load_reservations(const json&) {
  reserve_info_msg_t* raw = nullptr;
  if (slurm_load_reservations(0, &raw) != SLURM_SUCCESS) {
    return last_error("cannot list reservations");
  }
  const std::unique_ptr<reserve_info_msg_t, FreeReservations> list(raw);
  json found = json::array();
  for (uint32_t i = 0; i < list->record_count; ++i) {
    const reserve_info_t& one = list->reservation_array[i];
    SlurmReservation out{text(one.name),  text(one.node_list), {},
                         text(one.users), one.start_time,      one.end_time};
    if ((one.flags & RESERVE_FLAG_MAINT) != 0) out.flags.emplace_back("MAINT");
    found.push_back(out);
  }
  return found;
}

}  // namespace hpctl::slurm
