// SPDX-License-Identifier: Apache-2.0
#include "trainer/schedule/action.h"

#include <array>
#include <cstddef>

namespace hpctl {
namespace {

constexpr std::array<std::string_view, 12> kActionNames = {
    "",       "F",      "B",      "I",       "W",       "SEND_F",
    "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"};

}  // namespace

std::string_view kind_name(ActionKind kind) { return kActionNames.at(static_cast<size_t>(kind)); }

bool is_compute(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward ||
         kind == ActionKind::kBackwardInput || kind == ActionKind::kBackwardWeight;
}

bool has_micro(ActionKind kind) { return kind != ActionKind::kIdle && kind < ActionKind::kUnshard; }

std::string action_text(const Action& action) {
  if (action.kind == ActionKind::kIdle) return {};
  std::string text = std::to_string(action.stage);
  text += kind_name(action.kind);
  if (has_micro(action.kind)) text += std::to_string(action.micro);
  return text;
}

}  // namespace hpctl
