// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/flops.h"

#include "trainer/arch/registry.h"

namespace hpctl {

FlopsPerToken flops_per_token(const ModelSpec& model, const std::vector<Block>& trained,
                              int64_t seq_len, const LoraSpec& lora) {
  const int64_t looked_up = architecture_of(model).looked_up(model);
  const int64_t trained_count = parameter_count(trained) - (lora.on() ? 0 : looked_up);
  const int64_t frozen_count = lora.on() ? parameter_count(model_layout(model)) - looked_up : 0;
  const double matrices =
      6.0 * static_cast<double>(trained_count) + 4.0 * static_cast<double>(frozen_count);
  // Scores and their product with the values, each as wide as all heads, forward and twice
  // backward.
  const double of_key = 6.0 * static_cast<double>(model.layers) *
                        static_cast<double>(2 * model.heads * model.head_size());
  const auto keys = static_cast<double>(model.window(seq_len));
  // The first tokens of a sequence, as many as the window has, see half of it on average.
  const double causal_keys = keys - keys * keys / (2 * static_cast<double>(seq_len));
  const double forward =
      2.0 * static_cast<double>(trained_count + frozen_count) + of_key * keys / 3;
  return {.whole = matrices + of_key * keys,
          .causal = matrices + of_key * causal_keys,
          .forward = forward};
}

}  // namespace hpctl
