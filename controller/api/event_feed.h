// SPDX-License-Identifier: Apache-2.0
// The history for readers: the stored entries, and a call when there are more. Readers have a
// read-only connection and a separate thread: the owner thread only says which jobs have new
// entries.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "controller/engine/owner_loop.h"
#include "controller/engine/store.h"

namespace hpctl {

// Any thread.
class EventFeed {
 public:
  using Wake = std::function<void()>;

  // Everybody is woken at least once in `look`, who waits for a client that does not read too.
  explicit EventFeed(std::unique_ptr<Store> reader,
                     std::chrono::milliseconds look = std::chrono::seconds(5));
  ~EventFeed();
  EventFeed(const EventFeed&) = delete;
  EventFeed& operator=(const EventFeed&) = delete;

  Result<std::vector<StoredEntry>> after(JobId job, int64_t id, int64_t limit);
  Result<int64_t> last_id_up_to(JobId job, Seq seq);
  // All that is kept of the job.
  Result<std::vector<StoredEntry>> history(JobId job);

  // `wake` is called on the feed's thread after commits that concern the job, and now and then,
  // until the token is given back. It may read from here.
  uint64_t subscribe(JobId job, Wake wake);
  // No call of `wake` begins after this.
  void unsubscribe(uint64_t token);
  size_t subscribers() const;

  // Owner thread.
  void committed(const Committed& batch);
  void load(const core::State& state);
  bool has_ended(JobId job) const;

 private:
  struct Subscription {
    JobId job;
    Wake wake;
  };

  void run();
  void wake(const std::set<JobId>* touched);  // nullptr = everybody

  const std::chrono::milliseconds look_;
  std::mutex reader_mutex_;
  std::unique_ptr<Store> reader_;
  mutable std::mutex mutex_;
  uint64_t last_token_ = 0;
  std::map<uint64_t, Subscription> subscriptions_;
  mutable std::mutex ended_mutex_;  // of its own: readers ask while they are being woken
  std::set<JobId> ended_;
  std::mutex news_mutex_;
  std::condition_variable news_;
  std::set<JobId> touched_;  // since the readers were last woken
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hpctl
