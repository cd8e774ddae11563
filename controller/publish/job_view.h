// SPDX-License-Identifier: Apache-2.0
// One picture of a job, from its rows and the progress table; the RPC answer, the status files and
// the metrics all show this one.
#pragma once

#include <string>
#include <vector>

#include "common/job/node_record.h"
#include "controller/agents/progress.h"
#include "controller/core/core.h"
#include "controller/engine/store.h"
#include "controller/publish/status_files.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl {

// Precondition: the job exists. `now_ms`: in the time of events.
JobView make_job_view(const core::State& state, JobId job, const JobProgress& progress,
                      const std::string& controller_node, int64_t now_ms);
// Adds what a controller that follows must know to go on with the totals.
void note_totals(JobView& view, const core::State& state, const JobProgress& progress,
                 int64_t now_ms, int64_t wall_ms);
// Adds the evidence of earlier jobs against its nodes, from the known scores of machines.
void note_lemons(JobView& view, const std::vector<LemonScore>& scores);
NodeView make_node_view(const core::State& state, const core::Node& node,
                        const JobProgress& progress);

void fill(const JobView& view, v1::JobStatus& status);
void fill(const NodeView& view, uint64_t job, v1::NodeStatus& status);
void fill(const StoredEntry& stored, v1::Event& event);
EventView make_event_view(const StoredEntry& stored);

}  // namespace hpctl
