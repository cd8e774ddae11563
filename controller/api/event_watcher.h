// SPDX-License-Identifier: Apache-2.0
// One WatchEvents call: sends what is there, then what comes, at the reader's own pace. A reader
// that leaves one event unread for too long is cut off: it would hold the call, and what gRPC keeps
// for it, for ever. It may ask again from where it stopped.
#pragma once

#include <mutex>

#include "common/base/clock.h"
#include "controller/api/event_cursor.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"

namespace hpctl {

inline constexpr int64_t kUnreadEventMs = 60'000;

// Deletes itself when gRPC is done with it.
class EventWatcher final : public grpc::ServerWriteReactor<v1::Event> {
 public:
  // Sends the entries of the job after `after`; with `follow` until the job has ended.
  EventWatcher(EventFeed& feed, grpc::CallbackServerContext* context, JobId job, Seq after,
               bool follow, int64_t unread_ms = kUnreadEventMs);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void woken();                   // on the feed's thread
  void advance();                 // under mutex_: sends the next entry, waits, or finishes
  void end(grpc::Status status);  // under mutex_

  EventFeed& feed_;
  grpc::CallbackServerContext* const context_;
  const int64_t unread_ms_;
  const SystemClock clock_;
  uint64_t token_ = 0;
  std::mutex mutex_;
  EventCursor cursor_;
  v1::Event outgoing_;
  bool writing_ = false;
  int64_t writing_since_ms_ = 0;
  bool finished_ = false;
};

}  // namespace hpctl
