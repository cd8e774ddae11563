// SPDX-License-Identifier: Apache-2.0
// Operations on rows against their definitions in fp64, and their gradients against finite
// differences, at every level that this processor has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/kernels/bf16.h"
#include "trainer/kernels/rowwise.h"

namespace hpctl {
namespace {

constexpr int64_t kRows = 5;
constexpr double kEps = 1e-5;
constexpr double kZ = 0.01;  // of the z-loss

using Values = std::vector<double>;

// Exact in fp32, so that both types get the same numbers.
Values random_values(int64_t count, uint32_t seed, double spread = 2) {
  std::mt19937 random(seed);
  Values values(static_cast<size_t>(count));
  for (double& value : values) {
    value = spread * (static_cast<double>(random() >> 12) / (1 << 19) - 1);
  }
  return values;
}

template <typename T>
std::vector<T> rounded(const Values& values) {
  return {values.begin(), values.end()};
}

template <typename T>
Values widened(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}

// Largest difference, in units of the largest expected number; not a number where one is.
double error(const Values& found, const Values& expected) {
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double here = std::abs(found[i] - expected[i]);
    if (std::isnan(here)) return here;
    difference = std::max(difference, here);
  }
  return difference / largest;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The gradient of `objective` by every element of `values`, which it sees change.
Values differences(Values& values, const std::function<double()>& objective) {
  constexpr double kStep = 1e-5;
  Values gradient;
  for (double& value : values) {
    const double here = value;
    value = here + kStep;
    const double above = objective();
    value = here - kStep;
    const double below = objective();
    value = here;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

// Results and gradients, by name.
struct Named {
  const char* name;
  Values values;
};
using Results = std::vector<Named>;

void expect_close(const Results& found, const Results& expected, double bound,
                  const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(error(found[i].values, expected[i].values), bound)
        << expected[i].name << ", " << what;
  }
}

// `run` is called with a value of the type and the kernels to use.
template <typename Run>
void compare(const Run& run, const Results& expected, const std::string& what) {
  expect_close(run(double{}, row_kernels<double>()), expected, kRowErrorFp64, what + ", fp64");
  for (const KernelLevel level : kernel_levels()) {
    expect_close(run(float{}, row_kernels<float>(level)), expected, kRowErrorFp32,
                 what + ", " + to_word(level));
  }
}

template <typename T, typename S>
struct Normed {
  std::vector<S> sum;  // of x and the addend; empty without one
  std::vector<S> y;
  std::vector<T> inverse_rms;
  std::vector<S> x_gradient;
  std::vector<T> weight_gradient;
};

// Forward and backward, two rows and then the others. `addend` and `other_gradient` may be empty.
template <typename T, typename S>
Normed<T, S> norm(const RowKernels<T, S>& kernels, const std::vector<T>& weight,
                  const std::vector<S>& x, const std::vector<S>& y_gradient,
                  const std::vector<S>& addend = {}, const std::vector<S>& other_gradient = {}) {
  const auto dim = static_cast<int64_t>(weight.size());
  const int64_t rows = static_cast<int64_t>(x.size()) / dim;
  Normed<T, S> of = {std::vector<S>(addend.size()), std::vector<S>(x.size()),
                     std::vector<T>(static_cast<size_t>(rows)), std::vector<S>(x.size()),
                     std::vector<T>(weight.size())};
  const bool adds = !addend.empty();
  const RmsNormForward<T, S> forward = {dim,
                                        kEps,
                                        x.data(),
                                        weight.data(),
                                        of.y.data(),
                                        of.inverse_rms.data(),
                                        adds ? addend.data() : nullptr,
                                        adds ? of.sum.data() : nullptr};
  kernels.rms_norm(forward, 0, 2);
  kernels.rms_norm(forward, 2, rows);
  const RmsNormBackward<T, S> backward = {dim,
                                          adds ? of.sum.data() : x.data(),
                                          weight.data(),
                                          of.inverse_rms.data(),
                                          y_gradient.data(),
                                          of.x_gradient.data(),
                                          of.weight_gradient.data(),
                                          other_gradient.empty() ? nullptr : other_gradient.data()};
  kernels.rms_norm_backward(backward, 0, 2);
  kernels.rms_norm_backward(backward, 2, rows);
  return of;
}

TEST(Rows, RmsNormIsItsDefinitionAndItsGradientItsSlope) {
  for (const int64_t dim : {3, 16, 63, 64, 65, 200}) {
    Values x = random_values(kRows * dim, 1);
    Values weight = random_values(dim, 2);
    const Values gradient = random_values(kRows * dim, 3);
    const auto define = [&] {
      Values y;
      for (int64_t row = 0; row < kRows; ++row) {
        double squares = 0;
        for (int64_t i = 0; i < dim; ++i) squares += x[row * dim + i] * x[row * dim + i];
        const double root = std::sqrt(squares / static_cast<double>(dim) + kEps);
        for (int64_t i = 0; i < dim; ++i) y.push_back(x[row * dim + i] / root * weight[i]);
      }
      return y;
    };
    const auto objective = [&] { return dot(define(), gradient); };
    Values slopes = differences(x, objective);
    Values weight_slopes = differences(weight, objective);
    const Results expected = {
        {"y", define()}, {"gradient of x", slopes}, {"gradient of the weight", weight_slopes}};
    const auto run = [&]<typename T>(T, const RowKernels<T>& kernels) -> Results {
      const Normed<T, T> of =
          norm(kernels, rounded<T>(weight), rounded<T>(x), rounded<T>(gradient));
      return {{"", widened(of.y)}, {"", widened(of.x_gradient)}, {"", widened(of.weight_gradient)}};
    };
    compare(run, expected, "dim " + std::to_string(dim));
  }
}

TEST(Rows, SwigluIsItsDefinitionAndItsGradientItsSlope) {
  for (const int64_t count : {1, 3, 16, 100}) {
    Values gate = random_values(count, 1, 12);
    Values up = random_values(count, 2);
    const Values gradient = random_values(count, 3);
    const auto define = [&] {
      Values y;
      for (size_t i = 0; i < gate.size(); ++i) {
        y.push_back(gate[i] / (1 + std::exp(-gate[i])) * up[i]);
      }
      return y;
    };
    const auto objective = [&] { return dot(define(), gradient); };
    Values gate_slopes = differences(gate, objective);
    Values up_slopes = differences(up, objective);
    const Results expected = {
        {"y", define()}, {"gradient of gate", gate_slopes}, {"gradient of up", up_slopes}};
    const auto run = [&]<typename T>(T, const RowKernels<T>& kernels) -> Results {
      const std::vector<T> g = rounded<T>(gate);
      const std::vector<T> u = rounded<T>(up);
      const std::vector<T> y_gradient = rounded<T>(gradient);
      std::vector<T> y(g.size());
      std::vector<T> gate_gradient(g.size());
      std::vector<T> up_gradient(g.size());
      kernels.swiglu({g.data(), u.data(), y.data()}, 0, count);
      kernels.swiglu_backward(
          {g.data(), u.data(), y_gradient.data(), gate_gradient.data(), up_gradient.data()}, 0,
          count);
      return {{"", widened(y)}, {"", widened(gate_gradient)}, {"", widened(up_gradient)}};
    };
    compare(run, expected, std::to_string(count) + " elements");
  }
}

// Far from 0 on both sides: 0 and the gate itself, and no overflow on the way.
TEST(Rows, SwigluHasNoOverflow) {
  const std::vector<float> gate = {-1e4F, -200, -90, 90, 200, 1e4F};
  const std::vector<float> ones(gate.size(), 1);
  for (const KernelLevel level : kernel_levels()) {
    std::vector<float> y(gate.size());
    std::vector<float> gate_gradient(gate.size());
    std::vector<float> up_gradient(gate.size());
    const RowKernels<float>& kernels = row_kernels<float>(level);
    const auto count = static_cast<int64_t>(gate.size());
    kernels.swiglu({gate.data(), ones.data(), y.data()}, 0, count);
    kernels.swiglu_backward(
        {gate.data(), ones.data(), ones.data(), gate_gradient.data(), up_gradient.data()}, 0,
        count);
    for (size_t i = 0; i < gate.size(); ++i) {
      EXPECT_NEAR(y[i], std::max(gate[i], 0.0F), 1e-30) << to_word(level) << " " << gate[i];
      EXPECT_NEAR(gate_gradient[i], gate[i] > 0 ? 1 : 0, 1e-30) << to_word(level) << " " << gate[i];
      EXPECT_EQ(up_gradient[i], y[i]);
    }
  }
}

TEST(Rows, CrossEntropyIsItsDefinitionAndItsGradientItsSlope) {
  for (const int64_t vocab : {1, 5, 16, 250}) {
    Values logits = random_values(kRows * vocab, 1, 20);
    const std::vector<int64_t> targets = {0, vocab - 1, -100, vocab / 2, 0};
    const auto log_sums = [&] {
      Values sums;
      for (int64_t row = 0; row < kRows; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[row * vocab + i]);
        sums.push_back(std::log(sum));
      }
      return sums;
    };
    constexpr double kWeight = 0.5;
    const auto objective = [&] {
      const Values sums = log_sums();
      double loss = 0;
      for (int64_t row = 0; row < kRows; ++row) {
        if (targets[row] < 0) continue;
        loss +=
            kWeight * (sums[row] - logits[row * vocab + targets[row]]) + kZ * sums[row] * sums[row];
      }
      return loss;
    };
    Values slopes_of_logits = differences(logits, objective);
    const Results expected = {{"log sums", log_sums()}, {"gradient", slopes_of_logits}};
    const auto run = [&]<typename T>(T, const RowKernels<T>& kernels) -> Results {
      const std::vector<T> in = rounded<T>(logits);
      std::vector<T> sums(kRows);
      kernels.log_sums({vocab, in.data(), sums.data()}, 0, kRows);
      std::vector<T> slopes;
      for (int64_t row = 0; row < kRows; ++row) {
        slopes.push_back(targets[row] < 0 ? 0 : static_cast<T>(2 * kZ * sums[row]));
      }
      std::vector<T> gradient(in.size());
      kernels.cross_entropy_backward({vocab, in.data(), sums.data(), targets.data(),
                                      static_cast<T>(kWeight), slopes.data(), gradient.data()},
                                     0, kRows);
      return {{"", widened(sums)}, {"", widened(gradient)}};
    };
    if (vocab == 1) {  // the only word is certain: the gradient is that of the z-loss alone
      const auto found = run(double{}, row_kernels<double>());
      EXPECT_LT(error(found[0].values, expected[0].values), 1e-12);
      continue;
    }
    compare(run, expected, "vocabulary of " + std::to_string(vocab));
  }
}

// A bad step is recognised by what is not finite.
TEST(Rows, WhatIsNotANumberIsNotHidden) {
  constexpr int64_t kDim = 37;
  for (const KernelLevel level : kernel_levels()) {
    const RowKernels<float>& kernels = row_kernels<float>(level);
    std::vector<float> x = rounded<float>(random_values(kDim, 1));
    const std::vector<float> ones(kDim, 1);
    x[35] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y(kDim);
    float number = 0;
    kernels.rms_norm({kDim, kEps, x.data(), ones.data(), y.data(), &number}, 0, 1);
    EXPECT_TRUE(std::isnan(y[0])) << to_word(level);
    kernels.swiglu({x.data(), ones.data(), y.data()}, 0, kDim);
    EXPECT_TRUE(std::isnan(y[35])) << to_word(level);
    kernels.swiglu({ones.data(), x.data(), y.data()}, 0, kDim);
    EXPECT_TRUE(std::isnan(y[35])) << to_word(level);
    kernels.log_sums({kDim, x.data(), &number}, 0, 1);
    EXPECT_TRUE(std::isnan(number)) << to_word(level);
  }
}

std::vector<uint16_t> narrow(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(bf16_of(value));
  return bits;
}

std::vector<uint16_t> random_bf16(int64_t count, uint32_t seed, double spread = 2) {
  return narrow(rounded<float>(random_values(count, seed, spread)));
}

std::vector<float> wide(const std::vector<uint16_t>& bits) {
  std::vector<float> values;
  for (const uint16_t value : bits) values.push_back(float_of_bf16(value));
  return values;
}

template <typename T>
std::vector<T> sums(const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> all;
  for (size_t i = 0; i < a.size(); ++i) {
    if constexpr (std::is_same_v<T, uint16_t>) {
      all.push_back(bf16_of(float_of_bf16(a[i]) + float_of_bf16(b[i])));
    } else {
      all.push_back(a[i] + b[i]);
    }
  }
  return all;
}

// `run` is called with the kernels of each kind and a maker of values for them.
template <typename Run>
void for_all_kernels(const Run& run) {
  run(row_kernels<double>(), [](const Values& v) { return v; });
  for (const KernelLevel level : kernel_levels()) {
    SCOPED_TRACE(to_word(level));
    run(row_kernels<float>(level), [](const Values& v) { return rounded<float>(v); });
    run(row_kernels<float, uint16_t>(level),
        [](const Values& v) { return narrow(rounded<float>(v)); });
  }
}

TEST(Rows, NormOfASumHasTheBitsOfTheTwo) {
  for (const int64_t dim : {3, 16, 63, 64, 65, 200}) {
    for_all_kernels([&]<typename T, typename S>(const RowKernels<T, S>& kernels, const auto& make) {
      const std::vector<T> weight = rounded<T>(random_values(dim, 2));
      const std::vector<S> x = make(random_values(kRows * dim, 1));
      const std::vector<S> addend = make(random_values(kRows * dim, 3));
      const std::vector<S> gradient = make(random_values(kRows * dim, 4));
      const std::vector<S> other = make(random_values(kRows * dim, 5));
      const Normed<T, S> both = norm(kernels, weight, x, gradient, addend, other);
      const Normed<T, S> alone = norm(kernels, weight, sums(x, addend), gradient);
      EXPECT_EQ(both.sum, sums(x, addend));
      EXPECT_EQ(both.y, alone.y);
      EXPECT_EQ(both.inverse_rms, alone.inverse_rms);
      EXPECT_EQ(both.x_gradient, sums(alone.x_gradient, other));
      EXPECT_EQ(both.weight_gradient, alone.weight_gradient);
    });
  }
}

TEST(Rows, NormsOfBf16HaveTheBitsOfFp32Rounded) {
  for (const int64_t dim : {3, 16, 63, 64, 65, 200}) {
    const std::vector<uint16_t> x = random_bf16(kRows * dim, 1);
    const std::vector<uint16_t> gradient = random_bf16(kRows * dim, 3);
    const std::vector<float> weight = rounded<float>(random_values(dim, 2));
    for (const KernelLevel level : kernel_levels()) {
      const auto exact = norm(row_kernels<float>(level), weight, wide(x), wide(gradient));
      const auto found = norm(row_kernels<float, uint16_t>(level), weight, x, gradient);
      EXPECT_EQ(found.y, narrow(exact.y)) << to_word(level);
      EXPECT_EQ(found.inverse_rms, exact.inverse_rms) << to_word(level);
      EXPECT_EQ(found.x_gradient, narrow(exact.x_gradient)) << to_word(level);
      EXPECT_EQ(found.weight_gradient, exact.weight_gradient) << to_word(level);
    }
  }
}

TEST(Rows, SwigluOfBf16HasTheBitsOfFp32Rounded) {
  for (const int64_t count : {1, 3, 16, 1000}) {
    const std::vector<uint16_t> in[] = {random_bf16(count, 1, 12), random_bf16(count, 2),
                                        random_bf16(count, 3)};
    const std::vector<float> exact_in[] = {wide(in[0]), wide(in[1]), wide(in[2])};
    for (const KernelLevel level : kernel_levels()) {
      std::vector<float> exact[3];
      std::vector<uint16_t> found[3];
      for (auto& result : exact) result.resize(static_cast<size_t>(count));
      for (auto& result : found) result.resize(static_cast<size_t>(count));
      const auto run = [&](const auto& kernels, const auto& from, auto& to) {
        kernels.swiglu({from[0].data(), from[1].data(), to[0].data()}, 0, count);
        kernels.swiglu_backward(
            {from[0].data(), from[1].data(), from[2].data(), to[1].data(), to[2].data()}, 0, count);
      };
      run(row_kernels<float>(level), exact_in, exact);
      run(row_kernels<float, uint16_t>(level), in, found);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(found[i], narrow(exact[i])) << to_word(level) << i;
    }
  }
}

// Also where the gradient replaces the logits.
TEST(Rows, CrossEntropyOfBf16HasTheBitsOfFp32Rounded) {
  for (const int64_t vocab : {1, 5, 16, 250}) {
    const std::vector<uint16_t> logits = random_bf16(kRows * vocab, 1, 20);
    const std::vector<float> exact_logits = wide(logits);
    const std::vector<int64_t> targets = {0, vocab - 1, -100, vocab / 2, 0};
    const std::vector<float> slopes = {0.25F, 0.5F, 0, 0.125F, 1};
    for (const KernelLevel level : kernel_levels()) {
      const auto run = [&]<typename S>(const RowKernels<float, S>& kernels,
                                       const std::vector<S>& in, std::vector<float>& log_sums) {
        std::vector<S> gradient = in;
        log_sums.resize(kRows);
        kernels.log_sums({vocab, in.data(), log_sums.data()}, 0, kRows);
        kernels.cross_entropy_backward({vocab, gradient.data(), log_sums.data(), targets.data(),
                                        0.3F, slopes.data(), gradient.data()},
                                       0, kRows);
        return gradient;
      };
      std::vector<float> exact_sums;
      std::vector<float> sums;
      const std::vector<float> exact = run(row_kernels<float>(level), exact_logits, exact_sums);
      EXPECT_EQ(run(row_kernels<float, uint16_t>(level), logits, sums), narrow(exact))
          << to_word(level);
      EXPECT_EQ(sums, exact_sums) << to_word(level);
    }
  }
}

// All that there are; the tests above have those that lie between two.
TEST(Rows, EveryBf16IsWidenedAndNarrowedBack) {
  constexpr int64_t kAll = 1 << 16;
  constexpr int64_t kWritten = kAll - 3;
  std::vector<uint16_t> all;
  for (int64_t bits = 0; bits < kAll; ++bits) all.push_back(static_cast<uint16_t>(bits));
  const std::vector<uint16_t> nothing(kAll, 0x8000);  // -0, which changes no number
  const std::vector<float> weight(kAll, 1);
  for (const KernelLevel level : kernel_levels()) {
    std::vector<uint16_t> y(kAll);
    std::vector<uint16_t> sum(kAll);
    float inverse = 0;
    row_kernels<float, uint16_t>(level).rms_norm(
        {kWritten, kEps, all.data(), weight.data(), y.data(), &inverse, nothing.data(), sum.data()},
        0, 1);
    for (size_t i = 0; i < kWritten; ++i) {
      if (std::isnan(float_of_bf16(all[i]))) {
        EXPECT_TRUE(std::isnan(float_of_bf16(sum[i]))) << i;
      } else {
        EXPECT_EQ(sum[i], all[i]);
      }
    }
    EXPECT_EQ(sum[kWritten], 0) << "written behind the end";
    EXPECT_EQ(y[kWritten], 0);
  }
}

}  // namespace
}  // namespace hpctl
