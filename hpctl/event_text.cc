// SPDX-License-Identifier: Apache-2.0
#include "hpctl/event_text.h"

#include <algorithm>
#include <array>
#include <cctype>
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
  if (is_one_of(event.type, {"WorkerExited", "WorkersExited", "NodeLost", "NodeDown",
                             "HangDetected", "JobFailed", "CheckpointDamaged", "CheckpointGone",
                             "DeadlinePassed", "HardwareFaultSuspected", "TrainingStopped"})) {
    return Colour::kRed;
  }
  if (is_one_of(event.type,
                {"JobRecovering", "ControllerResumed", "CauseFound", "CauseAwaited", "BackOff",
                 "NonFiniteFound", "LossSpiked", "GradientSpiked", "TrainingRolledBack",
                 "StragglerFound", "SpareFoundUnfit", "DamageNotConfirmed"})) {
    return Colour::kYellow;
  }
  if (is_one_of(event.type, {"JobRunning", "JobFinished"})) return Colour::kGreen;
  return Colour::kNone;
}

void print_event(const Terminal& terminal, const EventView& event) {
  std::string type = printable(event.type);
  type.resize(std::max(kTypeColumns, type.size()), ' ');
  const std::string time = format_wall_ms(event.wall_ms) + "  ";
  const size_t indent = time.size() + type.size() + 2;
  terminal.out << time << paint(terminal, colour_of_event(event), type) << "  "
               << wrap(printable(with_job_paths(event.cause, event.job)), terminal.width, indent)
               << "\n";
}

std::string with_job_paths(std::string text, uint64_t job) {
  constexpr std::string_view kDirectory = "/jobs/submit-";
  for (size_t at = 0; (at = text.find(kDirectory, at)) != std::string::npos; ++at) {
    const size_t name = at + std::string_view("/jobs/").size();
    size_t end = name + std::string_view("submit-").size();
    while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    text.replace(name, end - name, std::to_string(job));
  }
  return text;
}

}  // namespace hpctl
