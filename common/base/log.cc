// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
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

// Entries that stderr did not take since the last one that it took.
std::atomic<uint64_t> lost_entries{0};

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

std::string line_of(LogLevel level, std::string_view text) {
  std::string line = format_wall_ms(SystemClock().wall_ms());
  line += level_name(level);
  line += component_name();
  line += ": ";
  line += text;
  line += '\n';
  return line;
}

}  // namespace

void set_log_component(std::string name) {
  const std::lock_guard lock(component().mutex);
  component().name = std::move(name);
}

void log_line(LogLevel level, std::string_view text) { log_text(line_of(level, text)); }

void log_text(std::string_view text) {
  std::string bytes;
  const uint64_t lost = lost_entries.exchange(0);
  if (lost > 0) {
    bytes = line_of(LogLevel::kWarning, std::to_string(lost) + " lines of this log are lost: " +
                                            "its file could not be written");
  }
  bytes += text;
  // A log that cannot be written must not stop the program. The next entry reports it.
  const ssize_t written = ::write(STDERR_FILENO, bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size())) lost_entries += lost + 1;
}

}  // namespace hpctl
