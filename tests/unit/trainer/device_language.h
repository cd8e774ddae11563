// SPDX-License-Identifier: Apache-2.0
// The language of trainer/kernels/device in plain C++, in place of language.cuh and of what NVRTC
// has built in: included before kernels.cuh, in one source of a program.
//
// A block's threads are fibers of the calling thread, run one after another up to their next
// barrier, and a warp as far as it comes without the others; which of them is first is chosen
// (descending), and must not change a bit. So a barrier that is missing shows: the first to run
// reads what the last has not yet written, or writes what the last has not yet read. Where some
// threads of a warp or block wait and the others have ended, HP_CHECK fails. Memory that a launch
// asks for begins as numbers that are none; a block's own is not cleared between blocks.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "trainer/kernels/device/passes.cuh"

#define __shared__ static  // NOLINT(bugprone-reserved-identifier): CUDA's name

namespace hpctl::device {

struct Dimension {
  unsigned x;
};
inline Dimension threadIdx;
inline Dimension blockIdx;

class Emulation {
 public:
  enum class Waits { kNot, kWarp, kBlock, kEnded };

  bool descending = false;

  // The kernel, as one thread of a block.
  void run(unsigned blocks, size_t shared_bytes, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    running_ = this;
    for (unsigned block = 0; block < blocks; ++block) {
      blockIdx.x = block;
      shared_.assign(shared_bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
      run_block();
    }
  }

  static void wait(Waits for_whom) {
    Fiber& own = running_->fibers_[threadIdx.x];
    own.waits = for_whom;
    HP_CHECK(swapcontext(&own.context, &running_->scheduler_) == 0);
  }
  static float* shared() { return running_->shared_.data(); }

 private:
  struct Fiber {
    ucontext_t context;
    Waits waits = Waits::kNot;
  };
  static constexpr size_t kStack = size_t{64} << 10;

  static void enter() {
    (*running_->kernel_)();
    running_->fibers_[threadIdx.x].waits = Waits::kEnded;
  }

  // Apart from the loop: the compiler takes getcontext() for one that may return twice.
  void prepare(Fiber& fiber, char* stack) {
    HP_CHECK(getcontext(&fiber.context) == 0);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler_;
    fiber.waits = Waits::kNot;
    makecontext(&fiber.context, &Emulation::enter, 0);
  }

  void run_block() {
    for (int t = 0; t < kThreads; ++t) prepare(fibers_[t], stacks_.get() + kStack * t);
    while (!all(0, kThreads, Waits::kEnded)) {
      constexpr int kWarps = kThreads / kWarp;
      for (int w = 0; w < kWarps; ++w) run_warp((descending ? kWarps - 1 - w : w) * kWarp);
      HP_CHECK(release(0, kThreads, Waits::kBlock) || all(0, kThreads, Waits::kEnded));
    }
  }

  // As far as it comes without the others.
  void run_warp(int first) {
    do {
      for (int t = 0; t < kWarp; ++t) resume(first + (descending ? kWarp - 1 - t : t));
    } while (release(first, first + kWarp, Waits::kWarp));
  }

  void resume(int thread) {
    if (fibers_[thread].waits != Waits::kNot) return;
    threadIdx.x = static_cast<unsigned>(thread);
    HP_CHECK(swapcontext(&scheduler_, &fibers_[thread].context) == 0);
  }

  bool all(int begin, int end, Waits waits) const {
    for (int t = begin; t < end; ++t) {
      if (fibers_[t].waits != waits) return false;
    }
    return true;
  }

  // Whether all of them waited for each other; then they go on.
  bool release(int begin, int end, Waits waits) {
    if (!all(begin, end, waits)) return false;
    for (int t = begin; t < end; ++t) fibers_[t].waits = Waits::kNot;
    return true;
  }

  static inline Emulation* running_ = nullptr;
  const std::function<void()>* kernel_ = nullptr;
  std::vector<float> shared_;
  std::unique_ptr<char[]> stacks_ = std::make_unique<char[]>(kStack * kThreads);
  std::array<Fiber, kThreads> fibers_;
  ucontext_t scheduler_;
};

using Kernel = std::function<void(void* pass)>;
inline std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

inline float* dynamic_shared() { return Emulation::shared(); }
// NOLINTBEGIN(bugprone-reserved-identifier)
inline void __syncthreads() { Emulation::wait(Emulation::Waits::kBlock); }
template <typename S>
S __shfl_xor_sync(unsigned, S value, int distance) {
  static std::array<S, kThreads> offered;
  offered[threadIdx.x] = value;
  Emulation::wait(Emulation::Waits::kWarp);
  const S taken = offered[threadIdx.x ^ static_cast<unsigned>(distance)];
  Emulation::wait(Emulation::Waits::kWarp);
  return taken;
}
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
// NOLINTEND(bugprone-reserved-identifier)

// IEEE binary16, by its definition: sign, 5 bits of exponent, 10 of mantissa.
inline float float_of_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float value = std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent > 0) {
    value = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}
inline unsigned short half_of_float(float value) {
  const unsigned short sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7fff;
  const float size = std::fabs(value);
  if (size >= 65520.0F) return sign | 0x7c00;
  if (size == 0) return sign;
  const int exponent = std::max(std::ilogb(size), -14);  // below, the steps stay the same
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<unsigned short>(sign + ((exponent + 14) << 10) + steps);
}

}  // namespace hpctl::device

#define HP_KERNEL(name, Pass, ...)                                                          \
  [[maybe_unused]] const bool name##_is_known =                                             \
      kernels()                                                                             \
          .emplace(#name, [](void* pass) { __VA_ARGS__(*static_cast<const Pass*>(pass)); }) \
          .second;
