// SPDX-License-Identifier: Apache-2.0
// job.yaml -> JobSpec with every default filled in and every value checked. A file with any mistake
// gives no spec, and all mistakes at once, each with line, column and key. docs/job-yaml.md is the
// reference for people; its tables are printed from the same key table that the reader uses.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"

namespace hpctl {

struct JobYamlProblem {
  int line = 0;  // from 1; 0 = the file as a whole
  int column = 0;
  std::string key;  // dotted path as in job.yaml; "" = not about one key
  std::string message;
  std::string origin = {};  // "--set nodes": of a value that is not in the file; then no line
};

// A value that takes the place of the file's, or is added to it.
struct GivenValue {
  std::string origin;  // as messages name it: "--set nodes"
  std::string key;     // dotted path: "nodes"
  std::string text;    // YAML, as it would stand in the file
};

struct JobYaml {
  std::optional<JobSpec> spec;           // set exactly when there are no problems
  std::vector<JobYamlProblem> problems;  // in the order of the file
};

// A job file is text that a person wrote; a larger one is refused unread.
inline constexpr size_t kMaxJobYamlBytes = 256U << 10;

// The dimensions of the model in a directory, for workload.train.model.from: what these are is not
// this library's to know.
using ReadModel = std::function<Result<ModelSpec>(const std::string& directory)>;

// Relative paths in the file (data.path, checkpoint.dir, checkpoint.resume) count from `directory`,
// the absolute directory of the file. `given` is checked as the file is; of two values for one key
// the last counts, and a value of a key below another one's.
JobYaml parse_job_yaml(std::string_view text, const std::string& directory,
                       const std::vector<GivenValue>& given = {},
                       const ReadModel& read_model = nullptr);
JobYaml load_job_yaml(const std::string& path, const std::vector<GivenValue>& given = {},
                      const ReadModel& read_model = nullptr);

// Lines "FILE:LINE:COLUMN: KEY: MESSAGE\n", or "ORIGIN: KEY: MESSAGE\n"; beyond `limit` problems a
// last line says how many more.
std::string describe_problems(const std::string& file, const std::vector<JobYamlProblem>& problems,
                              size_t limit = 20);

// The spec as a job.yaml with every key written out; parsing it gives the same spec again.
// Values that are still auto stay so, for which the spec's JSON has no word.
std::string to_yaml(const JobSpec& spec);

// The key tables of docs/job-yaml.md, in Markdown.
std::string job_yaml_reference();

}  // namespace hpctl
