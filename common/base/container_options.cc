// SPDX-License-Identifier: Apache-2.0
#include "common/base/container_options.h"

namespace hpctl {

std::vector<std::string> container_options(const JobSpec& spec, const std::string& programs,
                                           const std::string& home) {
  const ContainerSpec& container = spec.slurm.container;
  if (container.image.empty()) return {};
  std::vector<std::string> paths = {programs, home};
  if (!spec.checkpoint.dir.empty()) paths.push_back(spec.checkpoint.dir);
  if (spec.train) paths.push_back(spec.train->data.path);
  paths.insert(paths.end(), container.mounts.begin(), container.mounts.end());
  std::string mounts;
  for (const std::string& path : paths) {
    const bool pair = path.find(':') != std::string::npos;
    mounts += (mounts.empty() ? "" : ",") + (pair ? path : path + ":" + path);
  }
  return {"--container-image=" + container.image, "--container-mounts=" + mounts};
}

}  // namespace hpctl
