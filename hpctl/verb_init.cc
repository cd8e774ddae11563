// SPDX-License-Identifier: Apache-2.0
// hpctl init: writes a small job file to begin with.
#include <array>
#include <string_view>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace init_parts {
namespace {

constexpr const char* kHelp = R"(
Writes a small job file with comments, to be changed and submitted. It replaces no file.

  trainer   train a model from scratch with the built-in trainer
  script    run a PyTorch program of your own on every rank
  finetune  train an imported Hugging Face model on conversations

Examples:
  hpctl init trainer
  hpctl init script ddp.yaml && hpctl submit ddp.yaml --dry-run --local

Options:
  FILE    the file to write (default job.yaml)
  --json  {"kind", "file"}

Exit codes: 0 written, 1 the file exists or cannot be written, 2 wrong arguments
)";

constexpr std::string_view kTrainer =
    R"(# Train a model from scratch. Every key is in docs/job-yaml.md.
#   hpctl submit job.yaml --dry-run --local   check it, print it with all defaults
#   hpctl plan job.yaml --gpu h100            memory and time on a GPU
#   hpctl submit job.yaml --local --wait      run it on this machine
#   hpctl submit job.yaml --wait              run it on Slurm
name: my-model                 # the name in hpctl ps; a job that lives has it alone
nodes: 1
workers_per_node: 1            # auto: one for each GPU
workload:
  train:
    model: {preset: debugmodel}   # such as llama3-8b; docs/job-yaml.md lists them
    data:
      path: corpus.txt         # text, JSON lines, or what hpctl data prepare made
      seq_len: 128
      # tokenizer: tokenizer.json   # without it, tokens are bytes
    batch: {micro: 1, global: 4}
    steps: 100
    optimizer: {lr: 1e-3}
    schedule: {warmup_steps: 10}
checkpoint:
  every_steps: 50              # hpctl resume my-model goes on from the newest
  keep: 3
# slurm:
#   partition: gpu
#   gres: gpu:h100:8
#   time: 1d
)";

constexpr std::string_view kScript =
    R"(# Run your own PyTorch program. Every key is in docs/job-yaml.md.
#   hpctl submit job.yaml --dry-run --local   check it, print it with all defaults
#   hpctl submit job.yaml --local --wait      run it on this machine
#   hpctl submit job.yaml --wait              run it on Slurm
name: my-script                # the name in hpctl ps; a job that lives has it alone
nodes: 1
workers_per_node: 2            # auto: one for each GPU
workload:
  # One process for each rank, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set:
  # no torchrun, no accelerate launch. The program loads its newest checkpoint when it starts.
  command: [python3, train.py]
env:
  kind: none                   # venv, uv, container; auto: the .venv beside this file
  set: {OMP_NUM_THREADS: "4"}
  # files: [secrets.env]       # NAME=VALUE lines, read where the ranks run
recovery:
  max_restarts: 10             # within an hour
  hang_timeout: 10m            # longer than the longest save
# slurm:
#   partition: gpu
#   gres: gpu:h100:8
#   time: 1d
)";

constexpr std::string_view kFinetune =
    R"(# Train an imported model on conversations. Every key is in docs/job-yaml.md.
#   hpctl checkpoint import MODEL_DIR weights   once: makes weights/step-0.g0
#   hpctl submit job.yaml --dry-run --local     check it, print it with all defaults
#   hpctl submit job.yaml --local --wait        run it on this machine
#   hpctl submit job.yaml --wait                run it on Slurm
#   hpctl checkpoint export my-finetune OUT     write it as a Hugging Face model
name: my-finetune              # the name in hpctl ps; a job that lives has it alone
nodes: 1
workers_per_node: 1            # auto: one for each GPU
workload:
  train:
    model: {preset: llama3.2-1b}    # as imported; {from: MODEL_DIR} imports it at submit
    data:
      path: conversations.jsonl     # lines {"messages": [{"role", "content"}, ...]}
      format: chat                  # sft: lines {"prompt", "completion"}
      chat_template: llama3         # or chatml
      tokenizer: MODEL_DIR/tokenizer.json
      seq_len: 2048
    batch: {micro: 1, global: 8}
    steps: 200
    optimizer: {lr: 1e-5, weight_decay: 0}
    schedule: {name: linear, warmup_steps: 20, min_lr_ratio: 0}
    # lora: {rank: 16, base: weights/step-0.g0}   # adapters only; leave checkpoint.resume out then
checkpoint:
  resume: weights/step-0.g0
  every_steps: 50
  keep: 3
# slurm:
#   partition: gpu
#   gres: gpu:h100:8
#   time: 4h
)";

struct Kind {
  std::string_view name;
  std::string_view text;
};
constexpr std::array<Kind, 3> kKinds = {
    {{"trainer", kTrainer}, {"script", kScript}, {"finetune", kFinetune}}};

std::string_view text_of(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.text;
  }
  return "";  // the command line has refused it
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const std::string& kind = invocation.arguments[0];
  const std::string file = invocation.arguments.size() > 1 ? invocation.arguments[1] : "job.yaml";
  const Outcome written = create_file_exclusive(file, text_of(kind));
  if (!written.ok() && written.error().code == ErrorCode::kAlreadyExists) {
    return report(terminal, {ErrorCode::kAlreadyExists,
                             file +
                                 " exists, and hpctl init replaces no file; name another one: "
                                 "hpctl init " +
                                 kind + " FILE"});
  }
  if (!written.ok()) return report(terminal, written.error());
  if (invocation.json()) {
    terminal.out << json_text(nlohmann::ordered_json{{"kind", kind}, {"file", file}}) << "\n";
  } else {
    terminal.out << "wrote " << printable(file) << "; next: change it, then hpctl submit "
                 << printable(file) << " --dry-run --local\n";
  }
  return kExitOk;
}

}  // namespace
}  // namespace init_parts

Verb init_verb() {
  return {"init",
          "trainer | script | finetune [FILE]",
          "write a small job file to begin with",
          init_parts::kHelp,
          1,
          2,
          {},
          init_parts::run,
          {"trainer", "script", "finetune"}};
}

}  // namespace hpctl
