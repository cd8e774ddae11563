// SPDX-License-Identifier: Apache-2.0
// Slurm's reasons for which a job in the queue never starts by itself, and the command that helps.
// Pure.
#pragma once

#include <string>

#include "common/slurm/slurm_messages.h"

namespace hpctl {

// "scontrol release 17"; "" = the job only has to wait, or the reason is not known here.
std::string queue_remedy(const SlurmJob& job);

}  // namespace hpctl
