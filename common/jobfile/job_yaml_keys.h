// SPDX-License-Identifier: Apache-2.0
// Every key of job.yaml in one table, in the order in which it is read and documented: a section
// before its keys. The reader, the messages, the nearest-key search and the reference in
// docs/job-yaml.md all come from here, so they cannot drift apart.
#pragma once

#include <span>
#include <string_view>

#include "common/job/job_spec.h"
#include "common/job/train_keys.h"
#include "common/jobfile/yaml_value.h"

namespace hpctl {

enum class KeyKind {
  kSection,  // a mapping whose keys are in the table; `read` takes a scalar in its place, if any
  kValue,    // `read` takes any node
  kUnavailable,  // planned; an error in this version
};

struct JobYamlKey {
  std::string_view path;  // dotted; "workload.train.steps"
  KeyKind kind = KeyKind::kValue;
  std::string_view type;     // for people: "integer", "duration", ...
  std::string_view initial;  // default as to_yaml writes it; "required"; "" = see meaning
  std::string_view range;    // "" = any of the type
  std::string_view meaning;
  void (*read)(YamlValue& value, JobSpec& spec) = nullptr;
  void (*enter)(JobSpec& spec) = nullptr;  // sections: called before their keys
  const TrainKey* field = nullptr;         // in place of `read`: read_train_field() with it

  std::string_view parent() const {
    const size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
  std::string_view name() const {
    const size_t dot = path.rfind('.');
    return dot == std::string_view::npos ? path : path.substr(dot + 1);
  }
};

std::span<const JobYamlKey> job_yaml_keys();
// Those below workload.train, for job_yaml_keys().
std::span<const JobYamlKey> train_yaml_keys();
void read_train_field(const TrainKey& key, YamlValue& value, JobSpec& spec);

}  // namespace hpctl
