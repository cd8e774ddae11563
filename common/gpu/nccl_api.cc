// SPDX-License-Identifier: Apache-2.0
#include "common/gpu/nccl_api.h"

#include <cstdlib>

#include "common/base/required_functions.h"

namespace hpctl::nccl {
namespace {

Outcome fill(RequiredFunctions& find, Api& api) {
  find("ncclGetVersion", api.get_version);
  find("ncclGetUniqueId", api.get_unique_id);
  find("ncclCommInitRankConfig", api.init_rank);
  find("ncclCommGetAsyncError", api.async_error);
  find("ncclCommAbort", api.abort);
  find("ncclAllReduce", api.all_reduce);
  find("ncclAllGather", api.all_gather);
  find("ncclReduceScatter", api.reduce_scatter);
  find("ncclGroupStart", api.group_start);
  find("ncclGroupEnd", api.group_end);
  find("ncclSend", api.send);
  find("ncclRecv", api.receive);
  find("ncclGetErrorString", api.error_string);
  find("ncclGetLastError", api.last_error);
  HP_TRY(find.outcome());
  int version = 0;
  if (api.get_version(&version) != kSuccess || version < kOldest) {
    return Error{ErrorCode::kFailedPrecondition, find.library().name() + " is NCCL " +
                                                     version_text(version) + "; at least " +
                                                     version_text(kOldest) + " is needed"};
  }
  return Ok{};
}

}  // namespace

Result<const Api*> load() {
  static const FunctionTable<Api> table("NCCL", {"libnccl.so.2", "libnccl.so"}, fill);
  return table.get();
}

std::string version_text(int version) {
  return std::to_string(version / 10'000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string label() {
  const auto api = load();
  int version = 0;
  if (!api.ok() || (*api)->get_version(&version) != kSuccess) return "none";
  std::string text = version_text(version);
  for (const char* name :
       {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS",
        "NCCL_MAX_CTAS", "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_NVLS_ENABLE",
        "NCCL_COLLNET_ENABLE", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_PLUGIN"}) {
    if (const char* value = std::getenv(name)) text += std::string(" ") + name + "=" + value;
  }
  return text;
}

}  // namespace hpctl::nccl
