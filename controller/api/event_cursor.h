// SPDX-License-Identifier: Apache-2.0
// Where one reader of a job's history is, and what comes next. Not before start_after(): until then
// nothing is there, however often it is looked for.
#pragma once

#include <deque>
#include <optional>

#include "controller/api/event_feed.h"

namespace hpctl {

class EventCursor {
 public:
  // With `follow` the history goes on until the job has ended.
  EventCursor(EventFeed& feed, JobId job, bool follow) : feed_(feed), job_(job), follow_(follow) {}

  Outcome start_after(Seq seq);
  // nullopt = nothing at present, or, where is_over(), nothing ever. Reads a page now and then.
  Result<std::optional<StoredEntry>> next();
  bool is_over() const { return over_; }

 private:
  EventFeed& feed_;
  const JobId job_;
  const bool follow_;
  bool started_ = false;
  bool over_ = false;
  int64_t last_id_ = 0;
  std::deque<StoredEntry> ready_;
};

}  // namespace hpctl
