// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/stability.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

namespace hpctl {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string spike(const StabilitySpec& spec, const std::vector<double>& past, const char* what,
                  double x) {
  if (past.size() < kFewestSteps) return "";
  const double center = median(past);
  std::vector<double> deviations;
  for (const double value : past) deviations.push_back(std::abs(value - center));
  const double spread = std::max(1.4826 * median(deviations), 0.01 * center);
  const double score = (x - center) / std::max(spread, 1e-30);
  const bool limit = spec.factor > 0 && x > spec.factor * center;
  if (score <= spec.z_score && !limit) return "";
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(),
                "%s %.6g is %.1f deviations above %.6g, the median of %zu", what, x, score, center,
                past.size());
  return text.data();
}

}  // namespace

StabilityProblem stability_problem(const StabilitySpec& spec, const StabilityRecord& record,
                                   double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    return {BadStepFinding::kNotFinite, "loss " + std::to_string(loss) + ", gradient norm " +
                                            std::to_string(grad_norm) + " is not finite"};
  }
  if (!spec.spikes) return {};
  std::string high_loss = spike(spec, record.losses, "loss", loss);
  if (!high_loss.empty()) return {BadStepFinding::kLossSpike, std::move(high_loss)};
  return {BadStepFinding::kGradientSpike,
          spike(spec, record.grad_norms, "gradient norm", grad_norm)};
}

void remember_step(const StabilitySpec& spec, StabilityRecord& record, double loss,
                   double grad_norm) {
  if (!spec.spikes) return;
  const auto window = static_cast<size_t>(spec.window);
  for (auto [values, x] : {std::pair{&record.losses, loss}, {&record.grad_norms, grad_norm}}) {
    values->push_back(x);
    if (values->size() > window) {
      values->erase(values->begin(), values->end() - static_cast<ptrdiff_t>(window));
    }
  }
}

}  // namespace hpctl
