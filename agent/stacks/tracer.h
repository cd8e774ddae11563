// SPDX-License-Identifier: Apache-2.0
// Tracer: halts processes for a moment, so that their stacks can be read, and lets them go again.
//
// By PTRACE_SEIZE and PTRACE_INTERRUPT, which send no signal. If this process ends for any reason,
// a thread that it had halted runs on, and a process that was stopped (SIGSTOP) before stays so.
// All processes are halted before the first is read: they are seen at one moment, and none runs
// away because another one was let go.
//
// A thread that waits uninterruptibly in the kernel does not halt; the kernel's state of it is
// known nevertheless.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace hpctl::stacks {

// Of a process; those beyond are not looked at.
inline constexpr size_t kMostThreads = 1024;

struct Thread {
  pid_t tid = 0;
  std::string name;
  std::string kernel;  // "S, in futex_wait_queue, system call 202", before it was halted
};

class Tracer {
 public:
  Tracer();  // blocks SIGCHLD
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;
  ~Tracer() { let_go(); }

  // Begins to halt every thread of the process. Threads are listed even without permission to halt
  // them: `trouble` then says why.
  std::vector<Thread> seize(pid_t pid, std::string& trouble);
  // Until all have halted, or the time (CLOCK_MONOTONIC) has come.
  void await_halts(int64_t until_ms);
  bool is_halted(pid_t tid) const;
  void let_go();

 private:
  struct State {
    bool halted = false;
    int signal = 0;  // was about to be delivered
  };
  bool all_halted() const;
  void collect();

  std::map<pid_t, State> threads_;
};

}  // namespace hpctl::stacks
