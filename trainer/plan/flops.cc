// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/flops.h"

#include "trainer/arch/registry.h"

namespace hpctl {

FlopsPerToken flops_per_token(const ModelSpec& model, const std::vector<Block>& blocks,
                              int64_t seq_len) {
  const int64_t parameters = parameter_count(blocks) - architecture_of(model).looked_up(model);
  // Scores and their product with the values, each dim wide, forward and twice backward.
  const double attention = 6.0 * static_cast<double>(model.layers) *
                           static_cast<double>(2 * model.dim) * static_cast<double>(seq_len);
  const double matrices = 6.0 * static_cast<double>(parameters);
  return {.whole = matrices + attention, .causal = matrices + attention / 2};
}

}  // namespace hpctl
