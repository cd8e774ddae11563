// SPDX-License-Identifier: Apache-2.0
// The kernels against plain loops in fp64, at every level that this processor has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "trainer/kernels/attention.h"

namespace hpctl {
namespace {

// Queries, keys and values of a token lie side by side, as one projection makes them.
struct Problem {
  std::vector<int64_t> lengths;
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  bool rotary = false;
  int64_t window = kNoWindow;

  int64_t tokens() const {
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
  AttentionShape shape() const {
    return {tokens(), heads, kv_heads, dim, 1.0 / std::sqrt(static_cast<double>(dim)), window};
  }
  std::vector<AttentionUnit> units() const {
    std::vector<AttentionUnit> all;
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      for (int64_t n = 0; n < kv_heads; ++n) all.push_back({begin, length, n});
      begin += length;
    }
    return all;
  }
  std::string name() const {
    std::string text = std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " +
                       std::to_string(dim) + ", documents of";
    for (const int64_t length : lengths) text += " " + std::to_string(length);
    if (window != kNoWindow) text += ", window " + std::to_string(window);
    return text + (rotary ? ", rotary" : "");
  }
};

template <typename T>
struct Operands {
  std::vector<T> qkv;           // [tokens, width]
  std::vector<T> out_gradient;  // [tokens, heads * dim]
};

template <typename T>
struct Results {
  std::vector<T> out;
  std::vector<T> log_sums;
  std::vector<T> gradients;  // as Operands::qkv
};

double angle_of(int64_t position, int64_t pair) {
  return static_cast<double>(position) * std::pow(0.7, static_cast<double>(pair));
}

Operands<double> random_operands(const Problem& p, double spread = 1) {
  std::mt19937 random(7);
  const auto values = [&](int64_t count) {
    std::vector<double> all(static_cast<size_t>(count));
    // Exact in fp32, so that both types get the same numbers.
    for (double& value : all) {
      value = spread * (static_cast<double>(random() >> 12) / (1 << 19) - 1) * 1.75;
    }
    return all;
  };
  return {values(p.tokens() * p.width()), values(p.tokens() * p.heads * p.dim)};
}

template <typename T>
std::vector<T> rounded(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

template <typename T>
Operands<T> rounded(const Operands<double>& operands) {
  return {rounded<T>(operands.qkv), rounded<T>(operands.out_gradient)};
}

// Both passes of one problem.
template <typename T>
class Attention {
 public:
  Attention(const Problem& problem, const Operands<T>& operands)
      : problem_(problem), operands_(operands) {
    const T unwritten = std::numeric_limits<T>::quiet_NaN();
    results_.out.assign(operands.out_gradient.size(), unwritten);
    results_.log_sums.assign(static_cast<size_t>(problem.heads * problem.tokens()), unwritten);
    results_.gradients.assign(operands.qkv.size(), unwritten);
    if (!problem.rotary) return;
    for (int64_t i = 0; i < longest() * (problem.dim / 2); ++i) {
      const double angle = angle_of(i / (problem.dim / 2), i % (problem.dim / 2));
      cosines_.push_back(static_cast<T>(std::cos(angle)));
      sines_.push_back(static_cast<T>(std::sin(angle)));
    }
  }

  template <typename... Level>
  void forward(const std::vector<AttentionUnit>& units, Level... level) {
    const AttentionForward<T> pass = {problem_.shape(),
                                      part(operands_.qkv, 0),
                                      part(operands_.qkv, problem_.heads),
                                      part(operands_.qkv, problem_.heads + problem_.kv_heads),
                                      {results_.out.data(), problem_.heads * problem_.dim},
                                      results_.log_sums.data(),
                                      tables()};
    const AttentionScratch<T> scratch(pass.shape, longest());
    for (const AttentionUnit& unit : units) attention_forward(pass, unit, scratch, level...);
  }

  template <typename... Level>
  void backward(const std::vector<AttentionUnit>& units, Level... level) {
    const int64_t row = problem_.heads * problem_.dim;
    const int64_t values = problem_.heads + problem_.kv_heads;
    const AttentionBackward<T> pass = {problem_.shape(),
                                       part(operands_.qkv, 0),
                                       part(operands_.qkv, problem_.heads),
                                       part(operands_.qkv, values),
                                       {results_.out.data(), row},
                                       {operands_.out_gradient.data(), row},
                                       results_.log_sums.data(),
                                       gradient(0),
                                       gradient(problem_.heads),
                                       gradient(values),
                                       tables()};
    const AttentionScratch<T> scratch(pass.shape, longest());
    for (const AttentionUnit& unit : units) attention_backward(pass, unit, scratch, level...);
  }

  const Results<T>& results() const { return results_; }

 private:
  TokenRows<const T> part(const std::vector<T>& qkv, int64_t head) const {
    return {qkv.data() + head * problem_.dim, problem_.width()};
  }
  TokenRows<T> gradient(int64_t head) {
    return {results_.gradients.data() + head * problem_.dim, problem_.width()};
  }
  RotaryTables<T> tables() const {
    if (!problem_.rotary) return {};
    return {cosines_.data(), sines_.data()};
  }
  int64_t longest() const {
    return *std::max_element(problem_.lengths.begin(), problem_.lengths.end());
  }

  const Problem& problem_;
  const Operands<T>& operands_;
  Results<T> results_;
  std::vector<T> cosines_;
  std::vector<T> sines_;
};

template <typename T, typename... Level>
Results<T> attend(const Problem& p, const Operands<T>& operands, Level... level) {
  Attention<T> attention(p, operands);
  attention.forward(p.units(), level...);
  attention.backward(p.units(), level...);
  return attention.results();
}

// One query head of one document by its definition.
void attend_plainly(const Problem& p, const Operands<double>& o, const AttentionUnit& unit,
                    int64_t head, Results<double>& r) {
  const double scale = p.shape().scale;
  const auto at = [&](int64_t t, int64_t n) { return (unit.begin + t) * p.width() + n * p.dim; };
  const int64_t key_head = p.heads + unit.kv_head;
  const int64_t value_head = key_head + p.kv_heads;
  const auto dot = [&](const double* a, const double* b) {
    double sum = 0;
    for (int64_t d = 0; d < p.dim; ++d) sum += a[d] * b[d];
    return sum;
  };
  for (int64_t i = 0; i < unit.tokens; ++i) {
    const double* q = &o.qkv[at(i, head)];
    const int64_t row = (unit.begin + i) * p.heads * p.dim + head * p.dim;
    const int64_t first = i < p.window ? 0 : i - p.window + 1;
    std::vector<double> weights(static_cast<size_t>(first), -std::numeric_limits<double>::max());
    for (int64_t j = first; j <= i; ++j) weights.push_back(scale * dot(q, &o.qkv[at(j, key_head)]));
    const double top = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    r.log_sums[head * p.tokens() + unit.begin + i] = (top + std::log(sum)) / std::log(2);
    for (int64_t d = 0; d < p.dim; ++d) r.out[row + d] = 0;
    for (int64_t j = 0; j <= i; ++j) {
      weights[j] /= sum;
      for (int64_t d = 0; d < p.dim; ++d) {
        r.out[row + d] += weights[j] * o.qkv[at(j, value_head) + d];
      }
    }
    const double* gradient = &o.out_gradient[row];
    const double product = dot(gradient, &r.out[row]);
    for (int64_t j = 0; j <= i; ++j) {
      const double slope =
          scale * weights[j] * (dot(gradient, &o.qkv[at(j, value_head)]) - product);
      for (int64_t d = 0; d < p.dim; ++d) {
        r.gradients[at(j, value_head) + d] += weights[j] * gradient[d];
        r.gradients[at(j, key_head) + d] += slope * q[d];
        r.gradients[at(i, head) + d] += slope * o.qkv[at(j, key_head) + d];
      }
    }
  }
}

// Turns all heads of queries and keys.
void turn_plainly(const Problem& p, double sign, std::vector<double>& qkv) {
  for (const AttentionUnit& unit : p.units()) {
    if (unit.kv_head != 0) continue;
    for (int64_t t = 0; t < unit.tokens; ++t) {
      for (int64_t n = 0; n < p.heads + p.kv_heads; ++n) {
        double* row = &qkv[static_cast<size_t>((unit.begin + t) * p.width() + n * p.dim)];
        for (int64_t i = 0; i < p.dim / 2; ++i) {
          const std::complex<double> pair(row[i], row[i + p.dim / 2]);
          const std::complex<double> turned = pair * std::polar(1.0, sign * angle_of(t, i));
          row[i] = turned.real();
          row[i + p.dim / 2] = turned.imag();
        }
      }
    }
  }
}

Results<double> attend_plainly(const Problem& p, Operands<double> operands) {
  if (p.rotary) turn_plainly(p, 1, operands.qkv);
  Results<double> r;
  r.out.resize(operands.out_gradient.size());
  r.log_sums.resize(static_cast<size_t>(p.heads * p.tokens()));
  r.gradients.resize(operands.qkv.size());
  const int64_t group = p.heads / p.kv_heads;
  for (const AttentionUnit& unit : p.units()) {
    for (int64_t g = 0; g < group; ++g) {
      attend_plainly(p, operands, unit, unit.kv_head * group + g, r);
    }
  }
  if (p.rotary) turn_plainly(p, -1, r.gradients);
  return r;
}

// Largest difference, in units of the largest expected number; not a number where one is.
template <typename T>
double error(const std::vector<T>& found, const std::vector<double>& expected) {
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double here = std::abs(static_cast<double>(found[i]) - expected[i]);
    if (std::isnan(here)) return here;
    difference = std::max(difference, here);
  }
  return difference / largest;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Around the sizes of vectors, tiles and blocks.
const std::vector<Problem>& problems() {
  static const std::vector<Problem> all = {{{1}, 1, 1, 8},
                                           {{2}, 2, 1, 16},
                                           {{15}, 4, 1, 16},
                                           {{17}, 1, 1, 7},
                                           {{63}, 2, 2, 20},
                                           {{64}, 1, 1, 32},
                                           {{65}, 4, 2, 16},
                                           {{127, 127}, 2, 1, 16},
                                           {{128}, 1, 1, 128},
                                           {{200}, 4, 1, 64},
                                           {{1, 3, 64, 70, 5, 130}, 4, 2, 16},
                                           {{33, 1, 1, 97}, 8, 2, 24},
                                           {{150}, 1, 1, 1},
                                           {{260}, 2, 1, 80},
                                           {{70, 130}, 4, 2, 16, true},
                                           {{80}, 2, 1, 40, true},
                                           {{1, 200}, 2, 1, 16, false, 1},
                                           {{260}, 4, 2, 16, true, 7},
                                           {{200, 70, 5}, 2, 2, 24, true, 63},
                                           {{300}, 2, 1, 16, false, 64},
                                           {{330}, 1, 1, 20, true, 65},
                                           {{400, 100}, 4, 1, 16, true, 150},
                                           {{128, 130}, 2, 1, 16, true, 129}};
  return all;
}

TEST(Attention, AgreesWithPlainLoopsAtEveryLevel) {
  double worst_forward = 0;
  double worst_backward = 0;
  for (const Problem& p : problems()) {
    const Operands<double> operands = random_operands(p);
    const Results<double> expected = attend_plainly(p, operands);
    const Operands<float> narrow = rounded<float>(operands);
    for (const KernelLevel level : kernel_levels()) {
      const Results<float> found = attend(p, narrow, level);
      const std::string what = p.name() + ", " + to_word(level);
      const double forward =
          std::max(error(found.out, expected.out), error(found.log_sums, expected.log_sums));
      const double backward = error(found.gradients, expected.gradients);
      EXPECT_LT(forward, kAttentionErrorFp32) << what;
      EXPECT_LT(backward, kAttentionGradientErrorFp32) << what;
      worst_forward = std::max(worst_forward, forward);
      worst_backward = std::max(worst_backward, backward);
    }
    const Results<double> wide = attend(p, operands);
    EXPECT_LT(error(wide.out, expected.out), kAttentionErrorFp64) << p.name();
    EXPECT_LT(error(wide.log_sums, expected.log_sums), kAttentionErrorFp64) << p.name();
    EXPECT_LT(error(wide.gradients, expected.gradients), kAttentionGradientErrorFp64) << p.name();
  }
  RecordProperty("worst_forward", std::to_string(worst_forward * 1e6) + "e-6");
  RecordProperty("worst_backward", std::to_string(worst_backward * 1e6) + "e-6");
}

// Independent of the formulas of the backward pass, those of the plain loops included.
TEST(Attention, GradientsAreThoseOfFiniteDifferences) {
  for (const Problem& p : {Problem{{5, 70}, 4, 2, 8, true}, Problem{{5, 150}, 4, 2, 8, true, 20}}) {
    Operands<double> operands = random_operands(p);
    const std::vector<double> gradients = attend(p, operands).gradients;
    const auto objective = [&] {
      Attention<double> attention(p, operands);
      attention.forward(p.units());
      double sum = 0;
      for (size_t i = 0; i < operands.out_gradient.size(); ++i) {
        sum += attention.results().out[i] * operands.out_gradient[i];
      }
      return sum;
    };
    constexpr double kStep = 1e-5;
    for (size_t i = 0; i < operands.qkv.size(); i += 37) {
      const double here = operands.qkv[i];
      operands.qkv[i] = here + kStep;
      const double above = objective();
      operands.qkv[i] = here - kStep;
      const double below = objective();
      operands.qkv[i] = here;
      EXPECT_NEAR((above - below) / (2 * kStep), gradients[i], 1e-8)
          << p.name() << ", element " << i;
    }
  }
}

// Blocks that a window has left are not read: what is in them may be no number.
TEST(Attention, BlocksBeforeTheWindowAreNotTouched) {
  const Problem p = {{400}, 2, 1, 16, true, 70};
  const auto width = static_cast<size_t>(p.width());
  const size_t row = static_cast<size_t>(p.heads * p.dim);
  constexpr size_t kUnknown = kAttentionBlock;
  // Queries of this and later blocks see nothing before the second block of keys.
  constexpr size_t kFirst = 3 * kAttentionBlock;
  const Operands<float> operands = rounded<float>(random_operands(p));
  Operands<float> changed = operands;
  std::fill_n(changed.qkv.begin(), kUnknown * width, std::numeric_limits<float>::quiet_NaN());
  const auto known = [](const std::vector<float>& all, size_t columns) {
    return std::vector<float>(all.begin() + static_cast<int64_t>(kFirst * columns), all.end());
  };
  for (const KernelLevel level : kernel_levels()) {
    const Results<float> before = attend(p, operands, level);
    const Results<float> after = attend(p, changed, level);
    EXPECT_TRUE(same_bits(known(before.out, row), known(after.out, row))) << to_word(level);
    EXPECT_TRUE(same_bits(known(before.gradients, width), known(after.gradients, width)))
        << to_word(level);
    EXPECT_TRUE(std::isnan(after.out[2 * kAttentionBlock * row])) << "its window reaches there";
  }
}

// A window that nothing is outside of changes no bit.
TEST(Attention, AWindowOfAllTokensIsNone) {
  const Problem p = {{130}, 2, 1, 16, true};
  Problem windowed = p;
  windowed.window = 130;
  const Operands<float> operands = rounded<float>(random_operands(p));
  for (const KernelLevel level : kernel_levels()) {
    const Results<float> all = attend(p, operands, level);
    const Results<float> same = attend(windowed, operands, level);
    EXPECT_TRUE(same_bits(all.out, same.out)) << to_word(level);
    EXPECT_TRUE(same_bits(all.gradients, same.gradients)) << to_word(level);
  }
}

// Scores in the thousands: nothing overflows, and weights that are too small are 0.
TEST(Attention, GreatScoresStayFinite) {
  const Problem p = {{190}, 2, 1, 16};
  const Operands<double> operands = random_operands(p, 32);
  const Results<double> expected = attend_plainly(p, operands);
  for (const KernelLevel level : kernel_levels()) {
    const Results<float> found = attend(p, rounded<float>(operands), level);
    // A score of 4000 is known to 2^-13 at best, and a weight to as much.
    EXPECT_LT(error(found.out, expected.out), 2e-3) << to_word(level);
    EXPECT_LT(error(found.gradients, expected.gradients), 2e-3) << to_word(level);
  }
}

TEST(Attention, TheFutureAndOtherDocumentsChangeNothing) {
  const Problem p = {{100, 90}, 2, 1, 16, true};
  constexpr int64_t kKnown = 70;  // tokens of the second document before the change
  Operands<double> operands = random_operands(p);
  const size_t end = static_cast<size_t>(p.lengths[0] + kKnown);
  const size_t row = static_cast<size_t>(p.heads * p.dim);
  const size_t width = static_cast<size_t>(p.width());
  std::fill(operands.out_gradient.begin() + static_cast<int64_t>(end * row),
            operands.out_gradient.end(), 0);
  const auto known = [&](const std::vector<float>& all, size_t columns) {
    const auto first =
        all.begin() + static_cast<int64_t>(p.lengths[0]) * static_cast<int64_t>(columns);
    return std::vector<float>(first, all.begin() + static_cast<int64_t>(end * columns));
  };
  for (const KernelLevel level : kernel_levels()) {
    const Results<float> before = attend(p, rounded<float>(operands), level);
    Operands<float> changed = rounded<float>(operands);
    for (size_t i = end * width; i < changed.qkv.size(); ++i) changed.qkv[i] = 50;
    for (size_t i = 0; i < static_cast<size_t>(p.lengths[0]) * width; ++i) changed.qkv[i] = -3;
    const Results<float> after = attend(p, changed, level);
    EXPECT_TRUE(same_bits(known(before.out, row), known(after.out, row))) << to_word(level);
    EXPECT_TRUE(same_bits(known(before.gradients, width), known(after.gradients, width)))
        << to_word(level);
    EXPECT_FALSE(same_bits(before.out, after.out)) << to_word(level);
  }
}

TEST(Attention, HasTheSameBitsInAnyOrderAndOnTwoThreads) {
  const Problem p = {{70, 1, 130}, 4, 2, 24};
  const Operands<float> operands = rounded<float>(random_operands(p));
  const std::vector<AttentionUnit> units = p.units();
  const std::vector<AttentionUnit> backwards(units.rbegin(), units.rend());
  const auto middle = units.begin() + static_cast<int64_t>(units.size()) / 2;
  const std::vector<std::vector<AttentionUnit>> halves = {{units.begin(), middle},
                                                          {middle, units.end()}};
  for (const KernelLevel level : kernel_levels()) {
    const Results<float> one = attend(p, operands, level);
    Attention<float> reversed(p, operands);
    reversed.forward(backwards, level);
    reversed.backward(backwards, level);
    Attention<float> parallel(p, operands);
    std::vector<std::thread> threads;
    for (const auto& half : halves) {
      threads.emplace_back([&] {
        parallel.forward(half, level);
        parallel.backward(half, level);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Results<float>& other : {reversed.results(), parallel.results()}) {
      EXPECT_TRUE(same_bits(one.out, other.out)) << to_word(level);
      EXPECT_TRUE(same_bits(one.log_sums, other.log_sums)) << to_word(level);
      EXPECT_TRUE(same_bits(one.gradients, other.gradients)) << to_word(level);
    }
  }
}

// A bad step is recognised by what is not finite.
TEST(Attention, WhatIsNotANumberIsNotHidden) {
  const Problem p = {{80}, 1, 1, 16};
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int64_t part = 0; part < 3; ++part) {  // queries, keys, values
      Operands<float> operands = rounded<float>(random_operands(p));
      constexpr int64_t kToken = 66;
      operands.qkv[static_cast<size_t>(kToken * p.width() + part * p.dim + 3)] = bad;
      for (const KernelLevel level : kernel_levels()) {
        const Results<float> found = attend(p, operands, level);
        // An infinite key may have no weight; its gradient then is infinity times 0.
        if (std::isnan(bad)) {
          EXPECT_TRUE(std::isnan(found.out[kToken * p.dim + 3])) << part;
        }
        const auto finite = [](float x) { return std::isfinite(x); };
        EXPECT_FALSE(std::all_of(found.gradients.begin(), found.gradients.end(), finite))
            << to_word(level) << part;
      }
    }
  }
}

TEST(Levels, AscendFromTheBaseline) {
  EXPECT_EQ(kernel_levels().front(), KernelLevel::kBaseline);
  EXPECT_TRUE(std::is_sorted(kernel_levels().begin(), kernel_levels().end()));
  EXPECT_STREQ(to_word(KernelLevel::kAvx512), "avx512");
}

TEST(Levels, ObeyWhatLimitsOneDnn) {
  const KernelLevel best = kernel_levels().back();
  for (const char* isa : {static_cast<const char*>(nullptr), "", "ALL", "default", "unheard_of",
                          "AVX512_CORE", "avx512_core_amx", "AVX10_1_512"}) {
    EXPECT_EQ(kernel_level_under(isa), best);
  }
  for (const char* isa : {"AVX2", "avx2_vnni_2"}) {
    EXPECT_EQ(kernel_level_under(isa), std::min(best, KernelLevel::kAvx2)) << isa;
  }
  for (const char* isa : {"SSE41", "avx"}) {
    EXPECT_EQ(kernel_level_under(isa), KernelLevel::kBaseline) << isa;
  }
}

}  // namespace
}  // namespace hpctl
