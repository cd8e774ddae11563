// SPDX-License-Identifier: Apache-2.0
// This machine's own name, and where its files are.
#pragma once

#include <string>

namespace hpctl {

std::string host_name();

// `path` under $HPCTL_SYSROOT; by default `path` itself. Each node of a test cluster has files of
// its own in this way.
std::string system_path(const std::string& path);

}  // namespace hpctl
