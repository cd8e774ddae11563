// SPDX-License-Identifier: Apache-2.0
#include "controller/page/rank_times.h"

#include <algorithm>

namespace hpctl {
namespace {

RankTimes::Column column_of_ranks(int64_t wall_ms, uint64_t step, const std::vector<float>& ms) {
  RankTimes::Column column{wall_ms, step, 1, {}};
  column.ranks_per_row = (ms.size() + RankTimes::kMostRows - 1) / RankTimes::kMostRows;
  for (size_t rank = 0; rank < ms.size(); ++rank) {
    if (rank % column.ranks_per_row == 0) column.ms.push_back(0);
    column.ms.back() = std::max(column.ms.back(), ms[rank]);
  }
  return column;
}

// The job may have grown or shrunk between the two.
RankTimes::Column slower_of(const RankTimes::Column& a, const RankTimes::Column& b) {
  if (a.ranks_per_row != b.ranks_per_row) return b;
  RankTimes::Column both = b;
  both.ms.resize(std::max(a.ms.size(), b.ms.size()));
  for (size_t row = 0; row < a.ms.size(); ++row) both.ms[row] = std::max(both.ms[row], a.ms[row]);
  return both;
}

}  // namespace

void RankTimes::add(JobId job, int64_t wall_ms, uint64_t step, const std::vector<float>& ms) {
  if (ms.empty()) return;
  Heat& heat = jobs_.of_running(job);
  std::vector<Column>& columns = heat.columns;
  if (!columns.empty() && wall_ms - columns.back().wall_ms < heat.interval_ms) return;
  columns.push_back(column_of_ranks(wall_ms, step, ms));
  if (columns.size() < kMostColumns) return;
  std::vector<Column> merged;
  for (size_t i = 0; i < columns.size(); i += 2) {
    const bool has_next = i + 1 < columns.size();
    merged.push_back(has_next ? slower_of(columns[i], columns[i + 1]) : columns[i]);
  }
  columns = std::move(merged);
  heat.interval_ms *= 2;
}

const std::vector<RankTimes::Column>& RankTimes::of(JobId job) {
  static const std::vector<Column> none;
  const Heat* const heat = jobs_.look(job);
  return heat == nullptr ? none : heat->columns;
}

}  // namespace hpctl
