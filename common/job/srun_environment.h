// SPDX-License-Identifier: Apache-2.0
// The environment as srun reads it. srun takes every SRUN_* and most SLURM_* variables for options,
// like options on its command line (srun(1), INPUT ENVIRONMENT VARIABLES). hpctl's own steps get
// none of them: the submitter of the job, or the step around a program, set them for other steps.
// Variables that only describe a job stay.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace hpctl {

// Names that begin like this stay.
inline constexpr std::array<std::string_view, 10> kSlurmJobFacts = {
    "SLURM_CONF",    "SLURM_JOB",      "SLURM_ARRAY_", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME",
    "SLURM_SUBMIT_", "SLURM_NODELIST", "SLURM_NODEID", "SLURM_TOPOLOGY_",     "SLURM_HET_"};

inline bool is_srun_option(std::string_view name) {
  if (name.starts_with("SRUN_")) return true;
  return name.starts_with("SLURM_") &&
         std::none_of(kSlurmJobFacts.begin(), kSlurmJobFacts.end(),
                      [&](std::string_view kept) { return name.starts_with(kept); });
}

// A bash statement that unsets them all.
inline std::string unset_srun_options() {
  std::string kept;
  for (const std::string_view name : kSlurmJobFacts) {
    kept += (kept.empty() ? "" : "|") + std::string(name) + "*";
  }
  return "for name in \"${!SLURM_@}\" \"${!SRUN_@}\"; do\n  case $name in " + kept +
         ") ;;\n    *) unset \"$name\" ;;\n  esac\ndone\n";
}

}  // namespace hpctl
