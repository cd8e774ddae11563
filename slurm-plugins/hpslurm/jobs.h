// SPDX-License-Identifier: Apache-2.0
// Calls about jobs. Arguments and results match common/slurm/hpslurm.h; arguments of an unexpected
// type make nlohmann throw, which main.cc answers.
#pragma once

#include "slurm-plugins/hpslurm/answer.h"

namespace hpctl::slurm {

Answer submit(const nlohmann::json& arguments);
Answer load_job(const nlohmann::json& arguments);
Answer jobs_by_comment(const nlohmann::json& arguments);
Answer cancel(const nlohmann::json& arguments);
Answer complete(const nlohmann::json& arguments);
Answer signal_job(const nlohmann::json& arguments);
Answer requeue(const nlohmann::json& arguments);
Answer keep_nodes(const nlohmann::json& arguments);

}  // namespace hpctl::slurm
