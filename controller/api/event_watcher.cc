// SPDX-License-Identifier: Apache-2.0
#include "controller/api/event_watcher.h"

#include "common/base/failpoint.h"
#include "common/rpc/status.h"
#include "controller/publish/job_view.h"

namespace hpctl {

EventWatcher::EventWatcher(EventFeed& feed, grpc::CallbackServerContext* context, JobId job,
                           Seq after, bool follow, int64_t unread_ms)
    : feed_(feed), context_(context), unread_ms_(unread_ms), cursor_(feed, job, follow) {
  // Subscribed first, so that nothing is missed between reading and waiting.
  token_ = feed_.subscribe(job, [this] { woken(); });
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto started = cursor_.start_after(after); !started.ok()) {
    end(to_grpc(to_absl(started.error())));
    return;
  }
  advance();
}

void EventWatcher::woken() {
  bool is_stuck = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    advance();
    is_stuck = writing_ && clock_.monotonic_ms() - writing_since_ms_ > unread_ms_;
  }
  // Finish() would wait for the reader too. We are here until the feed lets go of us.
  if (is_stuck) context_->TryCancel();
}

void EventWatcher::advance() {
  if (writing_ || finished_) return;
  const auto entry = cursor_.next();
  if (!entry.ok()) {
    end(to_grpc(to_absl(entry.error())));
    return;
  }
  if (!entry->has_value()) {
    if (cursor_.is_over()) end(grpc::Status::OK);
    return;
  }
  outgoing_.Clear();
  fill(**entry, outgoing_);
  writing_ = true;
  writing_since_ms_ = clock_.monotonic_ms();
  HP_FAILPOINT("controller.event_answer.before");
  StartWrite(&outgoing_);
}

void EventWatcher::end(grpc::Status status) {
  if (finished_) return;
  finished_ = true;
  Finish(std::move(status));
}

void EventWatcher::OnWriteDone(bool ok) {
  const std::lock_guard<std::mutex> lock(mutex_);
  writing_ = false;
  if (ok) {
    advance();
  } else {
    end(grpc::Status::CANCELLED);
  }
}

void EventWatcher::OnCancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  end(grpc::Status::CANCELLED);
}

void EventWatcher::OnDone() {
  feed_.unsubscribe(token_);
  {
    // OnCancel may have run on another thread; that it is over is ordered here, in our own terms.
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  delete this;
}

}  // namespace hpctl
