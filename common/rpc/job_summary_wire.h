// SPDX-License-Identifier: Apache-2.0
// JobSummary on the wire. Input is made plausible: text is cut, and numbers that no job reaches are
// cut off, so code that shows or counts it need not know its sender. Pure.
#pragma once

#include "common/job/job_margins.h"
#include "common/job/job_summary.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

inline constexpr size_t kMaxSummaryName = 128;
inline constexpr size_t kMaxSummaryReason = 300;
inline constexpr size_t kMaxSummaryNodes = 16U << 10;  // bytes, of all names
inline constexpr size_t kMaxSummaryNodeNames = 20'000;
inline constexpr size_t kMaxMarginNodes = 4U << 10;  // bytes, of those in quarantine; of the slow
inline constexpr size_t kMaxBlamedName = 255;        // of a node, an instance, a key

void fill(const TimeSpent& spent, v1::TimeSpent& wire);
TimeSpent to_time_spent(const v1::TimeSpent& wire);

void fill(const JobMargins& margins, v1::JobMargins& wire);
JobMargins to_job_margins(const v1::JobMargins& wire);

void fill(const NodeRecord& record, v1::NodeBlame& wire);

void fill(const JobSummary& summary, v1::JobSummary& wire);
JobSummary to_job_summary(const v1::JobSummary& wire);

}  // namespace hpctl
