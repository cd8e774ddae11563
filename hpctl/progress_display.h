// SPDX-License-Identifier: Apache-2.0
// The display of `submit --wait` while a job runs. On a terminal the last line is rewritten in
// place and important events scroll above it; elsewhere a plain line is printed every few seconds
// and for every such event.
#pragma once

#include <cstdint>
#include <string>

#include "controller/publish/status_files.h"
#include "hpctl/terminal.h"

namespace hpctl {

// "step 34/60 [=====>    ] loss 2.5134  12.3k tokens/s  gen 2  RUNNING  checkpoint 30"
std::string progress_line(const Terminal& terminal, const JobView& job);

// True for what a person who waits wants to know: faults, recoveries, the end.
bool is_worth_telling(const EventView& event);

class ProgressDisplay {
 public:
  explicit ProgressDisplay(const Terminal& terminal) : terminal_(terminal) {}

  void tell(const EventView& event);
  // A line of our own, e.g. that the controller is being restarted.
  void tell(const std::string& text);
  // `now_ms` is monotonic; plain lines are spaced by it.
  void update(const JobView& job, int64_t now_ms);
  // Removes the line that was being rewritten.
  void finish();

 private:
  void clear_line();

  const Terminal& terminal_;
  std::string shown_;  // the line on the terminal, "" = none
  int64_t last_plain_ms_ = -1;
  std::string last_plain_;
};

// The last lines: the result, and where to look.
void print_end(const Terminal& terminal, const JobView& job, const std::string& logs_dir,
               const std::string& metrics_path);

}  // namespace hpctl
