// SPDX-License-Identifier: Apache-2.0
#include "controller/page/page_history.h"

namespace hpctl {

void PageHistory::add(JobId job, const PageSample& sample) {
  Series& series = jobs_.of_running(job);
  std::vector<PageSample>& samples = series.samples;
  const bool is_early =
      !samples.empty() && sample.wall_ms - samples.back().wall_ms < series.interval_ms;
  if (is_early) return;
  samples.push_back(sample);
  if (samples.size() < kMostSamples) return;
  for (size_t i = 0; 2 * i < samples.size(); ++i) samples[i] = samples[2 * i];
  samples.resize((samples.size() + 1) / 2);
  series.interval_ms *= 2;
}

const std::vector<PageSample>& PageHistory::of(JobId job) {
  static const std::vector<PageSample> none;
  const Series* const series = jobs_.look(job);
  return series == nullptr ? none : series->samples;
}

}  // namespace hpctl
