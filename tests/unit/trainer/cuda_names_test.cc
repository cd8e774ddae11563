// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime that lacks names (stub_cudart.cc, with STUB_CUDART_LACKS). One name that CUDA 13
// has dropped once took kernels, streams and page-locked memory away together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/gpu/cuda_api.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/comm_world.h"
#include "trainer/comm/nccl_communicator.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

TEST(CudaNames, AMissingOneLeavesTheOthers) {
  ::testing::internal::CaptureStderr();
  const auto loaded = cuda::load();
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const cuda::Api& cuda = **loaded;
  int least = 0;
  int greatest = 0;
  EXPECT_EQ(cuda.stream_priorities(&least, &greatest), cuda::kAbsent);
  EXPECT_THAT(log, HasSubstr("libcudart.so.13 has no cudaDeviceGetStreamPriorityRange"));
  cuda::Stream stream = nullptr;
  ASSERT_EQ(cuda.stream_create(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
  EXPECT_EQ(cuda.stream_destroy(stream), cuda::kSuccess);
  void* memory = nullptr;
  ASSERT_EQ(cuda.host_malloc(&memory, 100), cuda::kSuccess);
  EXPECT_EQ(cuda.host_free(memory), cuda::kSuccess);
}

TEST(CudaNames, AnErrorSaysThatTheFunctionIsMissing) {
  EXPECT_THAT(cuda::error(**cuda::load(), "ask", cuda::kAbsent).message,
              HasSubstr("cannot ask: this CUDA runtime lacks the function"));
}

TEST(CudaNames, ACommunicatorDoesWithoutPriorities) {
  const TemporaryDirectory directory;
  const auto made = NcclCommunicator::create(test::options_for(directory, 0, 1), 0, nullptr);
  EXPECT_TRUE(made.ok()) << made.error().message;
}

}  // namespace
}  // namespace hpctl
