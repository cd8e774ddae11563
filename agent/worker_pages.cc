// SPDX-License-Identifier: Apache-2.0
#include "agent/worker_pages.h"

#include <algorithm>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/process/process_stat.h"

namespace hpctl::agent {

void WorkerPages::started(const holder::WorkerState& worker, const UniqueFd& page,
                          const std::string& file) {
  Page& started = pages_[worker.rank];
  started = Page{worker.incarnation, worker.generation, worker.pid,
                 std::make_unique<ProgressView>(page.get())};
  const bool is_command = is_accessible(file);
  if (is_command) started.file.emplace(file);
  watch_.worker_started(worker.rank, worker.generation, !is_command);
}

void WorkerPages::ended(uint64_t incarnation) {
  const auto ended = std::find_if(pages_.begin(), pages_.end(), [&](const auto& entry) {
    return entry.second.incarnation == incarnation;
  });
  if (ended == pages_.end()) return;
  watch_.worker_ended(ended->first, ended->second.generation);
  pages_.erase(ended);
}

void WorkerPages::printed(const holder::LogMatches& lines) {
  for (auto& [rank, page] : pages_) {
    if (page.incarnation == lines.incarnation) page.matched_ms = lines.matched_ms;
  }
}

ProgressWatch::Findings WorkerPages::read() {
  ProgressWatch::Findings all;
  for (auto& [rank, page] : pages_) {
    const auto findings = watch_.sampled(rank, page.generation, look(rank, page));
    all.first_step |= findings.first_step;
    all.step |= findings.step;
    if (findings.commit) all.commit = findings.commit;
  }
  return all;
}

const ProgressSample& WorkerPages::look(int32_t rank, Page& page) {
  ProgressSample sample = page.view->sample();
  const bool is_told = page.file && !sample.mapped && !sample.damaged;
  if (is_told) sample = page.file->sample();
  if (sample.mapped || !sample.damaged) page.sound = sample;
  if (sample.damaged && !page.damage_told) {
    page.damage_told = true;
    const std::string whose =
        " of rank " + std::to_string(rank) + " (pid " + std::to_string(page.pid) + ") ";
    log_warning(is_told ? "HPCTL_PROGRESS_FILE" + whose +
                              "does not end with a line STEP [TOKENS], which is left out"
                        : "the progress page" + whose +
                              "holds what no trainer writes, which is left out; something in that "
                              "process writes where it should not");
  }
  return page.sound;
}

std::vector<BadStepNews> WorkerPages::read_bad_step() {
  const auto page = pages_.find(0);
  if (page == pages_.end()) return {};
  return watch_.bad_step(page->second.generation, 0, page->second.view->bad_steps());
}

void WorkerPages::describe(v1::Heartbeat& heartbeat, int64_t now_ms, int64_t still_limit_ms) {
  for (auto& [rank, page] : pages_) {
    const ProgressSample& sample = look(rank, page);
    v1::WorkerProgress& worker = *heartbeat.add_workers();
    worker = to_message(StartedWorker{page.incarnation, rank, page.generation, page.pid}, sample);
    if (page.still.sampled(sample.step, sample.collective, now_ms) >= still_limit_ms) {
      worker.set_process_state(process_stat(static_cast<pid_t>(page.pid), kStateField));
    }
    for (const int64_t at_ms : page.matched_ms) {
      worker.add_log_match_age_ms(at_ms == 0 ? -1 : std::max<int64_t>(0, now_ms - at_ms));
    }
  }
}

uint64_t WorkerPages::step_of(uint64_t incarnation) {
  for (auto& [rank, page] : pages_) {
    if (page.incarnation == incarnation) return look(rank, page).step;
  }
  return 0;
}

}  // namespace hpctl::agent
