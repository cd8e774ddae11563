// SPDX-License-Identifier: Apache-2.0
// A training state that takes optimizer steps without a model: its gradients are a number.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "trainer/state/training_state.h"

namespace hpctl::test {

inline TrainingState make_state(const Workload& workload) {
  auto created =
      TrainingState::create(-1, workload, {.fingerprint = "none", .tokens = 0, .seq_len = 8}, {});
  EXPECT_TRUE(created.ok()) << created.error().message;
  return std::move(created).value();
}

// All that this rank has of the newest state, as it is kept.
inline std::vector<std::byte> bytes_of(TrainingState& state) {
  std::vector<std::byte> bytes;
  for (const StateKind kind : kStateKinds) {
    for (size_t b = 0; b < state.blocks().size(); ++b) {
      const ElementRange range = state.padded_shard(b);
      const size_t at = bytes.size();
      bytes.resize(at + static_cast<size_t>(range.size()) * state.element_bytes(kind));
      state.begin_read_sealed(kind, b, range, bytes.data() + at);
    }
  }
  return bytes;
}

class Steps {
 public:
  explicit Steps(TrainingState& state, float gradient = 0.1F) : state_(state) {
    for (size_t b = 0; b < state.blocks().size(); ++b) {
      gradients_.emplace_back(static_cast<size_t>(state.padded_shard(b).size()), gradient);
    }
    for (const std::vector<float>& values : gradients_) pointers_.push_back(values.data());
  }
  void take() { state_.apply(AdamStep({}, state_.step() + 1, 1e-3, 1.0), pointers_, 0); }

 private:
  TrainingState& state_;
  std::vector<std::vector<float>> gradients_;
  std::vector<const float*> pointers_;
};

}  // namespace hpctl::test
