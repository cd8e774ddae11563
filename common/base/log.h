// SPDX-License-Identifier: Apache-2.0
// One line per entry on stderr: time, level, component, text. One write() per line, so that lines
// of several processes sharing a file do not interleave. Not for use between fork and exec.
//
// A process with a liveness deadline lets its stderr go through a log writer (log_writer.h). That
// end does not block: what it does not take is dropped, and the next line tells how much.
#pragma once

#include <string>
#include <string_view>

namespace hpctl {

enum class LogLevel { kInfo, kWarning, kError };

// Names this process in its lines, e.g. "controller" or "agent n1": at start-up, and where what it
// is changes.
void set_log_component(std::string name);
void log_line(LogLevel level, std::string_view text);
inline void log_info(std::string_view text) { log_line(LogLevel::kInfo, text); }
inline void log_warning(std::string_view text) { log_line(LogLevel::kWarning, text); }
inline void log_error(std::string_view text) { log_line(LogLevel::kError, text); }

// Writes `text` to stderr as it is, for a program whose stderr people read. It is dropped and
// counted like a line.
void log_text(std::string_view text);

}  // namespace hpctl
