// SPDX-License-Identifier: Apache-2.0
// The progress blocks of the node's living workers, and the reports about them for the controller:
// the commits they announce, their first steps, and the workers of a heartbeat.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/progress.h"
#include "agent/holder/holder_protocol.h"
#include "agent/holder/progress_file.h"
#include "agent/holder/progress_view.h"
#include "agent/holder/still_watch.h"
#include "agent/messages.h"
#include "common/base/fd.h"

namespace hpctl::agent {

class WorkerPages {
 public:
  // `reported`: what an earlier life of this agent has reported.
  explicit WorkerPages(const Reported& reported) : watch_(reported) {}

  // `page`: descriptor of the worker's progress page; not kept. `file`: of a command (agent/
  // progress_file.h), which counts as long as the page is not written; else nothing is there.
  void started(const holder::WorkerState& worker, const UniqueFd& page, const std::string& file);
  void ended(uint64_t incarnation);
  // What it printed last that matches its hang rules.
  void printed(const holder::LogMatches& lines);

  // Reads every page.
  ProgressWatch::Findings read();
  // The bad steps in rank 0's progress block that were not reported yet.
  std::vector<BadStepNews> read_bad_step();
  // The last words of a page in an exit record, where they are news.
  std::optional<Commit> committed(uint64_t generation, uint64_t step) {
    return watch_.committed(generation, step);
  }
  std::vector<BadStepNews> bad_step(const holder::Exited& exit) {
    return watch_.bad_step(exit.generation, exit.rank, exit.bad_step);
  }
  // Every progress block as it is now. If a worker has shown nothing new for `still_limit_ms`, the
  // kernel's state of its process is added.
  void describe(v1::Heartbeat& heartbeat, int64_t now_ms, int64_t still_limit_ms);
  // The newest step of this worker; 0 = none is known.
  uint64_t step_of(uint64_t incarnation);

  bool empty() const { return pages_.empty(); }
  bool awaits_first_step() const { return watch_.awaits_first_step(); }

 private:
  struct Page {
    uint64_t incarnation = 0;
    uint64_t generation = 0;
    uint64_t pid = 0;
    std::unique_ptr<ProgressView> view;
    std::optional<ProgressFile> file = {};
    StillWatch still = {};
    ProgressSample sound = {};  // the newest that can be
    bool damage_told = false;
    std::vector<int64_t> matched_ms = {};  // holder::LogMatches; empty = there are no rules
  };

  // The content of the progress block or file; while it is damaged, its last sound content.
  static const ProgressSample& look(int32_t rank, Page& page);

  ProgressWatch watch_;
  std::map<int32_t, Page> pages_;  // by rank
};

}  // namespace hpctl::agent
