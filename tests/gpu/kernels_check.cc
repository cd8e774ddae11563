// SPDX-License-Identifier: Apache-2.0
// Holds every kernel of a GPU against its reference (kernel_cases.h) on a real card, compiled by
// NVRTC for that card, on the stream that training has, and the card's attention against the CPU's.
// run.sh builds and starts it. With `cpu`, the program tries itself without a card: the first two
// cases of each kind, with kernels on the host behind the stubs of the driver and of NVRTC that
// LD_PRELOAD must have (tests/stub_cuda of the build), and with the CPU's attention.
//
//   kernels_check cuda|cpu [KIND]
//
// KIND: the kernels of one operation alone (kKinds). A fault in a kernel takes the card from its
// process, so run.sh starts one process for each.
//
// Prints what it runs on, a line for each comparison that failed, for each kind of operation how
// many there were and which came closest to its bound, and last all of them. What cannot be
// computed at all is a failure as well, and the others are tried all the same: attention and
// gradients of weights where there are no kernels, too. Exit codes: 0 all passed, 1 one failed or
// there are no kernels, 2 wrong usage.
#include <algorithm>
#include <array>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/card.h"
#include "tests/gpu/kernel_cases.h"
#include "trainer/process/pin_environment.h"

namespace hpctl::testing {
namespace {

constexpr std::array kKinds = {"rms_norm",      "swiglu",     "cross_entropy", "rotary",
                               "attention",     "adamw",      "squares",       "weight_gradients",
                               "residual_norm", "projections"};

class Check {
 public:
  // Without kernels that is a failure, and what needs none is checked.
  Check(at::Device device, const DeviceKernels* kernels)
      : device_(device), training_(device, kernels), kernels_(kernels) {}

  bool run(std::string_view only) {
    std::cout << "on " << training_.name();
    if (!training_.product().empty()) std::cout << ", " << training_.product();
    std::cout << ", LibTorch " << compat::torch_version();
    for (const auto& [key, value] : training_.environment()) {
      std::cout << ", " << key << " " << value;
    }
    std::cout << std::endl;
    for (const char* kind : kKinds) {
      if (!only.empty() && only != kind) continue;
      try {
        check(kind);
      } catch (const std::exception& error) {
        fail(std::string(kind) + ": " + text_of(error));
      }
    }
    std::cout << (kernels_ != nullptr ? kernels_->label() : "no kernels") << ": " << passed_
              << " comparisons passed, " << failed_ << " failed" << std::endl;
    return failed_ == 0;
  }

 private:
  static Repeat repeat() {
    return [](const std::function<void()>& work) {
      work();
      work();
    };
  }

  void fail(const std::string& what) {
    ++failed_;
    std::cout << "FAILED " << what << std::endl;
  }

  void check(const std::string& kind) {
    if (kind == "attention") return compare_all(kind, attention_cases(device_));
    if (kind == "projections") return compare_all(kind, projection_cases(device_));
    if (kind == "weight_gradients") return add(kind, weight_gradient_problems(device_));
    if (kernels_ == nullptr) return fail(kind + ": there are no kernels");
    if (kind == "rms_norm") compare_all(kind, norm_cases(*kernels_));
    if (kind == "residual_norm") {
      add(kind, residual_norm_problems(*kernels_, device_, repeat()));
    }
    if (kind == "swiglu") compare_all(kind, swiglu_cases(*kernels_));
    if (kind == "cross_entropy") compare_all(kind, loss_cases(*kernels_));
    if (kind == "rotary") compare_all(kind, rotary_cases(*kernels_));
    if (kind == "adamw") add(kind, adamw_problems(training_, repeat()));
    if (kind == "squares") add(kind, squares_problems(training_, repeat()));
  }

  void compare_all(const std::string& kind, std::vector<KernelCase> cases) {
    if (device_.is_cpu()) cases.resize(2);
    std::vector<Comparison> all;
    for (const KernelCase& one : cases) {
      try {
        for (Comparison& result : compare(one, device_, repeat())) all.push_back(std::move(result));
      } catch (const std::exception& error) {
        fail(one.what + ": " + text_of(error));
      }
    }
    for (const Comparison& result : all) {
      if (!result.passed()) fail(result.text());
      if (result.passed()) ++passed_;
    }
    std::cout << kind << ": " << all.size() << " comparisons";
    const auto closest = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return a.difference / a.bound < b.difference / b.bound;
    });
    if (closest != all.end()) std::cout << ", the closest " << closest->text();
    std::cout << std::endl;
  }

  void add(const std::string& kind, const std::vector<std::string>& problems) {
    for (const std::string& problem : problems) fail(problem);
    if (problems.empty()) ++passed_;
    std::cout << kind << ": " << (problems.empty() ? "as the reference" : "not as the reference")
              << std::endl;
  }

  at::Device device_;
  TorchDevice training_;  // its stream is LibTorch's from here on
  const DeviceKernels* kernels_;
  size_t passed_ = 0;
  size_t failed_ = 0;
};

int main_with(std::string_view where, std::string_view only) {
  const at::Device device = where == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  return Check(device, kernels_on(device)).run(only) ? 0 : 1;
}

}  // namespace
}  // namespace hpctl::testing

int main(int count, char** arguments) {
  const std::string_view where = count > 1 ? arguments[1] : "";
  const std::string_view only = count > 2 ? arguments[2] : "";
  const bool known = only.empty() || std::count(hpctl::testing::kKinds.begin(),
                                                hpctl::testing::kKinds.end(), only) == 1;
  if (count > 3 || (where != "cuda" && where != "cpu") || !known) {
    std::cerr << "usage: kernels_check cuda|cpu [KIND]" << std::endl;
    return 2;
  }
  hpctl::pin_environment();  // cuBLAS has one order of sums, as in hptrain
  try {
    return hpctl::testing::main_with(where, only);
  } catch (const std::exception& error) {
    std::cout << "FAILED " << error.what() << std::endl;
    return 1;
  }
}
