// SPDX-License-Identifier: Apache-2.0
// Products on the processor's matrix units (trainer/kernels/matmul.h) beside plain loops in fp64,
// and where they are chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/kernels/bf16.h"
#include "trainer/kernels/level.h"
#include "trainer/kernels/matmul.h"

namespace hpctl {
namespace {

// The operands of one product, each as it lies, and what the header says of every element.
class UnitOperands {
 public:
  UnitOperands(int64_t rows, int64_t columns, int64_t depth, bool a_turned, bool b_turned)
      : rows_(rows), columns_(columns), depth_(depth) {
    std::mt19937 random(static_cast<uint32_t>(rows * 7 + columns * 3 + depth));
    const auto fill = [&](std::vector<uint16_t>& values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(bf16_of(static_cast<float>(random()) / 2e9F - 1));
      }
    };
    fill(a_, (rows + 3) * (depth + 5));
    fill(b_, (depth + 3) * (columns + 7));
    fill(bias_, columns);
    // Between lines lies something that must not be read as part of one.
    product_ = {rows, columns, depth, place(a_, rows, depth, a_turned),
                place(b_, depth, columns, b_turned)};
  }

  const Bf16Product& product() const { return product_; }
  const uint16_t* bias() const { return bias_.data(); }
  uint16_t& a(int64_t i, int64_t j) { return const_cast<uint16_t&>(*product_.a.at(i, j)); }
  size_t count() const { return static_cast<size_t>(rows_ * columns_); }

  // Expected, and how far from that a sum may be.
  std::tuple<double, double> element(int64_t i, int64_t j, double start) const {
    double sum = start;
    double magnitude = std::abs(start);
    for (int64_t d = 0; d < depth_; ++d) {
      const double factor = static_cast<double>(float_of_bf16(*product_.a.at(i, d))) *
                            static_cast<double>(float_of_bf16(*product_.b.at(d, j)));
      sum += factor;
      magnitude += std::abs(factor);
    }
    return {sum, product_error(depth_) * magnitude};
  }

  void expect_multiplied(bool biased) const {
    std::vector<uint16_t> c(count(), bf16_of(NAN));
    multiply(product_, biased ? bias() : nullptr, c.data());
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        const double start = biased ? static_cast<double>(float_of_bf16(bias()[j])) : 0;
        const auto [expected, bound] = element(i, j, start);
        const double found =
            static_cast<double>(float_of_bf16(c[static_cast<size_t>(i * columns_ + j)]));
        // Half of the last of eight bits.
        ASSERT_NEAR(found, expected, bound + std::ldexp(std::abs(expected) + bound, -8))
            << i << " " << j;
      }
    }
  }

  void expect_added() const {
    std::vector<float> c(count());
    for (size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i % 13) - 6;
    const std::vector<float> before = c;
    add_product(product_, c.data());
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        const auto at = static_cast<size_t>(i * columns_ + j);
        const auto [expected, bound] = element(i, j, static_cast<double>(before[at]));
        ASSERT_NEAR(static_cast<double>(c[at]), expected, bound) << i << " " << j;
      }
    }
  }

 private:
  static Bf16Matrix place(const std::vector<uint16_t>& values, int64_t rows, int64_t columns,
                          bool turned) {
    return {values.data(), (turned ? rows : columns) + 2, turned};
  }

  int64_t rows_, columns_, depth_;
  std::vector<uint16_t> a_, b_, bias_;
  Bf16Product product_{};
};

class MatrixUnits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_matrix_units()) GTEST_SKIP() << "this processor has no matrix units";
  }
};

TEST_F(MatrixUnits, MultiplyAsDefined) {
  // Whole blocks, less than one tile, ends in every direction, several panels of each kind.
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes = {
      {64, 64, 64}, {1, 1, 1},      {5, 3, 7},     {33, 47, 65},
      {16, 17, 31}, {3, 2100, 256}, {3, 530, 1100}};
  for (const auto& [rows, columns, depth] : sizes) {
    for (const bool a_turned : {false, true}) {
      for (const bool b_turned : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + " of " +
                     std::to_string(depth) + (a_turned ? ", a turned" : "") +
                     (b_turned ? ", b turned" : ""));
        const UnitOperands operands(rows, columns, depth, a_turned, b_turned);
        operands.expect_multiplied(/*biased=*/false);
        operands.expect_multiplied(/*biased=*/true);
        operands.expect_added();
      }
    }
  }
}

// Whoever computes which rows, and how often.
TEST_F(MatrixUnits, HaveTheSameBitsHoweverRowsAreDivided) {
  const UnitOperands operands(100, 70, 1500, true, false);
  const Bf16Product& whole = operands.product();
  std::vector<uint16_t> c(operands.count());
  std::vector<float> sums(operands.count());
  multiply(whole, operands.bias(), c.data());
  add_product(whole, sums.data());
  std::vector<uint16_t> c_parts(operands.count());
  std::vector<float> sum_parts(operands.count());
  for (int64_t row = 0; row < whole.rows;) {
    Bf16Product part = whole;
    part.rows = std::min<int64_t>(row + 1, whole.rows - row);
    part.a.data = whole.a.at(row, 0);
    multiply(part, operands.bias(), c_parts.data() + row * whole.columns);
    add_product(part, sum_parts.data() + row * whole.columns);
    row += part.rows;
  }
  EXPECT_EQ(c, c_parts);
  EXPECT_EQ(sums, sum_parts);
}

TEST_F(MatrixUnits, KeepWhatIsNotANumberInItsRow) {
  UnitOperands operands(40, 35, 50, false, true);
  operands.a(3, 7) = bf16_of(std::numeric_limits<float>::quiet_NaN());
  operands.a(5, 49) = bf16_of(std::numeric_limits<float>::infinity());
  std::vector<uint16_t> c(operands.count());
  multiply(operands.product(), nullptr, c.data());
  for (size_t i = 0; i < c.size(); ++i) {
    const bool odd = i / 35 == 3 || i / 35 == 5;
    EXPECT_EQ(std::isfinite(float_of_bf16(c[i])), !odd) << i;
  }
}

TEST(Bf16Products, AreChosenOnceAndCanBeReplaced) {
  const Bf16Products chosen = bf16_products();
  {
    const ScopedBf16Products scoped(Bf16Products::kWidened);
    EXPECT_EQ(bf16_products(), Bf16Products::kWidened);
  }
  EXPECT_EQ(bf16_products(), chosen);
  EXPECT_STREQ(to_word(Bf16Products::kWidened), "widened");
  EXPECT_STREQ(to_word(Bf16Products::kMatrixUnits), "matrix_units");
}

TEST(Bf16Products, ObeyWhatLimitsOneDnn) {
  const Bf16Products best =
      has_bf16_matrix_units() ? Bf16Products::kMatrixUnits : Bf16Products::kWidened;
  for (const char* isa : {static_cast<const char*>(nullptr), "", "ALL", "default", "unheard_of",
                          "AVX512_CORE_AMX", "avx512_core_amx_fp16"}) {
    EXPECT_EQ(bf16_products_under(isa), best);
  }
  for (const char* isa : {"SSE41", "AVX2", "AVX512_CORE", "avx512_core_bf16", "AVX10_1_512"}) {
    EXPECT_EQ(bf16_products_under(isa), Bf16Products::kWidened) << isa;
  }
}

}  // namespace
}  // namespace hpctl
