// SPDX-License-Identifier: Apache-2.0
#include "agent/stacks/recorders.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <tuple>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/job/stack_files.h"
#include "common/process/process_stat.h"
#include "common/recorder/dump.h"

namespace hpctl::stacks {
namespace {

constexpr size_t kMostEnvironmentBytes = 4U << 20;
constexpr size_t kMostDumpBytes = 32U << 20;
constexpr int kLookAgainMs = 20;  // a dump may be on any file system; not all of them tell changes
constexpr int kStartTimeField = 22;

using Variables = std::map<std::string, std::string>;

Variables variables_of(pid_t pid) {
  Variables variables;
  const auto text = read_file("/proc/" + std::to_string(pid) + "/environ", kMostEnvironmentBytes);
  if (!text.ok()) return variables;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\0', begin), text->size());
    const std::string entry = text->substr(begin, end - begin);
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    begin = end + 1;
  }
  return variables;
}

std::string value_of(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

// The file that the process means: it may be in a container, or in another directory.
std::string path_seen_by(pid_t pid, const std::string& path) {
  return "/proc/" + std::to_string(pid) + (path.starts_with('/') ? "/root" : "/cwd/") + path;
}

struct timespec modified(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mtim : timespec{};
}
bool operator<(const timespec& a, const timespec& b) {
  return std::tie(a.tv_sec, a.tv_nsec) < std::tie(b.tv_sec, b.tv_nsec);
}

// No further write can have this time: file systems tell it in milliseconds, or in whole seconds.
bool has_passed(const timespec& time) {
  struct timespec wall {};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return timespec{time.tv_sec + 1, time.tv_nsec} < wall;
}

// By the wall clock, to the second below.
struct timespec started(pid_t pid) {
  struct timespec wall {};
  struct timespec boot {};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  ::clock_gettime(CLOCK_BOOTTIME, &boot);
  const int64_t ticks = std::atoll(process_stat(pid, kStartTimeField).c_str());
  return {wall.tv_sec - boot.tv_sec + ticks / ::sysconf(_SC_CLK_TCK) - 1, 0};
}

// A regular file's; nothing that is opened here holds us up.
Result<std::string> read_regular(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) return errno_error("cannot read " + path);
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path + " is no regular file"};
  }
  return read_file("/proc/self/fd/" + std::to_string(fd.get()), kMostDumpBytes);
}

}  // namespace

Recorders::Recorders(const std::vector<RankStacks>& ranks) {
  for (const RankStacks& rank : ranks) {
    if (auto recorder = find(rank)) recorders_.push_back(std::move(*recorder));
  }
  until_ms_ = SystemClock().monotonic_ms() + stacks_limit_or(kRecordersLimitMs);
}

bool Recorders::are_asked() const {
  return std::any_of(recorders_.begin(), recorders_.end(), [](auto& r) { return r.is_asked; });
}

std::optional<Recorders::Recorder> Recorders::find(const RankStacks& rank) {
  Variables variables;
  pid_t pid = 0;
  // A shell's child has what the shell has, and it is the one that may be in a container.
  for (const ProcessStacks& process : rank.processes) {
    if (Variables own = variables_of(process.pid); !own.empty()) {
      variables = std::move(own);
      pid = process.pid;
    }
  }
  Recorder recorder;
  recorder.rank = rank.rank;
  recorder.generation = rank.generation;
  const auto add = [&](const std::string& prefix) {
    if (prefix.empty()) return;
    recorder.paths.push_back(path_seen_by(pid, prefix + std::to_string(rank.rank)));
  };
  add(value_of(variables, "TORCH_FR_DUMP_TEMP_FILE"));
  add(value_of(variables, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"));
  const std::string pipe = value_of(variables, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (recorder.paths.empty() && !pipe.empty()) {
    std::string cache = value_of(variables, "XDG_CACHE_HOME");
    if (cache.empty()) cache = value_of(variables, "HOME") + "/.cache";
    add(cache + "/torch/comm_lib_trace_rank_");
    add("/tmp/nccl_trace_rank_");
  }
  if (recorder.paths.empty()) return std::nullopt;
  recorder.not_before.assign(recorder.paths.size(), started(pid));
  if (!pipe.empty()) ask(recorder, path_seen_by(pid, pipe + std::to_string(rank.rank) + ".pipe"));
  return recorder;
}

void Recorders::ask(Recorder& recorder, const std::string& pipe) {
  std::vector<struct timespec> before;
  for (const std::string& path : recorder.paths) {
    before.push_back(modified(path));
    before.back().tv_nsec += 1;  // of what is there already nothing is wanted
  }
  // Without a reader this fails at once: the process is not so far, or has no pipe.
  const UniqueFd fd(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  if (::write(fd.get(), "1", 1) != 1) return;
  recorder.is_asked = true;
  recorder.not_before = std::move(before);
}

bool Recorders::take_one(Recorder& recorder, const std::string& directory) {
  for (size_t i = 0; i < recorder.paths.size(); ++i) {
    const std::string& path = recorder.paths[i];
    const struct timespec time = modified(path);
    if (time.tv_sec == 0 || time < recorder.not_before[i]) continue;
    const auto text = read_regular(path);
    if (!text.ok() || !recorder::read_dump(*text).ok()) {
      // It may be whole the next time; it is looked at again when it has changed.
      if (!has_passed(time)) continue;
      recorder.not_before[i] = time;
      recorder.not_before[i].tv_nsec += 1;
      continue;
    }
    const std::string copy =
        directory + "/" + recorder_file(recorder.generation, std::to_string(recorder.rank));
    if (const auto written = write_file_atomic(copy, *text); !written.ok()) {
      log_error(written.error().message);
    } else {
      return true;
    }
  }
  return false;
}

std::vector<int32_t> Recorders::take(const std::string& directory) {
  const SystemClock clock;
  for (;;) {
    bool is_missing = false;
    for (Recorder& recorder : recorders_) {
      if (!recorder.is_taken) recorder.is_taken = take_one(recorder, directory);
      is_missing = is_missing || (recorder.is_asked && !recorder.is_taken);
    }
    if (!is_missing || clock.monotonic_ms() >= until_ms_) break;
    ::poll(nullptr, 0, kLookAgainMs);
  }
  std::vector<int32_t> ranks;
  for (const Recorder& recorder : recorders_) {
    if (recorder.is_taken) {
      ranks.push_back(recorder.rank);
    } else if (recorder.is_asked) {
      log_warning("rank " + std::to_string(recorder.rank) + "'s flight recorder did not answer");
    }
  }
  return ranks;
}

}  // namespace hpctl::stacks
