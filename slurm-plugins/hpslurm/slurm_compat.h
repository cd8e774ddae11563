// SPDX-License-Identifier: Apache-2.0
// Where libslurm differs between Slurm 22.05 and 26.05, and nowhere else. libslurm's ABI changes
// with every release: hpslurm is compiled on the cluster that it serves.
#pragma once

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurm_version.h>

#include <cstdint>
#include <string>

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(22, 5, 0)
#error "hpslurm needs Slurm 22.05 or newer"
#endif

// The configuration that slurm_init() has read. Exported by libslurm but not declared in its
// headers: the address is null where it is not.
extern "C" __attribute__((weak)) slurm_conf_t slurm_conf;
// Likewise the names of reasons; the first since 23.11, the second before.
extern "C" __attribute__((weak)) const char* slurm_job_state_reason_string(job_state_reason reason);
extern "C" __attribute__((weak)) const char* slurm_job_reason_string(job_state_reason reason);

namespace hpctl::slurm {

// A job is part of a step id in messages since 25.11, and in arguments since 26.05.
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
inline slurm_step_id_t job_handle(uint32_t id) {
  slurm_step_id_t handle = SLURM_STEP_ID_INITIALIZER;
  handle.job_id = id;
  return handle;
}
inline void set_reason_uid(update_node_msg_t&, uint32_t) {}
#else
inline uint32_t job_handle(uint32_t id) { return id; }
inline void set_reason_uid(update_node_msg_t& update, uint32_t uid) { update.reason_uid = uid; }
#endif
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
inline int complete_job(uint32_t id, uint32_t status) {
  slurm_step_id_t handle = SLURM_STEP_ID_INITIALIZER;
  handle.job_id = id;
  return slurm_complete_job(&handle, status);
}
inline void set_job_id(job_desc_msg_t& description, uint32_t id) {
  description.step_id.job_id = id;
}
inline uint32_t job_id_of(const submit_response_msg_t& answer) { return answer.step_id.job_id; }
inline uint32_t job_id_of(const slurm_job_info_t& job) { return job.step_id.job_id; }
#else
inline int complete_job(uint32_t id, uint32_t status) { return slurm_complete_job(id, status); }
inline void set_job_id(job_desc_msg_t& description, uint32_t id) { description.job_id = id; }
inline uint32_t job_id_of(const submit_response_msg_t& answer) { return answer.job_id; }
inline uint32_t job_id_of(const slurm_job_info_t& job) { return job.job_id; }
#endif

// slurmctld's answer to a change of a job whose accounting index it is waiting for; none since
// 24.11, which numbers jobs itself.
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0)
inline constexpr int kAwaitsAccountingIndex = -1;
#else
inline constexpr int kAwaitsAccountingIndex = ESLURM_JOB_SETTING_DB_INX;
#endif

// --requeue=expedite, as a flag of a submission; 0 before 25.11.
#ifdef EXPEDITED_REQUEUE
inline constexpr uint64_t kExpeditedRequeue = EXPEDITED_REQUEUE;
#else
inline constexpr uint64_t kExpeditedRequeue = 0;
#endif

// --gres=gpu:8 is gres:gpu:8 on the wire until 23.02 and gres/gpu:8 since.
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
using HostList = hostlist_t*;
inline constexpr const char* kGresPrefix = "gres/";
inline const char* instance_id_of(const node_info_t& node) { return node.instance_id; }
inline const char* instance_type_of(const node_info_t& node) { return node.instance_type; }
#else
using HostList = hostlist_t;
inline constexpr const char* kGresPrefix = "gres:";
inline const char* instance_id_of(const node_info_t&) { return nullptr; }
inline const char* instance_type_of(const node_info_t&) { return nullptr; }
#endif

}  // namespace hpctl::slurm
