// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/torch_device.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "common/base/log.h"
#include "common/gpu/cuda_api.h"
#include "common/gpu/nccl_api.h"
#include "trainer/comm/nccl_communicator.h"
#include "trainer/device/adamw_operations.h"

namespace hpctl {

namespace {

// Elements at a time where intermediate results need memory.
constexpr int64_t kChunk = int64_t{1} << 24;

// How many GPUs LibTorch sees; -1 = it was built without.
int gpu_count() {
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) return -1;
  return c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
}

// The element types of the job's activations and moments; logits and state are fp32.
std::vector<Element> types_of(const TrainSpec& train) {
  std::vector<Element> types = {Element::kFp32};
  const bool bf16 =
      train.precision == Precision::kBf16 || train.optimizer.moments == StateType::kBf16;
  if (bf16) types.push_back(Element::kBf16);
  if (train.precision == Precision::kFp16) types.push_back(Element::kFp16);
  return types;
}

template <typename M>
constexpr at::ScalarType kTypeOf = std::is_same_v<M, float> ? at::kFloat : at::kBFloat16;
template <typename M>
constexpr Element kElementOf = std::is_same_v<M, float> ? Element::kFp32 : Element::kBf16;

}  // namespace

void tell_libtorch(const GpuSpec& gpu) {
  compat::compute_deterministically(gpu.deterministic);
  compat::keep_partial_sums_wide();
  if (gpu.attention == GpuAttention::kFlash) {
    compat::pin_fused_attention(compat::FusedKernel::kFlash);
  } else if (gpu.attention == GpuAttention::kCudnn) {
    compat::pin_fused_attention(compat::FusedKernel::kCudnn);
  }
}

TorchDevice::TorchDevice(at::Device device, const DeviceKernels* kernels, const GpuSpec& gpu)
    : device_(device), kernels_(kernels) {
  if (!device_.is_cuda()) return;
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device_);
  tell_libtorch(gpu);
  make_streams();
}

void TorchDevice::make_streams() {
  const c10::impl::VirtualGuardImpl libtorch(at::kCUDA);
  downloads_ = libtorch.getStreamFromGlobalPool(device_);
  uploads_ = libtorch.getStreamFromGlobalPool(device_);
  computation_ = libtorch.getDefaultStream(device_);
  const auto cuda = cuda::load();
  if (!cuda.ok() || (*cuda)->stream_create(&compute_, cuda::kStreamNonBlocking) != cuda::kSuccess) {
    log_warning("computation is on the default stream: no CUDA runtime to make another");
    compute_ = nullptr;
    return;
  }
  computation_ = compat::stream_over(compute_, device_);
  libtorch.exchangeStream(*computation_);
}

std::string TorchDevice::product() const {
  const auto cuda = cuda::load();
  return device_.is_cuda() && cuda.ok() ? cuda::product_name(**cuda, device_.index()) : "";
}

at::Tensor TorchDevice::view(const void* memory, int64_t count, at::ScalarType type) const {
  return compat::tensor_over(const_cast<void*>(memory), count, type, name());
}

void* TorchDevice::allocate(size_t bytes) {
  const auto size = std::max<int64_t>(64, static_cast<int64_t>(bytes));
  const at::Tensor tensor = at::empty({size}, at::TensorOptions(at::kByte).device(device_));
  void* const memory = tensor.data_ptr();
  tensors_.emplace(memory, tensor);
  return memory;
}

void TorchDevice::zero(float* to, int64_t count) { view(to, count, at::kFloat).zero_(); }

void TorchDevice::copy(const float* from, float* to, int64_t count) {
  view(to, count, at::kFloat).copy_(view(from, count, at::kFloat));
}

void TorchDevice::add(const float* from, float* to, int64_t count) {
  view(to, count, at::kFloat).add_(view(from, count, at::kFloat));
}

void TorchDevice::round_to_bf16(const float* from, uint16_t* to, int64_t count) {
  view(to, count, at::kBFloat16).copy_(view(from, count, at::kFloat));
}

void TorchDevice::round_to_fp16(const float* from, uint16_t* to, int64_t count) {
  view(to, count, at::kHalf).copy_(view(from, count, at::kFloat));
}

void TorchDevice::sum_of_squares(const std::vector<std::span<const float>>& parts, double* to) {
  const auto fp64 = at::TensorOptions(at::kDouble).device(device_);
  if (kernels_ != nullptr) {
    int64_t blocks = 0;
    for (const auto& part : parts) {
      blocks += DeviceKernels::square_blocks(static_cast<int64_t>(part.size()));
    }
    if (!partials_.defined() || partials_.numel() < blocks) partials_ = at::empty({blocks}, fp64);
    const auto stream = compat::current_stream(device_);
    auto* const partials = partials_.data_ptr<double>();
    int64_t done = 0;
    for (const auto& part : parts) {
      const auto count = static_cast<int64_t>(part.size());
      kernels_->squares(
          {.count = count, .packed = 0, .values = part.data(), .partials = partials + done},
          stream);
      done += DeviceKernels::square_blocks(count);
    }
    kernels_->sum_partials({.count = blocks, .partials = partials, .total = to}, stream);
    return;
  }
  at::Tensor sum = view(to, 1, at::kDouble).zero_();
  for (const std::span<const float> part : parts) {
    const auto count = static_cast<int64_t>(part.size());
    for (int64_t first = 0; first < count; first += kChunk) {
      const int64_t size = std::min(kChunk, count - first);
      sum.add_(view(part.data() + first, size, at::kFloat).to(at::kDouble).square_().sum());
    }
  }
}

template <typename M, typename P>
void TorchDevice::adamw_by_kernel(const AdamStep& step, bool decayed, const RandomBits& bits,
                                  int64_t count, const AdamSource<float, M, P>& from,
                                  const AdamTarget<float, M, P>& to) const {
  const AdamFactors<float> f = adam_factors<float>(step, decayed);
  kernels_->adamw(kElementOf<P>, kElementOf<M>,
                  {.count = count,
                   .packed = 0,
                   .beta1 = f.beta1,
                   .beta2 = f.beta2,
                   .one_minus_beta1 = f.one_minus_beta1,
                   .one_minus_beta2 = f.one_minus_beta2,
                   .eps = f.eps,
                   .decay = f.decay,
                   .step_size = f.step_size,
                   .inverse_root_correction2 = f.inverse_root_correction2,
                   .gradient_scale = f.gradient_scale,
                   .bits_low = bits.low,
                   .bits_high = bits.high,
                   .first = bits.first,
                   .param = from.param,
                   .exp_avg = from.exp_avg,
                   .exp_avg_sq = from.exp_avg_sq,
                   .gradient = from.gradient,
                   .new_param = to.param,
                   .new_exp_avg = to.exp_avg,
                   .new_exp_avg_sq = to.exp_avg_sq,
                   .rounded = to.rounded},
                  compat::current_stream(device_));
}

template <typename M, typename P>
void TorchDevice::adamw_by_operations(const AdamStep& step, bool decayed, const RandomBits& bits,
                                      int64_t count, const AdamSource<float, M, P>& from,
                                      const AdamTarget<float, M, P>& to) const {
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t n = std::min(kChunk, count - at);
    const auto param = [&](const P* memory) { return view(memory + at, n, kTypeOf<P>); };
    const auto moment = [&](const M* memory) { return view(memory + at, n, kTypeOf<M>); };
    const RandomBits of_part = {bits.low, bits.high, bits.first + static_cast<uint32_t>(at)};
    hpctl::adamw_by_operations(step, decayed, of_part, view(from.gradient + at, n, at::kFloat),
                               {param(from.param), moment(from.exp_avg), moment(from.exp_avg_sq)},
                               {param(to.param), moment(to.exp_avg), moment(to.exp_avg_sq)});
  }
}

void TorchDevice::adamw(const AdamStep& step, bool decayed, int64_t count,
                        const AdamSource<float>& from, const AdamTarget<float>& to) {
  if (kernels_ != nullptr) return adamw_by_kernel(step, decayed, {}, count, from, to);
  adamw_by_libtorch(step, decayed, count, from, to);
  if (to.rounded != nullptr) round_to_bf16(to.param, to.rounded, count);
}

void TorchDevice::adamw_by_libtorch(const AdamStep& step, bool decayed, int64_t count,
                                    const AdamSource<float>& from, const AdamTarget<float>& to) {
  const bool in_place = from.param == to.param;
  if (device_.is_cuda() && in_place && compat::kHasFusedAdamW) {
    const auto options = at::TensorOptions(at::kFloat).device(device_);
    if (!number_.defined() || number_value_ != step.number || scale_value_ != step.gradient_scale) {
      number_ = at::full({}, number_value_ = step.number, options);
      inverse_scale_ = at::full({}, 1.0 / (scale_value_ = step.gradient_scale), options);
    }
    compat::fused_adamw(view(to.param, count, at::kFloat), view(from.gradient, count, at::kFloat),
                        view(to.exp_avg, count, at::kFloat), view(to.exp_avg_sq, count, at::kFloat),
                        number_, inverse_scale_, step.learning_rate, step.beta1, step.beta2,
                        decayed ? step.weight_decay : 0.0, step.eps);
    return;
  }
  adamw_by_operations(step, decayed, {}, count, from, to);
}

void TorchDevice::adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
                        const AdamSource<float, uint16_t>& from,
                        const AdamTarget<float, uint16_t>& to) {
  if (kernels_ != nullptr) return adamw_by_kernel(step, decayed, bits, count, from, to);
  adamw_by_operations(step, decayed, bits, count, from, to);
  if (to.rounded != nullptr) round_to_bf16(to.param, to.rounded, count);
}

void TorchDevice::adamw(const AdamStep& step, bool decayed, const RandomBits& bits, int64_t count,
                        const AdamSource<float, uint16_t, uint16_t>& from,
                        const AdamTarget<float, uint16_t, uint16_t>& to) {
  if (kernels_ != nullptr) return adamw_by_kernel(step, decayed, bits, count, from, to);
  adamw_by_operations(step, decayed, bits, count, from, to);
}

// Page-locked for a GPU, from its driver: LibTorch's own takes the next power of two, and is for
// where the driver is out of reach.
void* TorchDevice::allocate_host(size_t bytes) {
  const size_t size = std::max<size_t>(64, bytes);
  if (const auto cuda = cuda::load(); device_.is_cuda() && cuda.ok()) {
    void* memory = nullptr;
    const cuda::Status status = cuda::host_malloc_on(**cuda, device_.index(), &memory, size);
    if (status == cuda::kSuccess) return memory;
    if (status != cuda::kAbsent) {
      log_error("no " + std::to_string(size >> 20) +
                " MiB of page-locked host memory; a node with more memory, or less memory.offload");
      throw std::bad_alloc();
    }
  }
  const auto options = at::TensorOptions(at::kByte).pinned_memory(device_.is_cuda());
  const at::Tensor tensor = at::empty({static_cast<int64_t>(size)}, options);
  void* const memory = tensor.data_ptr();
  host_tensors_.emplace(memory, tensor);
  return memory;
}

void TorchDevice::release_host(void* memory) noexcept {
  if (host_tensors_.erase(memory) > 0) return;
  if (const auto cuda = cuda::load(); cuda.ok()) (*cuda)->host_free(memory);
}

void TorchDevice::lock_host(void* memory, size_t bytes) {
  if (!device_.is_cuda()) return;
  std::string why = "no CUDA runtime";
  if (const auto cuda = cuda::load(); cuda.ok()) {
    const cuda::Status status = cuda::host_register_on(**cuda, device_.index(), memory, bytes);
    if (status == cuda::kSuccess) {
      locked_.insert(memory);
      return;
    }
    why = cuda::error(**cuda, "page-lock it", status).message;
  }
  log_warning(std::to_string(bytes >> 20) +
              " MiB of host memory for copies of the state are not page-locked, so copies hold "
              "computation up: " +
              why);
}

void TorchDevice::unlock_host(void* memory) noexcept {
  if (locked_.erase(memory) == 0) return;
  if (const auto cuda = cuda::load(); cuda.ok()) (*cuda)->host_unregister(memory);
}

void TorchDevice::wait_for(const c10::Stream& first, const c10::Stream& then) const {
  c10::Event done(at::kCUDA);
  done.record(first);
  done.block(then);
}

void TorchDevice::begin_download(const void* from, void* host, size_t bytes) {
  if (!downloads_) return download(from, host, bytes);
  wait_for(*computation_, *downloads_);
  const c10::StreamGuard guard(*downloads_);
  const auto count = static_cast<int64_t>(bytes);
  compat::tensor_over(host, count, at::kByte, "cpu")
      .copy_(view(from, count, at::kByte), /*non_blocking=*/true);
}

void TorchDevice::after_downloads() {
  if (downloads_) wait_for(*downloads_, *computation_);
}

void TorchDevice::await_downloads() {
  if (downloads_) downloads_->synchronize();
}

void TorchDevice::begin_upload(const void* host, void* to, size_t bytes) {
  if (!uploads_) return upload(host, to, bytes);
  wait_for(*computation_, *uploads_);
  wait_for(*downloads_, *uploads_);
  const c10::StreamGuard guard(*uploads_);
  const auto count = static_cast<int64_t>(bytes);
  view(to, count, at::kByte)
      .copy_(compat::tensor_over(const_cast<void*>(host), count, at::kByte, "cpu"),
             /*non_blocking=*/true);
}

void TorchDevice::after_uploads() {
  if (uploads_) wait_for(*uploads_, *computation_);
}

void TorchDevice::upload(const void* host, void* to, size_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  view(to, count, at::kByte)
      .copy_(compat::tensor_over(const_cast<void*>(host), count, at::kByte, "cpu"));
}

void TorchDevice::download(const void* from, void* host, size_t bytes) {
  const auto count = static_cast<int64_t>(bytes);
  compat::tensor_over(host, count, at::kByte, "cpu").copy_(view(from, count, at::kByte));
}

Result<std::unique_ptr<Communicator>> TorchDevice::make_communicator(
    const CommunicatorOptions& options) {
  if (!device_.is_cuda() || options.world_size == 1) return hpctl::make_communicator(options);
  // Null is the default stream in CUDA, too.
  HP_TRY_ASSIGN(std::unique_ptr<Communicator> made,
                NcclCommunicator::create(options, device_.index(), compute_));
  return made;
}

// Whatever of the GPU's memory is in use belongs to its one worker; LibTorch gives nothing back, so
// what it has now is what it had at most.
int64_t TorchDevice::peak_memory_bytes() const {
  const auto cuda = cuda::load();
  size_t free = 0;
  size_t total = 0;
  if (device_.is_cuda() && cuda.ok() && (*cuda)->memory_info(&free, &total) == cuda::kSuccess) {
    peak_memory_ = std::max(peak_memory_, static_cast<int64_t>(total - free));
  }
  return peak_memory_;
}

std::map<std::string, std::string> TorchDevice::environment() const {
  if (!device_.is_cuda()) return {};
  std::map<std::string, std::string> environment;
  if (const auto cuda = cuda::load(); cuda.ok()) {
    const auto attribute = [&](int which) {
      int value = 0;
      static_cast<void>((*cuda)->device_attribute(&value, which, device_.index()));
      return std::to_string(value);
    };
    environment["device"] = "cuda sm_" + attribute(cuda::kCapabilityMajor) +
                            attribute(cuda::kCapabilityMinor) + " with " +
                            attribute(cuda::kMultiprocessors) + " multiprocessors";
  }
  environment["nccl"] = nccl::label();
  environment["device_kernels"] = kernels_ != nullptr ? kernels_->label() : "LibTorch's";
  return environment;
}

Result<Device*> open_device(int local_rank, const TrainSpec& train) {
  const int count = gpu_count();
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (count < 0 || (visible != nullptr && *visible == '\0')) return &host_device();
  if (local_rank >= count) {
    return Error{ErrorCode::kInternal,
                 "worker " + std::to_string(local_rank) + " of this node needs its own GPU, " +
                     "and LibTorch sees " + std::to_string(count) +
                     "; see nvidia-smi, or set CUDA_VISIBLE_DEVICES= to train on the CPU"};
  }
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank));
  const DeviceKernels* const kernels = load_device_kernels(local_rank, types_of(train));
  return std::make_unique<TorchDevice>(device, kernels, train.gpu).release();
}

}  // namespace hpctl
