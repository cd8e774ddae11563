// SPDX-License-Identifier: Apache-2.0
#include "hpctl/event_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/clock.h"

namespace hpctl {
namespace {

constexpr size_t kTypeColumns = 20;

bool is_one_of(const std::string& word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

std::string wrap(const std::string& text, size_t width, size_t indent) {
  std::string result;
  size_t used = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const size_t length = columns(word);
    if (used > indent && used + 1 + length > width) {
      result += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (used > indent) {
      result += ' ';
      ++used;
    }
    result += word;
    used += length;
    begin = end + 1;
  }
  return result;
}

Colour colour_of_event(const EventView& event) {
  if (is_one_of(event.type, {"WorkerExited", "NodeLost", "NodeDown", "HangDetected", "JobFailed",
                             "CheckpointDamaged", "DeadlinePassed", "HardwareFaultSuspected",
                             "TrainingStopped"})) {
    return Colour::kRed;
  }
  if (is_one_of(event.type,
                {"JobRecovering", "ControllerResumed", "CauseFound", "BackOff", "NonFiniteFound",
                 "LossSpiked", "GradientSpiked", "TrainingRolledBack"})) {
    return Colour::kYellow;
  }
  if (is_one_of(event.type, {"JobRunning", "JobFinished"})) return Colour::kGreen;
  return Colour::kNone;
}

void print_event(const Terminal& terminal, const EventView& event) {
  std::string type = printable(event.type);
  type.resize(std::max(kTypeColumns, type.size()), ' ');
  const std::string head = format_wall_ms(event.wall_ms).substr(11, 12) + "  " + type + "  ";
  terminal.out << head.substr(0, 14) << paint(terminal, colour_of_event(event), type) << "  "
               << wrap(printable(event.cause), terminal.width, head.size()) << "\n";
}

}  // namespace hpctl
