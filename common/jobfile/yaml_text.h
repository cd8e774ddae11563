// SPDX-License-Identifier: Apache-2.0
// YAML files that people write, as one document or as the problem that there is none.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/jobfile/job_yaml.h"

namespace hpctl {

// In words of messages.
struct YamlKind {
  const char* file;   // "a job file"
  const char* holds;  // "one job"
  const char* help;   // "hpctl submit --help", which shows an example
};

// Calls `read` with the document. Returns the problem of the text as a whole, if any; then the
// result of `read` is worth nothing.
std::optional<JobYamlProblem> read_yaml(std::string_view text, const YamlKind& kind,
                                        const std::function<void(const YAML::Node&)>& read);

// The meaning of yaml-cpp's message for the author of the file.
std::string explain_syntax(const std::string& message);

struct YamlFile {
  std::string text;
  std::string directory;  // absolute: relative paths in the file count from it
  std::optional<JobYamlProblem> problem;
};
YamlFile read_yaml_file(const std::string& path, const YamlKind& kind);

}  // namespace hpctl
