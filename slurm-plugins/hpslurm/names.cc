// SPDX-License-Identifier: Apache-2.0
#include "slurm-plugins/hpslurm/names.h"

#include <cstdlib>

namespace hpctl::slurm {
namespace {

struct Name {
  uint32_t value;
  const char* name;
};

constexpr Name kJobStates[] = {
    {JOB_PENDING, "PENDING"},     {JOB_RUNNING, "RUNNING"},     {JOB_SUSPENDED, "SUSPENDED"},
    {JOB_COMPLETE, "COMPLETED"},  {JOB_CANCELLED, "CANCELLED"}, {JOB_FAILED, "FAILED"},
    {JOB_TIMEOUT, "TIMEOUT"},     {JOB_NODE_FAIL, "NODE_FAIL"}, {JOB_PREEMPTED, "PREEMPTED"},
    {JOB_BOOT_FAIL, "BOOT_FAIL"}, {JOB_DEADLINE, "DEADLINE"},   {JOB_OOM, "OUT_OF_MEMORY"},
};
constexpr Name kJobFlags[] = {
    {JOB_REQUEUE, "REQUEUED"},          {JOB_REQUEUE_HOLD, "REQUEUE_HOLD"},
    {JOB_SPECIAL_EXIT, "SPECIAL_EXIT"}, {JOB_RESIZING, "RESIZING"},
    {JOB_CONFIGURING, "CONFIGURING"},   {JOB_COMPLETING, "COMPLETING"},
    {JOB_STOPPED, "STOPPED"},
};
constexpr Name kNodeStates[] = {
    {NODE_STATE_UNKNOWN, "UNKNOWN"},     {NODE_STATE_DOWN, "DOWN"},   {NODE_STATE_IDLE, "IDLE"},
    {NODE_STATE_ALLOCATED, "ALLOCATED"}, {NODE_STATE_ERROR, "ERROR"}, {NODE_STATE_MIXED, "MIXED"},
    {NODE_STATE_FUTURE, "FUTURE"},
};
constexpr Name kNodeFlags[] = {
    {NODE_STATE_CLOUD, "CLOUD"},
    {NODE_STATE_DRAIN, "DRAIN"},
    {NODE_STATE_FAIL, "FAIL"},
    {NODE_STATE_NO_RESPOND, "NOT_RESPONDING"},
    {NODE_STATE_COMPLETING, "COMPLETING"},
    {NODE_STATE_MAINT, "MAINTENANCE"},
    {NODE_STATE_RES, "RESERVED"},
    {NODE_STATE_PLANNED, "PLANNED"},
    {NODE_STATE_INVALID_REG, "INVALID_REG"},
    {NODE_STATE_REBOOT_REQUESTED, "REBOOT_REQUESTED"},
    {NODE_STATE_REBOOT_ISSUED, "REBOOT_ISSUED"},
    {NODE_STATE_POWERED_DOWN, "POWERED_DOWN"},
    {NODE_STATE_POWERING_DOWN, "POWERING_DOWN"},
    {NODE_STATE_POWERING_UP, "POWERING_UP"},
};

template <size_t N>
std::string find_name(const Name (&table)[N], uint32_t value, const char* unknown) {
  for (const Name& row : table) {
    if (row.value == value) return row.name;
  }
  return std::string(unknown) + " " + std::to_string(value);
}

template <size_t N>
std::vector<std::string> find_flags(const Name (&table)[N], uint32_t value) {
  std::vector<std::string> names;
  for (const Name& row : table) {
    if ((value & row.value) != 0) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace

std::string job_state_name(uint32_t state) {
  return find_name(kJobStates, state & JOB_STATE_BASE, "state");
}
std::vector<std::string> job_flag_names(uint32_t state) { return find_flags(kJobFlags, state); }
std::string job_reason_name(uint32_t reason) {
  const auto value = static_cast<job_state_reason>(reason);
  if (slurm_job_state_reason_string != nullptr) return slurm_job_state_reason_string(value);
  if (slurm_job_reason_string != nullptr) return slurm_job_reason_string(value);
  return reason == WAIT_NO_REASON ? "None" : "reason " + std::to_string(reason);
}
std::string node_state_name(uint32_t state) {
  return find_name(kNodeStates, state & NODE_STATE_BASE, "state");
}
std::vector<std::string> node_flag_names(uint32_t state) { return find_flags(kNodeFlags, state); }

// As slurmctld looks for it, anywhere in the text.
bool allows_expedited_requeue(const std::string& parameters) {
  return parameters.find("enable_expedited_requeue") != std::string::npos;
}

std::vector<std::string> expand_host_list(const char* list) {
  std::vector<std::string> names;
  if (list == nullptr) return names;
  HostList hosts = slurm_hostlist_create(list);
  if (hosts == nullptr) return names;
  while (char* name = slurm_hostlist_shift(hosts)) {
    names.emplace_back(name);
    std::free(name);  // NOLINT: libslurm gives it to us from malloc
  }
  slurm_hostlist_destroy(hosts);
  return names;
}

}  // namespace hpctl::slurm
