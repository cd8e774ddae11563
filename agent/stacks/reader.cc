// SPDX-License-Identifier: Apache-2.0
#include "agent/stacks/reader.h"

#include <cstdlib>
#include <string>
#include <utility>

#include "agent/stacks/tracer.h"
#include "agent/stacks/unwinder.h"
#include "common/base/clock.h"
#include "common/base/file.h"

namespace hpctl::stacks {
namespace {

int64_t now_ms() { return SystemClock().monotonic_ms(); }

void add_children(std::vector<ProcessStacks>& processes) {
  for (size_t i = 0; i < processes.size(); ++i) {
    const std::string pid = std::to_string(processes[i].pid);
    const auto text = read_file("/proc/" + pid + "/task/" + pid + "/children");
    if (!text.ok()) return;
    for (const char* at = text->c_str(); processes.size() < kMostProcesses;) {
      char* end = nullptr;
      const auto child = static_cast<pid_t>(std::strtol(at, &end, 10));
      if (end == at) break;
      processes.push_back({child, {}, {}});
      at = end;
    }
  }
}

void halt(Tracer& tracer, std::vector<RankStacks>& ranks) {
  for (RankStacks& rank : ranks) {
    for (ProcessStacks& process : rank.processes) {
      std::string trouble;
      for (Thread& thread : tracer.seize(process.pid, trouble)) {
        process.threads.push_back({std::move(thread), {}, ""});
      }
      if (!trouble.empty()) process.troubles.push_back(trouble);
    }
  }
  tracer.await_halts(now_ms() + kHaltLimitMs);
}

void read(const Tracer& tracer, ProcessStacks& process, int64_t until_ms) {
  if (!process.troubles.empty()) return;
  Unwinder unwinder(process.pid);
  if (!unwinder.trouble().empty()) process.troubles.push_back(unwinder.trouble());
  for (ThreadStack& stack : process.threads) {
    if (!tracer.is_halted(stack.thread.tid)) {
      stack.remark = "did not halt: it is in the kernel, or has ended";
    } else if (now_ms() >= until_ms) {
      stack.remark = "not read: the time for it was over";
    } else {
      stack.frames = unwinder.frames(stack.thread.tid);
      if (stack.frames.empty()) stack.remark = "could not be unwound";
    }
  }
}

}  // namespace

void find_processes(std::vector<RankStacks>& ranks) {
  for (RankStacks& rank : ranks) add_children(rank.processes);
}

void read_stacks(std::vector<RankStacks>& ranks) {
  const int64_t until_ms = now_ms() + kReadLimitMs;
  Tracer tracer;
  halt(tracer, ranks);
  for (RankStacks& rank : ranks) {
    for (ProcessStacks& process : rank.processes) read(tracer, process, until_ms);
  }
}

}  // namespace hpctl::stacks
