// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "common/base/clock.h"

namespace hpctl {
namespace {

struct Component {
  std::mutex mutex;
  std::string name = "hpctl";
};

Component& component() {
  static Component the_one;
  return the_one;
}

std::string component_name() {
  const std::lock_guard lock(component().mutex);
  return component().name;
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

void set_log_component(std::string name) {
  const std::lock_guard lock(component().mutex);
  component().name = std::move(name);
}

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
