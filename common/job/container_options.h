// SPDX-License-Identifier: Apache-2.0
// The options that make srun start a node's agent in a container by Pyxis
// (github.com/NVIDIA/pyxis).
#pragma once

#include <string>
#include <vector>

#include "common/job/job_spec.h"

namespace hpctl {

// --container-image and --container-mounts; none without a container. Besides the mounts of the job
// file the container sees what hpctl needs: `programs` (the directory of its programs; the whole of
// a bundle), `home` (HPCTL_HOME, which holds the job's directory), data and checkpoints.
std::vector<std::string> container_options(const JobSpec& spec, const std::string& programs,
                                           const std::string& home);

}  // namespace hpctl
