// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <unistd.h>

#include "common/base/clock.h"

namespace hpctl {
namespace {

std::string& component_name() {
  static std::string name = "hpctl";
  return name;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return " I ";
    case LogLevel::kWarning:
      return " W ";
    case LogLevel::kError:
      return " E ";
  }
  return " ? ";
}

}  // namespace

void set_log_component(std::string component) { component_name() = std::move(component); }

void log_line(LogLevel level, std::string_view text) {
  std::string line = format_wall_ms(SystemClock().wall_ms());
  line += level_name(level);
  line += component_name();
  line += ": ";
  line += text;
  line += '\n';
  // A log that cannot be written must not stop the program; there is nowhere to report it.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace hpctl
