// SPDX-License-Identifier: Apache-2.0
// A training job's results on text that it was not trained on, for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hpctl {

// For the newest step of metrics.jsonl: "validation" and "test" with "loss 2.3456, perplexity 10.44
// over 120 sequences", as far as there are any. A missing or damaged file has none.
std::vector<std::pair<std::string, std::string>> last_evaluations(const std::string& metrics_path);

struct Validation {
  uint64_t step = 0;
  double loss = 0;
};
// The newest one among the last steps of metrics.jsonl; nullopt = there is none.
std::optional<Validation> newest_validation(const std::string& metrics_path);

}  // namespace hpctl
