// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/device_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"

namespace hpctl {

namespace {

// Addends of a norm's gradient: enough to occupy a GPU, few enough to be added quickly.
constexpr int64_t kNormBlocks = 512;
// The shared memory that every GPU has for a block by default, less a kernel's static memory.
constexpr int64_t kSharedBytes = 47 << 10;

constexpr std::array<const char*, 3> kTypeNames = {"fp32", "bf16", "fp16"};

struct KernelName {
  const char* name;
  int types;      // of the first so many
  int first = 0;  // from this one on
};

int64_t divided(int64_t count, int64_t by) { return (count + by - 1) / by; }

int64_t bytes_of(Element type) { return type == Element::kFp32 ? 4 : 2; }
int64_t pack_of(Element type) { return device::kPackBytes / bytes_of(type); }

bool aligned(std::initializer_list<const void*> operands, uintptr_t to = device::kPackBytes) {
  return std::all_of(operands.begin(), operands.end(), [to](const void* operand) {
    return reinterpret_cast<uintptr_t>(operand) % to == 0;
  });
}

// Whether no pack has elements of two rows. Rows that follow one another without gaps are one.
bool rows_fit_packs(Element type, int64_t width, std::initializer_list<int64_t> strides) {
  return std::all_of(strides.begin(), strides.end(), [=](int64_t stride) {
    return stride == width || (width % pack_of(type) == 0 && stride % pack_of(type) == 0);
  });
}

Result<DeviceKernels> load_for(int device, const std::vector<Element>& types) {
  HP_TRY_ASSIGN(const cuda::Api* const cuda, cuda::load());
  int major = 0;
  int minor = 0;
  // That nothing is freed makes the context, if there is none yet.
  const bool known =
      cuda->set_device(device) == cuda::kSuccess && cuda->free(nullptr) == cuda::kSuccess &&
      cuda->device_attribute(&major, cuda::kCapabilityMajor, device) == cuda::kSuccess &&
      cuda->device_attribute(&minor, cuda::kCapabilityMinor, device) == cuda::kSuccess;
  if (!known) return Error{ErrorCode::kInternal, "the GPU does not say what it is"};
  return DeviceKernels::load(major, minor, types);
}

// By the environment; anything else in it is a mistake that the log tells.
bool left_out() {
  const char* const value = std::getenv("HPTRAIN_DEVICE_KERNELS");
  if (value == nullptr || *value == '\0') return false;
  if (value == std::string_view("none")) return true;
  log_warning("HPTRAIN_DEVICE_KERNELS: expected none, found \"" + std::string(value) +
              "\"; the fused kernels are used");
  return false;
}

std::optional<DeviceKernels>& kernels_of_process() {
  static std::optional<DeviceKernels> kernels;
  return kernels;
}

}  // namespace

std::string DeviceKernels::name_of(int kernel, int element) {
  static constexpr std::array<KernelName, kKernels> kNames = {{{"rms_norm_narrow", 3},
                                                               {"rms_norm_wide", 3},
                                                               {"rms_norm_backward_narrow", 3},
                                                               {"rms_norm_backward_wide", 3},
                                                               {"sum_columns", 3},
                                                               {"swiglu", 3},
                                                               {"swiglu_backward", 3},
                                                               {"rotary", 3},
                                                               {"log_sums", 3},
                                                               {"losses", 3},
                                                               {"cross_entropy_backward", 3},
                                                               {"adamw", 2},
                                                               {"adamw_all", 2, 1},
                                                               {"squares", 1},
                                                               {"sum_partials", 1}}};
  if (element >= kNames[kernel].types || element < kNames[kernel].first) return "";
  return std::string(kNames[kernel].name) + "_" + kTypeNames[element];
}

Result<DeviceKernels> DeviceKernels::load(int major, int minor, const std::vector<Element>& types) {
  HP_TRY_ASSIGN(const cuda_driver::Api* const driver, cuda_driver::load());
  HP_TRY_ASSIGN(const nvrtc::Api* const nvrtc, nvrtc::load());
  DeviceKernels kernels(*driver);
  if (driver->current_context(&kernels.context_) != cuda_driver::kSuccess ||
      kernels.context_ == nullptr) {
    return Error{ErrorCode::kFailedPrecondition, "this thread has no GPU to load kernels on"};
  }
  std::vector<std::future<Result<DeviceImage>>> images;
  for (const Element type : types) {
    images.push_back(std::async(std::launch::async, [=] {
      return compile_device_program(*nvrtc, major, minor, kTypeNames[static_cast<size_t>(type)]);
    }));
  }
  for (size_t i = 0; i < types.size(); ++i) {
    HP_TRY_ASSIGN(const DeviceImage image, images[i].get());
    HP_TRY(kernels.load_module(image, types[i]));
  }
  return kernels;
}

Outcome DeviceKernels::load_module(const DeviceImage& image, Element type) {
  label_ = image.label;
  cuda_driver::Module module = nullptr;  // stays until the process ends
  cuda_driver::Status status = driver_->load_module(&module, image.code.data());
  if (status != cuda_driver::kSuccess) {
    return Error{ErrorCode::kInternal, "the driver refuses the kernels of " + image.label + ": " +
                                           cuda_driver::text_of(*driver_, status)};
  }
  const int element = static_cast<int>(type);
  for (int kernel = 0; kernel < kKernels; ++kernel) {
    const std::string name = name_of(kernel, element);
    if (name.empty()) continue;
    status = driver_->function(&functions_[kernel][element], module, name.c_str());
    if (status == cuda_driver::kSuccess) continue;
    return Error{ErrorCode::kInternal,
                 "no kernel " + name + ": " + cuda_driver::text_of(*driver_, status)};
  }
  return Ok{};
}

void DeviceKernels::launch(Kernel kernel, Element element, int64_t blocks, int64_t shared_bytes,
                           cuda::Stream stream, void* pass) const {
  if (blocks == 0) return;
  const int type = static_cast<int>(element);
  HP_CHECK(functions_[kernel][type] != nullptr && blocks <= INT32_MAX);
  // A thread of autograd may not have come to use the GPU before.
  cuda_driver::Context now = nullptr;
  cuda_driver::Status status = driver_->current_context(&now);
  if (status == cuda_driver::kSuccess && now != context_) {
    status = driver_->set_current_context(context_);
  }
  std::array<void*, 1> parameters = {pass};
  if (status == cuda_driver::kSuccess) {
    status = driver_->launch(functions_[kernel][type], static_cast<unsigned>(blocks), 1, 1,
                             device::kThreads, 1, 1, static_cast<unsigned>(shared_bytes), stream,
                             parameters.data(), nullptr);
  }
  if (status == cuda_driver::kSuccess) return;
  throw std::runtime_error("CUDA: cannot begin kernel " + name_of(kernel, type) + ": " +
                           cuda_driver::text_of(*driver_, status));
}

void DeviceKernels::rms_norm(Element type, device::RmsNorm pass, cuda::Stream stream) const {
  const bool narrow = pass.dim <= device::kLongestNarrow;
  pass.packed =
      pass.dim % pack_of(type) == 0 && aligned({pass.x, pass.weight, pass.y, pass.addend, pass.sum})
          ? 1
          : 0;
  launch(narrow ? kRmsNormNarrow : kRmsNormWide, type,
         narrow ? divided(pass.rows, device::kThreads / device::kWarp) : pass.rows, 0, stream,
         &pass);
}

DeviceKernels::NormBlocks DeviceKernels::norm_blocks(int64_t rows, int64_t dim) {
  const int64_t groups =
      dim <= device::kLongestNarrow ? device::kThreads / device::kWarp : int64_t{1};
  const int64_t block_rows = std::max(groups, divided(rows, kNormBlocks));
  return {block_rows, divided(rows, block_rows)};
}

void DeviceKernels::rms_norm_backward(Element type, device::RmsNormBackward pass,
                                      cuda::Stream stream) const {
  const bool narrow = pass.dim <= device::kLongestNarrow;
  const int64_t groups = narrow ? device::kThreads / device::kWarp : 1;
  const auto shared_bytes = static_cast<int64_t>(groups * pass.dim * sizeof(float));
  pass.shared = shared_bytes <= kSharedBytes ? 1 : 0;
  pass.packed = pass.dim % pack_of(type) == 0 && aligned({pass.x, pass.weight, pass.y_gradient,
                                                          pass.x_gradient, pass.other_gradient})
                    ? 1
                    : 0;
  launch(narrow ? kRmsNormBackwardNarrow : kRmsNormBackwardWide, type,
         divided(pass.rows, pass.block_rows), pass.shared != 0 ? shared_bytes : 0, stream, &pass);
}

void DeviceKernels::sum_columns(Element type, device::SumColumns pass, cuda::Stream stream) const {
  launch(kSumColumns, type, divided(pass.dim, device::kColumnsOfBlock), 0, stream, &pass);
}

void DeviceKernels::swiglu(Element type, device::Swiglu pass, cuda::Stream stream) const {
  const bool fit = rows_fit_packs(type, pass.width, {pass.stride});
  pass.packed = fit && aligned({pass.gate, pass.up, pass.y}) ? 1 : 0;
  launch(kSwiglu, type, divided(pass.count, device::kThreads * pack_of(type)), 0, stream, &pass);
}

void DeviceKernels::swiglu_backward(Element type, device::SwigluBackward pass,
                                    cuda::Stream stream) const {
  const bool fit = rows_fit_packs(type, pass.width, {pass.stride, pass.gradient_stride});
  const bool all =
      aligned({pass.gate, pass.up, pass.y_gradient, pass.gate_gradient, pass.up_gradient});
  pass.packed = fit && all ? 1 : 0;
  launch(kSwigluBackward, type, divided(pass.count, device::kThreads * pack_of(type)), 0, stream,
         &pass);
}

void DeviceKernels::rotary(Element type, device::Rotary pass, cuda::Stream stream) const {
  const int64_t pack = pack_of(type);
  // A pack of angles is of fp32, whatever the type of x.
  const bool angles = aligned({pass.cos, pass.sin}, static_cast<uintptr_t>(pack) * sizeof(float));
  const bool rows = pass.half % pack == 0 && pass.stride % pack == 0;
  pass.packed = rows && angles && aligned({pass.x, pass.y}) ? 1 : 0;
  launch(kRotary, type, divided(pass.tokens * pass.heads * pass.half, device::kThreads * pack), 0,
         stream, &pass);
}

void DeviceKernels::log_sums(Element type, int64_t rows, device::LogSums pass,
                             cuda::Stream stream) const {
  pass.packed = pass.vocab % pack_of(type) == 0 && aligned({pass.logits}) ? 1 : 0;
  launch(kLogSums, type, rows, 0, stream, &pass);
}

void DeviceKernels::losses(Element type, device::Losses pass, cuda::Stream stream) const {
  launch(kLosses, type, 1, 0, stream, &pass);
}

void DeviceKernels::cross_entropy_backward(Element type, int64_t rows,
                                           device::CrossEntropyBackward pass,
                                           cuda::Stream stream) const {
  pass.packed =
      pass.vocab % pack_of(type) == 0 && aligned({pass.logits, pass.logits_gradient}) ? 1 : 0;
  launch(kCrossEntropyBackward, type, rows, 0, stream, &pass);
}

void DeviceKernels::adamw(Element params, Element moments, device::AdamW pass,
                          cuda::Stream stream) const {
  HP_CHECK(params == Element::kFp32 || params == moments);
  const bool all = params != Element::kFp32;
  pass.packed = aligned({pass.param, pass.exp_avg, pass.exp_avg_sq, pass.gradient, pass.new_param,
                         pass.new_exp_avg, pass.new_exp_avg_sq, pass.rounded})
                    ? 1
                    : 0;
  launch(all ? kAdamWAll : kAdamW, moments,
         divided(pass.count, device::kThreads * device::kAdamElements), 0, stream, &pass);
}

int64_t DeviceKernels::square_blocks(int64_t count) {
  return divided(count, device::kSquaresOfBlock);
}

void DeviceKernels::squares(device::Squares pass, cuda::Stream stream) const {
  pass.packed = aligned({pass.values}) ? 1 : 0;
  launch(kSquares, Element::kFp32, square_blocks(pass.count), 0, stream, &pass);
}

void DeviceKernels::sum_partials(device::SumPartials pass, cuda::Stream stream) const {
  launch(kSumPartials, Element::kFp32, 1, 0, stream, &pass);
}

const DeviceKernels* load_device_kernels(int device, const std::vector<Element>& types) {
  HP_CHECK(!kernels_of_process());
  if (left_out()) {
    log_info("HPTRAIN_DEVICE_KERNELS=none: LibTorch's operations instead of fused kernels");
    return nullptr;
  }
  Result<DeviceKernels> loaded = load_for(device, types);
  if (!loaded.ok()) {
    log_warning("no fused kernels on the GPU, LibTorch's operations instead: " +
                loaded.error().message);
    return nullptr;
  }
  return &kernels_of_process().emplace(std::move(loaded).value());
}

const DeviceKernels* device_kernels() {
  return kernels_of_process() ? &*kernels_of_process() : nullptr;
}

}  // namespace hpctl
