// SPDX-License-Identifier: Apache-2.0
// Our own declarations of NCCL and of the CUDA runtime, compared with the real headers.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "common/gpu/cuda_api.h"
#include "common/gpu/nccl_api.h"

namespace hpctl {

static_assert(ncclSuccess == nccl::kSuccess);
static_assert(ncclInProgress == nccl::kInProgress);
static_assert(ncclUint8 == nccl::kUint8);
static_assert(ncclFloat32 == nccl::kFloat32);
static_assert(ncclSum == nccl::kSum);
static_assert(sizeof(ncclUniqueId) == sizeof(nccl::UniqueId));
static_assert(NCCL_CONFIG_UNDEF_INT == nccl::Config{}.split_share);
static_assert(sizeof(ncclConfig_t) >= sizeof(nccl::Config));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(nccl::Config, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(nccl::Config, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(nccl::Config, blocking));
static_assert(offsetof(ncclConfig_t, cgaClusterSize) == offsetof(nccl::Config, cga_cluster_size));
static_assert(offsetof(ncclConfig_t, minCTAs) == offsetof(nccl::Config, min_ctas));
static_assert(offsetof(ncclConfig_t, maxCTAs) == offsetof(nccl::Config, max_ctas));
static_assert(offsetof(ncclConfig_t, netName) == offsetof(nccl::Config, net_name));
static_assert(offsetof(ncclConfig_t, splitShare) == offsetof(nccl::Config, split_share));

static_assert(cudaSuccess == cuda::kSuccess);
static_assert(cudaErrorNotReady == cuda::kNotReady);
static_assert(cudaStreamNonBlocking == cuda::kStreamNonBlocking);
static_assert(cudaEventDisableTiming == cuda::kEventDisableTiming);
static_assert(cudaMemcpyDefault == cuda::kCopyDefault);
static_assert(cudaHostRegisterPortable == cuda::kHostRegisterPortable);
static_assert(sizeof(cudaDeviceProp) <= sizeof(cuda::DeviceProperties));
static_assert(offsetof(cudaDeviceProp, name) == 0);
static_assert(sizeof(cudaDeviceProp::name) == sizeof(cuda::DeviceProperties::name));
static_assert(cudaDevAttrMultiProcessorCount == cuda::kMultiprocessors);
static_assert(cudaDevAttrComputeCapabilityMajor == cuda::kCapabilityMajor);
static_assert(cudaDevAttrComputeCapabilityMinor == cuda::kCapabilityMinor);

// The functions take what we pass: handles are pointers, enumerations are ints.
static_assert(sizeof(ncclResult_t) == sizeof(nccl::Status));
static_assert(sizeof(ncclComm_t) == sizeof(nccl::Comm*));
static_assert(sizeof(cudaError_t) == sizeof(cuda::Status));
static_assert(sizeof(cudaStream_t) == sizeof(cuda::Stream));
using InitRank = ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
static_assert(std::is_same_v<decltype(ncclCommInitRankConfig), InitRank>);
using AllReduce = ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t);
static_assert(std::is_same_v<decltype(ncclAllReduce), AllReduce>);
using AllGather = ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                               cudaStream_t);
static_assert(std::is_same_v<decltype(ncclAllGather), AllGather>);
using ReduceScatter = ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                   ncclComm_t, cudaStream_t);
static_assert(std::is_same_v<decltype(ncclReduceScatter), ReduceScatter>);
static_assert(std::is_same_v<decltype(ncclGroupStart), ncclResult_t()>);
static_assert(std::is_same_v<decltype(ncclGroupEnd), ncclResult_t()>);
using Send = ncclResult_t(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
static_assert(std::is_same_v<decltype(ncclSend), Send>);
using Receive = ncclResult_t(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
static_assert(std::is_same_v<decltype(ncclRecv), Receive>);
static_assert(std::is_same_v<decltype(cudaGetDeviceCount), cudaError_t(int*)>);
using CopyAsync = cudaError_t(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
static_assert(std::is_same_v<decltype(cudaMemcpyAsync), CopyAsync>);

}  // namespace hpctl
