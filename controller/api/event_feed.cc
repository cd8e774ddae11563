// SPDX-License-Identifier: Apache-2.0
#include "controller/api/event_feed.h"

namespace hpctl {

EventFeed::EventFeed(std::unique_ptr<Store> reader, std::chrono::milliseconds look)
    : look_(look), reader_(std::move(reader)), thread_([this] { run(); }) {}

EventFeed::~EventFeed() {
  {
    const std::lock_guard<std::mutex> lock(news_mutex_);
    stopping_ = true;
  }
  news_.notify_one();
  thread_.join();
}

void EventFeed::run() {
  for (;;) {
    std::set<JobId> touched;
    {
      std::unique_lock<std::mutex> lock(news_mutex_);
      news_.wait_for(lock, look_, [this] { return stopping_ || !touched_.empty(); });
      if (stopping_) return;
      touched.swap(touched_);
    }
    wake(touched.empty() ? nullptr : &touched);
  }
}

void EventFeed::wake(const std::set<JobId>* touched) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [token, subscription] : subscriptions_) {
    if (touched == nullptr || touched->contains(subscription.job)) subscription.wake();
  }
}

Result<std::vector<StoredEntry>> EventFeed::after(JobId job, int64_t id, int64_t limit) {
  const std::lock_guard<std::mutex> lock(reader_mutex_);
  return reader_->entries_after(job, id, limit);
}

Result<int64_t> EventFeed::last_id_up_to(JobId job, Seq seq) {
  const std::lock_guard<std::mutex> lock(reader_mutex_);
  return reader_->last_id_up_to(job, seq);
}

Result<std::vector<StoredEntry>> EventFeed::history(JobId job) {
  // Pruning happens at intervals, so a little more than the limit may be there.
  return after(job, 0, 2 * kEventsKeptPerJob);
}

uint64_t EventFeed::subscribe(JobId job, Wake wake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  subscriptions_[++last_token_] = {job, std::move(wake)};
  return last_token_;
}

void EventFeed::unsubscribe(uint64_t token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  subscriptions_.erase(token);
}

size_t EventFeed::subscribers() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return subscriptions_.size();
}

void EventFeed::load(const core::State& state) {
  const std::lock_guard<std::mutex> lock(ended_mutex_);
  for (const auto& [id, job] : state.jobs) {
    if (core::has_ended(job.state)) ended_.insert(id);
  }
}

void EventFeed::committed(const Committed& batch) {
  std::set<JobId> touched = batch.dirty.jobs;
  for (const StoredEntry& stored : batch.entries) touched.insert(stored.entry.job);
  {
    const std::lock_guard<std::mutex> lock(ended_mutex_);
    for (const JobId id : batch.dirty.jobs) {
      if (core::has_ended(batch.state.jobs.at(id).state)) ended_.insert(id);
    }
  }
  {
    const std::lock_guard<std::mutex> lock(news_mutex_);
    touched_.merge(touched);
  }
  news_.notify_one();
}

bool EventFeed::has_ended(JobId job) const {
  const std::lock_guard<std::mutex> lock(ended_mutex_);
  return ended_.contains(job);
}

}  // namespace hpctl
