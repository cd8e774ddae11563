// SPDX-License-Identifier: Apache-2.0
// Names that other programs use are answered with ours, and ours are there.
#include "common/jobfile/foreign_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/jobfile/job_yaml_keys.h"
#include "tests/unit/cli/job_yaml_text.h"

namespace hpctl {
namespace {

using test::problems_of;
using test::with_line;
using ::testing::HasSubstr;

const JobYamlKey* find_key(std::string_view path) {
  for (const JobYamlKey& key : job_yaml_keys()) {
    if (key.path == path && key.kind != KeyKind::kUnavailable) return &key;
  }
  return nullptr;
}

TEST(ForeignWords, UnknownKeysAreAnsweredWithOurs) {
  EXPECT_EQ(problems_of(with_line("max_steps: 10")),
            "j.yaml:8:1: unknown key \"max_steps\"; here it is workload.train.steps\n");
  EXPECT_EQ(problems_of(with_line("nodes: {nnodes: 2}")),
            "j.yaml:8:9: nodes: unknown key \"nnodes\"; here it is nodes.count\n");
  EXPECT_EQ(problems_of(with_line("Learning-Rate: 1e-4")),
            "j.yaml:8:1: unknown key \"Learning-Rate\"; here it is workload.train.optimizer.lr\n");
  EXPECT_EQ(problems_of(with_line("gradient_accumulation_steps: 8")),
            "j.yaml:8:1: unknown key \"gradient_accumulation_steps\"; here it is "
            "workload.train.batch.global: batch.micro x workers x accumulation steps\n");
  EXPECT_EQ(problems_of(with_line("tensor_parallel_size: 2")),
            "j.yaml:8:1: unknown key \"tensor_parallel_size\"; here it is "
            "workload.train.parallelism.tensor_parallel_degree\n");
}

// The key that was meant is not reported as missing as well.
TEST(ForeignWords, KeyThatWasMeantIsNotMissing) {
  EXPECT_EQ(problems_of("name: t\nworkload:\n  train:\n    model: {preset: debugmodel}\n"
                        "    data: {path: text, seq_len: 128}\n    batch: {global: 4}\n"
                        "    max_steps: 10\n"),
            "j.yaml:7:5: workload.train: unknown key \"max_steps\"; here it is "
            "workload.train.steps\n");
}

TEST(ForeignWords, WrongValuesAreAnsweredWithOurs) {
  EXPECT_THAT(problems_of(with_line("recovery: {straggler: ignore}")),
              HasSubstr("expected one of off, warn, evict; found \"ignore\"; here it is off\n"));
  EXPECT_EQ(find_foreign_value("workload.train.parallelism.strategy", "FULL_SHARD"), "full");
  EXPECT_EQ(find_foreign_value("workload.train.precision", "bf16-mixed"), "bf16");
  EXPECT_EQ(find_foreign_value("workload.train.precision", "fp8"), "");
}

TEST(ForeignWords, OurKeysAreThereAndNoneIsHidden) {
  std::set<std::string_view> words;
  for (const ForeignKey& foreign : foreign_keys()) {
    EXPECT_TRUE(words.insert(foreign.word).second) << foreign.word << " is there twice";
    if (foreign.key.empty()) {
      EXPECT_NE(foreign.note, "") << foreign.word;
    } else {
      EXPECT_NE(find_key(foreign.key), nullptr) << foreign.word << ": " << foreign.key;
    }
    for (const JobYamlKey& key : job_yaml_keys()) {
      const bool hides = key.name() == foreign.word && key.kind != KeyKind::kUnavailable &&
                         key.path != foreign.key;
      EXPECT_FALSE(hides) << foreign.word << " is the name of " << key.path;
    }
  }
  EXPECT_GE(words.size(), 60U);
}

TEST(ForeignWords, OurValuesAreThere) {
  for (const ForeignValue& foreign : foreign_values()) {
    const JobYamlKey* key = find_key(foreign.key);
    ASSERT_NE(key, nullptr) << foreign.key;
    const std::string all = ", " + std::string(key->range) + ",";
    EXPECT_THAT(all, HasSubstr(", " + std::string(foreign.value) + ","))
        << foreign.key << ": " << foreign.word;
    EXPECT_EQ(all.find(", " + std::string(foreign.word) + ","), std::string::npos)
        << foreign.key << " has " << foreign.word << " itself";
  }
}

}  // namespace
}  // namespace hpctl
