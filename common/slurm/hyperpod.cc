// SPDX-License-Identifier: Apache-2.0
#include "common/slurm/hyperpod.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "common/base/bounded_json.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "common/net/node_address.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr const char* kResourceConfig = "/opt/ml/config/resource_config.json";
constexpr const char* kDmi = "/sys/devices/virtual/dmi/id/";
constexpr size_t kMaxConfigBytes = 16U << 20;  // a thousand instances take about half a megabyte
constexpr size_t kMaxLineBytes = 4096;

// The text under `key`, or "" for anything else than a text.
std::string text_of(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// The value under `key`, null when it is missing.
const json& member(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

Error damaged(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kDataLoss, path + " cannot be used: " + why +
                                         "; instance names and types are taken from elsewhere"};
}

Result<json> parse_object(std::string_view text, const std::string& path) {
  json document = parse_json_or_discard(text);
  if (document.is_discarded()) return damaged(path, "it is not JSON (cut short?)");
  if (!document.is_object()) return damaged(path, "expected a JSON object");
  return document;
}

std::string without_ml(const std::string& type) {
  return type.starts_with("ml.") ? type.substr(3) : type;
}

// Addresses are a list in some files and one text, with commas, in others.
std::vector<std::string> addresses_in(const json& value) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& text) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (end > begin) found.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  if (value.is_string()) add(value.get<std::string>());
  if (value.is_array()) {
    for (const json& entry : value) {
      if (entry.is_string()) add(entry.get<std::string>());
    }
  }
  return found;
}

void add_instances(const json& group, HyperpodCluster& cluster) {
  const json& instances = member(group, "Instances");
  if (!instances.is_array()) return;  // null in groups without instances
  for (const json& entry : instances) {
    HyperpodInstance instance{
        text_of(group, "Name"), text_of(entry, "InstanceName"), text_of(entry, "InstanceId"),
        without_ml(text_of(group, "InstanceType")), text_of(entry, "CustomerIpAddress")};
    if (!instance.instance_id.empty()) cluster.instances.push_back(std::move(instance));
  }
}

// First line of a small system file; "" when it cannot be read.
std::string read_line(const std::string& path) {
  auto text = read_file(system_path(path), kMaxLineBytes);
  if (!text.ok()) return "";
  std::string line = text->substr(0, text->find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

// Other hypervisors write words such as "No Asset Tag" there.
std::string asset_tag() {
  const std::string tag = read_line(std::string(kDmi) + "board_asset_tag");
  return tag.starts_with("i-") ? tag : "";
}

// On EC2 the product is the instance type.
std::string product_type() {
  const std::string vendor = read_line(std::string(kDmi) + "sys_vendor");
  return vendor == "Amazon EC2" ? read_line(std::string(kDmi) + "product_name") : "";
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool is_hyperpod() { return is_accessible(system_path("/opt/sagemaker_cluster")); }

Result<HyperpodCluster> parse_resource_config(std::string_view text, const std::string& path) {
  HP_TRY_ASSIGN(const json document, parse_object(text, path));
  const json& groups = member(document, "InstanceGroups");
  if (!groups.is_array()) return damaged(path, "it has no list InstanceGroups");
  HyperpodCluster cluster;
  cluster.name = text_of(member(document, "ClusterConfig"), "ClusterName");
  cluster.arn = text_of(member(document, "ClusterConfig"), "ClusterArn");
  const json& slurm = member(document, "SlurmConfig");
  for (const char* key : {"PrimaryControllerIp", "SecondaryControllerIps"}) {
    const auto found = addresses_in(member(slurm, key));
    cluster.controllers.insert(cluster.controllers.end(), found.begin(), found.end());
  }
  for (const json& group : groups) add_instances(group, cluster);
  return cluster;
}

Result<HyperpodCluster> read_resource_config() {
  const std::string given = environment("SAGEMAKER_RESOURCE_CONFIG_PATH");
  const std::string path = system_path(given.empty() ? kResourceConfig : given);
  HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxConfigBytes));
  return parse_resource_config(text, path);
}

const HyperpodInstance* find_instance(const HyperpodCluster& cluster,
                                      const std::vector<std::string>& addresses,
                                      const std::string& instance_id) {
  for (const HyperpodInstance& instance : cluster.instances) {
    if (!instance.address.empty() &&
        std::find(addresses.begin(), addresses.end(), instance.address) != addresses.end()) {
      return &instance;
    }
  }
  for (const HyperpodInstance& instance : cluster.instances) {
    if (instance.instance_id == instance_id) return &instance;
  }
  return nullptr;
}

namespace {

// Of a HyperPod node, whose type and instance hpctl relies on.
std::string what_is_unknown(const MachineIdentity& machine) {
  const std::string where = ": neither resource_config.json nor the DMI table names ";
  if (machine.instance_id.empty()) {
    return "the instance id of this HyperPod node is unknown" + where +
           "it, so a replacement of the node is not recognised; set HPCTL_INSTANCE_ID";
  }
  if (machine.type.empty()) {
    return "the instance type of this HyperPod node is unknown" + where +
           "it, so its GPUs and EFA devices are not counted, and workers get no variables for it";
  }
  return "";
}

}  // namespace

MachineIdentity identify_machine() {
  MachineIdentity identity;
  identity.boot_id = read_line("/proc/sys/kernel/random/boot_id");
  identity.instance_id = asset_tag();
  identity.type = product_type();
  const auto cluster = read_resource_config();
  if (cluster.ok()) {
    const auto* own = find_instance(*cluster, own_addresses(), identity.instance_id);
    if (own != nullptr) {
      identity.instance_id = own->instance_id;
      identity.group = own->group;
      if (!own->type.empty()) identity.type = own->type;
    }
  } else if (cluster.error().code != ErrorCode::kNotFound) {
    identity.trouble = cluster.error().message;
  }
  if (identity.instance_id.empty()) identity.instance_id = environment("HPCTL_INSTANCE_ID");
  if (is_hyperpod() && identity.trouble.empty()) identity.trouble = what_is_unknown(identity);
  return identity;
}

}  // namespace hpctl
