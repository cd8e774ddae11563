// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <iterator>
#include <optional>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/job/lineage.h"
#include "controller/page/page_rows.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr size_t kMostLogLineBytes = 2'000;

// The caller that waits for a task. A task that is dropped answers too, when it is destroyed.
class PageAnswer {
 public:
  PageAnswer() = default;
  ~PageAnswer() { set(Error{ErrorCode::kUnavailable, "the files of the job are being read"}); }
  PageAnswer(const PageAnswer&) = delete;
  PageAnswer& operator=(const PageAnswer&) = delete;

  std::future<Result<std::string>> future() { return promise_.get_future(); }
  void set(Result<std::string> answer) {
    if (std::exchange(is_set_, true)) return;
    promise_.set_value(std::move(answer));
  }

 private:
  std::promise<Result<std::string>> promise_;
  bool is_set_ = false;
};

// {"v": [...]}, and with buckets of several steps {"v", "low", "high"}; null = none has a value
json column_of(const std::vector<MetricsSeries::Bucket>& buckets, size_t metric) {
  json mean = json::array();
  json low = json::array();
  json high = json::array();
  bool has_any = false;
  bool has_ranges = false;
  for (const MetricsSeries::Bucket& bucket : buckets) {
    const MetricRange& range = bucket.metrics[metric];
    has_any = has_any || range.count > 0;
    has_ranges = has_ranges || range.count > 1;
    mean.push_back(number_or_null(range.mean()));
    low.push_back(number_or_null(range.low));
    high.push_back(number_or_null(range.high));
  }
  if (!has_any) return nullptr;
  if (!has_ranges) return {{"v", std::move(mean)}};
  return {{"v", std::move(mean)}, {"low", std::move(low)}, {"high", std::move(high)}};
}

std::string series_text(const MetricsFile& file, const PageFiles::Span& span) {
  const MetricsSeries& series = file.series();
  const auto buckets = series.look(span.from, span.to, span.points);
  json answer = {{"first_step", series.first_step()},
                 {"last_step", series.last_step()},
                 {"resolution", series.width()},
                 {"read_bytes", file.read_bytes()},
                 {"size", file.size()},
                 {"complete", file.is_read()},
                 {"first", json::array()},
                 {"last", json::array()},
                 {"columns", json::object()},
                 {"newest", json::object()},
                 {"generations", json::array()}};
  for (const MetricsSeries::Bucket& bucket : buckets) {
    answer["first"].push_back(bucket.first);
    answer["last"].push_back(bucket.last);
  }
  for (size_t i = 0; i < MetricsSeries::kNames.size(); ++i) {
    json column = column_of(buckets, i);
    const char* name = MetricsSeries::kNames[i];
    if (!column.is_null()) answer["columns"][name] = std::move(column);
    const MetricsSeries::Newest& newest = series.newest()[i];
    if (std::isfinite(newest.value)) answer["newest"][name] = {newest.step, newest.value};
  }
  for (const auto& start : series.generations()) {
    answer["generations"].push_back({start.generation, start.step});
  }
  return page_json_text(answer);
}

// Of a log that ends with `text`, whose first line may be half of one.
json lines_of(std::string_view text, bool is_whole, size_t most) {
  std::vector<std::string_view> found;
  while (!text.empty() && found.size() < most + 1) {
    if (text.back() == '\n') text.remove_suffix(1);
    const size_t end = text.rfind('\n');
    if (end == std::string_view::npos) {
      if (is_whole) found.push_back(text);
      break;
    }
    found.push_back(text.substr(end + 1));
    text = text.substr(0, end + 1);
  }
  if (found.size() > most) found.resize(most);
  json lines = json::array();
  for (auto line = found.rbegin(); line != found.rend(); ++line) {
    lines.push_back(printable_line(*line, kMostLogLineBytes));
  }
  return lines;
}

Result<std::string> read_log_tail(const std::string& path, size_t lines) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return page_json_text({{"lines", json::array()}, {"bytes", 0}});
    return errno_error("cannot open " + path);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_error("cannot look at " + path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::kNotFound, "the log is no regular file"};
  const auto size = static_cast<size_t>(info.st_size);
  std::string text(std::min(size, PageFiles::kMostLogBytes), '\0');
  const ssize_t count =
      ::pread(fd.get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  if (count < 0) return errno_error("cannot read " + path);
  const bool is_whole = text.size() == size;
  text.resize(static_cast<size_t>(count));
  return page_json_text({{"lines", lines_of(text, is_whole, lines)}, {"bytes", size}});
}

// [name, step, generation, when its manifest was written, 0 = unknown], the newest first.
Result<std::string> read_checkpoints(const std::string& directory) {
  HP_TRY_ASSIGN(const auto names, list_directory_if_there(directory));
  std::vector<CheckpointRef> found;
  for (const std::string& name : names) {
    if (const auto ref = parse_checkpoint_name(name)) found.push_back(*ref);
  }
  std::sort(found.begin(), found.end(), [](const CheckpointRef& a, const CheckpointRef& b) {
    return std::pair(a.generation, a.step) > std::pair(b.generation, b.step);
  });
  const size_t left_out = found.size() - std::min(found.size(), PageFiles::kMostCheckpoints);
  found.resize(found.size() - left_out);
  json rows = json::array();
  for (const CheckpointRef& ref : found) {
    struct stat info {};
    const std::string manifest = directory + "/" + ref.name() + "/manifest.json";
    const bool is_there = ::stat(manifest.c_str(), &info) == 0;
    rows.push_back({ref.name(), ref.step, ref.generation,
                    is_there ? int64_t{info.st_mtim.tv_sec} * 1'000 : 0});
  }
  return page_json_text(
      {{"directory", directory}, {"checkpoints", std::move(rows)}, {"left_out", left_out}});
}

}  // namespace

Result<std::string> PageFiles::in_lane(JobId job, Read read) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_[job] >= kMostWaiting) {
      return Error{ErrorCode::kUnavailable, "the files of the job are being read; ask again"};
    }
    ++waiting_[job];
  }
  auto answer = std::make_shared<PageAnswer>();
  auto answered = answer->future();
  // Counts the request as long as the task exists, however long its caller waits.
  const std::shared_ptr<void> counted(nullptr, [this, job](void*) {
    const std::lock_guard lock(mutex_);
    if (--waiting_[job] == 0) waiting_.erase(job);
  });
  lanes_.post(
      "the files that the status page shows of job " + to_string(job),
      [answer = std::move(answer), counted, read = std::move(read)] { answer->set(read()); });
  if (answered.wait_for(kPatience) != std::future_status::ready) {
    return Error{ErrorCode::kUnavailable, "the file system of the job's files does not answer"};
  }
  return answered.get();
}

std::shared_ptr<MetricsFile> PageFiles::file_of(JobId job) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(series_.begin(), series_.end(),
                                  [job](const Series& entry) { return entry.job == job; });
  if (found != series_.end()) {
    series_.splice(series_.begin(), series_, found);
  } else {
    series_.push_front({job, std::make_shared<MetricsFile>(paths_.job_metrics(job))});
    if (series_.size() > kMostSeries) series_.pop_back();
  }
  return series_.front().file;
}

void PageFiles::note_size(JobId job, size_t bytes) {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (Series& entry : series_) {
    if (entry.job == job) entry.bytes = bytes;
    sum += entry.bytes;
  }
  while (sum > series_bytes_ && series_.size() > 1) {
    sum -= series_.back().bytes;
    series_.pop_back();
  }
}

std::vector<JobId> PageFiles::jobs_in_memory() {
  const std::lock_guard lock(mutex_);
  std::vector<JobId> jobs;
  for (const Series& entry : series_) jobs.push_back(entry.job);
  return jobs;
}

Result<std::string> PageFiles::series(JobId job, const Span& span) {
  if (span.points == 0 || span.points > kMostPoints || span.from > span.to) {
    return Error{ErrorCode::kInvalidArgument,
                 "points= wants 1 to " + std::to_string(kMostPoints) + ", to= not less than from="};
  }
  // One lane per job, so one thread at a time has the file.
  return in_lane(job, [this, job, file = file_of(job), span]() -> Result<std::string> {
    HP_TRY(file->read_on());
    note_size(job, file->series().memory_bytes());
    return series_text(*file, span);
  });
}

Result<std::string> PageFiles::log_tail(JobId job, Rank rank, size_t lines) {
  if (rank.value < 0 || lines == 0 || lines > kMostLogLines) {
    return Error{ErrorCode::kInvalidArgument,
                 "rank= wants a rank, lines= 1 to " + std::to_string(kMostLogLines)};
  }
  return in_lane(job,
                 [path = paths_.rank_log(job, rank), lines] { return read_log_tail(path, lines); });
}

Result<std::string> PageFiles::checkpoints(JobId job, const std::string& directory) {
  return in_lane(job, [directory] { return read_checkpoints(directory); });
}

std::vector<std::string> PageFiles::stop(std::chrono::milliseconds patience) {
  return lanes_.stop(patience, TaskLanes::AtStop::kDropped);
}

}  // namespace hpctl
