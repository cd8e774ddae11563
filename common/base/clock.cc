// SPDX-License-Identifier: Apache-2.0
#include "common/base/clock.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace hpctl {
namespace {

int64_t read_clock(clockid_t id) {
  timespec ts{};
  clock_gettime(id, &ts);
  return static_cast<int64_t>(ts.tv_sec) * 1000 + ts.tv_nsec / 1'000'000;
}

constexpr int64_t kLastWallMs = 253'402'300'799'999;  // of the year 9999

// Milliseconds of at most three digits after the point; `text` is moved past them.
int64_t take_fraction(const char*& text) {
  int64_t milliseconds = 0;
  for (int64_t unit = 100; unit > 0 && *text >= '0' && *text <= '9'; unit /= 10) {
    milliseconds += unit * (*text++ - '0');
  }
  return milliseconds;
}

}  // namespace

int64_t SystemClock::monotonic_ms() const { return read_clock(CLOCK_MONOTONIC); }
int64_t SystemClock::wall_ms() const { return read_clock(CLOCK_REALTIME); }

std::string format_wall_ms(int64_t wall_ms) {
  const time_t seconds = wall_ms / 1000;
  tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 48> text{};
  const size_t n = strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + n, text.size() - n, ".%03dZ", static_cast<int>(wall_ms % 1000));
  return text.data();
}

std::string format_wall(WallTime time) {
  return time.is_known() ? format_wall_ms(time.unix_ms()) : "unknown";
}

std::string format_wall_seconds(WallTime time) {
  constexpr size_t kToSeconds = 19;  // "2026-11-21T09:30:00"
  return time.is_known() ? format_wall_ms(time.unix_ms()).substr(0, kToSeconds) + "Z" : "unknown";
}

int64_t parse_wall_ms(const std::string& text) {
  tm utc{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%d", &utc);
  if (rest == nullptr) return 0;
  int64_t milliseconds = 0;
  if (*rest == 'T' || *rest == ' ') {
    rest = ::strptime(rest + 1, "%H:%M:%S", &utc);
    if (rest == nullptr) return 0;
    if (*rest == '.') milliseconds = take_fraction(++rest);
    if (*rest == 'Z') ++rest;
  }
  const int64_t wall_ms = static_cast<int64_t>(::timegm(&utc)) * 1000 + milliseconds;
  return *rest == '\0' && wall_ms >= 0 && wall_ms <= kLastWallMs ? wall_ms : 0;
}

}  // namespace hpctl
