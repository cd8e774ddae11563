// SPDX-License-Identifier: Apache-2.0
// A SageMaker HyperPod node's description of itself: the files under /opt/ml/config, the marker of
// HyperPod, and, on any EC2 machine, the DMI table. No network, no metadata service.
//
// The files belong to a service that changes them as it likes: unknown keys are ignored, missing or
// null parts are empty, and an unreadable file is an error to report, never a reason to lose a job.
// Every path hangs under $HPCTL_SYSROOT, so each node of a test cluster has its own files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

// /opt/sagemaker_cluster is there.
bool is_hyperpod();

struct HyperpodInstance {
  std::string group;
  std::string name;         // "worker-group-1-3"; not the Slurm node name
  std::string instance_id;  // "i-…"
  std::string type;         // "p5.48xlarge", without the "ml." of the file
  std::string address;      // the customer's IPv4 address
};

// resource_config.json. A worker's copy may be stale and list instances that are gone.
struct HyperpodCluster {
  std::string name;
  std::string arn;
  std::vector<std::string> controllers;  // addresses; empty in the older schema
  std::vector<HyperpodInstance> instances;
};
// `path` is for errors. kDataLoss when the text is not such a document.
Result<HyperpodCluster> parse_resource_config(std::string_view text, const std::string& path);
// From $SAGEMAKER_RESOURCE_CONFIG_PATH, else /opt/ml/config. kNotFound where there is none.
Result<HyperpodCluster> read_resource_config();

// The instance with one of these IPv4 addresses, else the one with this id; nullptr when neither.
const HyperpodInstance* find_instance(const HyperpodCluster& cluster,
                                      const std::vector<std::string>& addresses,
                                      const std::string& instance_id);

// The identity of this machine, from the best source available.
struct MachineIdentity {
  // resource_config.json, else the DMI asset tag of an EC2 machine, else $HPCTL_INSTANCE_ID, else
  // "".
  std::string instance_id;
  std::string type;     // "p5.48xlarge"; "" = unknown
  std::string group;    // HyperPod instance group; "" = none
  std::string boot_id;  // the kernel's; new with every boot; "" = unknown
  // One line to log: a file that is there and cannot be used, or a HyperPod node whose instance or
  // type is unknown. "" = none.
  std::string trouble;
};
MachineIdentity identify_machine();

}  // namespace hpctl
