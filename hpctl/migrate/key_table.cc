// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/key_table.h"

#include <algorithm>

namespace hpctl::migrate {

std::span<const Tool* const> tools() {
  static const Tool* const all[] = {&torchtitan_tool(), &deepspeed_tool(), &megatron_tool(),
                                    &fsdp_guide_tool(), &hf_config_tool(), &hf_trainer_tool(),
                                    &slurm_tool(),      &launcher_tool()};
  return all;
}

const Row* find_row(const Tool& tool, std::string_view key) {
  for (;;) {
    const auto row = std::find_if(tool.rows.begin(), tool.rows.end(),
                                  [&](const Row& candidate) { return candidate.key == key; });
    if (row != tool.rows.end()) return &*row;
    const size_t dot = key.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    key = key.substr(0, dot);
  }
}

bool is_one_of(std::string_view text, std::string_view list) {
  while (!list.empty()) {
    const size_t bar = list.find('|');
    if (list.substr(0, bar) == text) return true;
    if (bar == std::string_view::npos) return false;
    list.remove_prefix(bar + 1);
  }
  return false;
}

}  // namespace hpctl::migrate
