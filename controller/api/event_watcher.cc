// SPDX-License-Identifier: Apache-2.0
#include "controller/api/event_watcher.h"

#include "common/base/failpoint.h"
#include "common/rpc/status.h"
#include "controller/publish/job_view.h"

namespace hpctl {
namespace {

constexpr int64_t kPage = 256;

}  // namespace

EventWatcher::EventWatcher(EventFeed& feed, JobId job, Seq after, bool follow)
    : feed_(feed), job_(job), follow_(follow) {
  // Subscribed first, so that nothing is missed between reading and waiting.
  token_ = feed_.subscribe(job, [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    advance();
  });
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto last = feed_.last_id_up_to(job, after);
  if (!last.ok()) {
    end(to_grpc(to_absl(last.error())));
    return;
  }
  last_id_ = *last;
  advance();
}

void EventWatcher::advance() {
  if (writing_ || finished_) return;
  if (ready_.empty()) {
    // Asked before reading: what precedes the end of the job is then in the store.
    const bool over = !follow_ || feed_.has_ended(job_);
    auto page = feed_.after(job_, last_id_, kPage);
    if (!page.ok()) {
      end(to_grpc(to_absl(page.error())));
      return;
    }
    if (page->empty()) {
      if (over) end(grpc::Status::OK);
      return;
    }
    last_id_ = page->back().id;
    ready_.assign(page->begin(), page->end());
  }
  outgoing_.Clear();
  fill(ready_.front(), outgoing_);
  ready_.pop_front();
  writing_ = true;
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
