// SPDX-License-Identifier: Apache-2.0
// How often a GPU's state is copied to host memory (recovery.snapshot.every_steps). A copy runs
// beside a step, and slows it by what it takes of the memory's bandwidth and by what the step waits
// for it. With `auto` the state is copied after every step if that costs less than one percent of a
// step, otherwise after every k-th, so that it costs less than one percent of all.
//
// The cost is measured: the median of the steps beside a copy, less the median of those without
// one. A generation begins with a trial, in which every second step is copied. Later medians are
// looked at again every kReview steps, and k at most doubles then. Where all steps are copied,
// those without a copy are the ones measured before; if steps have become slower for another
// reason, every second one is left out and measured, until the next look.
//
// All numbers are the same on all ranks, so all ranks copy the same steps. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace hpctl {

// The fewest steps from a copy to the next with which copies cost less than a hundredth of the
// time. In seconds of a step: without a copy, and beside one. 1 to kMostStepsBetweenCopies.
int64_t steps_between_copies(double plain_s, double beside_copy_s);
inline constexpr int64_t kMostStepsBetweenCopies = 1000;

class CopyPace {
 public:
  static constexpr size_t kTrial = 4;   // steps of each kind
  static constexpr size_t kWindow = 9;  // of each kind, whose median counts
  static constexpr int64_t kReview = 32;
  // The first steps of a process compile, and choose kernels.
  static constexpr int64_t kUncounted = 2;

  // Steps between two copies; 0 = auto.
  explicit CopyPace(int64_t every_steps) : fixed_(every_steps), every_(fixed_ > 0 ? fixed_ : 2) {}

  // A step that was completed: its seconds, the mean of all ranks, and whether a copy was under way
  // in it. True if every() has become another, or is decided for the first time.
  bool step_done(double seconds, bool beside_copy);
  // After a step: whether its state is to be copied. `copied`: the newest step that is.
  bool is_due(uint64_t step, uint64_t copied) const {
    return step >= copied + static_cast<uint64_t>(every_);
  }
  int64_t every() const { return every_; }
  bool is_trial() const { return fixed_ == 0 && !is_decided_; }
  // In seconds, of a step; 0 = none is measured.
  double plain_s() const;
  double beside_copy_s() const;

 private:
  int64_t fixed_;
  int64_t every_;
  bool is_decided_ = false;
  int64_t steps_ = 0;
  int64_t since_review_ = 0;
  std::deque<double> plain_;
  std::deque<double> beside_copy_;
};

}  // namespace hpctl
