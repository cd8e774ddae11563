// SPDX-License-Identifier: Apache-2.0
// AdamW and the sum of squares by the kernels of a GPU, over the stubs as in cuda_ops_test.cc;
// and what is said where kernels cannot be had.
#include "trainer/device/device_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/gpu/kernel_cases.h"
#include "tests/unit/trainer/stub_kernels.h"
#include "trainer/device/torch_device.h"

namespace hpctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::stub_kernels;
using testing::take_stub_gpu;

TEST(DeviceKernels, AdamWHasTheBitsOfTheHost) {
  TorchDevice device(at::kCPU, &stub_kernels());
  EXPECT_THAT(testing::adamw_problems(device, testing::both_orders()), IsEmpty());
}

TEST(DeviceKernels, TheSumOfSquaresHasOneOrder) {
  TorchDevice device(at::kCPU, &stub_kernels());
  EXPECT_THAT(testing::squares_problems(device, testing::both_orders()), IsEmpty());
}

TEST(DeviceKernels, ALabelTellsCompilerAndGpu) {
  EXPECT_EQ(stub_kernels().label(), "nvrtc 12.4 sm_90");
}

TEST(DeviceKernels, AreThoseOfTheTypesThatAreAskedFor) {
  take_stub_gpu();
  const auto kernels = DeviceKernels::load(9, 0, {Element::kFp32, Element::kFp16});
  ASSERT_TRUE(kernels.ok()) << kernels.error().message;
  EXPECT_TRUE(kernels->has(Element::kFp32));
  EXPECT_TRUE(kernels->has(Element::kFp16));
  EXPECT_FALSE(kernels->has(Element::kBf16));
}

TEST(DeviceKernels, AGpuThatIsNewerThanTheCompilerGetsTheNewestCodeBeforeIt) {
  take_stub_gpu();
  const auto kernels = DeviceKernels::load(10, 0, {Element::kFp32});
  ASSERT_TRUE(kernels.ok()) << kernels.error().message;
  EXPECT_EQ(kernels->label(), "nvrtc 12.4 compute_90");
}

TEST(DeviceKernels, AGpuThatIsTooOldHasNone) {
  take_stub_gpu();
  const auto kernels = DeviceKernels::load(7, 0, {Element::kFp32});
  ASSERT_FALSE(kernels.ok());
  EXPECT_THAT(kernels.error().message, HasSubstr("nvrtc 12.4 does not compile for sm_70"));
}

TEST(DeviceKernels, TheCompilersLogIsInTheError) {
  take_stub_gpu();
  setenv("STUB_NVRTC_SAYS", "rowwise.cuh(7): error: identifier \"x\" is undefined", 1);
  const auto kernels = DeviceKernels::load(8, 0, {Element::kFp32, Element::kBf16});
  unsetenv("STUB_NVRTC_SAYS");
  ASSERT_FALSE(kernels.ok());
  EXPECT_THAT(kernels.error().message,
              AllOf(HasSubstr("cannot compile the kernels for sm_80, NVRTC_ERROR_COMPILATION"),
                    HasSubstr("rowwise.cuh(7): error: identifier \"x\" is undefined")));
}

TEST(DeviceKernels, AKernelThatIsMissingIsNamed) {
  take_stub_gpu();
  setenv("STUB_CUDA_WITHOUT", "swiglu_backward_bf16", 1);
  const auto kernels = DeviceKernels::load(8, 0, {Element::kFp32, Element::kBf16});
  unsetenv("STUB_CUDA_WITHOUT");
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.error().message, "no kernel swiglu_backward_bf16: named symbol not found");
}

TEST(DeviceKernels, AThreadWithoutAGpuHasNone) {
  std::thread([] {
    const auto kernels = DeviceKernels::load(8, 0, {Element::kFp32, Element::kBf16});
    ASSERT_FALSE(kernels.ok());
    EXPECT_THAT(kernels.error().message, HasSubstr("this thread has no GPU"));
  }).join();
}

TEST(DeviceKernels, AKernelThatCannotBeBegunIsAnException) {
  const DeviceKernels& kernels = stub_kernels();
  setenv("STUB_CUDA_LAUNCH", "fails", 1);
  std::string said;
  try {
    kernels.log_sums(Element::kBf16, 1, {}, nullptr);
  } catch (const std::runtime_error& e) {
    said = e.what();
  }
  unsetenv("STUB_CUDA_LAUNCH");
  EXPECT_EQ(said,
            "CUDA: cannot begin kernel log_sums_bf16: an illegal memory access was encountered");
}

}  // namespace
}  // namespace hpctl
