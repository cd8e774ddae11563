// SPDX-License-Identifier: Apache-2.0
// Attention on matrix units beside the kernel in fp64, which kernels_test.cc has beside plain loops
// and finite differences. Operands are bf16 in both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/kernels/attention.h"
#include "trainer/kernels/bf16.h"

namespace hpctl {
namespace {

struct TiledProblem {
  std::vector<int64_t> lengths;
  int64_t heads;
  int64_t kv_heads;
  int64_t dim;
  bool rotary;
  int64_t window;

  int64_t tokens() const {
    int64_t sum = 0;
    for (const int64_t length : lengths) sum += length;
    return sum;
  }
  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
};

template <typename T>
T value_of(uint16_t bits) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    return bits;
  } else {
    return static_cast<double>(float_of_bf16(bits));
  }
}

double number(uint16_t bits) { return static_cast<double>(float_of_bf16(bits)); }
double number(double value) { return value; }

template <typename T>
class TiledAttention {
 public:
  explicit TiledAttention(const TiledProblem& p) : problem_(p) {
    std::mt19937 random(5);
    const auto values = [&](std::vector<T>& to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        to.push_back(value_of<T>(bf16_of(static_cast<float>(random()) / 1.25e9F - 1.7F)));
      }
    };
    values(qkv, p.tokens() * p.width());
    values(out_gradient, p.tokens() * p.heads * p.dim);
    const int64_t longest = *std::max_element(p.lengths.begin(), p.lengths.end());
    for (int64_t i = 0; p.rotary && i < longest * (p.dim / 2); ++i) {
      const double angle = static_cast<double>(i / (p.dim / 2)) *
                           std::pow(0.7, static_cast<double>(i % (p.dim / 2)));
      cosines.push_back(static_cast<Wide<T>>(std::cos(angle)));
      sines.push_back(static_cast<Wide<T>>(std::sin(angle)));
    }
  }

  void run() {
    const TiledProblem& p = problem_;
    const T unwritten = value_of<T>(0x7fc0);
    out.assign(out_gradient.size(), unwritten);
    gradients.assign(qkv.size(), unwritten);
    log_sums.assign(static_cast<size_t>(p.heads * p.tokens()), 0);
    const AttentionShape shape = {
        p.tokens(), p.heads, p.kv_heads, p.dim, 1.0 / std::sqrt(static_cast<double>(p.dim)),
        p.window};
    RotaryTables<Wide<T>> tables;
    if (p.rotary) tables = {cosines.data(), sines.data()};
    const int64_t row = p.heads * p.dim;
    const int64_t keys = p.heads * p.dim;
    const int64_t values = (p.heads + p.kv_heads) * p.dim;
    const AttentionForward<T> forward = {shape,
                                         {qkv.data(), p.width()},
                                         {qkv.data() + keys, p.width()},
                                         {qkv.data() + values, p.width()},
                                         {out.data(), row},
                                         log_sums.data(),
                                         tables};
    const AttentionBackward<T> backward = {shape,
                                           {qkv.data(), p.width()},
                                           {qkv.data() + keys, p.width()},
                                           {qkv.data() + values, p.width()},
                                           {out.data(), row},
                                           {out_gradient.data(), row},
                                           log_sums.data(),
                                           {gradients.data(), p.width()},
                                           {gradients.data() + keys, p.width()},
                                           {gradients.data() + values, p.width()},
                                           tables};
    const AttentionScratch<T> scratch(shape, *std::max_element(p.lengths.begin(), p.lengths.end()));
    int64_t begin = 0;
    for (const int64_t length : p.lengths) {
      for (int64_t n = 0; n < p.kv_heads; ++n)
        attention_forward(forward, {begin, length, n}, scratch);
      for (int64_t n = 0; n < p.kv_heads; ++n) {
        attention_backward(backward, {begin, length, n}, scratch);
      }
      begin += length;
    }
  }

  std::vector<T> qkv, out_gradient;
  std::vector<T> out, gradients;
  std::vector<Wide<T>> log_sums;

 private:
  TiledProblem problem_;
  std::vector<Wide<T>> cosines, sines;
};

template <typename A, typename B>
double tiled_error(const std::vector<A>& found, const std::vector<B>& expected) {
  double largest = 0;
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(number(expected[i])));
    const double here = std::abs(number(found[i]) - number(expected[i]));
    if (std::isnan(here)) return here;
    difference = std::max(difference, here);
  }
  return difference / largest;
}

class AttentionTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_matrix_units()) GTEST_SKIP() << "this processor has no matrix units";
  }
};

TEST_F(AttentionTiles, AgreeWithTheKernelInFp64) {
  // Heads that share keys, ends within tiles and blocks, dimensions less and more than a tile's.
  const std::vector<TiledProblem> problems = {{{64}, 1, 1, 16, false, kNoWindow},
                                              {{128}, 2, 2, 16, false, kNoWindow},
                                              {{1, 15, 17, 1}, 2, 1, 8, true, kNoWindow},
                                              {{200, 1, 77}, 4, 2, 16, true, kNoWindow},
                                              {{130, 65}, 2, 1, 24, true, kNoWindow},
                                              {{300}, 2, 1, 64, true, 70},
                                              {{200}, 2, 2, 8, true, 5},
                                              {{190}, 1, 1, 80, true, 130},
                                              {{150}, 1, 1, 2, false, 1}};
  for (const TiledProblem& problem : problems) {
    SCOPED_TRACE("heads of " + std::to_string(problem.dim) + ", first document of " +
                 std::to_string(problem.lengths[0]));
    TiledAttention<uint16_t> found(problem);
    TiledAttention<double> expected(problem);
    found.run();
    expected.run();
    EXPECT_LT(tiled_error(found.out, expected.out), kAttentionErrorBf16);
    EXPECT_LT(tiled_error(found.gradients, expected.gradients), kAttentionErrorBf16);
    for (size_t i = 0; i < found.log_sums.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(found.log_sums[i]), expected.log_sums[i], kLogSumErrorBf16);
    }
  }
}

TEST_F(AttentionTiles, HaveTheSameBitsAgain) {
  const TiledProblem problem = {{200, 77}, 4, 2, 16, true, kNoWindow};
  TiledAttention<uint16_t> one(problem);
  TiledAttention<uint16_t> other(problem);
  one.run();
  other.run();
  EXPECT_EQ(one.out, other.out);
  EXPECT_EQ(one.log_sums, other.log_sums);
  EXPECT_EQ(one.gradients, other.gradients);
}

// A document depends on no other, and a query on no later block.
TEST_F(AttentionTiles, DoNotHideWhatIsNotANumber) {
  const TiledProblem problem = {{150, 50}, 1, 1, 16, true, kNoWindow};
  TiledAttention<uint16_t> attention(problem);
  const int64_t token = 130;
  attention.qkv[static_cast<size_t>(token * problem.width() + problem.dim)] = 0x7fc0;  // of the key
  attention.run();
  for (int64_t t = 0; t < problem.tokens(); ++t) {
    const bool nan = std::isnan(number(attention.out[static_cast<size_t>(t * problem.dim)]));
    if (t >= 128 && t < token) continue;  // before it in its block
    EXPECT_EQ(nan, t >= token && t < 150) << t;
  }
}

}  // namespace
}  // namespace hpctl
