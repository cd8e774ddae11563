// SPDX-License-Identifier: Apache-2.0
// Holds every kernel of a GPU against its reference (kernel_cases.h) on a real card, compiled by
// NVRTC for that card, on the stream that training has, and the card's attention against the CPU's.
// run.sh builds and starts it. With `cpu`, the program tries itself without a card: the first two
// cases of each kind, with kernels on the host behind the stubs of the driver and of NVRTC that
// LD_PRELOAD must have (tests/stub_cuda of the build), and with the CPU's attention.
//
//   kernels_check cuda|cpu
//
// Prints a line for each comparison that failed, for each kind of operation how many there were and
// which came closest to its bound, and last all of them. Exit codes: 0 all passed, 1 one failed or
// there are no kernels, 2 wrong usage.
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/kernel_cases.h"
#include "trainer/device/cuda_driver.h"
#include "trainer/process/pin_environment.h"

namespace hpctl::testing {
namespace {

const std::vector<Element> kTypes = {Element::kFp32, Element::kBf16, Element::kFp16};

const DeviceKernels* kernels_on(at::Device device) {
  if (device.is_cuda()) return load_device_kernels(device.index(), kTypes);
  // Loading wants a thread that has a GPU; any address is one to the stub.
  static char context;
  const auto driver = cuda_driver::load();
  if (driver.ok()) (*driver)->set_current_context(&context);
  static const Result<DeviceKernels> kernels = DeviceKernels::load(9, 0, kTypes);
  if (kernels.ok()) return &*kernels;
  std::cout << kernels.error().message << std::endl;
  return nullptr;
}

class Check {
 public:
  Check(at::Device device, const DeviceKernels& kernels)
      : device_(device), training_(device, &kernels), kernels_(kernels) {}

  bool run() {
    compare_all("rms_norm", norm_cases(kernels_));
    compare_all("swiglu", swiglu_cases(kernels_));
    compare_all("cross_entropy", loss_cases(kernels_));
    compare_all("rotary", rotary_cases(kernels_));
    compare_all("attention", attention_cases(device_));
    const Repeat twice = repeat();
    add("adamw", adamw_problems(training_, twice));
    add("squares", squares_problems(training_, twice));
    std::cout << kernels_.label() << ": " << passed_ << " comparisons passed, " << failed_
              << " failed" << std::endl;
    return failed_ == 0;
  }

 private:
  static Repeat repeat() {
    return [](const std::function<void()>& work) {
      work();
      work();
    };
  }

  void compare_all(const std::string& kind, std::vector<KernelCase> cases) {
    if (device_.is_cpu()) cases.resize(2);
    std::vector<Comparison> all;
    for (const KernelCase& one : cases) {
      for (Comparison& result : compare(one, device_, repeat())) all.push_back(std::move(result));
    }
    for (const Comparison& result : all) {
      result.passed() ? ++passed_ : ++failed_;
      if (!result.passed()) std::cout << "FAILED " << result.text() << std::endl;
    }
    const auto closest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.difference / a.bound < b.difference / b.bound;
    });
    std::cout << kind << ": " << all.size() << " comparisons, the closest " << closest->text()
              << std::endl;
  }

  void add(const std::string& kind, const std::vector<std::string>& problems) {
    for (const std::string& problem : problems) std::cout << "FAILED " << problem << std::endl;
    failed_ += problems.size();
    passed_ += problems.empty() ? 1 : 0;
    std::cout << kind << ": " << (problems.empty() ? "as on the host" : "not as on the host")
              << std::endl;
  }

  at::Device device_;
  TorchDevice training_;  // its stream is LibTorch's from here on
  const DeviceKernels& kernels_;
  size_t passed_ = 0;
  size_t failed_ = 0;
};

int main_with(std::string_view where) {
  const at::Device device = where == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const DeviceKernels* const kernels = kernels_on(device);
  if (kernels == nullptr) {
    std::cout << "FAILED there are no kernels to check" << std::endl;
    return 1;
  }
  return Check(device, *kernels).run() ? 0 : 1;
}

}  // namespace
}  // namespace hpctl::testing

int main(int count, char** arguments) {
  const std::string_view where = count == 2 ? arguments[1] : "";
  if (where != "cuda" && where != "cpu") {
    std::cerr << "usage: kernels_check cuda|cpu" << std::endl;
    return 2;
  }
  hpctl::pin_environment();  // cuBLAS has one order of sums, as in hptrain
  try {
    return hpctl::testing::main_with(where);
  } catch (const std::exception& error) {
    std::cout << "FAILED " << error.what() << std::endl;
    return 1;
  }
}
