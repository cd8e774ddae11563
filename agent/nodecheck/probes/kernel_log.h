// SPDX-License-Identifier: Apache-2.0
// Recent lines of the kernel's log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl::agent {

// Messages of /dev/kmsg that are at most `age_s` old, oldest first. kPermissionDenied where only
// root may read it, kNotFound where there is none (containers).
Result<std::vector<std::string>> recent_kernel_messages(int64_t age_s);

}  // namespace hpctl::agent
