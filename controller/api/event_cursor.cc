// SPDX-License-Identifier: Apache-2.0
#include "controller/api/event_cursor.h"

namespace hpctl {
namespace {

constexpr int64_t kPage = 256;

}  // namespace

Outcome EventCursor::start_after(Seq seq) {
  HP_TRY_ASSIGN(last_id_, feed_.last_id_up_to(job_, seq));
  started_ = true;
  return Ok{};
}

Result<std::optional<StoredEntry>> EventCursor::next() {
  if (!started_ || over_) return std::optional<StoredEntry>();
  if (ready_.empty()) {
    // Asked before reading: what precedes the end of the job is then in the store.
    const bool last = !follow_ || feed_.has_ended(job_);
    HP_TRY_ASSIGN(const auto page, feed_.after(job_, last_id_, kPage));
    if (page.empty()) {
      over_ = last;
      return std::optional<StoredEntry>();
    }
    last_id_ = page.back().id;
    ready_.assign(page.begin(), page.end());
  }
  std::optional<StoredEntry> entry = std::move(ready_.front());
  ready_.pop_front();
  return entry;
}

}  // namespace hpctl
