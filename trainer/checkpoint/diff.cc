// SPDX-License-Identifier: Apache-2.0
// Where two checkpoints differ, tensor by tensor. Values are compared as bytes: the promise is
// bit-exactness, so -0.0 and 0.0 differ here. World size and generation play no part.
#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <vector>

#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/stored_tensors.h"

namespace hpctl {
namespace {

constexpr int64_t kPieceElements = 1 << 18;

struct Side {
  Manifest manifest;
  ShardFiles shards;
  std::vector<float> buffer;
};

Result<Side> open_side(const std::string& step_dir) {
  HP_TRY_ASSIGN(const VerifyReport report, verify_checkpoint(step_dir));
  if (!report.problems.empty()) return Error{ErrorCode::kDataLoss, report.problems.front()};
  HP_TRY_ASSIGN(Manifest manifest, read_manifest(step_dir));
  return Side{std::move(manifest), ShardFiles(step_dir), std::vector<float>(kPieceElements)};
}

Outcome compare_values(Side& a, const StoredTensor& in_a, Side& b, const StoredTensor& in_b,
                       TensorDifference& difference) {
  const int64_t numel = in_a.slot->numel;
  for (int64_t at = 0; at < numel; at += kPieceElements) {
    const auto size = static_cast<size_t>(std::min(kPieceElements, numel - at));
    const std::span<float> left(a.buffer.data(), size);
    const std::span<float> right(b.buffer.data(), size);
    HP_TRY(read_elements(a.manifest, a.shards, in_a, at, left));
    HP_TRY(read_elements(b.manifest, b.shards, in_b, at, right));
    for (size_t i = 0; i < size; ++i) {
      if (std::bit_cast<uint32_t>(left[i]) == std::bit_cast<uint32_t>(right[i])) continue;
      if (difference.differing++ == 0) difference.first = at + static_cast<int64_t>(i);
      const double apart = std::fabs(static_cast<double>(left[i]) - static_cast<double>(right[i]));
      difference.max_abs = std::max(difference.max_abs, apart);
    }
  }
  return Ok{};
}

}  // namespace

Result<DiffReport> diff_checkpoints(const std::string& step_dir_a, const std::string& step_dir_b) {
  HP_TRY_ASSIGN(Side a, open_side(step_dir_a));
  HP_TRY_ASSIGN(Side b, open_side(step_dir_b));
  DiffReport report;
  report.same_position =
      a.manifest.step == b.manifest.step && a.manifest.sample_cursor == b.manifest.sample_cursor &&
      a.manifest.skipped == b.manifest.skipped && a.manifest.stability == b.manifest.stability &&
      a.manifest.loss_scale == b.manifest.loss_scale;
  const auto in_a = tensors_by_name(a.manifest);
  const auto in_b = tensors_by_name(b.manifest);
  for (size_t i = 0, j = 0; i < in_a.size() || j < in_b.size();) {
    ++report.tensors;
    const bool only_a = j == in_b.size() || (i < in_a.size() && in_a[i].name < in_b[j].name);
    const bool only_b = i == in_a.size() || (j < in_b.size() && in_b[j].name < in_a[i].name);
    TensorDifference difference;
    difference.name = only_b ? in_b[j].name : in_a[i].name;
    if (only_a || only_b) {
      difference.what = only_a ? "only in the first" : "only in the second";
    } else if (in_a[i].slot->shape != in_b[j].slot->shape) {
      difference.what = "another shape";
    } else {
      HP_TRY(compare_values(a, in_a[i], b, in_b[j], difference));
      difference.numel = in_a[i].slot->numel;
      if (difference.differing > 0) difference.what = "other values";
    }
    if (!difference.what.empty()) report.differences.push_back(difference);
    if (!only_b) ++i;
    if (!only_a) ++j;
  }
  return report;
}

}  // namespace hpctl
