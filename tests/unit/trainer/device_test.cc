// SPDX-License-Identifier: Apache-2.0
// The engine as it runs on a GPU, on a machine without one: TorchDevice on the CPU (state in one
// slot of "device" memory, LibTorch's kernels), and the NCCL communicator over the stubs of NCCL
// and of the CUDA runtime. Whole trainings, rank by rank a TrainLoop in a thread.
#include "trainer/device/torch_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>

#include "tests/unit/trainer/worker_job.h"
#include "trainer/comm/cuda_api.h"
#include "trainer/comm/nccl_communicator.h"
#include "trainer/parallel/bf16_rounding.h"
#include "trainer/runtime.h"
#include "trainer/train_loop.h"

extern "C" int cudaStreamSynchronize(void* stream);  // the stub's

namespace hpctl {
namespace {

using ::testing::HasSubstr;

// NCCL's waits hold the compute stream; what a GPU would compute on it, this thread does, so it
// waits for the stream.
class OnHostMemory final : public Communicator {
 public:
  explicit OnHostMemory(const CommunicatorOptions& options) : Communicator(options) {
    const cuda::Api& cuda = **cuda::load();
    HP_CHECK(cuda.stream_create(&compute_, 0) == cuda::kSuccess);
    nccl_ = std::move(NcclCommunicator::create(options, 0, compute_)).value();
  }
  ~OnHostMemory() override {
    nccl_.reset();
    (*cuda::load())->stream_destroy(compute_);
  }

  Outcome connect() override { return nccl_->connect(); }
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override {
    return awaited(nccl_->begin_all_gather(buffer, chunk_bytes));
  }
  Result<CollectivePtr> begin_reduce_scatter(const float* input, size_t chunk,
                                             float* output) override {
    return awaited(nccl_->begin_reduce_scatter(input, chunk, output));
  }
  Outcome all_gather(void* buffer, size_t chunk_bytes) override {
    return nccl_->all_gather(buffer, chunk_bytes);
  }
  void abort() override { nccl_->abort(); }

 private:
  struct Awaited final : Collective {
    Awaited(CollectivePtr of, cuda::Stream stream) : inner(std::move(of)), compute(stream) {}
    Outcome wait() override {
      Outcome outcome = inner->wait();
      cudaStreamSynchronize(compute);
      return outcome;
    }
    CollectivePtr inner;
    cuda::Stream compute;
  };
  Result<CollectivePtr> awaited(Result<CollectivePtr> begun) {
    if (!begun.ok()) return begun.error();
    return CollectivePtr(std::make_unique<Awaited>(std::move(*begun), compute_));
  }

  cuda::Stream compute_ = nullptr;
  std::unique_ptr<NcclCommunicator> nccl_;
};

class TorchOnHost final : public TorchDevice {
 public:
  explicit TorchOnHost(bool nccl) : TorchDevice(at::kCPU), nccl_(nccl) {}
  Result<std::unique_ptr<Communicator>> make_communicator(
      const CommunicatorOptions& options) override {
    if (!nccl_ || options.world_size == 1) return TorchDevice::make_communicator(options);
    return std::unique_ptr<Communicator>(std::make_unique<OnHostMemory>(options));
  }

 private:
  bool nccl_;
};

enum class Kind { kHost, kTorch, kTorchNccl };

// Trains the job to its end; what its ranks said.
std::vector<Outcome> train(const testing::Job& job, Kind kind) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<Outcome> outcomes(static_cast<size_t>(job.workload.world_size), Outcome(Ok{}));
  std::vector<std::thread> ranks;
  for (int r = 0; r < job.workload.world_size; ++r) {
    ranks.emplace_back([&, r] {
      prepare_runtime();
      Workload workload = job.workload;
      workload.rank = workload.local_rank = r;
      workload.rendezvous_dir = job / ("rdzv-g" + std::to_string(workload.generation));
      auto progress = Progress::attach(-1);
      HP_CHECK(progress.ok());
      TorchOnHost torch(kind == Kind::kTorchNccl);
      Device& device = kind == Kind::kHost ? host_device() : torch;
      TrainLoop loop(workload, *progress, -1, device);
      Outcome& outcome = outcomes[static_cast<size_t>(r)];
      outcome = loop.start();
      if (outcome.ok()) outcome = loop.run();
    });
  }
  for (std::thread& t : ranks) t.join();
  return outcomes;
}

void expect_finished(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
}

std::vector<double> losses(const testing::Job& job) {
  std::vector<double> values;
  for (const auto& line : job.metrics()) values.push_back(line.at("loss").get<double>());
  return values;
}

struct Variant {
  const char* strategy;
  const char* precision = "fp32";
  const char* moments = "fp32";
};

class VariantJob : public testing::Job {
 public:
  explicit VariantJob(const Variant& variant)
      : Job(std::string(variant.strategy) == "hybrid" ? 4 : 2) {
    TrainSpec& spec = workload.train;
    spec.strategy = variant.strategy;
    spec.precision = variant.precision;
    spec.optimizer.moments = variant.moments;
    if (workload.world_size == 4) spec.shard_group = 2;
  }
};

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
  EXPECT_EQ(nccl.digest("step-8.g1"), gloo.digest("step-8.g1"));
  EXPECT_EQ(losses(nccl), losses(gloo));
  ASSERT_EQ(losses(host).size(), 8U);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(losses(nccl)[i], losses(host)[i], 2e-5) << i;
}

TEST(TorchDevice, GoesOnFromItsCheckpointWithTheSameBits) {
  const VariantJob whole({"full", "bf16", "bf16"});
  expect_finished(train(whole, Kind::kTorchNccl));
  VariantJob resumed({"full", "bf16", "bf16"});
  resumed.workload.train.data = whole.workload.train.data;
  resumed.workload.generation = 2;
  resumed.workload.parent_generation = 1;
  resumed.workload.resume_checkpoint = whole.workload.checkpoint_dir + "/step-3.g1";
  resumed.workload.start_step = 3;
  expect_finished(train(resumed, Kind::kTorchNccl));
  EXPECT_EQ(resumed.digest("step-8.g2"), whole.digest("step-8.g1"));
}

TEST(TorchDevice, AFailedCollectiveIsALostPeerToEveryRank) {
  const VariantJob job({"full"});
  setenv("STUB_NCCL_ERROR_AT", "40", 1);
  const std::vector<Outcome> outcomes = train(job, Kind::kTorchNccl);
  unsetenv("STUB_NCCL_ERROR_AT");
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, kPeerLost);
    EXPECT_THAT(outcome.error().message, HasSubstr("NCCL: unhandled system error"));
  }
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
  DeviceArray<float> on_device(const std::vector<float>& host) {
    DeviceArray<float> made(device_, host.size());
    device_.upload(host.data(), made.data(), host.size() * sizeof(float));
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

TEST_F(TorchOperations, CopyAddZeroRoundAndSum) {
  const std::vector<float> x = values(3);
  const DeviceArray<float> a = on_device(x);
  const DeviceArray<float> b(device_, kCount);
  device_.copy(a.data(), b.data(), kCount);
  device_.add(a.data(), b.data(), kCount);
  std::vector<float> twice = x;
  for (float& value : twice) value += value;
  EXPECT_EQ(on_host(b), twice);
  const DeviceArray<uint16_t> rounded(device_, kCount);
  device_.round_to_bf16(a.data(), rounded.data(), kCount);
  std::vector<uint16_t> expected(kCount);
  round_to_bf16(x.data(), expected.data(), kCount);
  EXPECT_EQ(on_host(rounded), expected);
  const std::vector<std::span<const float>> parts = {{a.data(), 600}, {a.data() + 600, 400}};
  const double sum = host_device().sum_of_squares({{x.data(), kCount}});
  EXPECT_NEAR(device_.sum_of_squares(parts), sum, 1e-12 * sum);
  device_.zero(b.data(), kCount);
  EXPECT_EQ(on_host(b), std::vector<float>(kCount, 0.0F));
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
  device_.adamw(step, true, kCount, AdamSource<float>{dp.data(), dm.data(), dv.data(), dg.data()},
                AdamTarget<float>{dp.data(), dm.data(), dv.data()});
  for (int64_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(on_host(dp)[i], new_p[i], 1e-6 * (1 + std::abs(new_p[i]))) << i;
  }
  EXPECT_EQ(on_host(dm), new_m);
  EXPECT_EQ(on_host(dv), new_v);
}

TEST(OpenDevice, IsTheHostWhereLibTorchHasNoGpu) {
  if (c10::impl::hasDeviceGuardImpl(at::kCUDA)) GTEST_SKIP() << "this LibTorch is built for GPUs";
  const Result<Device*> device = open_device(3);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->name(), "cpu");
}

}  // namespace
}  // namespace hpctl
