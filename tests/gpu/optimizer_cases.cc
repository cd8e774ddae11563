// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <random>
#include <span>
#include <type_traits>

#include "tests/gpu/kernel_cases.h"
#include "trainer/kernels/bf16_rounding.h"
#include "trainer/optim/adamw.h"

namespace hpctl::testing {

namespace {

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> made(static_cast<size_t>(count));
  for (float& value : made) value = normal(random);
  return made;
}

template <typename M>
std::vector<M> kept_as(const std::vector<float>& values) {
  if constexpr (std::is_same_v<M, float>) {
    return values;
  } else {
    std::vector<M> made(values.size());
    round_to_bf16(values.data(), made.data(), static_cast<int64_t>(values.size()));
    return made;
  }
}

template <typename T>
DeviceArray<T> sent(Device& device, const std::vector<T>& values) {
  DeviceArray<T> there(device, values.size());
  device.upload(values.data(), there.data(), values.size() * sizeof(T));
  return there;
}

template <typename T>
std::vector<T> fetched(Device& device, const DeviceArray<T>& there) {
  std::vector<T> values(there.size());
  device.download(there.data(), values.data(), values.size() * sizeof(T));
  return values;
}

// Parameter and moments.
template <typename P, typename M>
struct AdamState {
  std::vector<P> param;
  std::vector<M> exp_avg;
  std::vector<M> exp_avg_sq;
  std::vector<uint16_t> rounded = {};  // AdamTarget::rounded, after a step
  bool operator==(const AdamState&) const = default;
};

// Elements from `first` on, in place. The random bits begin at a place whose number wraps around.
template <typename P, typename M>
AdamState<P, M> step_of(Device& device, const AdamState<P, M>& state,
                        const std::vector<float>& gradient, int64_t first, bool decayed) {
  const AdamStep step(OptimizerSpec{}, 3, 1e-2, 0.7);
  const DeviceArray<P> param = sent(device, state.param);
  const DeviceArray<M> exp_avg = sent(device, state.exp_avg);
  const DeviceArray<M> exp_avg_sq = sent(device, state.exp_avg_sq);
  const DeviceArray<float> slopes = sent(device, gradient);
  const DeviceArray<uint16_t> rounded = sent(device, std::vector<uint16_t>(state.param.size()));
  AdamTarget<float, M, P> to = {param.data() + first, exp_avg.data() + first,
                                exp_avg_sq.data() + first};
  if constexpr (std::is_same_v<P, float>) to.rounded = rounded.data() + first;
  const AdamSource<float, M, P> from = {to.param, to.exp_avg, to.exp_avg_sq, slopes.data() + first};
  const RandomBits bits = random_bits(17, step, 5, (int64_t{1} << 32) - 1000 + first);
  device.adamw(step, decayed, bits, static_cast<int64_t>(gradient.size()) - first, from, to);
  return {fetched(device, param), fetched(device, exp_avg), fetched(device, exp_avg_sq),
          fetched(device, rounded)};
}

template <typename P, typename M>
void add_adamw_problems(TorchDevice& device, const Repeat& repeat, const std::string& types,
                        std::vector<std::string>& problems) {
  for (const int64_t count : {1, 5, 1000, 4099}) {
    std::vector<float> squares = random_floats(count, 3);
    for (float& value : squares) value *= value;
    const AdamState<P, M> before = {kept_as<P>(random_floats(count, 1)),
                                    kept_as<M>(random_floats(count, 2)), kept_as<M>(squares)};
    const std::vector<float> gradient = random_floats(count, 4);
    for (const int64_t first : {0, 1}) {
      if (first >= count) continue;
      for (const bool decayed : {true, false}) {
        const auto expected = step_of(host_device(), before, gradient, first, decayed);
        repeat([&] {
          if (step_of(device, before, gradient, first, decayed) == expected) return;
          problems.push_back("AdamW with " + types + ", " + std::to_string(count) +
                             " elements from " + std::to_string(first) +
                             ": not the bits of the host");
        });
      }
    }
  }
}

// Of parts of these sizes, which lie one behind the other from `begin` on.
double squares_of(TorchDevice& device, const DeviceArray<float>& numbers, size_t begin,
                  const std::vector<size_t>& sizes) {
  std::vector<std::span<const float>> parts;
  for (const size_t size : sizes) {
    parts.emplace_back(numbers.data() + begin, size);
    begin += size;
  }
  const DeviceArray<double> sum(device, 1);
  device.sum_of_squares(parts, sum.data());
  return fetched(device, sum)[0];
}

}  // namespace

std::vector<std::string> adamw_problems(TorchDevice& device, const Repeat& repeat) {
  std::vector<std::string> problems;
  add_adamw_problems<float, float>(device, repeat, "state in fp32", problems);
  add_adamw_problems<float, uint16_t>(device, repeat, "moments in bf16", problems);
  add_adamw_problems<uint16_t, uint16_t>(device, repeat, "all state in bf16", problems);
  return problems;
}

std::vector<std::string> squares_problems(TorchDevice& device, const Repeat& repeat) {
  std::vector<std::string> problems;
  const std::vector<float> x = random_floats(50001, 7);
  // The same numbers where they cannot be loaded at once.
  std::vector<float> shifted = {0};
  shifted.insert(shifted.end(), x.begin(), x.end());
  const DeviceArray<float> numbers = sent(device, x);
  const DeviceArray<float> elsewhere = sent(device, shifted);
  const auto expect = [&](bool holds, const std::string& what, size_t count) {
    if (!holds) problems.push_back("squares of " + std::to_string(count) + ": " + what);
  };
  for (const size_t count : {1, 4, 1027, 16384, 16385, 50001}) {
    double expected = 0;
    for (size_t i = 0; i < count; ++i) expected += static_cast<double>(x[i]) * x[i];
    const double first = squares_of(device, numbers, 0, {count});
    expect(std::abs(first - expected) <= kSquaresBound * expected, "not their sum", count);
    repeat([&] {
      expect(squares_of(device, numbers, 0, {count}) == first, "other bits", count);
      expect(squares_of(device, elsewhere, 1, {count}) == first, "other bits elsewhere", count);
    });
  }
  const double both = squares_of(device, numbers, 0, {20000, 0, 300});
  const double apart =
      squares_of(device, numbers, 0, {20000}) + squares_of(device, numbers, 20000, {300});
  expect(std::abs(both - apart) <= kSquaresBound * apart, "not the sum of their parts", 20300);
  expect(squares_of(device, numbers, 0, {}) == 0, "not 0", 0);
  return problems;
}

}  // namespace hpctl::testing
