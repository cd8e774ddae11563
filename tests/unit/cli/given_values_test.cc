// SPDX-License-Identifier: Apache-2.0
// Values that are given beside a job file (hpctl submit --set): typed and checked as the file's.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/jobfile/job_yaml.h"
#include "tests/unit/cli/job_yaml_text.h"

namespace hpctl {
namespace {

using test::kMinimal;
using test::with_line;

GivenValue set(const std::string& key, const std::string& text) {
  return {"--set " + key, key, text};
}

JobSpec good_with(const std::string& text, const std::vector<GivenValue>& given) {
  const JobYaml parsed = parse_job_yaml(text, "/jobs", given);
  EXPECT_EQ(describe_problems("j.yaml", parsed.problems), "");
  return parsed.spec.value_or(JobSpec{});
}

std::string problems_with(const std::string& text, const std::vector<GivenValue>& given) {
  return describe_problems("j.yaml", parse_job_yaml(text, "/jobs", given).problems);
}

TEST(GivenValues, ReplaceTheFilesAndFillGaps) {
  const JobSpec spec =
      good_with(with_line("checkpoint: {keep: 3}"),
                {set("workload.train.steps", "20"), set("workload.train.optimizer.lr", "2e-4"),
                 set("checkpoint.dir", "saved"), set("recovery.on_node_loss", "[spare, wait]")});
  EXPECT_EQ(spec.train->steps, 20);
  EXPECT_EQ(spec.train->optimizer.lr, 2e-4);
  EXPECT_EQ(spec.checkpoint.dir, "/jobs/saved") << "relative paths count from the job file";
  EXPECT_EQ(spec.checkpoint.keep, 3) << "of the file";
  EXPECT_EQ(spec.recovery.on_node_loss, (std::vector<std::string>{"spare", "wait"}));
}

TEST(GivenValues, EnvironmentFilesCountFromTheJobFile) {
  const std::string job = "name: c\nworkload: {command: [x]}\n";
  const JobSpec spec = good_with(job, {set("env.files", "[keys.env, /fsx/b.env]")});
  EXPECT_EQ(spec.env_files, (std::vector<std::string>{"/jobs/keys.env", "/fsx/b.env"}));
  EXPECT_EQ(to_json_text(test::good(to_yaml(spec))), to_json_text(spec));
  EXPECT_EQ(problems_with(job, {set("env.files", "keys.env")}),
            "--set env.files: expected a list of paths such as [a.env, b.env], found "
            "\"keys.env\"\n");
  EXPECT_EQ(problems_with(job, {set("env.files", "['']")}),
            "--set env.files: expected paths, found \"\"\n");
}

TEST(GivenValues, KeysBelowAShortFormAreAdded) {
  const JobSpec spec = good_with(with_line("nodes: 2"), {set("nodes.spares", "1")});
  EXPECT_EQ(spec.nodes, 2);
  EXPECT_EQ(spec.spares, 1);
  EXPECT_EQ(good_with(with_line("nodes: {count: 2, spares: 1}"), {set("nodes", "3")}).spares, 0);
}

TEST(GivenValues, AVariableOfTheEnvironmentIsAdded) {
  const std::string job = "name: c\nworkload: {command: [x]}\n";
  const std::string with_two = job + "env: {set: {A: one, B: two}}\n";
  using Variables = std::map<std::string, std::string>;
  EXPECT_EQ(good_with(with_two, {set("env.set.B", "2"), set("env.set.C", "'yes: no'")}).env,
            (Variables{{"A", "one"}, {"B", "2"}, {"C", "yes: no"}}));
  EXPECT_EQ(good_with(job, {set("env.set.C", "3")}).env, (Variables{{"C", "3"}}));
  EXPECT_EQ(good_with(with_two, {set("env.set", "{D: 4}"), set("env.set.E", "5")}).env,
            (Variables{{"D", "4"}, {"E", "5"}}));
  EXPECT_EQ(
      problems_with(job, {set("env.set.2", "x")}),
      "--set env.set.2: env.set: expected the name of an environment variable, found \"2\"\n");
  EXPECT_EQ(problems_with(job, {set("env.set.A.B", "x")}),
            "--set env.set.A.B: env.set: no key is below this one; give its whole value\n");
}

TEST(GivenValues, TheLastOfOneKeyCounts) {
  EXPECT_EQ(good_with(kMinimal, {set("nodes", "2"), set("nodes", "3")}).nodes, 3);
}

TEST(GivenValues, AnAliasKeepsItsValue) {
  const JobSpec spec =
      good_with("name: &n a\nworkload: {command: [echo, *n]}\n", {set("name", "b")});
  EXPECT_EQ(spec.name, "b");
  EXPECT_EQ(spec.command, (std::vector<std::string>{"echo", "a"}));
}

TEST(GivenValues, MistakesNameTheOption) {
  EXPECT_EQ(problems_with(kMinimal, {set("nodes", "two")}),
            "--set nodes: expected an integer, found \"two\"\n");
  EXPECT_EQ(problems_with(kMinimal, {set("nodes", "")}),
            "--set nodes: the value is empty; write an empty text as ''\n");
  EXPECT_EQ(good_with(kMinimal, {set("slurm.partition", "''")}).slurm.partition, "");
  EXPECT_EQ(problems_with(kMinimal, {set("nodes", "0")}),
            "--set nodes: nodes.count: expected 1 to 100000, found 0\n");
  EXPECT_EQ(problems_with(kMinimal, {set("checkpoint", "{kep: 2}")}),
            "--set checkpoint: unknown key \"kep\"; did you mean \"keep\"?\n");
  EXPECT_EQ(problems_with(kMinimal, {set("workload.train.step", "1")}),
            "--set workload.train.step: workload.train: unknown key \"step\"; did you mean "
            "\"steps\"?\n");
  EXPECT_EQ(problems_with(kMinimal, {set("seq_len", "1")}),
            "--set seq_len: unknown key \"seq_len\"; did you mean workload.train.data.seq_len?\n");
  EXPECT_EQ(problems_with(kMinimal, {set("name.A", "1")}),
            "--set name.A: name: no key is below this one; give its whole value\n");
  EXPECT_EQ(problems_with(kMinimal, {set("nodes", "[1")}),
            "--set nodes: not valid YAML: a list opened with [ is not closed with ]\n");
  EXPECT_EQ(problems_with(kMinimal, {set("health.during", "[xid]")}),
            "--set health.during: not available yet in this version; remove this key\n");
  EXPECT_EQ(problems_with(kMinimal, {{"--name", "name", "'12'"}}),
            "--name: expected 1 to 64 of A-Z a-z 0-9 - _ . and not digits only; found \"12\"\n");
}

TEST(GivenValues, MistakesThatFollowAreInTheFile) {
  EXPECT_EQ(problems_with(kMinimal, {set("nodes", "5")}),
            "j.yaml:6:21: workload.train.batch.global: expected at least nodes x "
            "workers_per_node (5), found 4\n");
  EXPECT_EQ(problems_with("workload: {command: [x]}\n", {set("nodes", "2")}),
            "j.yaml:1:1: name: this key is required: expected text, 1 to 64 of A-Z a-z 0-9 - _ . "
            "and not digits only\n");
  EXPECT_EQ(problems_with(kMinimal, {set("workload.train.lora.rank", "2")}).find("--set "), 0U)
      << "what the given section lacks";
}

}  // namespace
}  // namespace hpctl
