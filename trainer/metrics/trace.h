// SPDX-License-Identifier: Apache-2.0
// A trace of some steps of one rank, for chrome://tracing and ui.perfetto.dev ("Trace Event
// Format": complete events in JSON). Times are microseconds of the realtime clock, so that the
// files of several ranks fit together as far as their clocks do. A rank is a process there, a lane
// ("step", "compute", "gather", ...) a thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hpctl {

class Trace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Steps [from, from + steps) are recorded, and then written to `path`. steps 0 = nothing ever.
  Trace(std::string path, int32_t rank, int64_t from, int64_t steps);

  // Begins the next step; writes the file when the last wanted one is complete.
  void begin_step(uint64_t step);
  bool active() const { return active_; }

  // `lane` is a literal. Nothing happens unless the trace is active.
  void add(const char* lane, std::string name, TimePoint begin, TimePoint end);

  // Writes what there is: at the end of a job that is shorter than asked for.
  void finish();

 private:
  struct Span {
    uint64_t step;
    const char* lane;
    std::string name;
    TimePoint begin;
    TimePoint end;
  };
  std::string to_json() const;

  std::string path_;
  int32_t rank_;
  uint64_t from_;
  uint64_t end_;  // first step that is not recorded
  bool active_ = false;
  uint64_t step_ = 0;
  std::vector<Span> spans_;
  std::chrono::nanoseconds to_realtime_;  // add to a steady time
};

}  // namespace hpctl
