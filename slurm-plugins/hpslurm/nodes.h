// SPDX-License-Identifier: Apache-2.0
// Calls about nodes, reservations and slurmctld itself; see jobs.h.
#pragma once

#include "slurm-plugins/hpslurm/answer.h"

namespace hpctl::slurm {

Answer version(const nlohmann::json& arguments);
Answer ping(const nlohmann::json& arguments);
Answer load_nodes(const nlohmann::json& arguments);
Answer update_node(const nlohmann::json& arguments);
Answer load_reservations(const nlohmann::json& arguments);

}  // namespace hpctl::slurm
