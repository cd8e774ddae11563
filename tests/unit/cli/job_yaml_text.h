// SPDX-License-Identifier: Apache-2.0
// A small job file, and what comes of reading one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/jobfile/job_yaml.h"

namespace hpctl::test {

inline constexpr const char* kMinimal = R"(name: t
workload:
  train:
    model: {preset: debugmodel}
    data: {path: text, seq_len: 128}
    batch: {global: 4}
    steps: 10
)";

inline std::string problems_of(const std::string& text) {
  return describe_problems("j.yaml", parse_job_yaml(text, "/jobs").problems);
}

inline std::string with_line(const std::string& line) { return kMinimal + line + "\n"; }

inline JobSpec good(const std::string& text) {
  const JobYaml parsed = parse_job_yaml(text, "/jobs");
  EXPECT_EQ(describe_problems("j.yaml", parsed.problems), "");
  return parsed.spec.value_or(JobSpec{});
}

}  // namespace hpctl::test
