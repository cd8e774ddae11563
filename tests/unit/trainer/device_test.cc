// SPDX-License-Identifier: Apache-2.0
// The engine as it runs on a GPU, on a machine without one: TorchDevice on the CPU (state in one
// slot of "device" memory, LibTorch's kernels), and the NCCL communicator over the stubs of NCCL
// and of the CUDA runtime. Whole trainings, rank by rank a Run in a thread.
#include "trainer/device/torch_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "common/job/lineage.h"
#include "tests/support/promise.h"
#include "tests/unit/trainer/torch_on_host.h"
#include "trainer/arch/fused_ops.h"
#include "trainer/kernels/bf16_rounding.h"

namespace hpctl {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using testing::expect_finished;
using ::testing::HasSubstr;
using testing::Kind;
using testing::losses;
using testing::RankEnd;
using testing::train;
using testing::Variant;
using testing::VariantJob;

class OverNccl : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Variants, OverNccl,
                         ::testing::Values(Variant{"full"}, Variant{"full", "bf16", "bf16"},
                                           Variant{"shard_grad_op"}, Variant{"no_shard"},
                                           Variant{"hybrid", "bf16"}));

TEST_P(OverNccl, ATrainingHasTheBitsOfOneOverGlooAndTheLossesOfTheHost) {
  const VariantJob host(GetParam());
  const VariantJob gloo(GetParam());
  const VariantJob nccl(GetParam());
  expect_finished(train(host, Kind::kHost));
  expect_finished(train(gloo, Kind::kTorch));
  setenv("STUB_NCCL_SLOW", "2", 1);
  expect_finished(train(nccl, Kind::kTorchNccl));
  unsetenv("STUB_NCCL_SLOW");
  ASSERT_EQ(gloo.digest("step-8.g1").size(), 64U) << gloo.digest("step-8.g1");
  EXPECT_EQ(nccl.digest("step-8.g1"), gloo.digest("step-8.g1")) << broken_promise("digest");
  EXPECT_EQ(losses(nccl), losses(gloo));
  // The stub's clock stands still: what the host waits for is computation.
  for (const auto& line : nccl.metrics()) EXPECT_EQ(line["comm_ms"], 0.0) << line;
  ASSERT_EQ(losses(host).size(), 8U);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(losses(nccl)[i], losses(host)[i], 2e-5) << i;
}

// Whatever the number of micro-batches: the loss stays on the device, and comes with the norm.
TEST(TorchDevice, AStepWaitsOnceForTheDevice) {
  for (const int global : {4, 8}) {
    for (const char* precision : {"fp32", "bf16"}) {
      VariantJob job({"full", precision});
      job.workload.train.batch.global = global;
      const std::vector<RankEnd> ends = train(job, Kind::kTorchNccl);
      expect_finished(ends);
      for (const RankEnd& end : ends) EXPECT_EQ(end.host_waits, 8) << global << " " << precision;
    }
  }
}

// However many micro-batches it has, and whether these gather anything or not.
TEST(TorchDevice, AnEvaluationWaitsOnceForTheDevice) {
  for (const char* strategy : {"full", "no_shard", "hybrid"}) {
    std::vector<int> agreements;
    for (const int sequences : {4, 20}) {
      VariantJob job({strategy});
      TrainSpec& spec = job.workload.train;
      spec.data.path = testing::documents_for(job);
      spec.data.split = {0.8, 0.2, 0};
      spec.validation = {.every_steps = 4, .sequences = sequences};
      // How many saves there are beside the steps, and what is yet to be agreed on of them at the
      // end, is a matter of the disk.
      job.workload.checkpoint.every_steps = 0;
      const std::vector<RankEnd> ends = train(job, Kind::kTorchNccl);
      expect_finished(ends);
      for (const RankEnd& end : ends) {
        EXPECT_EQ(end.host_waits, 8 + 2) << strategy << ", " << sequences << " sequences";
        agreements.push_back(end.agreements);
      }
      EXPECT_EQ(losses(job).size(), 8U + 2U);
    }
    // A barrier after each of the rounds that are more, twice, would be 8 with four ranks and 16
    // with two.
    EXPECT_THAT(agreements, Each(agreements.front()))
        << strategy << ": ranks meet on their streams";
  }
}

// Else the events of its collectives would pile up.
TEST(TorchDevice, ALongEvaluationIsSettledInParts) {
  std::vector<int> settles;
  for (const int rounds :
       {FullySharded::kUnsettledEvaluations - 1, 30, FullySharded::kUnsettledEvaluations + 30}) {
    VariantJob job({"full"});
    TrainSpec& spec = job.workload.train;
    spec.steps = 1;
    spec.data.path = testing::documents_for(job);
    spec.data.split = {0.8, 0.2, 0};
    spec.data.seq_len = 2;
    spec.validation = {.every_steps = 1, .sequences = 2 * rounds};
    const std::vector<RankEnd> ends = train(job, Kind::kTorchNccl);
    expect_finished(ends);
    for (const RankEnd& end : ends) EXPECT_EQ(end.host_waits, 1 + 1) << rounds;
    settles.push_back(ends[0].settles);
  }
  EXPECT_EQ(settles[1], settles[0]) << "one at the end";
  EXPECT_GT(settles[2], settles[0]) << "and one before";
}

TEST(TorchDevice, TrainsByItsKernelsAsTheHostDoes) {
  const Variant wide = {"full", "fp32", "fp32"};
  const Variant narrow_moments = {"full", "fp32", "bf16"};
  for (const Variant& variant : {wide, narrow_moments}) {
    const VariantJob host(variant);
    const VariantJob kernels(variant);
    expect_finished(train(host, Kind::kHost));
    expect_finished(train(kernels, Kind::kTorchKernels));
    ASSERT_EQ(losses(kernels).size(), 8U);
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(losses(kernels)[i], losses(host)[i], 2e-5) << i;
  }
}

// Gathers round nothing, however many there are: AdamW writes the weights in bf16. The first step
// rounds each block once.
TEST(TorchDevice, GathersSendWeightsThatAdamWHasRounded) {
  for (const int workers : {1, 2}) {
    for (const char* strategy : {"full", "no_shard"}) {
      VariantJob job({strategy, "bf16", "fp32", {}, workers});
      job.workload.train.batch.global = 8;
      const std::vector<RankEnd> ends = train(job, Kind::kTorchKernels);
      expect_finished(ends);
      for (const RankEnd& end : ends) {
        EXPECT_EQ(end.roundings, job.workload.train.model.layers + 2) << strategy << workers;
      }
    }
  }
}

TEST(TorchDevice, RoundedWeightsAreThoseOfTheParameters) {
  for (const DeviceKernels* kernels :
       {static_cast<const DeviceKernels*>(nullptr), &testing::stub_kernels()}) {
    const VariantJob job({"full", "bf16", "fp32", {}, 1});
    testing::TorchOnHost device(false, kernels);
    auto state = TrainingState::create(-1, job.workload, {}, {}, device);
    ASSERT_TRUE(state.ok()) << state.error().message;
    const auto weights = [&] {
      std::vector<std::vector<uint16_t>> all;
      for (size_t b = 0; b < state->blocks().size(); ++b) {
        const ElementRange range = state->padded_shard(b);
        const auto count = static_cast<size_t>(range.size());
        const auto param = DeviceArray<float>::on_host(device, count);
        state->begin_read_sealed(StateKind::kParam, b, range,
                                 reinterpret_cast<std::byte*>(param.data()));
        std::vector<uint16_t> expected(count);
        round_to_bf16(param.data(), expected.data(), range.size());
        const WeightShard shard = state->weight_shards()[b];
        EXPECT_TRUE(shard.rounded);
        std::vector<uint16_t>& found = all.emplace_back(count);
        device.download(shard.values, found.data(), count * sizeof(uint16_t));
        EXPECT_EQ(found, expected) << b;
      }
      return all;
    };
    const auto first = weights();
    std::vector<DeviceArray<float>> ones;
    std::vector<const float*> gradients;
    for (const int64_t capacity : state->geometry().block_capacity) {
      const std::vector<float> values(static_cast<size_t>(capacity), 1.0F);
      ones.emplace_back(device, values.size());
      device.upload(values.data(), ones.back().data(), values.size() * sizeof(float));
      gradients.push_back(ones.back().data());
    }
    state->apply(AdamStep(job.workload.train.optimizer, 1, 1e-1, 1.0), gradients, 4);
    EXPECT_NE(weights(), first);
    ASSERT_TRUE(state->go_back("").ok());
    EXPECT_EQ(weights(), first);
  }
}

// All state in bf16 is updated in place; one rank uses it as its weights.
TEST(TorchDevice, TrainsWithMasterWeightsInBf16AsTheHostDoes) {
  for (const int workers : {1, 2}) {
    const Variant narrow = {"full", "bf16", "bf16", {}, workers, "none", "bf16"};
    const VariantJob host(narrow);
    expect_finished(train(host, Kind::kHost));
    for (const Kind kind : {Kind::kTorch, Kind::kTorchKernels}) {
      const VariantJob device(narrow);
      expect_finished(train(device, kind));
      ASSERT_EQ(losses(device).size(), 8U);
      for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(losses(device)[i], losses(host)[i], 2e-2) << i;
    }
  }
}

TEST(TorchDevice, GoesOnFromItsCheckpointWithTheSameBits) {
  const Variant narrow = {"full", "bf16", "bf16", {}, 2, "none", "bf16"};
  const VariantJob whole(narrow);
  expect_finished(train(whole, Kind::kTorchNccl));
  VariantJob resumed(narrow);
  resumed.resume_from(whole, "step-3.g1", 3);
  expect_finished(train(resumed, Kind::kTorchNccl));
  EXPECT_EQ(resumed.digest("step-8.g2"), whole.digest("step-8.g1")) << broken_promise("digest");
  const auto manifest = read_manifest(resumed.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok());
  EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  EXPECT_EQ(manifest->environment.at("ranks_by_node"), "2");
}

// From the first checkpoint on, and where such a checkpoint is resumed from, deterministic or not.
TEST(TorchDevice, ARunInAnyOrderIsNeverExact) {
  const auto manifest_of = [](const VariantJob& job, const char* name) {
    return read_manifest(job.workload.checkpoint_dir + "/" + name).value();
  };
  VariantJob whole({"full", "bf16"});
  whole.workload.train.gpu = {.attention = GpuAttention::kProducts, .deterministic = false};
  expect_finished(train(whole, Kind::kTorchNccl));
  const Manifest first = manifest_of(whole, "step-3.g1");
  EXPECT_FALSE(first.exact);
  EXPECT_THAT(first.inexact_reason, HasSubstr("gpu.deterministic is false"));
  EXPECT_EQ(first.environment.at("gpu.deterministic"), "false");
  EXPECT_EQ(first.environment.at("gpu.attention"), "products");
  VariantJob resumed({"full", "bf16"});
  resumed.resume_from(whole, "step-3.g1", 3);
  expect_finished(train(resumed, Kind::kTorchNccl));
  const Manifest last = manifest_of(resumed, "step-8.g2");
  EXPECT_FALSE(last.exact);
  EXPECT_EQ(last.inexact_reason, first.inexact_reason);
  EXPECT_FALSE(last.environment.contains("gpu.deterministic"));
}

TEST(TorchDevice, ACpuIsDeterministicWhateverTheKeysSay) {
  VariantJob job({"full"});
  job.workload.train.gpu = {.attention = GpuAttention::kProducts, .deterministic = false};
  expect_finished(train(job, Kind::kHost));
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g1");
  ASSERT_TRUE(manifest.ok());
  EXPECT_TRUE(manifest->exact) << manifest->inexact_reason;
  EXPECT_FALSE(manifest->environment.contains("gpu.deterministic"));
  EXPECT_FALSE(manifest->environment.contains("gpu.attention"));
}

TEST(TorchDevice, AttentionThatIsNotToBeHadIsRefusedAtTheStart) {
  if (compat::kHasPinnedAttention) GTEST_SKIP() << "this LibTorch may have it";
  VariantJob job({"full", "bf16"});
  job.workload.train.gpu.attention = GpuAttention::kFlash;
  for (const RankEnd& end : train(job, Kind::kTorchNccl)) {
    ASSERT_FALSE(end.outcome.ok());
    EXPECT_EQ(end.outcome.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(end.outcome.error().message,
                HasSubstr("workload.train.gpu.attention: flash is not to be had"));
  }
  EXPECT_TRUE(losses(job).empty());
}

TEST(TorchDevice, AFailedCollectiveIsALostPeerToEveryRank) {
  const VariantJob job({"full"});
  setenv("STUB_NCCL_ERROR_AT", "40", 1);
  const std::vector<RankEnd> ends = train(job, Kind::kTorchNccl);
  unsetenv("STUB_NCCL_ERROR_AT");
  // The rank that comes there first has the error; the other may have it too, or sees the first go.
  int had_the_error = 0;
  for (const RankEnd& end : ends) {
    ASSERT_FALSE(end.outcome.ok());
    EXPECT_EQ(end.outcome.error().code, kPeerLost);
    const std::string& message = end.outcome.error().message;
    EXPECT_THAT(message, AnyOf(HasSubstr("NCCL: unhandled system error"),
                               HasSubstr("NCCL: remote process exited")));
    if (message.find("unhandled system error") != std::string::npos) ++had_the_error;
  }
  EXPECT_GE(had_the_error, 1);
}

// Not a full disk: that rank is started again elsewhere, and the others are not to blame.
TEST(TorchDevice, AFaultThatShowsInASaveIsOfItsRankAlone) {
  const VariantJob job({"full"});
  const std::vector<RankEnd> ends = train(job, Kind::kTorch, 1);
  ASSERT_FALSE(ends[0].outcome.ok());
  ASSERT_FALSE(ends[1].outcome.ok());
  EXPECT_EQ(ends[1].outcome.error().code, ErrorCode::kInternal);
  EXPECT_THAT(ends[1].outcome.error().message, HasSubstr("illegal memory access"));
  EXPECT_EQ(ends[0].outcome.error().code, kPeerLost);
  EXPECT_THAT(ends[0].outcome.error().message, HasSubstr("rank 1 failed"));
  EXPECT_TRUE(list_checkpoints(job.workload.checkpoint_dir).value().empty());
}

// Device memory beside the host's functions.
class TorchOperations : public ::testing::Test {
 protected:
  static constexpr int64_t kCount = 1000;
  std::vector<float> values(int salt) const {
    std::vector<float> made(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      made[i] = static_cast<float>(std::sin(static_cast<double>(i * salt + salt)) * salt);
    }
    return made;
  }
  template <typename T>
  DeviceArray<T> on_device(const std::vector<T>& host) {
    DeviceArray<T> made(device_, host.size());
    device_.upload(host.data(), made.data(), host.size() * sizeof(T));
    return made;
  }
  template <typename T>
  std::vector<T> on_host(const DeviceArray<T>& array) {
    std::vector<T> made(array.size());
    device_.download(array.data(), made.data(), made.size() * sizeof(T));
    return made;
  }
  TorchDevice device_{at::kCPU};
};

TEST_F(TorchOperations, CopyAddZeroAndSum) {
  const std::vector<float> x = values(3);
  const DeviceArray<float> a = on_device(x);
  const DeviceArray<float> b(device_, kCount);
  device_.copy(a.data(), b.data(), kCount);
  device_.add(a.data(), b.data(), kCount);
  std::vector<float> twice = x;
  for (float& value : twice) value += value;
  EXPECT_EQ(on_host(b), twice);
  const std::vector<std::span<const float>> parts = {{a.data(), 600}, {a.data() + 600, 400}};
  double sum = 0;
  host_device().sum_of_squares({{x.data(), kCount}}, &sum);
  const DeviceArray<double> found(device_, 1);
  device_.sum_of_squares(parts, found.data());
  EXPECT_NEAR(on_host(found)[0], sum, 1e-12 * sum);
  device_.zero(b.data(), kCount);
  EXPECT_EQ(on_host(b), std::vector<float>(kCount, 0.0F));
}

// Every exponent, with the bits that decide the rounding: ties, just beside them, all ones.
TEST_F(TorchOperations, RoundingIsTheHosts) {
  std::vector<float> x;
  for (uint32_t exponent = 0; exponent < 0xff; ++exponent) {
    for (const uint32_t mantissa : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x7fffU,
                                    0x8000U, 0x8001U, 0x18000U, 0x400000U, 0x7fffffU}) {
      x.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
      x.push_back(-x.back());
    }
  }
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  const auto count = static_cast<int64_t>(x.size());
  const DeviceArray<float> a = on_device(x);
  const DeviceArray<uint16_t> rounded(device_, x.size());
  std::vector<uint16_t> expected(x.size());
  device_.round_to_bf16(a.data(), rounded.data(), count);
  round_to_bf16(x.data(), expected.data(), count);
  EXPECT_EQ(on_host(rounded), expected);
  device_.round_to_fp16(a.data(), rounded.data(), count);
  round_to_fp16(x.data(), expected.data(), count);
  EXPECT_EQ(on_host(rounded), expected);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  round_to_fp16(&nan, expected.data(), 1);
  EXPECT_EQ(expected[0] & 0x7c00U, 0x7c00U);
  EXPECT_NE(expected[0] & 0x3ffU, 0U);
}

TEST_F(TorchOperations, AdamWInPlaceIsTheHosts) {
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 0.7);
  std::vector<float> v = values(2);
  for (float& value : v) value *= value;
  const std::vector<float> p = values(5);
  const std::vector<float> m = values(7);
  const std::vector<float> g = values(11);
  std::vector<float> new_p(kCount);
  std::vector<float> new_m(kCount);
  std::vector<float> new_v(kCount);
  host_device().adamw(step, true, kCount, AdamSource<float>{p.data(), m.data(), v.data(), g.data()},
                      AdamTarget<float>{new_p.data(), new_m.data(), new_v.data()});
  const DeviceArray<float> dp = on_device(p);
  const DeviceArray<float> dm = on_device(m);
  const DeviceArray<float> dv = on_device(v);
  const DeviceArray<float> dg = on_device(g);
  const DeviceArray<uint16_t> rounded(device_, kCount);
  device_.adamw(step, true, kCount, AdamSource<float>{dp.data(), dm.data(), dv.data(), dg.data()},
                AdamTarget<float>{dp.data(), dm.data(), dv.data(), rounded.data()});
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(on_host(dp)[i], new_p[i], 1e-6 * (1 + std::abs(new_p[i]))) << i;
  }
  EXPECT_EQ(on_host(dm), new_m);
  EXPECT_EQ(on_host(dv), new_v);
  std::vector<uint16_t> weights(kCount);
  round_to_bf16(on_host(dp).data(), weights.data(), kCount);
  EXPECT_EQ(on_host(rounded), weights);
}

// LibTorch's operations round by the host's random bits. What they round may differ by an ulp of
// fp32, so a few results are the other neighbour of that number.
TEST_F(TorchOperations, AdamWRoundsBf16AsTheHost) {
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 0.7);
  const RandomBits bits = random_bits(17, step, 5, (int64_t{1} << 32) - 100);
  const auto narrow = [](std::vector<float> values) {
    std::vector<uint16_t> rounded(values.size());
    round_to_bf16(values.data(), rounded.data(), static_cast<int64_t>(values.size()));
    return rounded;
  };
  std::vector<float> squares = values(2);
  for (float& value : squares) value *= value;
  const std::vector<uint16_t> p = narrow(values(5));
  const std::vector<uint16_t> m = narrow(values(7));
  const std::vector<uint16_t> v = narrow(squares);
  const std::vector<float> g = values(11);
  std::vector<uint16_t> new_p(kCount);
  std::vector<uint16_t> new_m(kCount);
  std::vector<uint16_t> new_v(kCount);
  using Source = AdamSource<float, uint16_t, uint16_t>;
  using Target = AdamTarget<float, uint16_t, uint16_t>;
  host_device().adamw(step, true, bits, kCount, Source{p.data(), m.data(), v.data(), g.data()},
                      Target{new_p.data(), new_m.data(), new_v.data()});
  const DeviceArray<uint16_t> dp = on_device(p);
  const DeviceArray<uint16_t> dm = on_device(m);
  const DeviceArray<uint16_t> dv = on_device(v);
  const DeviceArray<float> dg = on_device(g);
  Device& device = device_;
  device.adamw(step, true, bits, kCount, Source{dp.data(), dm.data(), dv.data(), dg.data()},
               Target{dp.data(), dm.data(), dv.data()});
  const auto expect_alike = [](const std::vector<uint16_t>& found,
                               const std::vector<uint16_t>& expected) {
    int64_t others = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] == expected[i]) continue;
      ++others;
      EXPECT_LE(std::abs(int{found[i]} - int{expected[i]}), 1) << i;
    }
    EXPECT_LE(others, kCount / 1000);
  };
  expect_alike(on_host(dp), new_p);
  expect_alike(on_host(dm), new_m);
  expect_alike(on_host(dv), new_v);
}

// Of the types that the GPU's kernels are loaded for; the host's loss wants fp16 wide.
TEST(LossOnAGpu, TakesNarrowLogitsAsTheyAre) {
  const at::Device gpu(at::kCUDA, 0);
  EXPECT_FALSE(has_fused_loss(gpu, at::kBFloat16)) << "no kernels";
  testing::take_stub_gpu();
  setenv("HPTRAIN_DEVICE_KERNELS", "none", 1);
  EXPECT_EQ(load_device_kernels(0, {Element::kFp32}), nullptr) << "left out";
  unsetenv("HPTRAIN_DEVICE_KERNELS");
  EXPECT_FALSE(has_fused_loss(gpu, at::kFloat));
  ASSERT_NE(load_device_kernels(0, {Element::kFp32, Element::kBf16}), nullptr);
  EXPECT_TRUE(has_fused_loss(gpu, at::kBFloat16));
  EXPECT_TRUE(has_fused_loss(gpu, at::kFloat));
  EXPECT_FALSE(has_fused_loss(gpu, at::kHalf));
  EXPECT_FALSE(has_fused_loss(at::kCPU, at::kHalf));
  EXPECT_TRUE(has_fused_loss(at::kCPU, at::kBFloat16));
  EXPECT_TRUE(has_fused_loss(at::kCPU, at::kFloat));
  EXPECT_TRUE(has_fused_loss(at::kCPU, at::kDouble));
}

TEST(OpenDevice, IsTheHostWhereLibTorchHasNoGpu) {
  if (c10::impl::hasDeviceGuardImpl(at::kCUDA)) GTEST_SKIP() << "this LibTorch is built for GPUs";
  const Result<Device*> device = open_device(3, TrainSpec{});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->name(), "cpu");
}

}  // namespace
}  // namespace hpctl
