// SPDX-License-Identifier: Apache-2.0
// The history of a training job as its metrics.jsonl tells it (docs/formats.md), for the plots of
// the status page. Lines are added as the file grows. A line of training whose step is not above
// the newest one takes back the steps from there on, because a recovery repeats them; a line of an
// earlier generation than the newest one comes too late and does not count.
//
// The steps are kept in buckets of one step each. When there are kMostBuckets, neighbours are
// merged, and from then on a bucket spans twice as many steps. A bucket has the least, the greatest
// and the mean value of each metric, so a spike of one step stays visible however long the job is.
// Bounded: kMostBuckets * about 0.5 KB. Pure; not for more than one thread.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hpctl {

// Values of one metric over some steps.
struct MetricRange {
  double low = NAN;  // NaN = no step has a value
  double high = NAN;
  double sum = 0;
  uint32_t count = 0;

  void add(double value);
  void add(const MetricRange& other);
  double mean() const { return count == 0 ? NAN : sum / count; }
};

class MetricsSeries {
 public:
  // Members of a line. All are numbers.
  static constexpr std::array<const char*, 14> kNames = {
      "loss", "validation_loss",  "test_loss", "tokens_per_s", "mfu",     "tflops",
      "lr",   "grad_norm",        "step_ms",   "comm_ms",      "data_ms", "save_ms",
      "time", "peak_memory_bytes"};
  static constexpr size_t kMostBuckets = 16'384;
  static constexpr size_t kMostGenerations = 1'000;  // the newest
  static constexpr size_t kMostLineBytes = size_t{64} << 10;
  static constexpr uint64_t kMostStep = uint64_t{1} << 53;  // exact in JavaScript

  struct Bucket {
    uint64_t first = 0;  // steps, both ends with it
    uint64_t last = 0;
    std::array<MetricRange, kNames.size()> metrics;
  };
  struct GenerationStart {
    uint64_t generation = 0;
    uint64_t step = 0;  // its first
  };

  // One line without its end. False: it is not a line of metrics, and nothing has changed.
  bool add_line(std::string_view line);

  // At most `points` buckets of equal width with the steps in [from, to]; points >= 1.
  std::vector<Bucket> look(uint64_t from, uint64_t to, size_t points) const;
  struct Newest {
    uint64_t step = 0;
    double value = NAN;  // NaN = there is none
  };
  // Of each metric.
  const std::array<Newest, kNames.size()>& newest() const { return newest_; }
  // 0 = there is none.
  uint64_t first_step() const { return buckets_.empty() ? 0 : buckets_.front().first; }
  uint64_t last_step() const { return buckets_.empty() ? 0 : buckets_.back().last; }
  const std::vector<GenerationStart>& generations() const { return generations_; }
  // Steps of a bucket.
  uint64_t width() const { return width_; }
  size_t memory_bytes() const { return buckets_.capacity() * sizeof(Bucket); }

 private:
  using Values = std::array<double, kNames.size()>;  // NaN = absent

  void add_step(uint64_t step, const Values& values);
  void add_evaluation(uint64_t step, const Values& values);
  void take_back(uint64_t step);
  void note_newest(uint64_t step, const Values& values);
  void make_room();

  uint64_t width_ = 1;
  std::vector<Bucket> buckets_;  // ascending
  std::array<Newest, kNames.size()> newest_;
  std::vector<GenerationStart> generations_;
};

}  // namespace hpctl
