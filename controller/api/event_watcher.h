// SPDX-License-Identifier: Apache-2.0
// One WatchEvents call: sends what is there, then what comes, at the reader's own pace.
#pragma once

#include <deque>
#include <mutex>

#include "controller/api/event_feed.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {

// Deletes itself when gRPC is done with it.
class EventWatcher final : public grpc::ServerWriteReactor<v1::Event> {
 public:
  // Sends the entries of the job after `after`; with `follow` until the job has ended.
  EventWatcher(EventFeed& feed, JobId job, Seq after, bool follow);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void advance();                 // under mutex_: sends the next entry, waits, or finishes
  void end(grpc::Status status);  // under mutex_

  EventFeed& feed_;
  const JobId job_;
  const bool follow_;
  uint64_t token_ = 0;
  std::mutex mutex_;
  int64_t last_id_ = 0;
  std::deque<StoredEntry> ready_;
  v1::Event outgoing_;
  bool writing_ = false;
  bool finished_ = false;
};

}  // namespace hpctl
