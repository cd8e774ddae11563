// SPDX-License-Identifier: Apache-2.0
// The number of workers per node of a job, and the memory of each, as far as known before the
// submission; and the consequences for keys that its file leaves to `auto`.
#pragma once

#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "hpctl/command_line.h"
#include "trainer/plan/automatic.h"
#include "trainer/plan/gpu_models.h"

namespace hpctl {

// The value of --gpu: null for cpu; nullopt when it was not given.
Result<std::optional<const GpuModel*>> gpu_option(const Invocation& invocation);

// Where the job is to run. `device`: as gpu_option() says.
struct JobPlace {
  bool local = false;  // on this machine, which all its nodes share
  std::optional<const GpuModel*> device;
  std::string root = {};  // put before /dev, /proc and /sys of this machine
};

// workers_per_node: auto becomes a number: of the GPUs that slurm.gres asks for, or, on this
// machine, of each node's share of those that there are; 1 where there is none. Returns it with the
// reason;
// "" where it was a number. The caller looks for problems again.
std::string choose_workers(JobSpec& spec, const JobPlace& place);

// Told: --gpu. Else on this machine its GPUs, or its own memory; on a cluster the GPU that
// slurm.gres names. The memory of a CPU's node on a cluster is slurm.mem.
WorkerMemory find_worker_memory(const JobSpec& spec, const JobPlace& place);

// The GPU that slurm.gres names by its type ("gpu:h100:8"); null when it names none that is known.
const GpuModel* gpu_of_gres(const std::string& gres);

// Chooses the values of the keys that are auto, for a job with workload.train, and notes them in
// spec.chosen. Returns what does not fit (Automatic::misfit); the spec then needs the least.
std::string choose_values(JobSpec& spec, const WorkerMemory& memory);

// A line of comment for each value chosen, under one that tells for which memory; "" for none.
std::string describe_chosen(const ChosenValues& chosen, const std::string& prefix);

}  // namespace hpctl
