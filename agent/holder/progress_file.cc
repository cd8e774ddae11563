// SPDX-License-Identifier: Apache-2.0
#include "agent/holder/progress_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/plausible.h"
#include "common/worker/worker_abi.h"

namespace hpctl::agent {
namespace {

constexpr size_t kTailBytes = 256;  // two numbers take 41

struct StepLine {
  uint64_t step = 0;
  uint64_t tokens = 0;
};

// The last line that has its end; nullopt where `text` has none. A line whose beginning is not in
// `text` is none of ours.
std::optional<std::string_view> last_line(std::string_view text, bool from_start) {
  const size_t end = text.rfind('\n');
  if (end == std::string_view::npos) return std::nullopt;
  text = text.substr(0, end);
  const size_t before = text.rfind('\n');
  if (before == std::string_view::npos) return from_start ? text : std::string_view();
  return text.substr(before + 1);
}

// Takes one number and the blanks before it from the front.
bool take_number(std::string_view& text, uint64_t& number) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return false;
  text.remove_prefix(first);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return error == std::errc() && number <= kMaxStep;
}

std::optional<StepLine> parse(std::string_view text) {
  StepLine line;
  if (!take_number(text, line.step)) return std::nullopt;
  const bool has_more = text.find_first_not_of(" \t\r") != std::string_view::npos;
  if (has_more && !take_number(text, line.tokens)) return std::nullopt;
  if (text.find_first_not_of(" \t\r") != std::string_view::npos) return std::nullopt;
  return line;
}

}  // namespace

std::string progress_file_path(const std::string& directory, uint64_t generation, int32_t rank) {
  return directory + "/g" + std::to_string(generation) + ".rank-" + std::to_string(rank);
}

Outcome prepare_progress_files(const std::string& directory, uint64_t generation,
                               const std::vector<int32_t>& ranks) {
  HP_TRY(make_directories(directory, 0700));
  HP_TRY_ASSIGN(const auto names, list_directory(directory));
  const std::string own = "g" + std::to_string(generation) + ".";
  for (const std::string& name : names) {
    if (!name.starts_with(own)) HP_TRY(remove_tree(directory + "/" + name));
  }
  for (const int32_t rank : ranks) {
    const std::string path = progress_file_path(directory, generation, rank);
    const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (!file.valid()) return errno_error("cannot make " + path);
  }
  return Ok{};
}

void remove_progress_file(const std::string& directory, uint64_t generation, int32_t rank) {
  ::unlink(progress_file_path(directory, generation, rank).c_str());
  ::rmdir(directory.c_str());  // only the last one can
}

// Any process may set a file's time to any value, even to one that nanoseconds cannot count.
UnixTime ProgressFile::changed_at(const timespec& time) {
  constexpr auto kLatest = std::chrono::floor<std::chrono::seconds>(kMaxTime.time_since_epoch());
  const std::chrono::seconds whole(std::clamp<int64_t>(time.tv_sec, 0, kLatest.count() - 1));
  return UnixTime(whole + Nanoseconds(time.tv_nsec));
}

const ProgressSample& ProgressFile::sample() {
  // A pipe in its place must not hold the agent up.
  const UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat found {};
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode)) return sample_;
  const Version version{found.st_ino, found.st_size, changed_at(found.st_mtim)};
  if (version == version_) return sample_;
  std::array<char, kTailBytes> tail{};
  const off_t from = std::max<off_t>(0, found.st_size - static_cast<off_t>(kTailBytes));
  const ssize_t count = ::pread(file.get(), tail.data(), tail.size(), from);
  if (count < 0) return sample_;
  take(std::string(tail.data(), static_cast<size_t>(count)), from == 0, version);
  return sample_;
}

void ProgressFile::take(const std::string& text, bool from_start, const Version& version) {
  version_ = version;
  const auto last = last_line(text, from_start);
  if (!last) return;  // empty, or its first line is being written
  const auto line = parse(*last);
  sample_.damaged = !line;
  if (!line || line->step == 0 || line->step == sample_.step) return;
  const Nanoseconds passed = version.changed - stepped_;
  const bool is_known = version.changed > stepped_ && is_believable(passed);
  if (sample_.step > 0 && line->step > sample_.step && is_known) {
    sample_.step_took = passed / static_cast<int64_t>(line->step - sample_.step);
  }
  if (sample_.step == 0) {
    sample_.first_step = std::max(version.changed, UnixTime(Nanoseconds(1)));
  }
  stepped_ = version.changed;
  sample_.mapped = true;
  sample_.told_by_program = true;
  sample_.phase = static_cast<uint32_t>(WorkerPhase::kTraining);
  sample_.loss = NAN;
  sample_.step = line->step;
  sample_.tokens = line->tokens;
}

}  // namespace hpctl::agent
