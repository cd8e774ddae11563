// SPDX-License-Identifier: Apache-2.0
#include "agent/stacks/tracer.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <set>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/process/process_stat.h"

namespace hpctl::stacks {
namespace {

constexpr int kListings = 3;  // threads may be started while we list them
constexpr size_t kProcLineBytes = 256;

std::string line_of(const std::string& path) {
  const auto text = read_file(path, kProcLineBytes);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

Thread look_at(const std::string& task, pid_t tid) {
  Thread thread{tid, line_of(task + "/comm"), process_stat(tid, kStateField)};
  const std::string wait = line_of(task + "/wchan");
  if (!wait.empty() && wait != "0") thread.kernel += ", in " + wait;
  const std::string call = line_of(task + "/syscall");
  if (!call.empty() && call[0] >= '0' && call[0] <= '9') {
    thread.kernel += ", system call " + call.substr(0, call.find(' '));
  }
  return thread;
}

std::vector<pid_t> tasks_of(const std::string& directory) {
  std::vector<pid_t> tasks;
  const auto names = list_directory(directory);
  if (!names.ok()) return tasks;
  for (const std::string& name : *names) {
    tasks.push_back(static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10)));
  }
  std::sort(tasks.begin(), tasks.end());
  return tasks;
}

}  // namespace

Tracer::Tracer() {
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &mask, nullptr);
}

std::vector<Thread> Tracer::seize(pid_t pid, std::string& trouble) {
  const std::string directory = "/proc/" + std::to_string(pid) + "/task";
  std::vector<Thread> found;
  std::set<pid_t> known;
  for (int listing = 0; listing < kListings; ++listing) {
    const size_t before = known.size();
    for (const pid_t tid : tasks_of(directory)) {
      if (known.size() >= kMostThreads || !known.insert(tid).second) continue;
      found.push_back(look_at(directory + "/" + std::to_string(tid), tid));
      if (::ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) == 0) {
        ::ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
        threads_[tid] = State{};
      } else if (errno == ESRCH) {
        found.pop_back();  // has just ended
      } else if (trouble.empty() && !found.back().kernel.starts_with("Z")) {
        trouble = errno_error("process " + std::to_string(pid) + " cannot be traced").message +
                  "; see /proc/sys/kernel/yama/ptrace_scope, and in a container the capability "
                  "CAP_SYS_PTRACE";
      }
    }
    if (known.size() == before) break;
  }
  if (known.empty()) trouble = "process " + std::to_string(pid) + " is gone";
  return found;
}

bool Tracer::all_halted() const {
  return std::all_of(threads_.begin(), threads_.end(),
                     [](const auto& thread) { return thread.second.halted; });
}

void Tracer::collect() {
  int status = 0;
  for (;;) {
    const pid_t tid = ::waitpid(-1, &status, __WALL | WNOHANG);
    if (tid <= 0) return;
    if (!WIFSTOPPED(status)) {
      threads_.erase(tid);  // has ended
      continue;
    }
    const bool by_us = status >> 16 == PTRACE_EVENT_STOP;
    threads_[tid] = State{true, by_us ? 0 : WSTOPSIG(status)};
  }
}

void Tracer::await_halts(int64_t until_ms) {
  const SystemClock clock;
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigaddset(&mask, SIGCHLD);
  for (collect(); !all_halted(); collect()) {
    const int64_t left_ms = until_ms - clock.monotonic_ms();
    if (left_ms <= 0) return;
    const timespec left{left_ms / 1000, left_ms % 1000 * 1'000'000};
    ::sigtimedwait(&mask, nullptr, &left);
  }
}

bool Tracer::is_halted(pid_t tid) const {
  const auto thread = threads_.find(tid);
  return thread != threads_.end() && thread->second.halted;
}

void Tracer::let_go() {
  // One that has not halted is let go by the end of this process.
  for (const auto& [tid, state] : threads_) {
    if (state.halted) ::ptrace(PTRACE_DETACH, tid, nullptr, static_cast<intptr_t>(state.signal));
  }
  threads_.clear();
}

}  // namespace hpctl::stacks
