// SPDX-License-Identifier: Apache-2.0
#include "hpctl/top_feed.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "hpctl/fleet.h"
#include "hpctl/open_job.h"
#include "hpctl/rank_logs.h"
#include "hpctl/watch_report.h"

namespace hpctl {
namespace {

constexpr auto kPause = std::chrono::seconds(1);
constexpr auto kPatience = std::chrono::seconds(1);
constexpr size_t kMostEvents = 200;
constexpr size_t kMostLogLines = 400;

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

// The explanation as lines; empty where it cannot be had now.
std::vector<std::string> explain(OpenJob& job) {
  const auto why = job.source->why(job.id);
  if (!why.ok()) return {};
  std::vector<std::string> lines = {why->summary, ""};
  for (const EventView& event : why->chain) {
    lines.push_back(format_wall_ms(event.wall_ms).substr(0, 19) + "Z  " + event.type + "  " +
                    event.cause);
  }
  return lines;
}

// One job, with the history that was read before.
class JobHistory {
 public:
  explicit JobHistory(TopSubject subject) : subject_(std::move(subject)), word_(subject_.job) {}
  const TopSubject& subject() const { return subject_; }

  Answer ask() {
    auto job = open_job(word_);
    if (!job.ok()) return trouble(job.error().message);
    // By its name it would be looked up in the list each second, and Slurm asked about every job.
    word_ = to_string(job->id);
    auto events = job->source->events(job->id, events_.empty() ? 0 : events_.back().seq);
    if (!events.ok()) return trouble(events.error().message);
    events_.insert(events_.end(), events->begin(), events->end());
    const size_t old = events_.size() > kMostEvents ? events_.size() - kMostEvents : 0;
    events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(old));
    TopJob shown;
    shown.events = events_;
    shown.notice = job->source->notice(job->view);
    shown.findings = obstacles_of(*job);
    shown.view = job->view;
    if (subject_.part == TopPart::kWhy) shown.why = explain(*job);
    if (subject_.part == TopPart::kLogs && job->has_files()) {
      shown.logs = last_log_lines(job->paths, job->id, kMostLogLines);
    }
    return [shown = std::move(shown)](TopModel& model) {
      model.set_job(shown);
      model.set_trouble("");
    };
  }

 private:
  const TopSubject subject_;
  std::string word_;  // the id, once it is known
  std::vector<EventView> events_;
};

}  // namespace

Outcome ask_once(TopModel& model, const std::optional<std::string>& job, bool everywhere) {
  if (job) {
    HP_TRY(open_job(*job));
    model.open(*job);
    JobHistory({*job, TopPart::kJob}).ask()(model);
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
  std::optional<TopSubject> subject;
  Answer answer;

  void run() {
    std::optional<JobHistory> history;
    std::unique_lock lock(mutex);
    while (!stopping) {
      const uint64_t asked = wanted;
      const std::optional<TopSubject> about = subject;
      lock.unlock();
      if (!about) {
        history.reset();
      } else if (!history || history->subject() != *about) {
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

void TopFeed::look_at(const std::optional<TopSubject>& subject) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->subject == subject) return;
  shared_->subject = subject;
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
