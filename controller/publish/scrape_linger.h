// SPDX-License-Identifier: Apache-2.0
// Readers that must still see the end of a job before its controller is gone: the metrics of a
// controller end with it, and a scrape comes every few seconds (decision 1606). It stays until the
// last state was scraped, if there are scrapes, and until the cluster controller has asked for it,
// if there is one; kLongestMs at most.
//
// Any thread, except wait(), which belongs to the thread that ends the process.
#pragma once

#include <cstdint>
#include <mutex>

#include "common/base/clock.h"
#include "common/base/fd.h"

namespace hpctl {

class ScrapeLinger {
 public:
  // After this time without a scrape there is no scraper.
  static constexpr int64_t kRegularMs = 60'000;
  static constexpr int64_t kLongestMs = 15'000;
  // The time for an answer that has begun: the server does not report when it has been sent.
  static constexpr int64_t kAnswerMs = 250;

  enum class Readers {
    kScrapesOfFailure,   // its process holds the job's nodes: only who is to be woken is waited for
    kScrapesAndCluster,  // it is the cluster controller's
  };

  explicit ScrapeLinger(const Clock& clock);

  // From here on scrapes and the list of jobs tell the last state. The first call counts.
  void shown(bool failed);
  void scraped();  // an answer to a scrape begins
  void listed();   // an answer to ListJobs is made
  // Until these have seen it, or `interrupt` is readable. At once where nothing was shown().
  void wait(int interrupt, Readers readers);

  // 0 = there is nothing to wait for. Pure except the clock.
  int64_t left_ms(Readers readers) const;

 private:
  const Clock& clock_;
  const UniqueFd wake_;
  mutable std::mutex mutex_;
  int64_t scraped_ms_ = 0;  // the newest, monotonic; 0 = never
  int64_t shown_ms_ = 0;
  bool failed_ = false;
  bool is_regular_ = false;  // somebody scraped before the end
  bool was_scraped_ = false;
  bool was_listed_ = false;
};

}  // namespace hpctl
