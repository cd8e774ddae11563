// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

namespace hpctl {

// To the hard limit: a peer needs a descriptor, and the soft limit is often 1024.
inline void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace hpctl
