// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/flops.h"

#include "trainer/arch/registry.h"

namespace hpctl {

FlopsPerToken flops_per_token(const ModelSpec& model, const std::vector<Block>& trained,
                              int64_t seq_len, const LoraSpec& lora) {
  const int64_t looked_up = architecture_of(model).looked_up(model);
  const double matrices =
      lora.on() ? 6.0 * static_cast<double>(parameter_count(trained)) +
                      4.0 * static_cast<double>(parameter_count(model_layout(model)) - looked_up)
                : 6.0 * static_cast<double>(parameter_count(trained) - looked_up);
  // Scores and their product with the values, each as wide as all heads, forward and twice
  // backward.
  const double of_key = 6.0 * static_cast<double>(model.layers) *
                        static_cast<double>(2 * model.heads * model.head_size());
  const auto keys = static_cast<double>(model.window(seq_len));
  // The first tokens of a sequence, as many as the window has, see half of it on average.
  const double causal_keys = keys - keys * keys / (2 * static_cast<double>(seq_len));
  return {.whole = matrices + of_key * keys, .causal = matrices + of_key * causal_keys};
}

}  // namespace hpctl
