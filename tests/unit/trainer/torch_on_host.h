// SPDX-License-Identifier: Apache-2.0
// A GPU's engine on a machine without one: TorchDevice on the CPU, over Gloo or over the stubs of
// NCCL and of the CUDA runtime. Device memory is counted, and every operation is told where its
// addresses have to lie: a GPU would fault where this only sees host memory.
#pragma once

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/gpu/cuda_api.h"
#include "tests/unit/trainer/host_waits.h"
#include "tests/unit/trainer/stub_kernels.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/comm/nccl_communicator.h"
#include "trainer/device/torch_device.h"
#include "trainer/loop/generation.h"
#include "trainer/process/runtime.h"

extern "C" int cudaStreamSynchronize(void* stream);  // the stub's

namespace hpctl::testing {

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
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override {
    return awaited(nccl_->begin_sums(type, input, chunk, output));
  }
  Outcome all_gather(void* buffer, size_t chunk_bytes) override {
    ++agreements_;
    return nccl_->all_gather(buffer, chunk_bytes);
  }
  Outcome settle() override {
    ++settles_;
    return nccl_->settle();
  }
  std::optional<StreamTimes> take_stream_times() override { return nccl_->take_stream_times(); }
  void abort() override { nccl_->abort(); }

  // Collectives of this thread that a host waits for, with the device behind it.
  static int agreements() { return agreements_; }
  static int settles() { return settles_; }

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

  static thread_local inline int agreements_ = 0;
  static thread_local inline int settles_ = 0;

  cuda::Stream compute_ = nullptr;
  std::unique_ptr<NcclCommunicator> nccl_;
};

// Memory handed out, by address.
class Regions {
 public:
  void add(void* memory, size_t bytes) {
    regions_[static_cast<char*>(memory)] = bytes;
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void remove(void* memory) {
    const auto found = regions_.find(static_cast<char*>(memory));
    if (found == regions_.end()) return;
    live_ -= found->second;
    regions_.erase(found);
  }
  bool holds(const void* memory, size_t bytes = 1) const {
    const auto* const begin = static_cast<const char*>(memory);
    auto after = regions_.upper_bound(const_cast<char*>(begin));
    if (after == regions_.begin()) return false;
    --after;
    return begin + bytes <= after->first + after->second;
  }
  void expect(const void* memory, size_t bytes) const { HP_CHECK(holds(memory, bytes)); }
  size_t peak() const { return peak_; }

 private:
  std::map<char*, size_t> regions_;
  size_t live_ = 0;
  size_t peak_ = 0;
};

class TorchOnHost final : public TorchDevice {
 public:
  explicit TorchOnHost(bool nccl, const DeviceKernels* kernels = nullptr)
      : TorchDevice(at::kCPU, kernels), nccl_(nccl) {}

  void* allocate(size_t bytes) override {
    void* const made = TorchDevice::allocate(bytes);
    device_.add(made, bytes);
    return made;
  }
  void release(void* memory) noexcept override {
    device_.remove(memory);
    TorchDevice::release(memory);
  }
  void* allocate_host(size_t bytes) override {
    // Not LibTorch's: what is counted of that is the device's.
    void* const made = host_device().allocate(bytes);
    host_.add(made, bytes);
    return made;
  }
  void release_host(void* memory) noexcept override {
    host_.remove(memory);
    host_device().release(memory);
  }
  void lock_host(void* memory, size_t bytes) override { host_.add(memory, bytes); }
  void unlock_host(void* memory) noexcept override { host_.remove(memory); }
  void copy(const float* from, float* to, int64_t count) override {
    here(from, count);
    here(to, count);
    TorchDevice::copy(from, to, count);
  }
  void round_to_bf16(const float* from, uint16_t* to, int64_t count) override {
    here(from, count);
    here(to, count);
    ++roundings_;
    TorchDevice::round_to_bf16(from, to, count);
  }
  void round_to_fp16(const float* from, uint16_t* to, int64_t count) override {
    here(from, count);
    here(to, count);
    TorchDevice::round_to_fp16(from, to, count);
  }
  void adamw(const AdamStep& step, bool decayed, int64_t count, const AdamSource<float>& from,
             const AdamTarget<float>& to) override {
    all_here(from, to, count);
    TorchDevice::adamw(step, decayed, count, from, to);
  }
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t>& from,
             const AdamTarget<float, uint16_t>& to) override {
    all_here(from, to, count);
    TorchDevice::adamw(step, decayed, bits, count, from, to);
  }
  void adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
             const AdamSource<float, uint16_t, uint16_t>& from,
             const AdamTarget<float, uint16_t, uint16_t>& to) override {
    all_here(from, to, count);
    TorchDevice::adamw(step, decayed, bits, count, from, to);
  }
  void begin_download(const void* from, void* host, size_t bytes) override {
    host_.expect(host, bytes);
    TorchDevice::begin_download(from, host, bytes);
    --downloads_;  // on a GPU it does not wait
  }
  void await_downloads() override {
    TORCH_CHECK(!fails, "CUDA error: an illegal memory access was encountered");
    TorchDevice::await_downloads();
  }
  void begin_upload(const void* host, void* to, size_t bytes) override {
    device_.expect(to, bytes);
    host_.expect(host, bytes);
    TorchDevice::begin_upload(host, to, bytes);
  }
  void upload(const void* host, void* to, size_t bytes) override {
    device_.expect(to, bytes);
    TorchDevice::upload(host, to, bytes);
  }
  void download(const void* from, void* host, size_t bytes) override {
    HP_CHECK(!host_.holds(from));  // an activation, or of allocate()
    ++downloads_;
    TorchDevice::download(from, host, bytes);
  }
  Result<std::unique_ptr<Communicator>> make_communicator(
      const CommunicatorOptions& options) override {
    if (!nccl_ || options.world_size == 1) return TorchDevice::make_communicator(options);
    return std::unique_ptr<Communicator>(std::make_unique<OnHostMemory>(options));
  }

  // Shows, as of a GPU, where copies of the state are waited for.
  bool fails = false;

  // Bytes of allocate() and allocate_host(), at most.
  size_t peak_bytes() const { return device_.peak(); }
  size_t peak_host_bytes() const { return host_.peak(); }
  // Those that the host waits for.
  int downloads() const { return downloads_; }
  // Calls that round to bf16 and do nothing else.
  int roundings() const { return roundings_; }

 private:
  template <typename T>
  void here(const T* memory, int64_t count) const {
    device_.expect(memory, static_cast<size_t>(count) * sizeof(T));
  }
  template <typename M, typename P>
  void all_here(const AdamSource<float, M, P>& from, const AdamTarget<float, M, P>& to,
                int64_t count) const {
    here(from.param, count);
    here(from.exp_avg, count);
    here(from.exp_avg_sq, count);
    here(from.gradient, count);
    here(to.param, count);
    here(to.exp_avg, count);
    here(to.exp_avg_sq, count);
    if (to.rounded != nullptr) here(to.rounded, count);
  }

  bool nccl_;
  int downloads_ = 0;
  int roundings_ = 0;
  Regions device_;
  Regions host_;
};

// kTorchKernels: over Gloo, AdamW and the sum of squares by the kernels of a GPU.
enum class Kind { kHost, kTorch, kTorchKernels, kTorchNccl };

// What became of one rank.
struct RankEnd {
  Outcome outcome = Ok{};
  size_t peak_bytes = 0;
  size_t peak_host_bytes = 0;
  int roundings = 0;               // as TorchOnHost::roundings()
  int host_waits = 0;              // for the device, by the step loop
  int agreements = 0;              // with other ranks, over NCCL
  int settles = 0;                 // calls, of all communicators over NCCL
  HostCopies::Counts copies = {};  // of the state, to host memory
  size_t slot_bytes = 0;           // of such a copy
};

// Trains the job to its end. The device of `faulty_rank` fails. `arenas`: by rank, where copies of
// the state are kept; {} = nowhere.
inline std::vector<RankEnd> train(const Job& job, Kind kind, int faulty_rank = -1,
                                  const std::vector<int>& arenas = {}) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<RankEnd> ends(static_cast<size_t>(job.workload.world_size));
  std::vector<std::thread> ranks;
  for (int r = 0; r < job.workload.world_size; ++r) {
    ranks.emplace_back([&, r] {
      prepare_runtime();
      Workload workload = job.workload;
      workload.rank = workload.local_rank = r;
      workload.rendezvous_dir = job / ("rdzv-g" + std::to_string(workload.generation));
      auto progress = Progress::attach(-1);
      HP_CHECK(progress.ok());
      TorchOnHost torch(kind == Kind::kTorchNccl,
                        kind == Kind::kTorchKernels ? &stub_kernels() : nullptr);
      torch.fails = r == faulty_rank;
      Device& device = kind == Kind::kHost ? host_device() : torch;
      const int arena = arenas.empty() ? -1 : arenas[static_cast<size_t>(r)];
      Run run(workload, *progress, arena, device);
      Generation generation(run, workload);
      RankEnd& end = ends[static_cast<size_t>(r)];
      end.outcome = generation.start();
      const HostWaits waits;
      const int downloads = torch.downloads();
      const int agreements = OnHostMemory::agreements();
      const int settles = OnHostMemory::settles();
      if (end.outcome.ok()) end.outcome = generation.run();
      end.host_waits = waits.count() + torch.downloads() - downloads;
      end.agreements = OnHostMemory::agreements() - agreements;
      end.settles = OnHostMemory::settles() - settles;
      end.roundings = torch.roundings();
      end.peak_bytes = torch.peak_bytes();
      end.peak_host_bytes = torch.peak_host_bytes();
      if (run.has_state() && run.state().is_copied_to_host()) {
        end.copies = run.state().copies()->counts();
        end.slot_bytes = run.state().geometry().slot_bytes();
      }
    });
  }
  for (std::thread& t : ranks) t.join();
  return ends;
}

inline void expect_finished(const std::vector<RankEnd>& ends) {
  for (const RankEnd& end : ends) EXPECT_TRUE(end.outcome.ok()) << end.outcome.error().message;
}

inline std::vector<double> losses(const Job& job) {
  std::vector<double> values;
  for (const auto& line : job.metrics()) {
    values.push_back(line.at(line.contains("loss") ? "loss" : "validation_loss").get<double>());
  }
  return values;
}

// Data with a part for validation, which is one of whole documents.
inline std::string documents_for(const Job& job) {
  const std::string directory = job / "texts";
  std::filesystem::create_directory(directory);
  for (int i = 0; i < 10; ++i) {
    std::ofstream text(directory + "/" + std::to_string(i));
    for (int k = 0; k < 50; ++k) text << "line " << k << " of " << k * k % (i + 7) << " things\n";
  }
  return directory;
}

struct Variant {
  const char* strategy;
  const char* precision = "fp32";
  const char* moments = "fp32";
  std::vector<Offload> offload = {};
  int workers = 2;  // 4 of hybrid
  const char* checkpointing = "none";
  const char* master = "fp32";
};

class VariantJob : public Job {
 public:
  explicit VariantJob(const Variant& variant)
      : Job(std::string(variant.strategy) == "hybrid" ? 4 : variant.workers) {
    TrainSpec& spec = workload.train;
    spec.strategy = *from_word<Strategy>(variant.strategy);
    spec.precision = *from_word<Precision>(variant.precision);
    spec.optimizer.moments = *from_word<StateType>(variant.moments);
    spec.optimizer.master = *from_word<StateType>(variant.master);
    spec.memory.offload = variant.offload;
    spec.memory.activation_checkpointing = *from_word<Checkpointing>(variant.checkpointing);
    if (workload.world_size == 4) spec.shard_group = 2;
  }
};

}  // namespace hpctl::testing
