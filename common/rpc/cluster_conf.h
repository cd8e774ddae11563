// SPDX-License-Identifier: Apache-2.0
// The caller's configuration for cluster controllers: the environment, else /etc/hpctl/cluster.conf
// (under $HPCTL_SYSROOT), a line of NAME=VALUE each, comments begin with #:
//
//   HPCTL_CLUSTER=HOST:PORT,HOST:PORT    their addresses
//   HPCTL_CLUSTER_CA=FILE                the certificates of their authorities
//
// kInvalidArgument names file and line. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl {

inline constexpr size_t kMaxClusterAddresses = 4;

// The list. "" = there is none, which an empty HPCTL_CLUSTER in the environment says, too.
Result<std::string> cluster_address();
std::vector<std::string> split_addresses(const std::string& list);

// An absolute path; "" = MUNGE alone identifies the service. An empty HPCTL_CLUSTER_CA in the
// environment counts as unset: the file's value holds, so it is not lost by mistake.
Result<std::string> cluster_ca();

}  // namespace hpctl
