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
#include <vector>

#include "trainer/kernels/bf16.h"
#include "trainer/kernels/rows.h"

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
      const std::vector<T> in = rounded<T>(x);
      const std::vector<T> factors = rounded<T>(weight);
      const std::vector<T> out_gradient = rounded<T>(gradient);
      std::vector<T> y(in.size());
      std::vector<T> inverse(kRows);
      std::vector<T> x_gradient(in.size());
      std::vector<T> weight_gradient(factors.size());
      const RmsNormForward<T> forward = {dim,      kEps,          in.data(), factors.data(),
                                         y.data(), inverse.data()};
      kernels.rms_norm(forward, 0, 2);
      kernels.rms_norm(forward, 2, kRows);
      const RmsNormBackward<T> backward = {dim,
                                           in.data(),
                                           factors.data(),
                                           inverse.data(),
                                           out_gradient.data(),
                                           x_gradient.data(),
                                           weight_gradient.data()};
      kernels.rms_norm_backward(backward, 0, 2);
      kernels.rms_norm_backward(backward, 2, kRows);
      return {{"", widened(y)}, {"", widened(x_gradient)}, {"", widened(weight_gradient)}};
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

// All that there are; those that lie between two are tested where bf16.h is.
TEST(Rows, EveryBf16IsWidenedAndNarrowedBack) {
  constexpr int64_t kAll = 1 << 16;
  std::vector<uint16_t> narrow;
  for (int64_t bits = 0; bits < kAll; ++bits) narrow.push_back(static_cast<uint16_t>(bits));
  for (const KernelLevel level : kernel_levels()) {
    std::vector<float> wide(kAll);
    std::vector<uint16_t> back(kAll);
    row_kernels<float>(level).widen(narrow.data(), wide.data(), kAll - 3);
    row_kernels<float>(level).narrow(wide.data(), back.data(), kAll - 3);
    for (size_t i = 0; i < kAll - 3; ++i) {
      if (std::isnan(wide[i])) {
        EXPECT_TRUE(std::isnan(float_of_bf16(narrow[i])) && std::isnan(float_of_bf16(back[i])));
      } else {
        EXPECT_EQ(wide[i], float_of_bf16(narrow[i]));
        EXPECT_EQ(back[i], narrow[i]);
      }
    }
    EXPECT_EQ(wide[kAll - 3], 0) << "written behind the end";
    EXPECT_EQ(back[kAll - 3], 0);
  }
}

}  // namespace
}  // namespace hpctl
