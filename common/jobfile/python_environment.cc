// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/python_environment.h"

#include "common/base/file.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace hpctl {
namespace {

constexpr size_t kShownBytes = 400;

bool is_venv(const std::string& path) { return is_accessible(path + "/bin/python"); }
bool is_uv_project(const std::string& path) { return is_accessible(path + "/pyproject.toml"); }

EnvironmentSpec found_environment(const JobSpec& spec, const std::string& directory) {
  const std::string& given = spec.environment.path;
  const std::string venv = given.empty() ? directory + "/.venv" : given;
  const std::string project = given.empty() ? directory : given;
  if (spec.command.empty()) return {"none", ""};
  if (!spec.slurm.container.image.empty()) return {"container", ""};
  if (is_venv(venv)) return {"venv", venv};
  if (is_uv_project(project)) return {"uv", project};
  return {"none", ""};
}

// It travels in JSON, and would arrive as another path.
SpecProblem not_text(const std::string& path) {
  return {"env.path", "the path " + printable_line(path, kShownBytes) +
                          " has bytes that are not UTF-8, shown as ?; give that directory another "
                          "name"};
}

}  // namespace

std::optional<SpecProblem> choose_environment(JobSpec& spec, const std::string& directory) {
  EnvironmentSpec& chosen = spec.environment;
  const bool is_given = chosen.kind != "auto";
  if (!is_given) {
    const bool has_path = !chosen.path.empty();
    chosen = found_environment(spec, directory);
    if (!is_utf8(chosen.path)) return not_text(chosen.path);
    if (!has_path || chosen.kind != "none") return std::nullopt;
    return SpecProblem{"env.path",
                       "neither a virtual environment (bin/python) nor a uv project "
                       "(pyproject.toml) is there"};
  }
  if (chosen.kind == "none") return std::nullopt;
  if (spec.command.empty()) {
    return SpecProblem{
        "env.kind",
        "\"" + chosen.kind + "\" is for workload.command; workload.train needs no Python"};
  }
  if (chosen.kind == "container") {
    if (!spec.slurm.container.image.empty()) return std::nullopt;
    return SpecProblem{"env.kind", "container needs slurm: {container: {image: ...}}"};
  }
  if (chosen.path.empty()) chosen.path = directory + (chosen.kind == "venv" ? "/.venv" : "");
  if (!is_utf8(chosen.path)) return not_text(chosen.path);
  if (chosen.kind == "venv" && !is_venv(chosen.path)) {
    return SpecProblem{"env.kind", "no virtual environment is at " + chosen.path +
                                       " (bin/python is missing); make one with: python3 -m venv " +
                                       chosen.path};
  }
  if (chosen.kind == "uv" && !is_uv_project(chosen.path)) {
    return SpecProblem{"env.kind", "no uv project is at " + chosen.path +
                                       " (pyproject.toml is missing); make one with: uv init"};
  }
  return std::nullopt;
}

}  // namespace hpctl
