// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/stack_taker.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/log.h"
#include "common/job/stack_files.h"

namespace hpctl::holder {
namespace {

// The output of hpstacks, in one line.
std::string in_one_line(const std::string& text) {
  std::string line;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    line += (line.empty() ? "" : "; ") + text.substr(begin, end - begin);
  }
  return line;
}

}  // namespace

void StackTaker::take(const Kill& order, const WorkerTable& workers) {
  if (process_) {
    orders_.push_back(order);
    return;
  }
  std::map<int32_t, pid_t> ranks;
  uint64_t generation = 0;  // at most one has members
  for (const auto& [pid, worker] : workers.living()) {
    const bool hangs = worker->part == WorkerPart::kMember && worker->kill_at_ms == 0 &&
                       !worker->is_starting() && worker->generation <= order.generation;
    if (!hangs) continue;
    generation = worker->generation;
    ranks[worker->rank] = pid;
  }
  if (generation == 0) return due_(order, "");
  std::vector<std::string> argv = {program_, directory_, std::to_string(generation)};
  for (const auto& [rank, pid] : ranks) {
    argv.push_back(std::to_string(rank) + ":" + std::to_string(pid));
  }
  if (const Outcome started = start(argv); !started.ok()) {
    log_warning("no stacks are taken: " + started.error().message);
    return due_(order, "");
  }
  orders_.push_back(order);
  files_ = directory_ + "/" +
           stack_file(generation, ranks.size() == 1 ? std::to_string(ranks.begin()->first) : "*");
}

Outcome StackTaker::start(const std::vector<std::string>& argv) {
  HP_TRY_ASSIGN(HeardProcess heard, start_heard(argv));
  process_ = std::move(heard.process);
  output_ = std::move(heard.output);
  said_.clear();
  asks_recorders_ = false;
  end_at_ms_ = clock_.monotonic_ms() + limit_ms_;
  loop_.add(process_->pidfd.get(), EPOLLIN, [this](uint32_t) { finish(true); });
  return Ok{};
}

void StackTaker::read_output() {
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(output_.get(), buffer, sizeof(buffer))) > 0;) {
    said_.append(buffer, static_cast<size_t>(n));
  }
  if (!asks_recorders_ && said_.starts_with(kRecordersAreAsked)) {
    asks_recorders_ = true;
    said_.erase(0, kRecordersAreAsked.size());
    end_at_ms_ += stacks_limit_or(kRecordersLimitMs);
  }
}

void StackTaker::finish(bool in_time) {
  read_output();
  loop_.remove(process_->pidfd.get());
  if (!in_time) {
    ::kill(process_->pid, SIGKILL);
    log_warning("hpstacks did not end in time; stacks may be missing");
  }
  if (const auto executed = process_->exec_outcome(); executed && !executed->ok()) {
    log_warning("no stacks are taken: " + executed->error().message);
  }
  process_.reset();
  end_at_ms_ = INT64_MAX;
  output_.reset();
  std::string told = in_one_line(said_);
  if (!told.empty()) told = "stacks: " + files_ + ": " + told;
  for (const Kill& order : std::exchange(orders_, {})) due_(order, told);
}

void StackTaker::abandon() {
  if (!process_) return;
  orders_.clear();
  loop_.remove(process_->pidfd.get());
  ::kill(process_->pid, SIGKILL);
  process_.reset();
  end_at_ms_ = INT64_MAX;
}

void StackTaker::end_overdue() {
  if (!process_ || clock_.monotonic_ms() < end_at_ms_) return;
  read_output();
  if (clock_.monotonic_ms() >= end_at_ms_) finish(false);
}

int64_t StackTaker::next_deadline_ms() const { return end_at_ms_; }

}  // namespace hpctl::holder
