// SPDX-License-Identifier: Apache-2.0
#include "hpctl/prepare_display.h"

#include <algorithm>

namespace hpctl {
namespace {

constexpr int64_t kPlainEveryMs = 10'000;
constexpr int64_t kLiveEveryMs = 100;
constexpr size_t kBar = 20;

std::string bytes_text(double bytes) {
  if (bytes < 1e6) return short_number(bytes / 1e3) + " kB";
  return bytes < 1e9 ? short_number(bytes / 1e6) + " MB" : short_number(bytes / 1e9) + " GB";
}

}  // namespace

std::string prepare_line(const PrepareProgress& progress, int64_t elapsed_ms) {
  const auto done = static_cast<double>(progress.raw_bytes);
  const auto total = static_cast<double>(std::max<uint64_t>(progress.raw_total, 1));
  const double share = std::min(1.0, done / total);
  const auto filled = static_cast<size_t>(share * kBar);
  std::string line = "[" + std::string(filled, '=');
  if (filled < kBar) line += ">" + std::string(kBar - filled - 1, ' ');
  line += "] " + std::to_string(static_cast<int>(share * 100)) + " %  " + bytes_text(done) +
          " of " + bytes_text(total);
  const auto now = static_cast<double>(progress.raw_bytes - progress.resumed_bytes);
  if (elapsed_ms >= 500 && now > 0) {
    const double per_ms = now / static_cast<double>(elapsed_ms);
    line += "  " + bytes_text(per_ms * 1e3) + "/s  " +
            short_number(static_cast<double>(progress.tokens)) + " tokens";
    const auto left = static_cast<int64_t>((total - done) / per_ms);
    if (left > 0) line += "  " + format_duration(left) + " left";
  }
  return line;
}

void PrepareDisplay::update(const PrepareProgress& progress, int64_t now_ms) {
  if (now_ms - shown_ms_ < (live_ ? kLiveEveryMs : kPlainEveryMs)) return;
  shown_ms_ = now_ms;
  const std::string line = prepare_line(progress, now_ms - began_ms_);
  if (live_) {
    out_ << "\r\x1b[K" << line << std::flush;
    drawn_ = true;
  } else {
    out_ << line << "\n" << std::flush;
  }
}

void PrepareDisplay::finish() {
  if (drawn_) out_ << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace hpctl
