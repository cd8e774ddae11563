// SPDX-License-Identifier: Apache-2.0
// Each mistake in a job file is reported with line, column and remedy, whatever the file is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/jobfile/job_yaml.h"
#include "tests/unit/cli/job_yaml_text.h"

namespace hpctl {
namespace {

using test::good;
using test::kMinimal;
using test::problems_of;
using test::with_line;

struct Case {
  std::string text;
  std::string problems;
};

TEST(JobYaml, ConstantScheduleHasNoDecaySteps) {
  EXPECT_THAT(problems_of(with_line("    schedule: {name: constant, decay_steps: 5}")),
              ::testing::HasSubstr("workload.train.schedule.decay_steps: expected 0 with "
                                   "schedule.name: constant"));
  for (const char* name : {"cosine", "linear", "wsd"}) {
    good(with_line("    schedule: {name: " + std::string(name) + ", decay_steps: 5}"));
  }
}

// debugmodel has 16 heads, 16 key heads, 6 layers and a feed-forward width of 768.
TEST(JobYaml, DegreesThatDivideNothingAreRefusedWithBothNumbers) {
  const auto problem_of = [](const std::string& degrees) {
    return problems_of(with_line("    parallelism: {" + degrees + "}"));
  };
  good(with_line("    parallelism: {tensor_parallel_degree: 1, expert_parallel_degree: 1}"));
  EXPECT_EQ(problem_of("tensor_parallel_degree: 6"),
            "j.yaml:8:43: workload.train.parallelism.tensor_parallel_degree: expected a divisor of "
            "model.heads (16), found 6; 4 and 8 fit\n");
  EXPECT_EQ(problem_of("pipeline_parallel_degree: 7"),
            "j.yaml:8:45: workload.train.parallelism.pipeline_parallel_degree: expected at most "
            "model.layers (6), found 7\n");
  EXPECT_THAT(problem_of("context_parallel_degree: 3"),
              ::testing::HasSubstr("to be a multiple of 2 x 64 x this degree (384), found degree "
                                   "3\n"));
  EXPECT_EQ(problem_of("expert_parallel_degree: 2"),
            "j.yaml:8:43: workload.train.parallelism.expert_parallel_degree: expected 1: arch "
            "llama has no experts; found 2\n");
  EXPECT_EQ(problem_of("tensor_parallel_degree: 2"),
            "j.yaml:8:43: workload.train.parallelism.tensor_parallel_degree: expected pipeline x "
            "context x tensor degree (2) to divide nodes x workers_per_node (1); 1 fits\n");
  EXPECT_EQ(problem_of("tensor_parallel_degree: 0"),
            "j.yaml:8:43: workload.train.parallelism.tensor_parallel_degree: expected 1 to 65536, "
            "found 0\n");
  EXPECT_EQ(problem_of("tp: 2"),
            "j.yaml:8:19: workload.train.parallelism: unknown key \"tp\"; here it is "
            "workload.train.parallelism.tensor_parallel_degree\n");
}

TEST(JobYaml, DegreesThatTheTrainerCannotDoYetAreRefused) {
  EXPECT_THAT(
      problems_of(with_line("    parallelism: {pipeline_parallel_degree: 2}\nworkers_per_node: 2")),
      ::testing::HasSubstr("workload.train.parallelism.pipeline_parallel_degree: expected 1: the "
                           "built-in trainer has no pipeline parallelism yet; found 2; a program "
                           "that has it runs as workload.command\n"));
}

TEST(JobYaml, TensorParallelismIsRefusedWithWhatItIsNotCombinedWith) {
  const std::string divided = "    parallelism: {tensor_parallel_degree: 2";
  const auto text = [&](const std::string& more, const std::string& rest) {
    return with_line(divided + more + "}\n" + rest);
  };
  const std::string fp32 = "    precision: fp32\n";
  EXPECT_EQ(good(text("", fp32 + "workers_per_node: 4")).train->degrees.tensor, 2);
  EXPECT_EQ(good(text(", strategy: auto", fp32 + "workers_per_node: 2")).train->degrees.tensor, 2);
  EXPECT_EQ(good(text(", strategy: no_shard", fp32 + "workers_per_node: 2")).train->degrees.tensor,
            2);
  const auto expect_refused = [&](const std::string& job, const std::string& with) {
    EXPECT_THAT(problems_of(job),
                ::testing::HasSubstr("tensor_parallel_degree: expected 1 with " + with +
                                     ", which is not combined with tensor parallelism yet; found "
                                     "2\n"));
  };
  expect_refused(text("", "workers_per_node: 2"), "precision bf16");
  expect_refused(text("", fp32 + "workers_per_node: 2\nslurm: {gres: gpu:h100:2}"),
                 "GPUs (slurm.gres)");
  expect_refused(text("", fp32 + "    lora: {rank: 4, base: /base}\nworkers_per_node: 2"), "lora");
  expect_refused(text(", strategy: hybrid", fp32 + "workers_per_node: 2"),
                 "parallelism.strategy hybrid");
  expect_refused(text("", fp32 + "    memory: {offload: [optimizer]}\nworkers_per_node: 2"),
                 "memory.offload");
  EXPECT_THAT(problems_of(text("", fp32 + "nodes: 2\nworkers_per_node: 1")),
              ::testing::HasSubstr("tensor_parallel_degree: expected a divisor of workers_per_node "
                                   "(1), found 2; 1 fits\n"));
  // A second mistake that the first one makes would send people to the wrong key.
  EXPECT_THAT(problems_of(text("", fp32 + "workers_per_node: 0")),
              ::testing::Not(::testing::HasSubstr("tensor_parallel_degree")));
}

// The job has four samples for each step.
TEST(JobYaml, WorkersThatShareALayerShareItsSamples) {
  const auto job = [](const std::string& workers) {
    return with_line(
        "    parallelism: {tensor_parallel_degree: 4}\n    precision: fp32\n"
        "workers_per_node: " +
        workers);
  };
  EXPECT_EQ(good(job("16")).train->batch.global, 4);
  EXPECT_THAT(problems_of(job("32")),
              ::testing::HasSubstr("batch.global: expected at least nodes x workers_per_node / "
                                   "pipeline x context x tensor degree (8), found 4\n"));
}

TEST(JobYaml, NamesEveryMistake) {
  const std::vector<Case> cases = {
      {"", "j.yaml: the file is empty; `hpctl submit --help` shows an example\n"},
      {"- a\n",
       "j.yaml:1:1: expected keys such as \"name: my-job\", found a list; `hpctl init` "
       "writes a job file to begin with\n"},
      {"name: t\n\tnodes: 2\n", "j.yaml:2:1: a tab in the indentation; YAML allows spaces only\n"},
      {"checkpoint:\n\tkeep: 2\n",
       "j.yaml:2:1: a tab in the indentation; YAML allows spaces only\n"},
      {"checkpoint:\n  keep: 2\n every_steps: 3\n",
       "j.yaml:3:2: not valid YAML: wrong indentation: this line matches none of the levels above "
       "it\n"},
      {"name: a: b\n",
       "j.yaml:1:8: not valid YAML: a \": \" where no value can stand; quote the text, or indent "
       "by "
       "the same number of spaces as the keys above\n"},
      {with_line("---\nname: u"), "j.yaml:9:1: a second YAML document; a job file holds one job\n"},
      {with_line("nodez: 2"), "j.yaml:8:1: unknown key \"nodez\"; did you mean \"nodes\"?\n"},
      {with_line("seq_len: 2"),
       "j.yaml:8:1: unknown key \"seq_len\"; did you mean workload.train.data.seq_len?\n"},
      {with_line("  nodes: 2"),
       "j.yaml:8:3: workload: unknown key \"nodes\"; it belongs into the first column: is the "
       "indentation right?\n"},
      {with_line("debug: {frobnicate: 1}"),
       "j.yaml:8:9: debug: unknown key \"frobnicate\"; expected one of ledger, chaos\n"},
      {with_line("frobnicate: 1"),
       "j.yaml:8:1: unknown key \"frobnicate\"; expected one of name, nodes, workers_per_node, "
       "env, slurm, "
       "workload, checkpoint, recovery, limits, hooks, health, notify, debug\n"},
      {std::string(1200, '['), "j.yaml:1:1: not valid YAML: nested too deeply\n"},
      {with_line("name: u"), "j.yaml:8:1: name: this key is given twice; the first is in line 1\n"},
      {with_line("nodes: two"), "j.yaml:8:8: nodes: expected an integer, found \"two\"\n"},
      {with_line("nodes: \"2\""), "j.yaml:8:8: nodes: expected an integer, found the text \"2\"\n"},
      {with_line("nodes: 1.5"), "j.yaml:8:8: nodes: expected an integer, found \"1.5\"\n"},
      {with_line("nodes: -1"), "j.yaml:8:8: nodes.count: expected 1 to 100000, found -1\n"},
      {with_line("nodes: 99999999999"),
       "j.yaml:8:8: nodes: expected a smaller number, found \"99999999999\"\n"},
      {with_line("nodes: {count: 5}"),
       "j.yaml:6:21: workload.train.batch.global: expected at least nodes x workers_per_node (5), "
       "found 4\n"},
      {with_line("nodes: {count: 2, min: 3, spares: -1}"),
       "j.yaml:8:24: nodes.min: expected 1 to 2, found 3\n"
       "j.yaml:8:35: nodes.spares: expected 0 to 100000, found -1\n"},
      {with_line("slurm: {partiton: p5, time: 1 day, mem: 5X, exclusive: 1}"),
       "j.yaml:8:9: slurm: unknown key \"partiton\"; did you mean \"partition\"?\n"
       "j.yaml:8:29: slurm.time: expected minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS, "
       "or "
       "a duration such as 30m or 7d, at most 365d; found \"1 day\"\n"
       "j.yaml:8:41: slurm.mem: expected MiB or a number with K, M, G or T, such as 64G; found "
       "\"5X\"\n"
       "j.yaml:8:56: slurm.exclusive: expected true or false, found \"1\"\n"},
      {with_line("slurm: {partition: a b, container: {mounts: [fsx]}}"),
       "j.yaml:8:20: slurm.partition: expected one word; found \"a b\"\n"
       "j.yaml:8:25: slurm.container.image: this key is required: expected text\n"
       "j.yaml:8:37: slurm.container.mounts: expected absolute paths /SOURCE[:/TARGET[:FLAGS]] "
       "without commas; found \"fsx\"\n"},
      {with_line(
           "slurm: {nice: 3e9, signal: USR1@60, begin: a b, extra: [--wckey=x, --array=1-3]}"),
       "j.yaml:8:15: slurm.nice: expected an integer, found \"3e9\"\n"
       "j.yaml:8:28: slurm.signal: expected B:TERM@SECONDS (hpctl ends a job in order on SIGTERM "
       "to "
       "its batch script; no other signal is possible), found \"USR1@60\"\n"
       "j.yaml:8:44: slurm.begin: expected one word; found \"a b\"\n"
       "j.yaml:8:49: slurm.extra: --array cannot be given here: hpctl recovers one job by its id; "
       "submit a job for each index\n"},
      {with_line("slurm: {signal: TERM@5, extra: [--part=x]}"),
       "j.yaml:8:17: slurm.signal: expected 30 to 65535, found 5\n"
       "j.yaml:8:25: slurm.extra: --part, which sbatch may take for --partition cannot be given "
       "here: use slurm.partition\n"},
      {with_line("slurm: {extra: -p x}"),
       "j.yaml:8:16: slurm.extra: expected long options of sbatch, --NAME or --NAME=VALUE; found "
       "\"-p x\"\n"},
      {with_line("slurm: {extra: --wckey x}"),
       "j.yaml:8:16: slurm.extra: expected --NAME=VALUE, with = between name and value; found "
       "\"--wckey x\"\n"},
      {with_line("health: {preflight: [gpu, nccl]}"),
       "j.yaml:8:10: health.preflight: expected one of gpu, efa, net, host, fs; found \"nccl\"\n"},
      {with_line("health: {during: [xid]}"),
       "j.yaml:8:10: health.during: not available yet in this version; remove this key\n"},
      {with_line("notify: {webhook: ftp://host/x, on: [recovery, death]}"),
       "j.yaml:8:19: notify.webhook: expected a URL that begins with https:// or http://\n"
       "j.yaml:8:48: notify.on: expected one of recovery, failure, quarantine, finished, critical; "
       "found \"death\"\n"},
      {with_line("notify: {webhook: 'https://host/a b'}"),
       "j.yaml:8:19: notify.webhook: expected a URL without blanks and other than ASCII "
       "characters\n"},
      {with_line("notify: {webhook: 'https:///x'}"),
       "j.yaml:8:19: notify.webhook: expected a URL with a host\n"},
      {with_line("notify: {webhook: https://h/x, webhook_file: url}"),
       "j.yaml:8:46: notify.webhook_file: expected one of webhook and webhook_file, found both\n"},
      {with_line("notify: {webhook_file: ~/url}"),
       "j.yaml:8:24: notify.webhook_file: ~ is not expanded in job files; write the whole path "
       "instead of \"~/url\"\n"},
      {with_line("notify: {command: mail}"),
       "j.yaml:8:19: notify.command: expected a list such as [mail], found \"mail\"\n"},
      {with_line("notify: {command: [mail]}"),
       "j.yaml:8:10: notify.command: expected a program with its path, such as ./tell.sh, found "
       "\"mail\"\n"},
      {with_line("notify: {on: [failure, failure]}"),
       "j.yaml:8:10: notify.on: expected each word once\n"},
      {with_line("notify: {on: failure}"),
       "j.yaml:8:14: notify.on: expected a list such as [a, b], found \"failure\"\n"},
      {with_line("notify: {slack: x}"),
       "j.yaml:8:10: notify: unknown key \"slack\"; expected one of webhook, webhook_file, "
       "command, on\n"},
      {with_line("hooks: {pre: [[a]], timeout: 5ms}"),
       "j.yaml:8:15: hooks.pre: expected a text as item 1, found a list\n"
       "j.yaml:8:30: hooks.timeout: expected 1s to 1h, found 5ms\n"},
      {with_line("recovery: {on_node_loss: [spare, pray]}"),
       "j.yaml:8:12: recovery.on_node_loss: expected one of spare, shrink, requeue, wait; found "
       "\"pray\"\n"},
      {with_line("recovery: {on_node_loss: [wait, requeue]}"),
       "j.yaml:8:12: recovery.on_node_loss: expected wait as the last action, since it never ends; "
       "found requeue after it\n"},
      {with_line("recovery: {on_node_loss: spare}"),
       "j.yaml:8:26: recovery.on_node_loss: expected a list such as [a, b], found \"spare\"\n"},
      {with_line("recovery: {standby_imports: [torch]}"),
       "j.yaml:8:12: recovery.standby_imports: only a workload.command that starts with python "
       "(python train.py, python -m x, uv run -- python train.py) or with the path of a Python "
       "script (./train.py) can be run by a standby; remove this key or start the program so\n"},
      {"name: x\nworkload: {command: [train.py]}\nrecovery: {standby_imports: [torch]}\n",
       "j.yaml:3:12: recovery.standby_imports: only a workload.command that starts with python "
       "(python train.py, python -m x, uv run -- python train.py) or with the path of a Python "
       "script (./train.py) can be run by a standby; remove this key or start the program so\n"},
      {"name: x\nworkload: {command: [python, t.py]}\nrecovery: {standby_imports: [to-rch]}\n",
       "j.yaml:3:12: recovery.standby_imports: expected names as `import` takes them, such as "
       "torch.distributed, found to-rch\n"},
      {with_line("env: {kind: conda}"),
       "j.yaml:8:13: env.kind: expected one of auto, venv, uv, container, none; found \"conda\"\n"},
      {with_line("env: {kind: uv}"),
       "j.yaml:8:13: env.kind: \"uv\" is for workload.command; workload.train needs no Python\n"},
      {with_line("env: {set: {RANK: 1, 1x: 2, A: [1]}}"),
       "j.yaml:8:13: env.set: RANK is set by hpctl for every worker and cannot be set here\n"
       "j.yaml:8:22: env.set: expected the name of an environment variable, found \"1x\"\n"
       "j.yaml:8:29: env.set: expected a text as value of A, found a list\n"},
      {with_line("recovery: {window: 5}"),
       "j.yaml:8:20: recovery.window: expected a duration such as 500ms, 2s, 30m, 1h, 7d or "
       "7-00:00:00; found \"5\"\n"},
      {with_line("recovery: {heartbeat_timeout: 10ms}"),
       "j.yaml:8:31: recovery.heartbeat_timeout: expected 100ms to 365d, found 10ms\n"},
      {with_line("debug: {ledger: yes}"),
       "j.yaml:8:17: debug.ledger: expected true or false, found \"yes\"\n"},
      {with_line("checkpoint: {keep: 0, every_minutes: .inf, dir: ~/x}"),
       "j.yaml:8:20: checkpoint.keep: expected 1 to 1000000, found 0\n"
       "j.yaml:8:38: checkpoint.every_minutes: expected a number, found \".inf\"\n"
       "j.yaml:8:49: checkpoint.dir: ~ is not expanded in job files; write the whole path instead "
       "of \"~/x\"\n"},
      {with_line("checkpoint:\n  keep:\n"),
       "j.yaml:9:3: checkpoint.keep: expected an integer, found nothing\n"},
      {with_line("checkpoint: 5"),
       "j.yaml:8:13: checkpoint: expected a section with keys, found \"5\"\n"},
      {"name: c\nworkload: {command: sh -c true}\n",
       "j.yaml:2:21: workload.command: expected a list such as [sh, -c, true], found \"sh -c "
       "true\"\n"},
      {"name: c\nworkload: {command: cd /w && python  train.py}\n",
       "j.yaml:2:21: workload.command: expected a list such as [sh, -c, 'cd /w && python  "
       "train.py'], found \"cd /w && python  train.py\"\n"},
      {"name: c\nworkload: {command: run @file}\n",
       "j.yaml:2:21: workload.command: expected a list such as [sh, -c, 'run @file'], found \"run "
       "@file\"\n"},
      {"name: c\nworkload: {command: ' '}\n",
       "j.yaml:2:21: workload.command: expected a list such as [program, argument], found the text "
       "\" \"\n"},
      {"name: 12\nworkload: {command: [x]}\n",
       "j.yaml:1:7: name: expected 1 to 64 of A-Z a-z 0-9 - _ . and not digits only; found "
       "\"12\"\n"},
      {"name: " + std::string(5000, 'x') + "\nworkload: {command: [x]}\n",
       "j.yaml:1:7: name: expected 1 to 64 of A-Z a-z 0-9 - _ . and not digits only; found \"" +
           std::string(80, 'x') + "\"\n"},
      {"name: c\n",
       "j.yaml:1:1: workload: this key is required: expected section, exactly one of "
       "train and command\n"},
      {"name: c\nworkload: {command: [x], train: {}}\n",
       "j.yaml:2:1: workload: expected exactly one of train and command\n"},
  };
  for (const Case& c : cases) EXPECT_EQ(problems_of(c.text), c.problems) << c.text;
}

TEST(JobYaml, NamesMistakesOfTraining) {
  const auto train = [](const std::string& body) {
    return "name: t\nworkload:\n  train:\n" + body;
  };
  const std::vector<Case> cases = {
      {train("    model: {preset: debugmodell}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n"),
       "j.yaml:4:21: workload.train.model.preset: no preset is called \"debugmodell\"; did you "
       "mean "
       "\"debugmodel\"? There are: tiny, debugmodel, llama2-7b, "
       "llama2-13b, llama2-70b, llama3-8b, llama3-70b, llama3-405b, llama3.1-8b, llama3.1-70b, "
       "llama3.1-405b, llama3.2-1b, llama3.2-3b, tiny-qwen2, qwen2.5-0.5b, qwen2.5-1.5b, "
       "qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, qwen2.5-32b, qwen2.5-72b, tiny-qwen3, qwen3-0.6b, "
       "qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, tiny-mistral, mistral-7b, "
       "mistral-7b-v0.3, mistral-nemo-12b, tiny-gpt, gpt3-1.7b, gpt3-3.6b, gpt3-7.5b, "
       "gpt3-18.4b, gpt3-39.1b, gpt3-76.1b, gpt3-145.6b, gpt3-310b\n"},
      {train("    model: {preset: tiny, heads: 1}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n"),
       "j.yaml:4:5: workload.train.model.kv_heads: expected a divisor of heads (1), found 2\n"},
      {train("    model: {preset: tiny, kv_heads: 3}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    parallelism: {strategy: zero3, "
             "shard_group: 2}\n"),
       "j.yaml:4:37: workload.train.model.kv_heads: expected a divisor of heads (4), found 3\n"
       "j.yaml:8:29: workload.train.parallelism.strategy: expected one of auto, full, "
       "shard_grad_op, optimizer, no_shard, hybrid; found \"zero3\"; here it is full\n"
       "j.yaml:8:49: workload.train.parallelism.shard_group: expected with strategy hybrid "
       "only\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n"
             "    parallelism: {strategy: hybrid, shard_group: 2}\n"
             "    memory: {activation_checkpointing: some, every: 0}\n"),
       "j.yaml:8:50: workload.train.parallelism.shard_group: expected a divisor of nodes x "
       "workers_per_node (1), found 2\n"
       "j.yaml:9:40: workload.train.memory.activation_checkpointing: expected one of auto, none, "
       "operations, selective, full; found \"some\"\n"
       "j.yaml:9:53: workload.train.memory.every: expected 1 to 10000, found 0\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    parallelism: {strategy: optimizer}\n"
             "    memory: {offload: [parameters]}\n"),
       "j.yaml:9:14: workload.train.memory.offload: parameters expected with strategy full or "
       "hybrid, not with reshard_after_forward never: whole parameters stay on the GPU here; "
       "offload optimizer alone\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    memory: {offload: [moments]}\n"),
       "j.yaml:8:24: workload.train.memory.offload: expected one of activations, optimizer, "
       "parameters; found "
       "\"moments\"\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    memory: {activation_checkpointing: none, "
             "offload: [activations]}\n"),
       "j.yaml:8:46: workload.train.memory.offload: activations expected with "
       "activation_checkpointing full or selective: what leaves are the inputs of recomputed "
       "layers\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n"
             "    parallelism: {strategy: optimizer, reshard_after_forward: always}\n"),
       "j.yaml:8:63: workload.train.parallelism.reshard_after_forward: expected auto or never: "
       "strategy optimizer keeps whole parameters\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    precision: fp16\n"
             "    optimizer: {master: bf16}\n"),
       "j.yaml:9:25: workload.train.optimizer.master: expected fp32 with precision fp16, or "
       "precision bf16; found bf16\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    optimizer: {master: bf16}\n"),
       "j.yaml:8:25: workload.train.optimizer.master: expected fp32 with moments fp32, or moments "
       "bf16; found bf16\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    memory: {offload: [optimizer]}\n"
             "    optimizer: {master: bf16, moments: bf16}\n"),
       "j.yaml:8:14: workload.train.memory.offload: expected no optimizer with optimizer.master "
       "bf16: offload moves fp32 parameters; take one of the two\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    gpu: {attention: math, "
             "deterministic: no}\n"),
       "j.yaml:8:22: workload.train.gpu.attention: expected one of auto, flash, cudnn, products; "
       "found \"math\"; here it is products\n"
       "j.yaml:8:43: workload.train.gpu.deterministic: expected true or false, found \"no\"\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    precision: fp32\n"
             "    gpu: {attention: flash}\n"),
       "j.yaml:9:22: workload.train.gpu.attention: expected auto or products with precision fp32, "
       "which flash does not take; found flash\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8, mask: documents}\n"
             "    batch: {global: 1}\n    steps: 1\n    gpu: {attention: cudnn}\n"),
       "j.yaml:8:22: workload.train.gpu.attention: expected auto or flash with documents kept "
       "apart, which cudnn does not know; found cudnn\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8}\n"
             "    batch: {global: 1}\n    steps: 1\n    gpu: {attention: cudnn}\n"),
       "j.yaml:8:22: workload.train.gpu.attention: expected auto or flash, or deterministic: "
       "false: LibTorch takes cuDNN's attention for one that may add in any order; found "
       "cudnn\n"},
      {train("    model: {preset: tiny-mistral}\n    data: {path: x, seq_len: 4096}\n"
             "    batch: {global: 1}\n    steps: 1\n    stability: {reexecute: true}\n"
             "    gpu: {attention: cudnn, deterministic: false}\n"),
       "j.yaml:8:28: workload.train.stability.reexecute: expected false with gpu.deterministic: "
       "false: another result of the same step is then no fault of the hardware\n"
       "j.yaml:9:22: workload.train.gpu.attention: expected auto or flash with a sliding window, "
       "which cudnn does not know; found cudnn\n"},
      {train("    model: {preset: tiny}\n    data: {path: x, seq_len: 8, tokenizer: bpe}\n"
             "    batch: {global: 1}\n    stepz: 1\n    precision: fp8\n"
             "    loss_scale: {initial: 48, hysteresis: 0}\n"),
       "j.yaml:5:44: workload.train.data.tokenizer: expected byte, or the path of a "
       "tokenizer.json, "
       "vocab.json or tokenizer.model, found \"bpe\"\n"
       "j.yaml:7:5: workload.train: unknown key \"stepz\"; did you mean \"steps\"?\n"
       "j.yaml:8:16: workload.train.precision: expected one of bf16, fp16, fp32; found "
       "\"fp8\"\n"
       "j.yaml:9:27: workload.train.loss_scale.initial: expected a power of two from 1 to "
       "4294967296, found 48\n"
       "j.yaml:9:43: workload.train.loss_scale.hysteresis: expected 1 to 1000, found 0\n"},
      {train("    model: {preset: tiny}\n"),
       "j.yaml:3:3: workload.train.data: this key is required: expected section with path and "
       "seq_len\n"
       "j.yaml:3:3: workload.train.batch: this key is required: expected section with global\n"
       "j.yaml:3:3: workload.train.steps: this key is required: expected integer, 1 to 2^40\n"},
      {train("    data: {path: x}\n    batch: {micro: 2, global: 2}\n    steps: 1\n"),
       "j.yaml:3:3: workload.train.model: this key is required: expected section with preset or "
       "dimensions\n"
       "j.yaml:4:5: workload.train.data.seq_len: this key is required: expected integer, 2 to "
       "16777216\n"},
  };
  for (const Case& c : cases) EXPECT_EQ(problems_of(c.text), c.problems) << c.text;
}

// Paths are resolved in the directory of the job file, and travel as JSON.
TEST(JobYaml, DirectoryThatIsNotUtf8IsNoPlaceForAPath) {
  const std::string problem =
      "has bytes that are not UTF-8, shown as ?; move the job file to another directory, or write "
      "the whole path\n";
  EXPECT_EQ(describe_problems("j.yaml", parse_job_yaml(kMinimal, "/jobs\xff").problems),
            "j.yaml:5:18: workload.train.data.path: the path /jobs?/text " + problem);
  const std::string whole = "name: t\nworkload: {command: [/bin/true]}\n";
  EXPECT_TRUE(parse_job_yaml(whole, "/jobs\xff").spec) << "nothing is resolved there";
}

// Links and mounts are found where the directories are:
// MirrorAction.OneDirectoryByAnotherNameIsRefused.
TEST(JobYaml, MirrorIsApartFromItsDirectory) {
  const auto with = [](const std::string& mirror) {
    return with_line("checkpoint: {dir: /a/b, mirror: {dir: " + mirror + "}}");
  };
  for (const char* mirror : {"/a/b", "/a/b/c", "/a", "/"}) {
    EXPECT_THAT(problems_of(with(mirror)),
                testing::HasSubstr("checkpoint.mirror.dir: expected a directory apart from "
                                   "checkpoint.dir (/a/b), best on another file system; found"))
        << mirror;
  }
  EXPECT_EQ(good(with("/a/bc")).checkpoint.mirror.dir, "/a/bc");
}

TEST(JobYaml, LimitsWhatItReadsAndSays) {
  std::string many = kMinimal;
  for (int i = 0; i < 100; ++i) many += "zzzzzz" + std::to_string(i) + ": 1\n";
  const std::string text = problems_of(many);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 21);
  EXPECT_THAT(text, testing::HasSubstr("j.yaml: and 80 more\n"));
  EXPECT_EQ(problems_of(std::string(kMaxJobYamlBytes + 1, '#')),
            "j.yaml: larger than 256 KiB; a job file is a short text\n");
  EXPECT_EQ(problems_of(std::string("name: t\0", 8)),
            "j.yaml: not a text file (it has zero bytes); expected YAML\n");
  EXPECT_NE(problems_of(std::string(100'000, '[')), "");
  EXPECT_NE(problems_of("name: \"\\ud800\"\n"), "");
  EXPECT_NE(problems_of(", name: t\n"), "") << "yaml-cpp reads documents from this without end";
}

// The values that are auto stay so in YAML. JSON is written after they are chosen.
void expect_read_back(const JobSpec& spec, const std::string& text) {
  const std::string written = to_yaml(spec);
  const JobYaml again = parse_job_yaml(written, "/jobs");
  ASSERT_TRUE(again.spec) << describe_problems("j.yaml", again.problems) << text;
  ASSERT_EQ(to_yaml(*again.spec), written) << text;
  if (spec.auto_workers || (spec.train && spec.train->automatic.strategy)) return;
  const auto stored = job_spec_from_json(to_json_text(spec));
  ASSERT_TRUE(stored.ok()) << stored.error().message << "\n" << text;
}

// Damages a good file at random: never a crash, and always a spec or a located problem.
TEST(JobYaml, SurvivesRandomDamage) {
  const std::string seed_text = to_yaml(good(with_line("env: {set: {A: b}}")));
  const std::string alphabet = " \t\n:-[]{}&*!|>'\"%@`#,?~0129.eaxz\\\x01\xff";
  Rng rng(20261121);
  for (int round = 0; round < 2'000; ++round) {
    std::string text = seed_text;
    for (uint64_t edits = 1 + rng.below(6); edits > 0 && !text.empty(); --edits) {
      const size_t at = rng.below(text.size());
      const size_t length = 1 + rng.below(8);
      switch (rng.below(4)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, 1, alphabet[rng.below(alphabet.size())]);
          break;
        case 2:
          text[at] = alphabet[rng.below(alphabet.size())];
          break;
        default:
          text.insert(rng.below(text.size()), text.substr(at, length));
          break;
      }
    }
    const JobYaml parsed = parse_job_yaml(text, "/jobs");
    ASSERT_EQ(parsed.spec.has_value(), parsed.problems.empty()) << text;
    if (parsed.spec) expect_read_back(*parsed.spec, text);
    for (const JobYamlProblem& p : parsed.problems) {
      ASSERT_FALSE(p.message.empty()) << text;
      ASSERT_TRUE(p.line > 0 || p.message.find("empty") != std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace hpctl
