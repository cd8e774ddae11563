// SPDX-License-Identifier: Apache-2.0
#include "common/job/container_options.h"

#include "common/base/file.h"

namespace hpctl {

namespace {

// The prefix of an indexed dataset is no file: the directory it lies in.
void add_data(const DataSpec& data, std::vector<std::string>& paths) {
  std::vector<std::string> sources = {data.path};
  for (const BlendPart& part : data.blend) sources.push_back(part.path);
  for (const std::string& source : sources) {
    if (source.empty()) continue;
    const bool prefix = !is_accessible(source) && is_accessible(source + ".idx");
    paths.push_back(prefix ? source.substr(0, source.rfind('/')) : source);
  }
}

// A bundle's programs need what lies beside their directory (scripts/bundle.sh).
std::string with_libraries(const std::string& programs) {
  const std::string above = programs.substr(0, programs.rfind('/'));
  return is_accessible(above + "/libexec/hpagent") ? above : programs;
}

}  // namespace

std::vector<std::string> container_options(const JobSpec& spec, const std::string& programs,
                                           const std::string& home) {
  const ContainerSpec& container = spec.slurm.container;
  if (container.image.empty()) return {};
  std::vector<std::string> paths = {with_libraries(programs), home};
  if (!spec.checkpoint.dir.empty()) paths.push_back(spec.checkpoint.dir);
  if (spec.train) add_data(spec.train->data, paths);
  if (spec.train && spec.train->lora.on()) paths.push_back(spec.train->lora.base);
  paths.insert(paths.end(), container.mounts.begin(), container.mounts.end());
  std::string mounts;
  for (const std::string& path : paths) {
    const bool pair = path.find(':') != std::string::npos;
    mounts += (mounts.empty() ? "" : ",") + (pair ? path : path + ":" + path);
  }
  return {"--container-image=" + container.image, "--container-mounts=" + mounts};
}

}  // namespace hpctl
