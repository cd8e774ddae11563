// SPDX-License-Identifier: Apache-2.0
// Slurm's numbers as the words that its commands print.
#pragma once

#include <string>
#include <vector>

#include "slurm-plugins/hpslurm/slurm_compat.h"

namespace hpctl::slurm {

inline std::string text(const char* value) { return value == nullptr ? "" : value; }

std::string job_state_name(uint32_t state);
std::vector<std::string> job_flag_names(uint32_t state);
std::string job_reason_name(uint32_t reason);  // as squeue has it
std::string node_state_name(uint32_t state);
std::vector<std::string> node_flag_names(uint32_t state);

// Of SlurmctldParameters: jobs may ask for --requeue=expedite.
bool allows_expedited_requeue(const std::string& parameters);

// "n[0-2],n7" -> n0, n1, n2, n7. Nothing for a null pointer.
std::vector<std::string> expand_host_list(const char* list);

}  // namespace hpctl::slurm
