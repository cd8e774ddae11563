// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPU and the real compiler, where this machine has one (libnvrtc of the CUDA
// toolkit or of a LibTorch for GPUs); no GPU is needed for that. What is said where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "trainer/device/device_kernels.h"
#include "trainer/device/device_program.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Nvrtc : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto found = nvrtc::load();
    if (!found.ok()) GTEST_SKIP() << found.error().message;
    nvrtc_ = *found;
  }
  const nvrtc::Api* nvrtc_ = nullptr;
};

// The text of one kernel in PTX.
std::string kernel_of(const std::string& ptx, const std::string& name) {
  const size_t begin = ptx.find(".entry " + name + "(");
  return begin == std::string::npos ? "" : ptx.substr(begin, ptx.find("\n}", begin) - begin);
}

// H100 and B200 have kernels of their own, A100 where the compiler still knows it.
TEST_F(Nvrtc, CompilesTheKernelsForEveryGpuThatItKnows) {
  int count = 0;
  ASSERT_EQ(nvrtc_->count_architectures(&count), nvrtc::kSuccess);
  std::vector<int> known(static_cast<size_t>(count));
  ASSERT_EQ(nvrtc_->architectures(known.data()), nvrtc::kSuccess);
  int compiled = 0;
  for (const int architecture : {80, 90, 100}) {
    if (std::find(known.begin(), known.end(), architecture) == known.end()) continue;
    for (const std::string type : {"fp32", "bf16", "fp16"}) {
      const auto image =
          compile_device_program(*nvrtc_, architecture / 10, architecture % 10, type);
      ASSERT_TRUE(image.ok()) << image.error().message;
      EXPECT_THAT(image->label, ::testing::EndsWith("sm_" + std::to_string(architecture)));
      EXPECT_EQ(image->code.substr(1, 3), "ELF");
      for (const char* name : {"rms_norm_wide_", "rms_norm_backward_narrow_", "losses_"}) {
        EXPECT_THAT(image->code, HasSubstr(".text." + (name + type))) << architecture;
      }
      ++compiled;
    }
  }
  EXPECT_GT(compiled, 0);
}

// A GPU of the future gets PTX. Operands are moved 16 bytes at a time.
TEST_F(Nvrtc, GivesCodeThatADriverTranslates) {
  const auto image = compile_device_program(*nvrtc_, 99, 0, "bf16");
  ASSERT_TRUE(image.ok()) << image.error().message;
  EXPECT_THAT(image->label, HasSubstr(" compute_"));
  const std::string swiglu = kernel_of(image->code, "swiglu_bf16");
  EXPECT_THAT(swiglu, HasSubstr("ld.global.v4"));
  EXPECT_THAT(swiglu, HasSubstr("st.global.v4"));
  // No joined operations where bits are promised.
  const std::string steps = kernel_of(image->code, "adamw_bf16");
  EXPECT_THAT(steps, ::testing::Not(HasSubstr("fma.")));
  EXPECT_THAT(steps, HasSubstr("sqrt.rn.f32"));
  EXPECT_THAT(steps, HasSubstr("div.rn.f32"));
}

TEST(NoDriver, IsSaid) {
  setenv("HPCTL_SYSROOT", "/nowhere", 1);
  const auto kernels = DeviceKernels::load(9, 0, {Element::kFp32});
  unsetenv("HPCTL_SYSROOT");
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(kernels.error().message, StartsWith("no CUDA driver: "));
}

}  // namespace
}  // namespace hpctl
