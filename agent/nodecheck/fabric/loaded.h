// SPDX-License-Identifier: Apache-2.0
// The functions of libfabric that are looked up by name (the others are calls through its objects,
// inline in its headers). Only for the files of this directory.
#pragma once

#include "common/base/result.h"

#ifdef HPCTL_HAVE_LIBFABRIC

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>

#include "agent/nodecheck/fabric/fabric.h"
#include "common/base/library.h"

namespace hpctl::agent {

struct LoadedFabric {
  explicit LoadedFabric(Library loaded);
  bool is_complete() const;
  // The result of a call: 0, or one of libfabric's errors negated.
  Outcome check(const char* step, int64_t status) const;

  Library library;
  decltype(fi_getinfo)* getinfo;
  decltype(fi_freeinfo)* freeinfo;
  decltype(fi_dupinfo)* dupinfo;
  decltype(fi_fabric)* open_fabric;
  decltype(fi_strerror)* text;
  decltype(fi_version)* version;
};

// One for the process: providers do not like to be unloaded. Any thread.
const Result<LoadedFabric>& loaded_fabric();

using FabricInfo = std::unique_ptr<fi_info, decltype(fi_freeinfo)*>;
// For tagged messages between reliable datagram endpoints. `domain` and `source` may be "".
Result<FabricInfo> find_fabric_info(const LoadedFabric& fabric, const std::string& provider,
                                    const std::string& domain, const std::string& source);

}  // namespace hpctl::agent

#else

namespace hpctl::agent {

inline Error no_fabric_headers() {
  return {ErrorCode::kFailedPrecondition, "this hpagent was built without libfabric's headers"};
}

}  // namespace hpctl::agent

#endif
