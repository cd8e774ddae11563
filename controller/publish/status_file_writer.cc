// SPDX-License-Identifier: Apache-2.0
#include "controller/publish/status_file_writer.h"

#include <utility>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/log.h"

namespace hpctl {

StatusFileWriter::StatusFileWriter(const HomePaths& paths, IsOurs is_ours)
    : paths_(paths), is_ours_(std::move(is_ours)) {
  thread_ = std::thread([this] { run(); });
}

StatusFileWriter::~StatusFileWriter() { stop(); }

void StatusFileWriter::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void StatusFileWriter::status(JobView view) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_[JobId{view.job}].status = std::move(view);
  }
  arrived_.notify_one();
}

void StatusFileWriter::events(JobId job, const std::string& checkpoint_dir,
                              std::vector<EventView> events) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Pending& pending = pending_[job];
    pending.checkpoint_dir = checkpoint_dir;
    for (EventView& event : events) {
      if (pending.events.size() < kStatusFileBacklog) pending.events.push_back(std::move(event));
    }
  }
  arrived_.notify_one();
}

void StatusFileWriter::spec(JobId job, const JobSpec& spec) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pending_[job].spec_json = to_json_text(spec) + "\n";
  }
  arrived_.notify_one();
}

void StatusFileWriter::run() {
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    std::map<JobId, Pending> work;
    work.swap(pending_);
    lock.unlock();
    if (!is_ours_()) continue;
    for (const auto& [job, pending] : work) write(job, pending);
  }
}

void StatusFileWriter::complain(JobId job, const Outcome& outcome) {
  if (outcome.ok() || !complained_.insert(job).second) return;
  log_warning("job " + to_string(job) +
              ": its status files are not up to date: " + outcome.error().message);
}

void StatusFileWriter::write(JobId job, const Pending& pending) {
  HP_FAILPOINT("controller.status_files.before");
  complain(job, make_directories(paths_.job(job)));
  if (pending.spec_json) {
    complain(job, write_file_atomic(paths_.job_spec(job), *pending.spec_json));
  }
  if (!pending.events.empty()) {
    complain(job, append_events(paths_.job_events(job), pending.events));
    // The job's shared directory outlives this machine; it appears with the first generation.
    if (path_exists(pending.checkpoint_dir)) {
      complain(job, append_events(pending.checkpoint_dir + "/events.jsonl", pending.events));
    }
  }
  if (pending.status) {
    if (const auto shown = write_status(paths_, *pending.status, is_ours_); !shown.ok()) {
      complain(job, shown.error());
    }
  }
  HP_FAILPOINT("controller.status_files.after");
}

}  // namespace hpctl
