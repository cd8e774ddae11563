// SPDX-License-Identifier: Apache-2.0
// JSON of the messages between hpctl and hpslurm: a request is {"call": NAME, "arguments": {…}}, an
// answer {"result": …} or {"error": {"kind": …, "message": …}}. Include from .cc files only.
#pragma once

#include "common/base/json.h"
#include "common/slurm/slurm_messages.h"

namespace hpctl {

template <typename Tag, typename Rep>
void to_json(nlohmann::json& out, const StrongId<Tag, Rep>& id) {
  out = id.value;
}
template <typename Tag, typename Rep>
void from_json(const nlohmann::json& in, StrongId<Tag, Rep>& id) {
  in.get_to(id.value);
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlurmSubmission, script, name, comment, work_dir,
                                                output, environment, partition, account, qos,
                                                reservation, constraint, tres_per_node, nodelist,
                                                exclude, nodes_min, nodes_max, cpus_per_task,
                                                time_minutes, exclusive, all_memory, memory_mb,
                                                warning_signal, warning_seconds, requeue, expedite,
                                                no_kill, options)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlurmJob, id, name, uid, state, flags, reason,
                                                reason_detail, comment, partition, nodes,
                                                excluded_nodes, batch_host, work_dir, restart_count,
                                                exit_code, exit_signal, start_time_s, end_time_s,
                                                preempt_time_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlurmNode, name, address, state, flags, reason,
                                                features, gres, instance_id, instance_type,
                                                boot_time_s, slurmd_start_time_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlurmReservation, name, nodes, flags, users,
                                                start_time_s, end_time_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SlurmVersion, built_for, running, controllers,
                                                cluster, expedites)

NLOHMANN_JSON_SERIALIZE_ENUM(SlurmNodeState, {{SlurmNodeState::kDown, "DOWN"},
                                              {SlurmNodeState::kDrain, "DRAIN"},
                                              {SlurmNodeState::kFail, "FAIL"},
                                              {SlurmNodeState::kResume, "RESUME"}})
NLOHMANN_JSON_SERIALIZE_ENUM(ErrorCode, {{ErrorCode::kInternal, "internal"},
                                         {ErrorCode::kInvalidArgument, "invalid_argument"},
                                         {ErrorCode::kNotFound, "not_found"},
                                         {ErrorCode::kPermissionDenied, "permission_denied"},
                                         {ErrorCode::kFailedPrecondition, "failed_precondition"},
                                         {ErrorCode::kUnavailable, "unavailable"}})

}  // namespace hpctl
