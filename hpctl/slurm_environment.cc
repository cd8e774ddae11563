// SPDX-License-Identifier: Apache-2.0
#include "hpctl/slurm_environment.h"

#include <algorithm>
#include <string_view>

#include "common/base/quantity.h"

namespace hpctl {
namespace {

struct TextVariable {
  std::string_view name;
  const char* key;
  std::string SlurmSpec::*value;
};

constexpr TextVariable kTaken[] = {
    {"SBATCH_ACCOUNT", "account", &SlurmSpec::account},
    {"SBATCH_CONSTRAINT", "constraint", &SlurmSpec::constraint},
    {"SBATCH_GRES", "gres", &SlurmSpec::gres},
    {"SBATCH_PARTITION", "partition", &SlurmSpec::partition},
    {"SBATCH_QOS", "qos", &SlurmSpec::qos},
    {"SBATCH_RESERVATION", "reservation", &SlurmSpec::reservation},
};

// About sbatch's own words and files.
constexpr std::string_view kWithoutEffect[] = {"SBATCH_DEBUG", "SBATCH_IGNORE_PBS"};

struct RefusedVariable {
  std::string_view name;
  const char* reason;
};

constexpr RefusedVariable kRefused[] = {
    {"SBATCH_ARRAY_INX", "hpctl recovers one job by its id; submit a job for each index"},
    {"SBATCH_CLUSTERS", "the job goes to the cluster that SLURM_CONF names"},
    {"SBATCH_DEPENDENCY", "write slurm.dependency in the job file"},
    {"SBATCH_EXCLUSIVE", "write slurm.exclusive in the job file"},
    {"SBATCH_EXPORT", "the job gets the environment of hpctl submit"},
    {"SBATCH_JOB_NAME", "write name in the job file"},
    {"SBATCH_MEM_PER_CPU", "write slurm.mem, of a node, in the job file"},
    {"SBATCH_MEM_PER_GPU", "write slurm.mem, of a node, in the job file"},
    {"SBATCH_MEM_PER_NODE", "write slurm.mem in the job file"},
    {"SBATCH_SIGNAL", "write slurm.signal in the job file"},
    {"SBATCH_WAIT", "use hpctl submit --wait"},
};
constexpr std::string_view kSetByHpctl[] = {
    "SBATCH_ERROR",  "SBATCH_INPUT",   "SBATCH_NO_KILL",   "SBATCH_NO_REQUEUE",
    "SBATCH_OUTPUT", "SBATCH_REQUEUE", "SBATCH_OPEN_MODE", "SBATCH_CONTAINER"};

Error refusal(const std::string& name, const std::string& reason) {
  return {ErrorCode::kFailedPrecondition,
          name + " is set, which hpctl submit does not take: " + reason + " (unset " + name +
              " to submit without it)"};
}

Error refuse(const std::string& name) {
  for (const RefusedVariable& refused : kRefused) {
    if (refused.name == name) return refusal(name, refused.reason);
  }
  const bool own =
      std::find(std::begin(kSetByHpctl), std::end(kSetByHpctl), name) != std::end(kSetByHpctl);
  return refusal(name, own ? "hpctl sets this itself"
                           : "write the option of sbatch that it stands for in the job file, as "
                             "slurm.extra: [--NAME=VALUE]");
}

// What is said of a variable whose key the job file may have given already.
std::string said(const std::string& variable, const std::string& key, bool taken,
                 const std::string& given) {
  if (taken) return variable + " counts as slurm." + key;
  return variable + " does not count: the job file says slurm." + key + ": " + given;
}

std::string take_text(const TextVariable& known, const std::string& variable,
                      const std::string& value, SlurmSpec& slurm) {
  std::string& out = slurm.*known.value;
  if (out == value) return "";
  const bool taken = out.empty();
  if (taken) out = value;
  return said(variable, known.key, taken, out);
}

Result<std::string> take_time(const std::string& variable, const std::string& value,
                              SlurmSpec& slurm) {
  const auto minutes = parse_time_limit_minutes(value);
  if (!minutes.ok()) return refusal(variable, minutes.error().message);
  if (slurm.time_minutes == *minutes) return std::string();
  const bool taken = slurm.time_minutes == 0;
  if (taken) slurm.time_minutes = *minutes;
  return said(variable, "time", taken, format_time_limit(slurm.time_minutes));
}

Result<std::string> take(const std::string& variable, SlurmSpec& slurm) {
  const size_t equals = std::min(variable.find('='), variable.size());
  const std::string name = variable.substr(0, equals);
  const std::string value = variable.substr(std::min(equals + 1, variable.size()));
  if (value.empty()) return std::string();
  const auto* known = std::find_if(std::begin(kTaken), std::end(kTaken),
                                   [&](const TextVariable& v) { return v.name == name; });
  if (known != std::end(kTaken)) return take_text(*known, variable, value, slurm);
  if (name == "SBATCH_TIMELIMIT") return take_time(variable, value, slurm);
  const bool without_effect = std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect),
                                        name) != std::end(kWithoutEffect);
  if (without_effect) return std::string();
  return refuse(name);
}

}  // namespace

Result<std::vector<std::string>> take_slurm_environment(const std::vector<std::string>& environment,
                                                        SlurmSpec& slurm) {
  constexpr std::string_view kAllocation = "SLURM_JOB_ID=";
  std::vector<std::string> notices;
  for (const std::string& variable : environment) {
    if (variable.starts_with(kAllocation)) {
      const std::string job = variable.substr(kAllocation.size());
      return Error{ErrorCode::kFailedPrecondition,
                   "this shell is inside Slurm job " + job +
                       ", and hpctl submit does not run a job in an allocation that exists: it "
                       "would wait in the queue as another one. Leave the allocation first; or run "
                       "on this machine alone with --local; or queue another job all the same: env "
                       "-u SLURM_JOB_ID hpctl submit ..."};
    }
    if (!variable.starts_with("SBATCH_")) continue;
    HP_TRY_ASSIGN(std::string notice, take(variable, slurm));
    if (!notice.empty()) notices.push_back(std::move(notice));
  }
  return notices;
}

}  // namespace hpctl
