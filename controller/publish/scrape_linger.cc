// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/scrape_linger.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>

namespace hpctl {

ScrapeLinger::ScrapeLinger(const Clock& clock)
    : clock_(clock), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void ScrapeLinger::shown(bool failed) {
  const std::lock_guard lock(mutex_);
  if (shown_ms_ != 0) return;
  shown_ms_ = clock_.monotonic_ms();
  failed_ = failed;
  is_regular_ = scraped_ms_ != 0 && shown_ms_ - scraped_ms_ <= kRegularMs;
}

void ScrapeLinger::scraped() {
  const std::lock_guard lock(mutex_);
  if (was_scraped_) return;
  scraped_ms_ = clock_.monotonic_ms();
  was_scraped_ = shown_ms_ != 0;
  if (was_scraped_) ::eventfd_write(wake_.get(), 1);
}

void ScrapeLinger::listed() {
  const std::lock_guard lock(mutex_);
  if (shown_ms_ == 0) return;
  was_listed_ = true;
  ::eventfd_write(wake_.get(), 1);
}

int64_t ScrapeLinger::left_ms(Readers readers) const {
  const std::lock_guard lock(mutex_);
  if (shown_ms_ == 0) return 0;
  const int64_t now_ms = clock_.monotonic_ms();
  const bool is_clusters = readers == Readers::kScrapesAndCluster;
  const bool awaits_scrape = is_regular_ && !was_scraped_ && (failed_ || is_clusters);
  const bool awaits_list = is_clusters && !was_listed_;
  int64_t until_ms = was_scraped_ ? scraped_ms_ + kAnswerMs : now_ms;
  if (awaits_scrape || awaits_list) until_ms = shown_ms_ + kLongestMs;
  return std::max<int64_t>(0, until_ms - now_ms);
}

void ScrapeLinger::wait(int interrupt, Readers readers) {
  for (;;) {
    const int64_t left = left_ms(readers);
    if (left == 0) return;
    std::array<pollfd, 2> ready{{{wake_.get(), POLLIN, 0}, {interrupt, POLLIN, 0}}};
    ::poll(ready.data(), ready.size(), static_cast<int>(left));
    if (ready[1].revents != 0) return;
    eventfd_t rung = 0;
    ::eventfd_read(wake_.get(), &rung);
  }
}

}  // namespace hpctl
