// SPDX-License-Identifier: Apache-2.0
// The kernels of a GPU and the real compiler, where this machine has one (libnvrtc of the CUDA
// toolkit or of a LibTorch for GPUs); no GPU is needed for that. What is said where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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

// H100 and B200 have kernels of their own, A100 where the compiler still knows it.
TEST_F(Nvrtc, CompilesTheKernelsForEveryGpuThatItKnows) {
  int count = 0;
  ASSERT_EQ(nvrtc_->count_architectures(&count), nvrtc::kSuccess);
  std::vector<int> known(static_cast<size_t>(count));
  ASSERT_EQ(nvrtc_->architectures(known.data()), nvrtc::kSuccess);
  int compiled = 0;
  for (const int architecture : {80, 90, 100}) {
    if (std::find(known.begin(), known.end(), architecture) == known.end()) continue;
    const auto image = compile_device_program(*nvrtc_, architecture / 10, architecture % 10);
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_THAT(image->label, ::testing::EndsWith("sm_" + std::to_string(architecture)));
    EXPECT_THAT(image->code, StartsWith("\x7f"
                                        "ELF"));
    for (const char* name : {"rms_norm_wide_bf16", "rms_norm_backward_narrow_fp16", "losses_fp32",
                             "rotary_bf16", "adamw_bf16", "sum_partials_fp32"}) {
      EXPECT_THAT(image->code, HasSubstr(std::string(".text.") + name)) << architecture;
    }
    ++compiled;
  }
  EXPECT_GT(compiled, 0);
}

// A GPU of the future gets PTX. Operands are moved 16 bytes at a time.
TEST_F(Nvrtc, GivesCodeThatADriverTranslates) {
  const auto image = compile_device_program(*nvrtc_, 99, 0);
  ASSERT_TRUE(image.ok()) << image.error().message;
  EXPECT_THAT(image->label, HasSubstr(" compute_"));
  const size_t begin = image->code.find(".entry swiglu_bf16(");
  ASSERT_NE(begin, std::string::npos);
  const std::string swiglu = image->code.substr(begin, image->code.find("\n}", begin) - begin);
  EXPECT_THAT(swiglu, HasSubstr("ld.global.v4"));
  EXPECT_THAT(swiglu, HasSubstr("st.global.v4"));
  // No joined operations where bits are promised.
  const size_t adamw = image->code.find(".entry adamw_fp32(");
  ASSERT_NE(adamw, std::string::npos);
  const std::string steps = image->code.substr(adamw, image->code.find("\n}", adamw) - adamw);
  EXPECT_THAT(steps, ::testing::Not(HasSubstr("fma.")));
  EXPECT_THAT(steps, HasSubstr("sqrt.rn.f32"));
  EXPECT_THAT(steps, HasSubstr("div.rn.f32"));
}

TEST(NoDriver, IsSaid) {
  setenv("HPCTL_SYSROOT", "/nowhere", 1);
  const auto kernels = DeviceKernels::load(9, 0);
  unsetenv("HPCTL_SYSROOT");
  ASSERT_FALSE(kernels.ok());
  EXPECT_EQ(kernels.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(kernels.error().message, StartsWith("no CUDA driver: "));
}

}  // namespace
}  // namespace hpctl
