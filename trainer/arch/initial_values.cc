// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/initial_values.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/rng.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"

namespace hpctl {

namespace {

// Elements that are worth a thread: a millisecond.
constexpr int64_t kLeastPerThread = 1 << 16;

double lower_tail(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

// FNV-1a, then mixed with the seed: every tensor draws from a separate stream.
uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return mix64(mix64(seed) ^ hash);
}

// The middle of the i-th of 2^53 equal parts of (0, 1), i drawn from (key, element).
double uniform_of(uint64_t key, int64_t element) {
  const uint64_t bits = mix64(key + static_cast<uint64_t>(element) * 0x9e3779b97f4a7c15ULL);
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

double tail_quantile(double q) {
  const double numerator =
      ((((-7.784894002430293e-03 * q - 3.223964580411365e-01) * q - 2.400758277161838e+00) * q -
        2.549732539343734e+00) *
           q +
       4.374664141464968e+00) *
          q +
      2.938163982698783e+00;
  const double denominator =
      (((7.784695709041462e-03 * q + 3.224671290700398e-01) * q + 2.445134137142996e+00) * q +
       3.754408661907416e+00) *
          q +
      1.0;
  return numerator / denominator;
}

// Elements [first, first + count) of a tensor, counted row-major.
void fill_elements(const ModelSpec& model, const Block& block, const TensorSlot& tensor,
                   uint64_t seed, int64_t first, int64_t count, float* out) {
  if (tensor.shape.size() == 1) {
    std::fill(out, out + count, tensor.name.ends_with(".bias") ? 0.0F : 1.0F);
    return;
  }
  if (tensor.name.ends_with(kLoraB)) {
    std::fill(out, out + count, 0.0F);
    return;
  }
  const uint64_t key = stream_key(seed, tensor.name);
  if (const std::optional<double> bound = lora_a_bound(tensor)) {
    for (int64_t i = 0; i < count; ++i) {
      const double u = uniform_of(key, first + i);
      out[i] = static_cast<float>(*bound * (2 * u - 1));
    }
    return;
  }
  const InitialDistribution d = architecture_of(model).initial(model, block, tensor.name);
  // Probabilities between which the quantile function is evaluated.
  const double low = d.cut > 0 ? lower_tail(-d.cut) : 0;
  const double high = d.cut > 0 ? lower_tail(d.cut) : 1;
  for (int64_t i = 0; i < count; ++i) {
    const double u = uniform_of(key, first + i);
    out[i] = static_cast<float>(d.std * normal_quantile(low + (high - low) * u));
  }
}

void fill_range(const ModelSpec& model, const Block& block, uint64_t seed, ElementRange range,
                float* out) {
  std::fill(out, out + range.size(), 0.0F);
  for (const TensorSlot& tensor : block.tensors) {
    const ElementRange part = intersect(range, {tensor.offset, tensor.offset + tensor.numel});
    if (part.empty()) continue;
    fill_elements(model, block, tensor, seed, part.begin - tensor.offset, part.size(),
                  out + (part.begin - range.begin));
  }
}

}  // namespace

double normal_quantile(double p) {
  constexpr double kTail = 0.02425;
  if (p < kTail) return tail_quantile(std::sqrt(-2.0 * std::log(p)));
  if (p > 1.0 - kTail) return -tail_quantile(std::sqrt(-2.0 * std::log1p(-p)));
  const double q = p - 0.5;
  const double r = q * q;
  const double numerator =
      (((((-3.969683028665376e+01 * r + 2.209460984245205e+02) * r - 2.759285104469687e+02) * r +
         1.383577518672690e+02) *
            r -
        3.066479806614716e+01) *
           r +
       2.506628277459239e+00) *
      q;
  const double denominator =
      ((((-5.447609879822406e+01 * r + 1.615858368580409e+02) * r - 1.556989798598866e+02) * r +
        6.680131188771972e+01) *
           r -
       1.328068155288572e+01) *
          r +
      1.0;
  return numerator / denominator;
}

void fill_initial_values(const ModelSpec& model, const Block& block, uint64_t seed,
                         ElementRange range, float* out, int threads) {
  const int64_t parts = std::clamp<int64_t>(range.size() / kLeastPerThread, 1, threads);
  const auto fill_part = [&](int64_t part) {
    const ElementRange own = {range.begin + range.size() * part / parts,
                              range.begin + range.size() * (part + 1) / parts};
    fill_range(model, block, seed, own, out + (own.begin - range.begin));
  };
  std::vector<std::thread> others;
  for (int64_t part = 1; part < parts; ++part) others.emplace_back(fill_part, part);
  fill_part(0);
  for (std::thread& other : others) other.join();
}

void fill_initial_local(const ModelSpec& model, const Block& block, const TensorSlot& tensor,
                        uint64_t seed, const LocalTensor& local, float* out) {
  const bool is_matrix = tensor.shape.size() == 2;
  const int64_t row = local.shape.back();
  for (const PlacedBox& placed : local.boxes) {
    const std::vector<int64_t>& offsets = placed.box.offsets;
    const int64_t length = placed.box.lengths.back();
    const int64_t rows = is_matrix ? placed.box.lengths.front() : 1;
    const int64_t first_row = is_matrix ? offsets.front() : 0;
    float* own = out + placed.local_begin * (is_matrix && local.dim == 0 ? row : 1);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = (first_row + r) * tensor.shape.back() + offsets.back();
      fill_elements(model, block, tensor, seed, first, length, own + r * row);
    }
  }
}

}  // namespace hpctl
