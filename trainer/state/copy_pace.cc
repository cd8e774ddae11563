// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/copy_pace.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hpctl {

namespace {

constexpr double kMostOfAStep = 0.01;

double median(const std::deque<double>& of) {
  if (of.empty()) return 0;
  std::vector<double> sorted(of.begin(), of.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

void remember(std::deque<double>& window, double seconds) {
  window.push_back(seconds);
  if (window.size() > CopyPace::kWindow) window.pop_front();
}

}  // namespace

int64_t steps_between_copies(double plain_s, double beside_copy_s) {
  if (!(plain_s > 0) || !(beside_copy_s > plain_s)) return 1;
  const double share = (beside_copy_s - plain_s) / plain_s;
  const double steps = std::floor(share / kMostOfAStep) + 1;
  if (!(steps < static_cast<double>(kMostStepsBetweenCopies))) return kMostStepsBetweenCopies;
  return static_cast<int64_t>(steps);
}

bool CopyPace::step_done(double seconds, bool beside_copy) {
  if (fixed_ > 0 || ++steps_ <= kUncounted) return false;
  remember(beside_copy ? beside_copy_ : plain_, seconds);
  ++since_review_;
  const bool is_measured = plain_.size() >= kTrial && beside_copy_.size() >= kTrial;
  if (!is_measured || (is_decided_ && since_review_ < kReview)) return false;
  const int64_t measured = steps_between_copies(plain_s(), beside_copy_s());
  // Steps without a copy may have been measured long ago: a few are measured anew first.
  const int64_t steps = is_decided_ ? std::min(measured, 2 * every_) : measured;
  const bool is_news = !is_decided_ || steps != every_;
  every_ = steps;
  is_decided_ = true;
  since_review_ = 0;
  return is_news;
}

double CopyPace::plain_s() const { return median(plain_); }
double CopyPace::beside_copy_s() const { return median(beside_copy_); }

}  // namespace hpctl
