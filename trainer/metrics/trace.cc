// SPDX-License-Identifier: Apache-2.0
#include "trainer/metrics/trace.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/log.h"

namespace hpctl {
namespace {

// Steps of a thousand spans each: a trace of unexpected length stays bounded.
constexpr size_t kMaxSpans = 2'000'000;

double microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

Trace::Trace(std::string path, int32_t rank, int64_t from, int64_t steps)
    : path_(std::move(path)),
      rank_(rank),
      from_(static_cast<uint64_t>(from)),
      end_(static_cast<uint64_t>(from + steps)),
      to_realtime_(std::chrono::system_clock::now().time_since_epoch() -
                   std::chrono::steady_clock::now().time_since_epoch()) {}

void Trace::begin_step(uint64_t step) {
  if (active_ && step >= end_) finish();
  active_ = step >= from_ && step < end_;
  step_ = step;
}

void Trace::add(const char* lane, std::string name, TimePoint begin, TimePoint end) {
  if (!active_ || spans_.size() >= kMaxSpans) return;
  spans_.push_back({step_, lane, std::move(name), begin, end});
}

std::string Trace::to_json() const {
  using nlohmann::ordered_json;
  ordered_json events = ordered_json::array();
  events.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", rank_},
                    {"args", {{"name", "rank " + std::to_string(rank_)}}}});
  std::vector<std::string_view> lanes;
  for (const Span& span : spans_) {
    auto lane = std::find(lanes.begin(), lanes.end(), span.lane);
    if (lane == lanes.end()) {
      lane = lanes.insert(lanes.end(), span.lane);
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", rank_},
                        {"tid", lanes.size()},
                        {"args", {{"name", span.lane}}}});
    }
    events.push_back({{"ph", "X"},
                      {"name", span.name},
                      {"cat", span.lane},
                      {"ts", microseconds(span.begin.time_since_epoch() + to_realtime_)},
                      {"dur", microseconds(span.end - span.begin)},
                      {"pid", rank_},
                      {"tid", lane - lanes.begin() + 1},
                      {"args", {{"step", span.step}}}});
  }
  return json_text(ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}});
}

void Trace::finish() {
  active_ = false;
  if (spans_.empty()) return;
  Outcome written = make_directory_of(path_);
  if (written.ok()) written = write_file_atomic(path_, to_json());
  if (written.ok()) {
    log_info("trace of steps " + std::to_string(spans_.front().step) + " to " +
             std::to_string(spans_.back().step) + ": " + path_);
  } else {
    log_warning("no trace: " + written.error().message);
  }
  spans_.clear();
  spans_.shrink_to_fit();
}

}  // namespace hpctl
