// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/device_program.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "trainer/kernels/device/kernels.h"
#include "trainer/kernels/device/language.h"
#include "trainer/kernels/device/loss.h"
#include "trainer/kernels/device/numbers.h"
#include "trainer/kernels/device/optimizer.h"
#include "trainer/kernels/device/passes.h"
#include "trainer/kernels/device/rowwise.h"

namespace hpctl {

namespace {

constexpr char kMain[] =
    "#include \"trainer/kernels/device/language.cuh\"\n"
    "#include \"trainer/kernels/device/kernels.cuh\"\n";
constexpr std::array kHeaderNames = {
    "trainer/kernels/device/kernels.cuh",   "trainer/kernels/device/language.cuh",
    "trainer/kernels/device/loss.cuh",      "trainer/kernels/device/numbers.cuh",
    "trainer/kernels/device/optimizer.cuh", "trainer/kernels/device/passes.cuh",
    "trainer/kernels/device/rowwise.cuh"};
constexpr std::array<const char*, kHeaderNames.size()> kHeaders = {
    kKernelsText, kLanguageText, kLossText, kNumbersText, kOptimizerText, kPassesText, kRowsText};

class Program {
 public:
  explicit Program(const nvrtc::Api& nvrtc) : nvrtc_(nvrtc) {}
  ~Program() {
    if (program_ != nullptr) nvrtc_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtc::Status compile(const std::string& architecture, std::string_view type) {
    const nvrtc::Status created =
        nvrtc_.create_program(&program_, kMain, "hpctl_kernels.cu", kHeaders.size(),
                              kHeaders.data(), kHeaderNames.data());
    if (created != nvrtc::kSuccess) return created;
    const std::string option = "--gpu-architecture=" + architecture;
    std::string define = "--define-macro=HP_";
    for (const char c : type) define += static_cast<char>(std::toupper(c));
    const std::array options = {option.c_str(), define.c_str(), "--std=c++17",
                                "--device-as-default-execution-space"};
    return nvrtc_.compile_program(program_, options.size(), options.data());
  }

  std::string log() const { return text(nvrtc_.log_size, nvrtc_.log); }
  std::string cubin() const { return text(nvrtc_.cubin_size, nvrtc_.cubin); }
  std::string ptx() const { return text(nvrtc_.ptx_size, nvrtc_.ptx); }

 private:
  // "" where there is none.
  std::string text(nvrtc::Status (*size_of)(nvrtc::Program, size_t*),
                   nvrtc::Status (*get)(nvrtc::Program, char*)) const {
    size_t size = 0;
    if (size_of(program_, &size) != nvrtc::kSuccess) return "";
    std::string text(size, '\0');
    return get(program_, text.data()) == nvrtc::kSuccess ? text : "";
  }

  const nvrtc::Api& nvrtc_;
  nvrtc::Program program_ = nullptr;
};

// Ascending; 90 for sm_90.
std::vector<int> architectures(const nvrtc::Api& nvrtc) {
  int count = 0;
  if (nvrtc.count_architectures(&count) != nvrtc::kSuccess) return {};
  std::vector<int> all(static_cast<size_t>(std::max(count, 0)));
  if (nvrtc.architectures(all.data()) != nvrtc::kSuccess) return {};
  return all;
}

std::string version_text(const nvrtc::Api& nvrtc) {
  int major = 0;
  int minor = 0;
  static_cast<void>(nvrtc.version(&major, &minor));
  return std::to_string(major) + "." + std::to_string(minor);
}

}  // namespace

Result<DeviceImage> compile_device_program(const nvrtc::Api& nvrtc, int major, int minor,
                                           std::string_view type) {
  const std::string version = "nvrtc " + version_text(nvrtc);
  const int wanted = major * 10 + minor;
  int newest = 0;
  for (const int known : architectures(nvrtc)) {
    if (known <= wanted) newest = std::max(newest, known);
  }
  if (newest == 0) {
    return Error{ErrorCode::kFailedPrecondition,
                 version + " does not compile for sm_" + std::to_string(wanted)};
  }
  const bool exact = newest == wanted;
  const std::string architecture = (exact ? "sm_" : "compute_") + std::to_string(newest);
  Program program(nvrtc);
  const nvrtc::Status status = program.compile(architecture, type);
  if (status != nvrtc::kSuccess) {
    std::string log = status == nvrtc::kCompilation ? ": " + program.log() : std::string();
    log.erase(std::find(log.begin(), log.end(), '\0'), log.end());
    return Error{ErrorCode::kInternal, version + " cannot compile the kernels for " + architecture +
                                           ", " + nvrtc.error_string(status) + log};
  }
  DeviceImage image = {.code = exact ? program.cubin() : program.ptx(),
                       .label = version + " " + architecture};
  if (image.code.empty()) {
    return Error{ErrorCode::kInternal, version + " gives no code for " + architecture};
  }
  return image;
}

}  // namespace hpctl
