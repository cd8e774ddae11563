// SPDX-License-Identifier: Apache-2.0
#include "hpctl/lemons.h"

#include <array>
#include <cstdio>

#include "common/base/clock.h"
#include "common/base/json_text.h"
#include "common/job/node_record_files.h"

namespace hpctl {

std::vector<LemonScore> read_lemon_scores(const HomePaths& paths) {
  return lemon_scores(NodeRecordFiles(node_records_directory(paths)).look(),
                      SystemClock().wall_ms());
}

std::string lemon_text(const LemonScore& score) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f%s", score.score, score.is_lemon() ? " lemon" : "");
  return text.data();
}

nlohmann::ordered_json lemon_json(const LemonScore& score) {
  return {{"score", score.score},
          {"lemon", score.is_lemon()},
          {"records", score.records},
          {"reason", score.worst}};
}

void show_lemons(const Terminal& terminal, const std::vector<LemonScore>& scores, bool json) {
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const LemonScore& score : scores) {
      list.push_back({{"name", score.node}, {"instance_id", score.instance}});
      list.back().update(lemon_json(score));
    }
    terminal.out << json_text(nlohmann::ordered_json{{"nodes", list}}) << "\n";
    return;
  }
  if (scores.empty()) {
    terminal.err << "no job speaks against any node\n";
    return;
  }
  Table table({"NODE", "INSTANCE", "LEMON", "RECORDS", "REASON"});
  for (const LemonScore& score : scores) {
    table.add({printable(score.node), printable(score.instance), lemon_text(score),
               std::to_string(score.records), printable(score.worst)},
              score.is_lemon() ? Colour::kRed : Colour::kNone);
  }
  table.print(terminal);
}

}  // namespace hpctl
