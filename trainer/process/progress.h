// SPDX-License-Identifier: Apache-2.0
// The worker's side of the progress page (common/worker/worker_abi.h): what the agent can see of
// this process at any time without asking it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "common/base/result.h"
#include "common/job/bad_step.h"
#include "common/job/file_fault.h"
#include "common/job/step_figures.h"
#include "common/worker/worker_abi.h"

namespace hpctl {

struct StepProgress {
  uint64_t step = 0;
  uint64_t tokens = 0;  // of the whole job
  uint64_t nanoseconds = 0;
  float loss = 0;
  float grad_norm = 0;
  StepFigures figures = {};
};

class Progress {
 public:
  // Maps the page behind `fd` (-1 = private memory, for runs without an agent) and introduces this
  // process on it.
  static Result<Progress> attach(int fd);
  ~Progress();
  Progress(Progress&& other) noexcept;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress& operator=(Progress&&) = delete;

  // Goes on with the page that is behind `fd` now, as attach(): of the next generation. Pointers
  // into the page stay good; the page before keeps what it says.
  Outcome turn_page(int fd);

  void enter(WorkerPhase phase);
  void set_computing(bool computing);
  void step_done(const StepProgress& done);
  // The generation trains, though it has done no step yet: it evaluates the state of `step`.
  void stands_at(uint64_t step);
  // After the last step, of which no further one tells.
  void waited_for_last_save(uint64_t nanoseconds);
  void checkpoint_committed(uint64_t step);
  // The newest saves, in a row: that failed, and that found the disk full.
  void saves_failed(uint64_t in_a_row, uint64_t out_of_space);
  // StepFigures::storage_failures.
  void waits_for_storage(uint64_t failures);
  // For the job's history; its number is given here. The agent looks a few times a second: more
  // than kBadStepSlots in between push out the oldest.
  void bad_step(const BadStep& bad_step);
  // The file, or its part, that the last words will be about. A name that is too long for the
  // progress block is left out.
  void file_fault(const FileFault& fault);
  // errno of the call that the last words will be about, unless file_fault() has said it; 0 = none.
  void failed_call(int os_error);
  // Why the process is about to exit: the first line of `message`, cut to what the page holds.
  void last_words(std::string_view message);

  // Communicator counts its collectives here.
  std::atomic<uint64_t>* collective_counter() { return &page_->collective; }
  CollectiveCounts* collective_counts() { return &page_->collectives; }
  GroupSlots* group_slots() { return &page_->groups; }
  const ProgressPage& page() const { return *page_; }

 private:
  explicit Progress(ProgressPage* page) : page_(page) {}
  ProgressPage* page_;
};

}  // namespace hpctl
