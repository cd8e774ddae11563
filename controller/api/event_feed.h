// SPDX-License-Identifier: Apache-2.0
// The history for readers: what the store keeps, and a call when there is more. Readers have a
// read-only connection of their own, so a slow one never holds up the owner thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "controller/engine/owner_loop.h"
#include "controller/engine/store.h"

namespace hpctl {

// Any thread.
class EventFeed {
 public:
  using Wake = std::function<void()>;

  explicit EventFeed(std::unique_ptr<Store> reader) : reader_(std::move(reader)) {}

  Result<std::vector<StoredEntry>> after(JobId job, int64_t id, int64_t limit);
  Result<int64_t> last_id_up_to(JobId job, Seq seq);
  // All that is kept of the job.
  Result<std::vector<StoredEntry>> history(JobId job);

  // `wake` is called on the owner thread after each commit that concerns the job, until the token
  // is given back. It must not block.
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

  std::mutex reader_mutex_;
  std::unique_ptr<Store> reader_;
  mutable std::mutex mutex_;
  uint64_t last_token_ = 0;
  std::map<uint64_t, Subscription> subscriptions_;
  mutable std::mutex ended_mutex_;  // of its own: readers ask while they are being woken
  std::set<JobId> ended_;
};

}  // namespace hpctl
