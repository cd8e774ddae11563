// SPDX-License-Identifier: Apache-2.0
// NCCL, found at run time: every build compiles this, and a machine without NCCL runs it. The
// declarations are ours; names, numbers, layout and meaning come from NCCL's user guide and nccl.h
// (2.18 to 2.31). Where the real headers are installed, the build compares them
// (tests/unit/trainer/nccl_headers_check.cc).
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "common/base/result.h"
#include "common/gpu/cuda_api.h"

namespace hpctl::nccl {

using Status = int;  // ncclResult_t
inline constexpr Status kSuccess = 0;
inline constexpr Status kInProgress = 7;
inline constexpr int kUint8 = 1;       // ncclDataType_t
inline constexpr int kFloat32 = 7;     // ncclDataType_t
inline constexpr int kSum = 0;         // ncclRedOp_t
inline constexpr int kOldest = 21800;  // ncclCommInitRankConfig with the layout below

struct Comm;  // opaque

struct UniqueId {
  char bytes[128];
};

// ncclConfig_t as of 2.18. Later releases append fields and take a shorter structure: `size` says
// where it ends and `version` which fields it knows.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldest;
  int blocking = INT_MIN;  // INT_MIN, nullptr: NCCL's default
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int after_the_end = INT_MIN;  // 2.25 has its next field in what is padding here
};

struct Api {
  Status (*get_version)(int*);
  Status (*get_unique_id)(UniqueId*);
  Status (*init_rank)(Comm**, int ranks, UniqueId, int rank, Config*);
  Status (*async_error)(Comm*, Status*);
  Status (*abort)(Comm*);  // frees it too
  Status (*all_reduce)(const void* send, void* receive, size_t count, int type, int operation,
                       Comm*, cuda::Stream);
  Status (*all_gather)(const void* send, void* receive, size_t send_count, int type, Comm*,
                       cuda::Stream);
  Status (*reduce_scatter)(const void* send, void* receive, size_t receive_count, int type,
                           int operation, Comm*, cuda::Stream);
  // Between group_start() and group_end(): those of one group go on together, in any order.
  Status (*group_start)();
  Status (*group_end)();
  Status (*send)(const void*, size_t count, int type, int peer, Comm*, cuda::Stream);
  Status (*receive)(void*, size_t count, int type, int peer, Comm*, cuda::Stream);
  const char* (*error_string)(Status);
  const char* (*last_error)(Comm*);
};

// Loaded once and kept. kNotFound where there is no NCCL, kFailedPrecondition where it is older
// than kOldest.
Result<const Api*> load();

// "2.21.5"
std::string version_text(int version);
// The inputs that the bits of a sum depend on: the version, and the settings that fix the order of
// addition; without them NCCL chooses. "none" without NCCL.
std::string label();

}  // namespace hpctl::nccl
