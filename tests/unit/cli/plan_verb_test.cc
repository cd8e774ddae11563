// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "hpctl/checkpoint_room.h"
#include "tests/support/command_run.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::CommandRun;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanVerb : public ::testing::Test {
 protected:
  CommandRun plan(const std::string& preset, std::vector<std::string> options) {
    const std::string file = dir_ / "job.yaml";
    EXPECT_TRUE(write_file_atomic(
                    file, "name: p\nnodes: " + nodes_ + "\nworkers_per_node: " + workers_ +
                              "\nworkload:\n  train:\n    model: {preset: " + preset +
                              "}\n    data: {path: absent, seq_len: " + seq_len_ +
                              "}\n    batch: {global: " + global_ + "}\n    steps: 10\n" + more_)
                    .ok());
    std::vector<std::string> words = {"plan", file};
    words.insert(words.end(), options.begin(), options.end());
    return test::run_hpctl(words);
  }
  TemporaryDirectory dir_;
  std::string nodes_ = "1";
  std::string workers_ = "8";
  std::string seq_len_ = "8192";
  std::string global_ = "512";
  std::string more_;  // of the job file
};

TEST_F(PlanVerb, SaysWhatFitsAndWhatItTakes) {
  const CommandRun text = plan("llama3-8b", {"--gpu", "h200"});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* word : {"8.03e+09 parameters", "moments", "activations", "logits", "total",
                           "57.91 GFLOP", "51.47", "MFU", "TorchTitan benchmarks"}) {
    EXPECT_THAT(text.out, HasSubstr(word));
  }
  const CommandRun document = plan("llama3-8b", {"--gpu=h200", "--json"});
  const json plan = json::parse(document.out);
  EXPECT_EQ(plan["fits"], true);
  EXPECT_THAT(text.out, HasSubstr("\nMesh: dp_shard 8\n"));
  EXPECT_EQ(plan["mesh"].dump(), R"({"cp":1,"dp_replicate":1,"dp_shard":8,"pp":1,"tp":1})");
  double sum = 0;
  for (const json& part : plan["memory"]) sum += part["bytes"].get<double>();
  EXPECT_NEAR(sum, plan["total_bytes"].get<double>(), 1);
  EXPECT_LT(plan["step_s"][0], plan["step_s"][1]);
}

TEST_F(PlanVerb, TellsWhatTheKeysOfAGpuDo) {
  EXPECT_THAT(plan("tiny", {"--gpu", "h100"}).out, Not(HasSubstr("gpu.deterministic")));
  EXPECT_THAT(plan("tiny", {"--gpu", "cpu"}).out, Not(HasSubstr("workload.train.gpu")));
  more_ = "    gpu: {attention: products, deterministic: false}\n";
  const CommandRun gpu = plan("tiny", {"--gpu", "h100"});
  EXPECT_EQ(gpu.status, 0) << gpu.err;
  EXPECT_THAT(gpu.out, HasSubstr("gpu.attention: products: scores are kept"));
  EXPECT_THAT(gpu.out, HasSubstr("gpu.deterministic: false: no two runs have the same bits"));
  EXPECT_THAT(plan("tiny", {"--gpu", "cpu"}).out,
              HasSubstr("workload.train.gpu changes nothing here: this is a CPU."));
}

TEST_F(PlanVerb, WhatDoesNotFitIsStatus1WithAdvice) {
  const CommandRun text = plan("llama3-70b", {"--gpu", "h100"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("does NOT fit"));
  EXPECT_THAT(text.out, HasSubstr("nodes: "));
  const CommandRun larger = plan("llama3-70b", {"--gpu", "h100", "--nodes", "16"});
  EXPECT_THAT(larger.out, HasSubstr("activation_checkpointing: full"));
}

TEST_F(PlanVerb, HybridIsAdvisedWhereNodesAreJoinedBySomethingSlow) {
  seq_len_ = "512";
  global_ = "16";
  more_ = "    parallelism: {strategy: full}\n    memory: {activation_checkpointing: none}\n";
  const json found =
      json::parse(plan("llama3-8b", {"--gpu", "a100", "--nodes", "2", "--json"}).out);
  ASSERT_EQ(found["advice"].size(), 1U) << found["advice"];
  EXPECT_EQ(found["advice"][0]["change"], "workload.train.parallelism.strategy: hybrid");
}

TEST_F(PlanVerb, TheAdvisedJobFileFits) {
  const std::string advised = dir_ / "fits.yaml";
  const CommandRun text = plan("llama3-70b", {"--gpu", "h100", "--write", advised});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("With all of the advice it fits: "));
  EXPECT_THAT(text.err, HasSubstr("written: " + advised));
  const CommandRun again = test::run_hpctl({"plan", advised, "--gpu", "h100", "--json"});
  EXPECT_EQ(again.status, 0) << again.out << again.err;
  EXPECT_EQ(json::parse(again.out)["fits"], true);
  EXPECT_TRUE(json::parse(again.out)["advice"].empty()) << "nothing better was left out";
}

// Four nodes of which three may be lost. A setting that is faster on four would not fit on one.
TEST_F(PlanVerb, TheAdvisedJobFileFitsOnTheFewestNodesToo) {
  nodes_ = "{count: 4, min: 1}";
  workers_ = "4";
  global_ = "512, micro: 12";
  more_ =
      "    memory: {activation_checkpointing: full}\n    parallelism: {strategy: full}\n"
      "    loss: {chunk_tokens: 0}\n";
  const std::string advised = dir_ / "fits.yaml";
  const CommandRun text = plan("llama3-8b", {"--gpu", "h100", "--write", advised});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("most from 1 to 4 nodes"));
  EXPECT_THAT(text.out, HasSubstr("It does NOT fit on nodes.min, 1: a job that shrinks may end "));
  EXPECT_THAT(text.out, HasSubstr(" GiB on nodes.min, step "));
  EXPECT_THAT(text.out, HasSubstr("With all of the advice it fits: "));
  const json given = json::parse(plan("llama3-8b", {"--gpu", "h100", "--json"}).out);
  EXPECT_EQ(given["fits"], false);
  EXPECT_EQ(given["nodes_min"]["nodes"], 1);
  EXPECT_EQ(given["nodes_min"]["fits"], false);
  EXPECT_LT(given["total_bytes"].get<double>(), 0.9 * given["device_bytes"].get<double>());
  const auto again = [&](std::vector<std::string> options) {
    std::vector<std::string> words = {"plan", advised, "--gpu", "h100", "--json"};
    words.insert(words.end(), options.begin(), options.end());
    return json::parse(test::run_hpctl(words).out);
  };
  const json all = again({});
  const json one = again({"--nodes", "1"});
  EXPECT_EQ(all["fits"], true);
  EXPECT_TRUE(all["advice"].empty()) << all["advice"];
  EXPECT_EQ(one["fits"], true);
  EXPECT_EQ(all["nodes_min"]["bytes"], one["total_bytes"]);
}

TEST_F(PlanVerb, WhereNothingFitsOnTheFewestNodesAllCount) {
  nodes_ = "{count: 4, min: 1}";
  workers_ = "1";
  const CommandRun text = plan("llama3-8b", {"--gpu", "h100"});
  EXPECT_EQ(text.status, 0) << text.out;
  EXPECT_THAT(text.out, HasSubstr("; nothing fits on nodes.min, 1:\n"));
  EXPECT_THAT(text.out, HasSubstr("\nNothing fits on nodes.min, 1: a job that shrinks may end for "
                                  "want of memory. The plan is for all nodes.\n"));
  const json found = json::parse(plan("llama3-8b", {"--gpu", "h100", "--json"}).out);
  EXPECT_EQ(found["fits"], true);
  EXPECT_EQ(found["nodes_min"]["fits"], false);
  EXPECT_TRUE(found["advice"].empty()) << found["advice"];
}

TEST_F(PlanVerb, TheAdvisedJobFileEvaluatesWhatIsAsked) {
  nodes_ = "2";
  seq_len_ = "512, split: [98, 2, 0]";
  global_ = "64, micro: 1";
  const std::string advised = dir_ / "better.yaml";
  const auto micro_with = [&](const std::string& validation) {
    more_ = "    parallelism: {strategy: full}\n" + validation;
    EXPECT_EQ(plan("llama3-8b", {"--gpu", "a100", "--write", advised}).status, 0);
    const auto text = read_file(advised);
    EXPECT_TRUE(text.ok());
    const size_t at = text->find("micro: ");
    return std::stoi(text->substr(at + 7));
  };
  EXPECT_GT(micro_with(""), 1);
  EXPECT_EQ(micro_with("    validation: {every_steps: 10, sequences: 1}\n"), 1);
  EXPECT_EQ(test::run_hpctl({"plan", advised, "--gpu", "a100"}).status, 0);
}

TEST_F(PlanVerb, NothingIsWrittenWhereNothingHelps) {
  const std::string advised = dir_ / "fits.yaml";
  const CommandRun none = plan("llama3-405b", {"--gpu", "a10g", "--write", advised});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("nothing makes this job fit"));
  EXPECT_THAT(plan("tiny", {"--write", advised}).err, HasSubstr("--write needs --gpu"));
  EXPECT_NE(::access(advised.c_str(), F_OK), 0);
  EXPECT_EQ(plan("llama3-8b", {"--gpu", "h200", "--write", dir_ / "absent/fits.yaml"}).status, 2);
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  const CommandRun pipe = plan("llama3-8b", {"--gpu", "h200", "--write", dir_ / "pipe"});
  EXPECT_EQ(pipe.status, 2);
  EXPECT_THAT(pipe.err, HasSubstr("pipe\" is no file; name a new one"));
  EXPECT_TRUE(std::filesystem::is_fifo(dir_ / "pipe")) << "it was not replaced";
}

TEST_F(PlanVerb, WhatIsAutoIsChosenAndTold) {
  const CommandRun text = plan("llama3-8b", {"--gpu", "h100"});
  EXPECT_EQ(text.status, 0) << text.out;
  EXPECT_THAT(text.out, HasSubstr("auto, for 8 workers, each with 90 % of 80.0 GiB (h100 by --gpu):"
                                  "\n  workload.train.batch.micro: "));
  const json chosen = json::parse(plan("llama3-8b", {"--gpu", "h100", "--json"}).out);
  EXPECT_EQ(chosen["chosen"].size(), 4U);
  EXPECT_EQ(chosen["fits"], true);
  EXPECT_TRUE(chosen["advice"].empty()) << "nothing better was left out";
  more_ = "slurm: {gres: 'gpu:h100:8'}\n";
  const json found = json::parse(plan("llama3-8b", {"--json"}).out);
  EXPECT_EQ(found["chosen_for"], "8 workers, each with 90 % of 80.0 GiB (h100 of slurm.gres)");
  EXPECT_EQ(found["total_bytes"], chosen["total_bytes"]);
  EXPECT_FALSE(json::parse(plan("llama3-8b", {"--gpu", "cpu", "--json"}).out).contains("step_s"));
  more_ = "slurm: {mem: 8G}\n";
  const CommandRun small = plan("llama3-8b", {});
  EXPECT_EQ(small.status, 1);
  EXPECT_THAT(small.out, HasSubstr("It does NOT fit: out of memory: 8 workers need "));
}

TEST_F(PlanVerb, NodesMinFollowsNodes) {
  EXPECT_EQ(plan("llama3-8b", {"--gpu", "h100", "--nodes", "2"}).status, 0);
  const std::string advised = dir_ / "fits.yaml";
  ASSERT_EQ(plan("llama3-70b", {"--gpu", "h100", "--write", advised}).status, 0);
  const auto text = read_file(advised);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("count: 4\n  min: 4\n"));
}

TEST_F(PlanVerb, OnACpuThereIsNoGuessOfTime) {
  const CommandRun text = plan("debugmodel", {});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("two slots"));
  EXPECT_THAT(text.out, ::testing::Not(HasSubstr("MFU")));
  EXPECT_FALSE(json::parse(plan("debugmodel", {"--json"}).out).contains("step_s"));
}

TEST_F(PlanVerb, WhatStandbysHoldIsTold) {
  EXPECT_THAT(plan("tiny", {}).out,
              HasSubstr("Each node also has 1 standby (recovery.standbys): 0.06 GiB"));
  more_ = "recovery: {standbys: 3}\n";
  const json standbys = json::parse(plan("tiny", {"--json"}).out)["standbys"];
  EXPECT_EQ(standbys["per_node"], 3);
  EXPECT_EQ(standbys["bytes_per_node"], 3 * 60.0 * (1 << 20));
  more_ = "recovery: {standbys: 0}\n";
  EXPECT_THAT(plan("tiny", {}).out, ::testing::Not(HasSubstr("standby")));
}

TEST_F(PlanVerb, RoomForCheckpointsIsTold) {
  const std::string saved = dir_ / "saved";
  more_ = "checkpoint: {dir: " + saved + ", keep: 4}\n";
  const CommandRun text = plan("tiny", {});
  EXPECT_THAT(text.out, HasSubstr("5 at most at a time"));
  EXPECT_THAT(text.out, Not(HasSubstr("WARNING")));
  const json room = json::parse(plan("tiny", {"--json"}).out)["checkpoints"];
  EXPECT_EQ(room["directory"], saved);
  EXPECT_EQ(room["most"], 5);
  EXPECT_EQ(room["bytes"], 5 * room["bytes_each"].get<double>());
  EXPECT_EQ(room["fits"], true);
  const auto available = static_cast<double>(std::filesystem::space(dir_.path()).available);
  EXPECT_GT(room["free_bytes"], available / 2) << "another process may use some meanwhile";
  EXPECT_LT(room["free_bytes"], available * 2);

  // Two that a job before it saved need no new room.
  for (const char* name : {"step-10.g1", "step-20.g1"}) {
    ASSERT_TRUE(make_directories(saved + "/" + name).ok());
    ASSERT_TRUE(write_file_atomic(saved + "/" + name + "/manifest.json", "{}").ok());
  }
  const json continued = json::parse(plan("tiny", {"--json"}).out)["checkpoints"];
  EXPECT_EQ(continued["stored"], 2);
  EXPECT_EQ(continued["bytes"], 3 * room["bytes_each"].get<double>());

  more_ = "checkpoint: {dir: " + saved + ", keep: 4, every_steps: 2, keep_every: 4}\n";
  EXPECT_EQ(json::parse(plan("tiny", {"--json"}).out)["checkpoints"]["most"], 7) << "steps 4, 8";
}

TEST_F(PlanVerb, MissingRoomIsAWarning) {
  more_ = "checkpoint: {dir: " + dir_ / "saved" + ", keep: 1000000}\n";
  const CommandRun text = plan("llama3-8b", {"--gpu", "h200"});
  EXPECT_EQ(text.status, 0) << "the job may run: " << text.err;
  EXPECT_THAT(text.out, HasSubstr("WARNING: " + dir_ / "saved" + " has "));
  EXPECT_THAT(text.out, HasSubstr(" free, and 1000001 checkpoints of 89.7"));
  EXPECT_THAT(text.out, HasSubstr("choose another checkpoint.dir.\n"));
  const json room = json::parse(plan("llama3-8b", {"--json"}).out)["checkpoints"];
  EXPECT_EQ(room["fits"], false);
  EXPECT_NEAR(room["bytes_each"].get<double>(), 12 * 8.03e9, 1e8);
}

TEST_F(PlanVerb, RoomOfAMissingFileSystemIsUnknown) {
  more_ = "checkpoint: {dir: /no-such-mount/run, keep: 1000000}\n";
  const json room = json::parse(plan("llama3-8b", {"--json"}).out)["checkpoints"];
  EXPECT_TRUE(room["free_bytes"].is_null());
  EXPECT_EQ(room["fits"], true) << "nothing is known against it";
}

TEST(CheckpointRoom, QuotaLeavesWhatItsSmallerLimitLeaves) {
  EXPECT_EQ(left_of_quota(0, 0, 5), std::nullopt);
  EXPECT_EQ(left_of_quota(100, 0, 1024), 99 * 1024.0);
  EXPECT_EQ(left_of_quota(100, 50, 1024), 49 * 1024.0) << "the soft one, after its grace period";
  EXPECT_EQ(left_of_quota(0, 50, 1024), 49 * 1024.0);
  EXPECT_EQ(left_of_quota(100, 0, 200 * 1024), 0.0);
  CheckpointRoom room;
  room.directory = "/scratch/run";
  room.each = 1 << 30;
  room.most = 6;
  room.free = 1e15;
  room.quota = 2.5 * (1 << 30);
  EXPECT_FALSE(room.fits());
  EXPECT_EQ(describe_missing_room(room, {}),
            "/scratch/run: the quota leaves 2.50 GiB, and 6 checkpoints of 1.00 GiB need 6.00 GiB "
            "(checkpoint.keep 5, and one being written); free some space, keep fewer, or choose "
            "another checkpoint.dir");
}

TEST_F(PlanVerb, BadWordsAreStatus2) {
  EXPECT_THAT(plan("tiny", {"--gpu", "h1000"}).err, HasSubstr("expected one of cpu, "));
  EXPECT_EQ(plan("tiny", {"--gpu", "h1000"}).status, 2);
  EXPECT_EQ(plan("tiny", {"--nodes", "0"}).status, 2);
  EXPECT_THAT(plan("tiny", {"--nodes", "100"}).err, HasSubstr("batch.global")) << "512 < 800";
  EXPECT_EQ(plan("huge", {}).status, 2);
}

}  // namespace
}  // namespace hpctl
