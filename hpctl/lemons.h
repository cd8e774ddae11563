// SPDX-License-Identifier: Apache-2.0
// Lemon scores (common/job/node_record.h) as `hpctl nodes` shows them.
#pragma once

#include <string>
#include <vector>

#include "common/base/json.h"
#include "common/job/node_record.h"
#include "hpctl/terminal.h"

namespace hpctl {

// For this home, now.
std::vector<LemonScore> read_lemon_scores(const HomePaths& paths);
// "4.0 lemon", "0.5".
std::string lemon_text(const LemonScore& score);
// {"score", "lemon", "records", "reason"}
nlohmann::ordered_json lemon_json(const LemonScore& score);
// The whole list: `hpctl nodes lemons`.
void show_lemons(const Terminal& terminal, const std::vector<LemonScore>& scores, bool json);

}  // namespace hpctl
