// SPDX-License-Identifier: Apache-2.0
#include "common/jobfile/job_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <cstdlib>

#include "common/base/file.h"
#include "common/jobfile/job_yaml_keys.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/cli/job_yaml_text.h"

namespace hpctl {
namespace {

using test::good;
using test::kMinimal;
using test::problems_of;
using test::with_line;

TEST(JobYaml, FillsDefaults) {
  const JobSpec spec = good(kMinimal);
  EXPECT_EQ(spec.nodes, 1);
  EXPECT_EQ(spec.workers_per_node, 1);
  EXPECT_EQ(spec.train->model.dim, 256);
  EXPECT_EQ(spec.train->data.path, "/jobs/text");
  EXPECT_EQ(spec.checkpoint.dir, "");
  EXPECT_EQ(spec.recovery.hang_timeout_ms, 0);
}

TEST(JobYaml, ReadsEveryForm) {
  const JobSpec spec = good(R"(
name: full
nodes: {count: 2}
workers_per_node: 2
env: {set: {A: x, B: 3}}
workload:
  train:
    model: {layers: 3, preset: debugmodel, kv_heads: 4}
    data: {path: /abs/text/, tokenizer: byte, seq_len: 64}
    batch: {micro: 2, global: 8}
    steps: 10
    seed: 18446744073709551615
    optimizer: {lr: 1e-3, beta1: 0.8, beta2: 0.9, eps: 1e-6, weight_decay: 0, clip: 0}
    schedule: {name: cosine, warmup_steps: 5, min_lr_ratio: 0}
    loss: {chunk_tokens: 100}
    parallelism: {strategy: hybrid, shard_group: 2, reshard_after_forward: never}
    memory: {activation_checkpointing: selective, every: 3, offload: [optimizer]}
    precision: fp16
    loss_scale: {initial: 1024, growth_interval: 10, hysteresis: 1, min: 2}
    gpu: {attention: cudnn, deterministic: false}
    metrics: {tensorboard: false, trace_from: 5, trace_steps: 2}
checkpoint: {dir: ../ckpt, every_steps: 0, every_minutes: 1.5, keep: 1, resume: old/step-4.g1}
recovery: {max_restarts: 0, window: 7-00:00:00, heartbeat_timeout: 500ms, hang_timeout: 90s}
limits: {launch: 30m, stop: 90s, orphan: auto}
debug: {ledger: true, chaos: true}
)");
  EXPECT_EQ(spec.nodes, 2);
  EXPECT_EQ(spec.env.at("B"), "3");
  EXPECT_EQ(spec.train->model.preset, "debugmodel");
  EXPECT_EQ(spec.train->model.layers, 3);
  EXPECT_EQ(spec.train->model.kv_heads, 4);
  EXPECT_EQ(spec.train->data.path, "/abs/text");
  EXPECT_EQ(spec.train->loss.chunk_tokens, 100);
  EXPECT_EQ(spec.train->strategy, Strategy::kHybrid);
  EXPECT_EQ(spec.train->shard_group, 2);
  EXPECT_EQ(spec.train->reshard_after_forward, Reshard::kNever);
  EXPECT_EQ(spec.train->memory.activation_checkpointing, Checkpointing::kSelective);
  EXPECT_EQ(spec.train->memory.every, 3);
  EXPECT_EQ(spec.train->memory.offload, std::vector<Offload>{Offload::kOptimizer});
  EXPECT_EQ(spec.train->precision, Precision::kFp16);
  EXPECT_EQ(spec.train->gpu.attention, GpuAttention::kCudnn);
  EXPECT_FALSE(spec.train->gpu.deterministic);
  EXPECT_EQ(good(kMinimal).train->gpu, GpuSpec());
  EXPECT_EQ(spec.train->loss_scale.initial, 1024);
  EXPECT_EQ(spec.train->loss_scale.growth_interval, 10);
  EXPECT_EQ(spec.train->loss_scale.hysteresis, 1);
  EXPECT_EQ(spec.train->loss_scale.min, 2);
  EXPECT_EQ(spec.train->seed, 18446744073709551615U);
  EXPECT_EQ(spec.checkpoint.dir, "/ckpt");
  EXPECT_EQ(spec.checkpoint.every_minutes, 1.5);
  EXPECT_EQ(spec.checkpoint.resume, "/jobs/old/step-4.g1");
  EXPECT_EQ(spec.recovery.window_ms, 604'800'000);
  EXPECT_EQ(spec.recovery.heartbeat_timeout_ms, 500);
  EXPECT_EQ(spec.limits.launch_ms, 1'800'000);
  EXPECT_EQ(spec.limits.stop_ms, 90'000);
  EXPECT_EQ(spec.limits.orphan_ms, 0);
  EXPECT_TRUE(spec.ledger);
  EXPECT_TRUE(spec.chaos);
  EXPECT_FALSE(spec.train->metrics.tensorboard);
  EXPECT_EQ(spec.train->metrics.trace_from, 5);
  EXPECT_EQ(spec.train->metrics.trace_steps, 2);
  EXPECT_EQ(good(std::string(kMinimal) + "checkpoint: {every_steps: 10, keep_every: 100}\n")
                .checkpoint.keep_every,
            100);
  EXPECT_EQ(good(kMinimal).checkpoint.verify_before_delete, VerifyDepth::kSample);
  EXPECT_EQ(good(std::string(kMinimal) + "checkpoint: {verify_before_delete: full}\n")
                .checkpoint.verify_before_delete,
            VerifyDepth::kFull);
}

TEST(JobYaml, ReadsCommands) {
  const JobSpec spec =
      good("name: c\nnodes: 3\nenv: none\nworkload: {command: [sh, -c, 'true']}\n");
  EXPECT_EQ(spec.nodes, 3);
  EXPECT_FALSE(spec.train.has_value());
  EXPECT_THAT(spec.command, testing::ElementsAre("sh", "-c", "true"));
  EXPECT_EQ(good("name: c\nworkload: {command: [./run.sh, ./x]}\n").command,
            (std::vector<std::string>{"/jobs/run.sh", "./x"}));
}

TEST(JobYaml, TheScriptOfAPythonCountsFromTheJobFile) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"[python3, train.py, data.txt]", {"python3", "/jobs/train.py", "data.txt"}},
      {"[bin/python, -u, ./a/train.py]", {"/jobs/bin/python", "-u", "/jobs/a/train.py"}},
      {"[python3, /fsx/train.py]", {"python3", "/fsx/train.py"}},
      {"[uv, run, --, python, train.py]", {"uv", "run", "--", "python", "/jobs/train.py"}},
      {"[python3, -m, train]", {"python3", "-m", "train"}},
      {"[python3, -c, train.py]", {"python3", "-c", "train.py"}},
      {"[bash, train.sh]", {"bash", "train.sh"}}};
  for (const auto& [command, expected] : cases) {
    EXPECT_EQ(good(std::string("name: c\nworkload: {command: ") + command + "}\n").command,
              expected)
        << command;
  }
}

// Job files in a directory of the test's own.
class JobYamlEnvironment : public ::testing::Test {
 protected:
  JobYaml parse(const std::string& env) const {
    return parse_job_yaml("name: c\n" + env + "workload: {command: [train.py]}\n",
                          directory_.path());
  }
  EnvironmentSpec chosen(const std::string& env = "") const {
    const JobYaml parsed = parse(env);
    EXPECT_TRUE(parsed.spec) << describe_problems("j.yaml", parsed.problems);
    return parsed.spec ? parsed.spec->environment : EnvironmentSpec();
  }
  std::string problem(const std::string& env) const {
    const JobYaml parsed = parse(env);
    return parsed.problems.empty() ? "" : describe_problems("j.yaml", parsed.problems);
  }
  void put(const std::string& name) const {
    const std::string path = directory_ / name;
    ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(write_file_atomic(path, "").ok());
  }

  TemporaryDirectory directory_;
};

TEST_F(JobYamlEnvironment, AutoTakesWhatLiesBesideTheJobFile) {
  EXPECT_EQ(chosen().kind, "none");
  put("pyproject.toml");
  EXPECT_EQ(chosen().kind, "uv");
  EXPECT_EQ(chosen().path, directory_.path());
  put(".venv/bin/python");
  EXPECT_EQ(chosen("env: auto\n").kind, "venv");
  EXPECT_EQ(chosen().path, directory_ / ".venv");
  EXPECT_EQ(chosen("env: none\n").kind, "none") << "what the user says stands";
  EXPECT_EQ(chosen("env: uv\n").kind, "uv");
  EXPECT_EQ(chosen("slurm: {container: {image: /x.sqsh}}\n").kind, "container");
}

TEST_F(JobYamlEnvironment, WhatWasAskedForMustBeThere) {
  EXPECT_NE(problem("env: venv\n")
                .find("j.yaml:2:6: env.kind: no virtual environment is at " + directory_.path() +
                      "/.venv"),
            std::string::npos)
      << problem("env: venv\n");
  EXPECT_NE(problem("env: {kind: uv, path: sub}\n")
                .find("no uv project is at " + directory_.path() + "/sub"),
            std::string::npos);
  EXPECT_NE(problem("env: container\n").find("container needs slurm"), std::string::npos);
  EXPECT_NE(problem("env: {path: sub}\n").find("env.path: neither"), std::string::npos);
  put("envs/a/bin/python");
  EXPECT_EQ(chosen("env: {path: envs/a}\n").kind, "venv");
}

TEST_F(JobYamlEnvironment, TheChoiceIsShownAndReadBack) {
  put("pyproject.toml");
  const JobYaml parsed = parse(
      "hooks: {pre: dcgmi profile --pause, post: ['a: b'], timeout: 5s}\n"
      "health: {preflight: [gpu, net]}\n");
  ASSERT_TRUE(parsed.spec) << describe_problems("j.yaml", parsed.problems);
  const std::string text = to_yaml(*parsed.spec);
  EXPECT_NE(text.find("kind: uv  # the command is run by: uv run --project " + directory_.path()),
            std::string::npos)
      << text;
  const JobYaml again = parse_job_yaml(text, "/elsewhere");
  ASSERT_TRUE(again.spec) << describe_problems("j.yaml", again.problems);
  EXPECT_EQ(to_json_text(*again.spec), to_json_text(*parsed.spec));
  EXPECT_EQ(again.spec->hooks.timeout_ms, 5000);
  EXPECT_EQ(again.spec->preparation_ms(), 5000 + 2 * kPreflightTimeoutMs);
}

TEST(JobYaml, WhatStandbysImportIsReadBack) {
  const JobYaml parsed = parse_job_yaml(
      "name: c\nworkload: {command: [python, t.py]}\nrecovery: {standby_imports: [torch, a.b]}\n",
      "/d");
  ASSERT_TRUE(parsed.spec) << describe_problems("j.yaml", parsed.problems);
  const JobYaml again = parse_job_yaml(to_yaml(*parsed.spec), "/elsewhere");
  ASSERT_TRUE(again.spec) << describe_problems("j.yaml", again.problems);
  const std::vector<std::string> expected = {"torch", "a.b"};
  EXPECT_EQ(again.spec->recovery.standby_imports, expected);
  const auto stored = job_spec_from_json(to_json_text(*again.spec));
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->recovery.standby_imports, expected);
}

// Every key, no two with one value.
constexpr const char* kSlurm = R"(slurm:
  partition: p5
  account: team
  qos: high
  time: 7-00:00:00
  requeue_at_limit: true
  exclusive: false
  gres: gpu:8
  cpus_per_task: 12
  constraint: efa
  reservation: maintenance
  nodelist: [n1, "n[3-4]"]
  exclude: n9
  mem: 64G
  dependency: "afterok:123"
  begin: now+1hour
  mail_user: ada@example.org
  mail_type: [END, FAIL]
  nice: -100
  licenses: "matlab:2"
  comment: "two words: and more"
  signal: B:TERM@90
  extra: [--wckey=x, --hold]
  container: {image: ./train.sqsh, mounts: [/fsx, "/data:/data:ro"]})";

TEST(JobYaml, ReadsTheSlurmSection) {
  const SlurmSpec slurm = good(with_line(kSlurm)).slurm;
  EXPECT_EQ(slurm.partition, "p5");
  EXPECT_EQ(slurm.account, "team");
  EXPECT_EQ(slurm.qos, "high");
  EXPECT_EQ(slurm.time_minutes, 7 * 24 * 60);
  EXPECT_TRUE(slurm.requeue_at_limit);
  EXPECT_FALSE(slurm.exclusive);
  EXPECT_EQ(slurm.gres, "gpu:8");
  EXPECT_EQ(slurm.cpus_per_task, 12);
  EXPECT_EQ(slurm.constraint, "efa");
  EXPECT_EQ(slurm.reservation, "maintenance");
  EXPECT_EQ(slurm.nodelist, "n1,n[3-4]");
  EXPECT_EQ(slurm.exclude, "n9");
  EXPECT_EQ(slurm.mem_mb, 64 * 1024);
  EXPECT_EQ(slurm.dependency, "afterok:123");
  EXPECT_EQ(slurm.begin, "now+1hour");
  EXPECT_EQ(slurm.mail_user, "ada@example.org");
  EXPECT_EQ(slurm.mail_type, "END,FAIL");
  EXPECT_EQ(slurm.nice, -100);
  EXPECT_EQ(slurm.licenses, "matlab:2");
  EXPECT_EQ(slurm.comment, "two words: and more");
  EXPECT_EQ(slurm.warning_seconds, 90);
  EXPECT_THAT(slurm.extra, testing::ElementsAre("--wckey=x", "--hold"));
  EXPECT_EQ(slurm.container.image, "/jobs/train.sqsh");
  EXPECT_EQ(slurm.container.mounts, (std::vector<std::string>{"/fsx", "/data:/data:ro"}));
  EXPECT_EQ(good(kMinimal).slurm.mem_mb, -1);
}

TEST(JobYaml, WordsTravelAndAreStoredAsWords) {
  const auto with = [](const std::string& data) {
    return "name: t\nworkload:\n  train:\n    model: {preset: tiny}\n    data: {path: x, seq_len: "
           "8" +
           data + "}\n    batch: {global: 1}\n    steps: 1\n";
  };
  EXPECT_EQ(good(with("")).train->data.mask, DocumentMask::kNone);
  const JobSpec spec = good(with(", mask: borders"));
  EXPECT_EQ(spec.train->data.mask, DocumentMask::kBorders);
  const std::string json = to_json_text(spec);
  EXPECT_THAT(json, testing::AllOf(testing::HasSubstr(R"("mask":"borders")"),
                                   testing::HasSubstr(R"("precision":"bf16")"),
                                   testing::HasSubstr(R"("no_decay":["norms","biases"])")));
  EXPECT_EQ(to_json_text(*job_spec_from_json(json)), json);
  // What was written under the key's older name, in job.yaml and in a stored job.
  EXPECT_EQ(good(with(", reset_at_documents: true")).train->data.mask, DocumentMask::kDocuments);
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = json;
    return text.replace(text.find(what), what.size(), by);
  };
  const auto stored =
      job_spec_from_json(replaced(R"("mask":"borders")", R"("reset_at_documents":true)"));
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_EQ(stored->train->data.mask, DocumentMask::kDocuments);
  const auto unknown = job_spec_from_json(replaced("bf16", "fp8"));
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message,
              testing::HasSubstr("expected one of bf16, fp16, fp32; found \"fp8\""));
}

TEST(JobYaml, FormatsOfData) {
  const auto with = [](const std::string& data) {
    return "name: t\nworkload:\n  train:\n    model: {preset: tiny}\n    data: {path: x, seq_len: "
           "8" +
           data + "}\n    batch: {global: 1}\n    steps: 1\n";
  };
  EXPECT_FALSE(good(with("")).train->data.has_answers());
  const DataSpec pairs = good(with(", format: sft")).train->data;
  EXPECT_TRUE(pairs.has_answers());
  EXPECT_TRUE(pairs.keeps_apart());
  const JobSpec chat = good(with(", format: chat, chat_template: llama3"));
  EXPECT_EQ(chat.train->data.chat_template, ChatTemplate::kLlama3);
  const auto again = job_spec_from_json(to_json_text(chat));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json_text(*again), to_json_text(chat));
  EXPECT_THAT(problems_of(with(", format: chat")),
              testing::HasSubstr(
                  "chat_template: this key is required: expected chatml or llama3 with format"));
  EXPECT_THAT(problems_of(with(", format: sft, chat_template: chatml")),
              testing::HasSubstr("chat_template: expected with format chat only"));
  EXPECT_THAT(problems_of(with(", format: sft, mask: borders")),
              testing::HasSubstr("mask: expected documents, or no mask, with format sft"));
  EXPECT_THAT(problems_of(with(", format: alpaca")), testing::HasSubstr("text, sft, chat"));
}

TEST(JobYaml, Adapters) {
  const auto with = [](const std::string& train, const std::string& preset = "tiny") {
    return "name: t\nworkload:\n  train:\n    model: {preset: " + preset +
           "}\n    data: {path: x, seq_len: 8}\n    batch: {global: 1}\n    steps: 1\n    " +
           train + "\n";
  };
  EXPECT_FALSE(good(with("")).train->lora.on());
  const JobSpec spec =
      good(with("lora: {base: b/step-0.g0, rank: 8, alpha: 4, targets: [v_proj]}"));
  EXPECT_EQ(spec.train->lora.base, "/jobs/b/step-0.g0");
  EXPECT_EQ(spec.train->lora.scale(), 0.5);
  EXPECT_EQ(spec.train->lora.targets, std::vector{LoraTarget::kVProj});
  const auto again = job_spec_from_json(to_json_text(spec));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json_text(*again), to_json_text(spec));
  EXPECT_EQ(good(with("lora: {base: b, rank: 1}")).train->lora.targets.size(), 7U);
  const auto problem = [&](const std::string& train) { return problems_of(with(train)); };
  EXPECT_THAT(problem("lora: {base: b}"), testing::HasSubstr("lora.rank: this key is required"));
  EXPECT_THAT(problem("lora: {rank: 8}"), testing::HasSubstr("lora.base: this key is required"));
  EXPECT_THAT(problem("lora: {base: b, rank: 8, targets: []}"),
              testing::HasSubstr("targets: expected one or more of q_proj"));
  EXPECT_THAT(problem("lora: {base: b, rank: 8, targets: [q_proj, q_proj]}"),
              testing::HasSubstr("each once"));
  EXPECT_THAT(problem("lora: {base: b, rank: 8}\n    memory: {offload: [optimizer]}"),
              testing::HasSubstr("expected no optimizer with lora"));
  EXPECT_THAT(problem("lora: {base: b, rank: 8}\n    optimizer: {moments: bf16, master: bf16}"),
              testing::HasSubstr("optimizer.master: expected fp32 with lora"));
  EXPECT_THAT(problems_of(with("lora: {base: b, rank: 8}", "tiny-gpt")),
              testing::HasSubstr("rank: expected 0 with arch gpt"));
}

TEST(JobYaml, GptModels) {
  const auto with = [](const std::string& model, const char* seq_len = "8") {
    return "name: t\nworkload:\n  train:\n    model: {" + model +
           "}\n    data: {path: x, seq_len: " + seq_len +
           "}\n    batch: {global: 1}\n    steps: 3\n";
  };
  const JobSpec spec = good(with("preset: gpt3-1.7b", "2048"));
  EXPECT_EQ(spec.train->model.arch, Arch::gpt);
  EXPECT_EQ(to_json_text(good(to_yaml(spec))), to_json_text(spec));
  const std::string own = "arch: gpt, dim: 36, layers: 1, heads: 12, ffn: 8, vocab: 256";
  EXPECT_EQ(good(with(own + ", kv_heads: 12, max_positions: 8")).train->model.max_positions, 8)
      << "heads of odd width, too";
  EXPECT_THAT(problems_of(with(own + ", kv_heads: 6, max_positions: 8")),
              testing::HasSubstr("kv_heads: expected heads (12): arch gpt does not share them"));
  EXPECT_THAT(problems_of(with(own + ", kv_heads: 12")), testing::HasSubstr("max_positions"));
  EXPECT_THAT(problems_of(with("preset: gpt3-1.7b", "2049")),
              testing::HasSubstr("data.seq_len: expected at most model.max_positions (2048)"));
  EXPECT_THAT(problems_of(with("preset: tiny-gpt, rope_theta: 10000")),
              testing::HasSubstr("whose positions are learned"));
  EXPECT_EQ(good(with("preset: tiny, max_positions: 4")).train->model.max_positions, 4)
      << "rotary positions have no end";
  EXPECT_THAT(problems_of(with("preset: tiny, arch: bert")),
              testing::HasSubstr("expected one of llama, gpt, qwen2, qwen3, mistral; found "
                                 "\"bert\""));
}

TEST(JobYaml, HeadsAndWindows) {
  const auto with = [](const std::string& model) {
    return "name: t\nworkload:\n  train:\n    model: {" + model +
           "}\n    data: {path: x, seq_len: 8}\n    batch: {global: 1}\n    steps: 3\n";
  };
  const JobSpec spec = good(with("preset: qwen3-0.6b, layers: 2"));
  EXPECT_EQ(spec.train->model.arch, Arch::qwen3);
  EXPECT_EQ(spec.train->model.head_dim, 128);
  EXPECT_EQ(to_json_text(good(to_yaml(spec))), to_json_text(spec));
  EXPECT_EQ(good(with("preset: mistral-7b")).train->model.sliding_window, 4096);
  EXPECT_EQ(good(with("preset: mistral-7b, sliding_window: 0")).train->model.sliding_window, 0);
  EXPECT_EQ(good(with("preset: tiny, heads: 6, head_dim: 10")).train->model.head_size(), 10)
      << "6 does not divide 64";
  EXPECT_THAT(problems_of(with("preset: tiny, heads: 6")),
              testing::HasSubstr("heads: expected dim / heads to be an even whole number"));
  EXPECT_THAT(problems_of(with("preset: tiny, head_dim: 9")),
              testing::HasSubstr("head_dim: expected an even number, found 9"));
  EXPECT_THAT(problems_of(with("preset: tiny-qwen2, head_dim: 32")),
              testing::HasSubstr("head_dim: expected dim / heads, which arch qwen2 always has"));
  EXPECT_THAT(problems_of(with("preset: tiny-gpt, head_dim: 32")), testing::HasSubstr("head_dim"));
  EXPECT_THAT(problems_of(with("preset: tiny, sliding_window: 4")),
              testing::HasSubstr("sliding_window: expected 0: arch llama has no window"));
}

TEST(JobYaml, BlendsAndSplits) {
  const auto with_data = [](const std::string& data, const std::string& more = "") {
    return "name: t\nworkload:\n  train:\n    model: {preset: tiny}\n    data: " + data +
           "\n    batch: {global: 8}\n    steps: 3\n" + more;
  };
  const JobSpec spec =
      good(with_data("{blend: {b/x: 0.75, /a: 2}, split: [98, 1.5, 0.5], seq_len: 8}",
                     "    validation: {every_steps: 2, sequences: 4}\n"));
  const DataSpec& data = spec.train->data;
  ASSERT_EQ(data.blend.size(), 2U);
  EXPECT_TRUE(data.blend[0].path.ends_with("/b/x") && data.blend[0].path[0] == '/');
  EXPECT_EQ(data.blend[0].weight, 0.75);
  EXPECT_EQ(data.blend[1].path, "/a");
  EXPECT_EQ(data.split, (std::vector<double>{98, 1.5, 0.5}));
  EXPECT_EQ(to_json_text(good(to_yaml(spec))), to_json_text(spec));
  const auto problem = [&](const std::string& text) { return problems_of(text); };
  EXPECT_THAT(problem(with_data("{path: x, blend: {a: 1}, seq_len: 8}")),
              testing::HasSubstr("give one of them"));
  EXPECT_THAT(problem(with_data("{blend: {a: -1}, seq_len: 8}")), testing::HasSubstr("blend"));
  EXPECT_THAT(problem(with_data("{blend: [a], seq_len: 8}")),
              testing::HasSubstr("a mapping such as"));
  EXPECT_THAT(problem(with_data("{path: x, split: [1, 2], seq_len: 8}")),
              testing::HasSubstr("three numbers"));
  EXPECT_THAT(problem(with_data("{path: x, split: [0, 2, 1], seq_len: 8}")),
              testing::HasSubstr("a training part above 0"));
  EXPECT_THAT(problem(with_data("{path: x, seq_len: 8}", "    validation: {every_steps: 2}\n")),
              testing::HasSubstr("data.split: this key is required"));
}

TEST(JobYaml, RefusesARollbackBehindTheOldestCheckpoint) {
  const auto with = [](const std::string& checkpoint, int rollback_steps) {
    return std::string(kMinimal) +
           "    stability: {policy: rollback, rollback_steps: " + std::to_string(rollback_steps) +
           "}\ncheckpoint: {" + checkpoint + "}\n";
  };
  EXPECT_EQ(problems_of(with("keep: 3, every_steps: 10", 30)), "");
  EXPECT_THAT(problems_of(with("keep: 3, every_steps: 10", 31)),
              testing::HasSubstr("stability.rollback_steps: expected at most checkpoint.keep x "
                                 "checkpoint.every_steps (3 x 10 = 30)"));
  EXPECT_NE(problems_of(with("every_steps: 0", 100)), "");
  EXPECT_EQ(problems_of(with("keep: 3, every_steps: 10, keep_every: 50", 31)), "");
}

TEST(JobYaml, ReportsUnreadableFiles) {
  EXPECT_THAT(load_job_yaml("/nonexistent/j.yaml").problems.at(0).message,
              testing::HasSubstr("No such file"));
  EXPECT_EQ(load_job_yaml("/tmp").problems.at(0).message, "is a directory; expected a job file");
}

TEST(JobYaml, WritesWhatItReads) {
  const JobSpec spec = good(with_line("env: {set: {A: \"x: #y\", B: 'true'}}\nnodes: 4"));
  EXPECT_EQ(to_json_text(good(to_yaml(spec))), to_json_text(spec));
  const JobSpec slurm =
      good(with_line("slurm: {time: 90, mem: 0, nodelist: [a, b], container: {image: "
                     "\"docker://x#y\", mounts: /fsx}}"));
  EXPECT_EQ(to_json_text(good(to_yaml(slurm))), to_json_text(slurm));
  const JobSpec every = good(with_line(kSlurm));
  EXPECT_EQ(to_json_text(good(to_yaml(every))), to_json_text(every));
  const JobSpec command = good("name: c\nworkload: {command: [sh, -c, \"echo 'a'\\n\"]}\n");
  EXPECT_EQ(to_json_text(good(to_yaml(command))), to_json_text(command));
}

std::string flow(const YAML::Node& list) {
  std::string text;
  for (const YAML::Node& item : list) text += (text.empty() ? "" : ", ") + item.Scalar();
  return "[" + text + "]";
}

TEST(JobYaml, SomeKeysAreLeftToThePlan) {
  const AutoKeys left = good(kMinimal).train->automatic;
  EXPECT_TRUE(left.micro && left.chunk_tokens && left.strategy && left.activation_checkpointing);
  const std::string text = R"(name: t
workload:
  train:
    model: {preset: debugmodel}
    data: {path: text, seq_len: 128}
    batch: {global: 4, micro: auto}
    loss: {chunk_tokens: 0}
    parallelism: {strategy: auto, shard_group: 2}
    memory: {activation_checkpointing: full}
    steps: 10
workers_per_node: 2
)";
  const JobSpec spec = good(text);
  const AutoKeys& keys = spec.train->automatic;
  EXPECT_TRUE(keys.micro && keys.strategy);
  EXPECT_FALSE(keys.chunk_tokens || keys.activation_checkpointing);
  EXPECT_EQ(spec.train->batch.micro, 1) << "what holds without a plan";
  EXPECT_EQ(spec.train->strategy, Strategy::kFull);
  const std::string yaml = to_yaml(spec);
  EXPECT_THAT(yaml, testing::HasSubstr("micro: auto\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("chunk_tokens: 0\n"));
  EXPECT_EQ(to_yaml(good(yaml)), yaml);
  EXPECT_EQ(problems_of(with_line("recovery: {standbys: auto}")),
            "j.yaml:8:22: recovery.standbys: expected an integer, found \"auto\"\n")
      << "not every key may be";
}

// A file with workers_per_node: auto was refused for a shard_group above 1, and was written back
// with one worker per node.
TEST(JobYaml, AutoWorkersAndStrategyAreReadBack) {
  const std::string text = R"(name: t
nodes: 2
workload:
  train:
    model: {preset: debugmodel}
    data: {path: text, seq_len: 128}
    batch: {global: 16}
    parallelism: {strategy: auto, shard_group: 8}
    steps: 10
workers_per_node: auto
)";
  const JobSpec spec = good(text);
  EXPECT_TRUE(spec.auto_workers);
  const std::string yaml = to_yaml(spec);
  EXPECT_THAT(yaml, testing::HasSubstr("workers_per_node: auto\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("strategy: auto\n"));
  EXPECT_THAT(yaml, testing::HasSubstr("shard_group: 8\n"));
  EXPECT_EQ(to_yaml(good(yaml)), yaml);

  JobSpec chosen = spec;
  chosen.auto_workers = false;
  chosen.workers_per_node = 3;
  ASSERT_FALSE(find_problems(chosen).empty()) << "6 workers make no groups of 8";
  EXPECT_EQ(find_problems(chosen)[0].key, "workload.train.parallelism.shard_group");
}

TEST(JobYaml, DefaultsInTheTableAreTheDefaults) {
  const YAML::Node root = YAML::Load(to_yaml(good(kMinimal)));
  for (const JobYamlKey& key : job_yaml_keys()) {
    if (key.kind != KeyKind::kValue || key.initial.empty() || key.initial == "required" ||
        key.initial == "of the preset" || key.initial == "{}" || key.initial == "count") {
      continue;
    }
    YAML::Node node = root;
    std::string path(key.path);
    for (size_t dot; !path.empty(); path = dot == std::string::npos ? "" : path.substr(dot + 1)) {
      dot = path.find('.');
      node.reset(node[path.substr(0, dot)]);
      ASSERT_TRUE(node.IsDefined()) << key.path;
    }
    EXPECT_EQ(node.IsSequence() ? flow(node) : node.Scalar(), key.initial) << key.path;
  }
}

TEST(JobYaml, ReferenceIsInTheDocs) {
  const char* source = std::getenv("HPCTL_SOURCE");
  ASSERT_NE(source, nullptr) << "run by ctest, or set HPCTL_SOURCE to the repository";
  const auto doc = read_file(std::string(source) + "/docs/job-yaml.md");
  ASSERT_TRUE(doc.ok()) << doc.error().message;
  EXPECT_NE(doc->find(job_yaml_reference()), std::string::npos)
      << "replace the tables in docs/job-yaml.md with:\n"
      << job_yaml_reference();
}

TEST(JobYaml, ExamplesAreGood) {
  const char* source = std::getenv("HPCTL_SOURCE");
  ASSERT_NE(source, nullptr);
  const std::string directory = std::string(source) + "/examples";
  const auto names = list_directory(directory);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    const bool is_job = name.ends_with(".yaml") && !name.starts_with("chaos-");
    if (!is_job) continue;
    EXPECT_EQ(describe_problems(name, load_job_yaml(directory + "/" + name).problems), "");
  }
}

TEST(JobYaml, OnlyACommandIsObserved) {
  const std::string line = "recovery: {observe: true}";
  EXPECT_NE(
      test::problems_of(test::with_line(line)).find("only a workload.command can be observed"),
      std::string::npos);
  EXPECT_TRUE(
      test::good("name: t\nworkload: {command: [\"true\"]}\n" + line + "\n").recovery.observe);
}

}  // namespace
}  // namespace hpctl
