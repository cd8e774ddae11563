// SPDX-License-Identifier: Apache-2.0
#include "hpctl/top_feed.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "common/base/fd.h"
#include "hpctl/fleet.h"
#include "hpctl/open_job.h"

namespace hpctl {
namespace {

constexpr auto kPause = std::chrono::seconds(1);
constexpr auto kPatience = std::chrono::seconds(1);
constexpr size_t kMostEvents = 200;

// What an answer does to the model; it is taken by the thread that draws.
using Answer = std::function<void(TopModel&)>;

Answer trouble(const std::string& what) {
  return [what](TopModel& model) { model.set_trouble(what); };
}

Answer ask_for_list(bool everywhere) {
  auto fleet = everywhere ? list_everywhere() : list_home();
  if (!fleet.ok()) return trouble(fleet.error().message);
  return [fleet = std::move(*fleet)](TopModel& model) {
    model.set_jobs(fleet.jobs, fleet.notes);
    model.set_trouble("");
  };
}

// One job, with the history that was read before.
class JobHistory {
 public:
  explicit JobHistory(std::string word) : word_(std::move(word)) {}
  const std::string& word() const { return word_; }

  Answer ask() {
    auto job = open_job(word_);
    if (!job.ok()) return trouble(job.error().message);
    auto events = job->source->events(job->id, events_.empty() ? 0 : events_.back().seq);
    if (!events.ok()) return trouble(events.error().message);
    events_.insert(events_.end(), events->begin(), events->end());
    const size_t old = events_.size() > kMostEvents ? events_.size() - kMostEvents : 0;
    events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(old));
    TopJob shown{std::move(job->view), events_, ""};
    shown.notice = job->source->notice(shown.view);
    return [shown = std::move(shown)](TopModel& model) {
      model.set_job(shown);
      model.set_trouble("");
    };
  }

 private:
  const std::string word_;
  std::vector<EventView> events_;
};

}  // namespace

Outcome ask_once(TopModel& model, const std::optional<std::string>& job, bool everywhere) {
  if (job) {
    HP_TRY(open_job(*job));
    model.open(*job);
    JobHistory(*job).ask()(model);
    return Ok{};
  }
  HP_TRY_ASSIGN(const Fleet fleet, everywhere ? list_everywhere() : list_home());
  model.set_jobs(fleet.jobs, fleet.notes);
  return Ok{};
}

struct TopFeed::Shared {
  explicit Shared(bool all) : everywhere(all) {}

  const bool everywhere;
  const UniqueFd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  bool ended = false;
  uint64_t wanted = 0;  // counts calls of look_at()
  std::optional<std::string> job;
  Answer answer;

  void run() {
    std::optional<JobHistory> history;
    std::unique_lock lock(mutex);
    while (!stopping) {
      const uint64_t asked = wanted;
      const std::optional<std::string> about = job;
      lock.unlock();
      if (!about) {
        history.reset();
      } else if (!history || history->word() != *about) {
        history.emplace(*about);
      }
      Answer came = history ? history->ask() : ask_for_list(everywhere);
      lock.lock();
      if (asked != wanted) continue;  // it is about something else
      answer = std::move(came);
      ::eventfd_write(wake.get(), 1);
      changed.wait_for(lock, kPause, [&] { return stopping || asked != wanted; });
    }
    ended = true;
    changed.notify_all();
  }
};

TopFeed::TopFeed(bool everywhere) : shared_(std::make_unique<Shared>(everywhere)) {
  thread_ = std::thread([this] { shared_->run(); });
}

TopFeed::~TopFeed() {
  stop();
  thread_.join();
}

int TopFeed::fd() const { return shared_->wake.get(); }

void TopFeed::look_at(const std::optional<std::string>& job) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->job == job) return;
  shared_->job = job;
  ++shared_->wanted;
  shared_->changed.notify_all();
}

void TopFeed::take(TopModel& model) {
  uint64_t rung = 0;
  ::eventfd_read(shared_->wake.get(), &rung);
  Answer answer;
  {
    const std::lock_guard lock(shared_->mutex);
    answer = std::exchange(shared_->answer, nullptr);
  }
  if (answer) answer(model);
}

bool TopFeed::stop() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  return shared_->changed.wait_for(lock, kPatience, [this] { return shared_->ended; });
}

}  // namespace hpctl
