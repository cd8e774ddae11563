// SPDX-License-Identifier: Apache-2.0
// AdamW and the sum of squares by the kernels of a GPU, over the stubs as in device_rows_test.cc;
// and what is said where kernels cannot be had.
#include "trainer/device/device_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/trainer/stub_kernels.h"
#include "trainer/device/torch_device.h"
#include "trainer/parallel/bf16_rounding.h"

namespace hpctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::in_both_orders;
using testing::stub_kernels;
using testing::take_stub_gpu;

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(static_cast<size_t>(count));
  for (float& value : made) value = normal(random);
  return made;
}

template <typename M>
std::vector<M> moments_of(const std::vector<float>& values) {
  if constexpr (std::is_same_v<M, float>) {
    return values;
  } else {
    std::vector<M> made(values.size());
    round_to_bf16(values.data(), made.data(), static_cast<int64_t>(values.size()));
    return made;
  }
}

// Parameter and moments of one kind of memory.
template <typename M>
struct AdamState {
  std::vector<float> param;
  std::vector<M> exp_avg;
  std::vector<M> exp_avg_sq;
  bool operator==(const AdamState&) const = default;
};

// Elements from `first` on, in place.
template <typename M>
AdamState<M> step_of(Device& device, AdamState<M> state, const std::vector<float>& gradient,
                     int64_t first, bool decayed) {
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 0.7);
  AdamTarget<float, M> to = {state.param.data() + first, state.exp_avg.data() + first,
                             state.exp_avg_sq.data() + first};
  const AdamSource<float, M> from = {to.param, to.exp_avg, to.exp_avg_sq, gradient.data() + first};
  device.adamw(step, decayed, static_cast<int64_t>(gradient.size()) - first, from, to);
  return state;
}

template <typename M>
void expect_adamw_of_the_host() {
  TorchDevice device(at::kCPU, &stub_kernels());
  for (const int64_t count : {1, 5, 1000, 4099}) {
    std::vector<float> squares = random_floats(count, 3);
    for (float& value : squares) value *= value;
    const AdamState<M> before = {random_floats(count, 1), moments_of<M>(random_floats(count, 2)),
                                 moments_of<M>(squares)};
    const std::vector<float> gradient = random_floats(count, 4);
    for (const int64_t first : {0, 1}) {
      if (first >= count) continue;
      for (const bool decayed : {true, false}) {
        const auto expected = step_of(host_device(), before, gradient, first, decayed);
        const auto found =
            in_both_orders([&] { return step_of(device, before, gradient, first, decayed); });
        EXPECT_TRUE(found[0] == expected) << count << " from " << first;
        EXPECT_TRUE(found[1] == expected) << count << " from " << first;
      }
    }
  }
}

TEST(DeviceKernels, AdamWHasTheBitsOfTheHost) { expect_adamw_of_the_host<float>(); }

TEST(DeviceKernels, AdamWWithBf16MomentsHasTheBitsOfTheHost) {
  expect_adamw_of_the_host<uint16_t>();
}

double squares_of(TorchDevice& device, const std::vector<std::span<const float>>& parts) {
  double sum = -1;
  device.sum_of_squares(parts, &sum);
  return sum;
}

TEST(DeviceKernels, TheSumOfSquaresHasOneOrder) {
  TorchDevice device(at::kCPU, &stub_kernels());
  const std::vector<float> x = random_floats(50001, 7);
  // The same numbers where they cannot be loaded at once.
  std::vector<float> shifted = {0};
  shifted.insert(shifted.end(), x.begin(), x.end());
  for (const size_t count : {1, 4, 1027, 16384, 16385, 50001}) {
    double expected = 0;
    for (size_t i = 0; i < count; ++i) expected += static_cast<double>(x[i]) * x[i];
    const auto found = in_both_orders([&] { return squares_of(device, {{x.data(), count}}); });
    EXPECT_NEAR(found[0], expected, 1e-12 * expected);
    EXPECT_EQ(found[1], found[0]);
    EXPECT_EQ(squares_of(device, {{shifted.data() + 1, count}}), found[0]) << count;
  }
  const double both = squares_of(device, {{x.data(), 20000}, {x.data(), 0}, {x.data(), 300}});
  const double first = squares_of(device, {{x.data(), 20000}});
  EXPECT_NEAR(both, first + squares_of(device, {{x.data(), 300}}), 1e-12 * first);
  EXPECT_EQ(squares_of(device, {}), 0.0);
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
  setenv("STUB_NVRTC_SAYS", "rows.cuh(7): error: identifier \"x\" is undefined", 1);
  const auto kernels = DeviceKernels::load(8, 0, {Element::kFp32, Element::kBf16});
  unsetenv("STUB_NVRTC_SAYS");
  ASSERT_FALSE(kernels.ok());
  EXPECT_THAT(kernels.error().message,
              AllOf(HasSubstr("cannot compile the kernels for sm_80, NVRTC_ERROR_COMPILATION"),
                    HasSubstr("rows.cuh(7): error: identifier \"x\" is undefined")));
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
