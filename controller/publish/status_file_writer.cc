// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/status_file_writer.h"

#include <utility>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {

namespace {

constexpr size_t kThreads = 32;
constexpr size_t kPendingWrites = 4;  // one is enough: it takes all that waits
constexpr auto kLastWritesPatience = std::chrono::seconds(5);

void append(std::vector<EventView>& waiting, const std::vector<EventView>& events) {
  for (const EventView& event : events) {
    if (waiting.size() < kStatusFileBacklog) waiting.push_back(event);
  }
}

}  // namespace

StatusFileWriter::StatusFileWriter(const HomePaths& paths, JobDirectories& directories,
                                   IsOurs is_ours)
    : paths_(paths),
      directories_(directories),
      is_ours_(std::move(is_ours)),
      lanes_(kThreads, kPendingWrites) {}

std::vector<std::string> StatusFileWriter::stop() {
  return lanes_.stop(kLastWritesPatience, TaskLanes::AtStop::kDone);
}

StatusFileWriter::Pending& StatusFileWriter::pending_of(JobId job) {
  const auto [pending, is_new] = pending_.try_emplace(job);
  if (is_new) lanes_.post(paths_.job(job), [this, job] { write(job); });
  return pending->second;
}

void StatusFileWriter::status(JobView view) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_of(JobId{view.job}).status = std::move(view);
}

void StatusFileWriter::events(JobId job, const std::string& checkpoint_dir,
                              std::vector<EventView> events) {
  if (events.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  append(pending_of(job).events, events);
  add_shared(job, checkpoint_dir, events);
}

void StatusFileWriter::add_shared(JobId job, const std::string& directory,
                                  const std::vector<EventView>& events) {
  const auto [pending, is_new] = shared_.try_emplace(directory, PendingShared{job, {}});
  if (is_new) lanes_.post(directory, [this, directory] { write_shared(directory); });
  append(pending->second.events, events);
}

void StatusFileWriter::spec(JobId job, const JobSpec& spec) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pending_of(job).spec_json = to_json_text(spec) + "\n";
}

void StatusFileWriter::complain(JobId job, const Outcome& outcome) {
  if (outcome.ok()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!complained_.insert(job).second) return;
  }
  log_warning("job " + to_string(job) +
              ": its status files are not up to date: " + outcome.error().message);
}

// The status is told again every few seconds; the rest is told once.
void StatusFileWriter::owe(JobId job, Pending pending) {
  pending.status.reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  owed_[job] = std::move(pending);
}

void StatusFileWriter::write(JobId job) {
  Pending pending;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending = std::move(pending_.extract(job).mapped());
    if (auto owed = owed_.extract(job); !owed.empty()) {
      append(owed.mapped().events, pending.events);
      pending.events = std::move(owed.mapped().events);
      if (!pending.spec_json) pending.spec_json = std::move(owed.mapped().spec_json);
    }
  }
  if (!is_ours_()) return;
  HP_FAILPOINT("controller.status_files.before");
  if (const Outcome there = directories_.check(job); !there.ok()) {
    if (there.error().code != ErrorCode::kNotFound) complain(job, there);  // else it is told
    owe(job, std::move(pending));
    return;
  }
  if (pending.spec_json) {
    complain(job, write_file_atomic(paths_.job_spec(job), *pending.spec_json));
  }
  if (!pending.events.empty()) {
    complain(job, append_events(paths_.job_events(job), pending.events));
  }
  if (pending.status) {
    if (const auto shown = write_status(paths_, *pending.status, is_ours_); !shown.ok()) {
      complain(job, shown.error());
    }
  }
  HP_FAILPOINT("controller.status_files.after");
}

// The job's shared directory outlives this machine; it is claimed before the first generation. A
// mount point whose file system is away is not that directory.
void StatusFileWriter::write_shared(const std::string& directory) {
  PendingShared pending;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending = std::move(shared_.extract(directory).mapped());
  }
  const auto is_claimed = entry_exists(directory + "/owner.json");
  if (!is_ours_() || (is_claimed.ok() && !*is_claimed)) return;
  complain(pending.job, append_events(directory + "/events.jsonl", pending.events));
}

}  // namespace hpctl
