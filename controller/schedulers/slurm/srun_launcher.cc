// SPDX-License-Identifier: Apache-2.0
#include "controller/schedulers/slurm/srun_launcher.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "common/base/file.h"
#include "common/process/spawn.h"

namespace hpctl {
namespace {

constexpr size_t kMaxLog = size_t{16} << 20;
constexpr size_t kWords = 400;

long size_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? static_cast<long>(status.st_size) : 0;
}

// The text appended since, as one line.
std::string words_since(const std::string& path, long begin) {
  const auto text = read_file(path, kMaxLog);
  if (!text.ok() || static_cast<long>(text->size()) <= begin) return "";
  std::string words = text->substr(static_cast<size_t>(begin));
  if (words.size() > kWords) words.erase(0, words.size() - kWords);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
}

}  // namespace

bool may_pass(const std::string& words) {
  // "Memory required …" is Slurm 22.05's message about a node that has not registered yet with a
  // restarted slurmctld.
  static const std::array<const char*, 8> kPassing = {"Unable to contact slurm controller",
                                                      "Socket timed out",
                                                      "Connection refused",
                                                      "Communication connection failure",
                                                      "Zero Bytes were transmitted",
                                                      "Requested nodes are busy",
                                                      "Memory required by task is not available",
                                                      "unge"};
  return std::any_of(kPassing.begin(), kPassing.end(),
                     [&](const char* part) { return words.find(part) != std::string::npos; });
}

bool is_refused_for_job(const std::string& words) {
  const auto has = [&](const char* part) { return words.find(part) != std::string::npos; };
  // Words about one node behind the same beginning.
  static const std::array<const char*, 3> kOfNode = {"not available (down, drained or reserved)",
                                                     "not in this allocation", "not responding"};
  if (std::any_of(kOfNode.begin(), kOfNode.end(), has)) return false;
  static const std::array<const char*, 4> kOfJob = {"Unable to create step for job",
                                                    "srun: fatal:", "unrecognized option",
                                                    "srun: error: Invalid"};
  return std::any_of(kOfJob.begin(), kOfJob.end(), has);
}

SrunLauncher::SrunLauncher(SrunSettings settings, Ended ended)
    : settings_(std::move(settings)),
      ended_(std::move(ended)),
      watch_([this](pid_t pid, const std::string& cause) {
        const std::lock_guard<std::mutex> lock(mutex_);
        exits_.emplace_back(pid, cause);
        changed_.notify_one();
      }),
      thread_([this] { run(); }) {}

SrunLauncher::~SrunLauncher() { stop(); }

void SrunLauncher::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  watch_.stop();
}

void SrunLauncher::launch(const std::string& node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Attempt& attempt = attempts_[node];
  if (attempt.until_ms != 0 && !attempt.up) return;  // under way
  const int64_t now = clock_.monotonic_ms();
  // The former session was given up; its srun may still run, and its end no longer counts.
  attempt = Attempt{0, now, now + settings_.patience_ms, settings_.first_pause_ms, 0, false};
  changed_.notify_one();
}

void SrunLauncher::registered(const std::string& node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto attempt = attempts_.find(node);
  if (attempt != attempts_.end()) attempt->second.up = true;
}

int64_t SrunLauncher::next_due(const Lock&) const {
  int64_t due = INT64_MAX;
  for (const auto& [node, attempt] : attempts_) {
    if (attempt.srun == 0) due = std::min(due, attempt.due_ms);
  }
  return due;
}

void SrunLauncher::run() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (!exits_.empty()) {
      const auto [pid, cause] = exits_.front();
      exits_.erase(exits_.begin());
      finish(lock, pid, cause);
      continue;
    }
    const int64_t due = next_due(lock);
    const int64_t now = clock_.monotonic_ms();
    if (due == INT64_MAX) {
      changed_.wait(lock);
    } else if (due > now) {
      changed_.wait_for(lock, std::chrono::milliseconds(due - now));
    } else {
      const auto ready = std::find_if(attempts_.begin(), attempts_.end(), [due](const auto& entry) {
        return entry.second.srun == 0 && entry.second.due_ms == due;
      });
      start(lock, std::string(ready->first));
    }
  }
}

void SrunLauncher::start(Lock& lock, const std::string& node) {
  SpawnRequest request;
  request.argv = settings_.command;
  request.argv.push_back(node);
  request.argv.insert(request.argv.end(), settings_.program.begin(), settings_.program.end());
  request.argv.push_back(node);
  request.log_path = settings_.log_path(node);
  Attempt& attempt = attempts_[node];
  attempt.log_size = size_of(request.log_path);
  const auto pid = spawn_in_new_session(request);
  if (!pid.ok()) {
    fail(lock, node, pid.error().message);
    return;
  }
  attempt.srun = *pid;
  if (!watch_.watch(*pid).ok()) exits_.emplace_back(*pid, "ended");
}

void SrunLauncher::finish(Lock& lock, pid_t srun, const std::string& cause) {
  const auto entry =
      std::find_if(attempts_.begin(), attempts_.end(),
                   [srun](const auto& candidate) { return candidate.second.srun == srun; });
  if (entry == attempts_.end()) return;  // of a life that was given up
  Attempt& attempt = entry->second;
  const std::string node = entry->first;
  const std::string words = words_since(settings_.log_path(node), attempt.log_size);
  const int64_t now = clock_.monotonic_ms();
  if (!attempt.up && may_pass(words) && now < attempt.until_ms) {
    attempt.srun = 0;
    attempt.due_ms = now + attempt.pause_ms;
    attempt.pause_ms = std::min(2 * attempt.pause_ms, settings_.longest_pause_ms);
    return;
  }
  fail(lock, node, "srun " + cause + (words.empty() ? "" : ": " + words));
}

void SrunLauncher::fail(Lock& lock, const std::string& node, const std::string& cause) {
  const bool was_up = attempts_[node].up;
  attempts_.erase(node);
  lock.unlock();
  ended_(node, was_up, cause);
  lock.lock();
}

}  // namespace hpctl
