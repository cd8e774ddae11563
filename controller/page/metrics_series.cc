// SPDX-License-Identifier: Apache-2.0
#include "controller/page/metrics_series.h"

#include <algorithm>

#include "common/base/bounded_json.h"

namespace hpctl {
namespace {

constexpr size_t kLossColumn = 0;
constexpr JsonLimits kMetricsLineLimits{
    .bytes = MetricsSeries::kMostLineBytes, .depth = 4, .values = 1'000};

// nullptr = absent, or not a count.
const nlohmann::json* find_count(const nlohmann::json& line, const char* name) {
  const auto found = line.find(name);
  return found == line.end() || !found->is_number_unsigned() ? nullptr : &*found;
}

void merge(MetricsSeries::Bucket& into, const MetricsSeries::Bucket& next) {
  into.last = next.last;
  for (size_t i = 0; i < into.metrics.size(); ++i) into.metrics[i].add(next.metrics[i]);
}

}  // namespace

void MetricRange::add(double value) {
  if (!std::isfinite(value)) return;
  low = count == 0 ? value : std::min(low, value);
  high = count == 0 ? value : std::max(high, value);
  sum += value;
  ++count;
}

void MetricRange::add(const MetricRange& other) {
  if (other.count == 0) return;
  low = count == 0 ? other.low : std::min(low, other.low);
  high = count == 0 ? other.high : std::max(high, other.high);
  sum += other.sum;
  count += other.count;
}

bool MetricsSeries::add_line(std::string_view line) {
  if (line.size() > kMostLineBytes) return false;
  const auto parsed = parse_json_or_discard(line, kMetricsLineLimits);
  if (!parsed.is_object()) return false;
  const auto* step = find_count(parsed, "step");
  if (step == nullptr || step->get<uint64_t>() > kMostStep) return false;
  const auto* generation_value = find_count(parsed, "generation");
  const uint64_t generation = generation_value == nullptr ? 0 : generation_value->get<uint64_t>();
  if (!generations_.empty() && generation < generations_.back().generation) return false;
  Values values;
  for (size_t i = 0; i < kNames.size(); ++i) {
    const auto found = parsed.find(kNames[i]);
    values[i] = found != parsed.end() && found->is_number() ? found->get<double>() : NAN;
  }
  // The loss of a bad step may be null, so the member counts and not its value.
  if (parsed.contains(kNames[kLossColumn])) {
    if (generations_.empty() || generation > generations_.back().generation) {
      if (generations_.size() == kMostGenerations) generations_.erase(generations_.begin());
      generations_.push_back({generation, step->get<uint64_t>()});
    }
    add_step(step->get<uint64_t>(), values);
  } else {
    add_evaluation(step->get<uint64_t>(), values);
  }
  return true;
}

void MetricsSeries::add_step(uint64_t step, const Values& values) {
  take_back(step);
  if (buckets_.empty() || step / width_ != buckets_.back().first / width_) {
    make_room();
    if (buckets_.empty() || step / width_ != buckets_.back().first / width_) {
      buckets_.push_back({step, step, {}});
    }
  }
  Bucket& bucket = buckets_.back();
  bucket.last = step;
  for (size_t i = 0; i < values.size(); ++i) bucket.metrics[i].add(values[i]);
  note_newest(step, values);
}

// Behind the line of its step. A later generation may evaluate the same step again.
void MetricsSeries::add_evaluation(uint64_t step, const Values& values) {
  if (buckets_.empty() || step < buckets_.back().first || step > buckets_.back().last) return;
  Bucket& bucket = buckets_.back();
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::string_view(kNames[i]) == "time" || !std::isfinite(values[i])) continue;
    if (bucket.first == bucket.last) bucket.metrics[i] = {};
    bucket.metrics[i].add(values[i]);
  }
  note_newest(step, values);
}

void MetricsSeries::note_newest(uint64_t step, const Values& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) newest_[i] = {step, values[i]};
  }
}

// A bucket of several steps cannot forget some of them, and goes as a whole.
void MetricsSeries::take_back(uint64_t step) {
  while (!buckets_.empty() && buckets_.back().last >= step) buckets_.pop_back();
  for (Newest& newest : newest_) {
    if (newest.step >= step) newest = {};
  }
}

void MetricsSeries::make_room() {
  while (buckets_.size() >= kMostBuckets) {
    width_ *= 2;
    std::vector<Bucket> merged;
    merged.reserve(kMostBuckets);
    for (const Bucket& bucket : buckets_) {
      if (!merged.empty() && merged.back().first / width_ == bucket.first / width_) {
        merge(merged.back(), bucket);
      } else {
        merged.push_back(bucket);
      }
    }
    buckets_ = std::move(merged);
  }
}

std::vector<MetricsSeries::Bucket> MetricsSeries::look(uint64_t from, uint64_t to,
                                                       size_t points) const {
  std::vector<Bucket> picture;
  from = std::max(from, first_step());
  to = std::min(to, last_step());
  if (buckets_.empty() || points == 0 || from > to) return picture;
  const uint64_t per_point = (to - from) / points + 1;
  const auto begin =
      std::lower_bound(buckets_.begin(), buckets_.end(), from,
                       [](const Bucket& bucket, uint64_t step) { return bucket.last < step; });
  uint64_t newest_point = 0;
  for (auto bucket = begin; bucket != buckets_.end() && bucket->first <= to; ++bucket) {
    const uint64_t point = bucket->first <= from ? 0 : (bucket->first - from) / per_point;
    if (!picture.empty() && point == newest_point) {
      merge(picture.back(), *bucket);
    } else {
      picture.push_back(*bucket);
    }
    newest_point = point;
  }
  return picture;
}

}  // namespace hpctl
