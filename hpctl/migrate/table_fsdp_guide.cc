// SPDX-License-Identifier: Apache-2.0
// TRAINING_ARGS of the FSDP example of AWS (awsome-distributed-training). Names and defaults:
// model_utils/arguments.py; the dimensions of its models: get_model_config() in
// model_utils/train_utils.py.
#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

void take_guide_dataset(const Given& given, const Document&, Draft& draft) {
  draft.set("workload.train.data.path", yaml_text(given.text), given);
  draft.report(kChanged, given,
               "workload.train.data.path: " + given.text +
                   ": hpctl reads files; put the text of this data set there, or name its place "
                   "with --set workload.train.data.path=PATH");
}

void take_guide_tokenizer(const Given& given, const Document&, Draft& draft) {
  const std::string file = given.text + "/tokenizer.json";
  draft.set("workload.train.data.tokenizer", yaml_text(file), given);
  draft.report(kChanged, given,
               "workload.train.data.tokenizer: " + file +
                   ": hpctl reads files; download the tokenizer there");
}

void take_guide_resume(const Given& given, const Document& document, Draft& draft) {
  if (given.text == document.text_of("--checkpoint_dir")) {
    return draft.report(kUnneeded, given, "checkpoint.resume: latest is the default");
  }
  draft.report(kImpossible, given, "a checkpoint of PyTorch; train on as a command");
}

void take_guide_batches(const Given& given, const Document& document, Draft& draft) {
  if (document.text_of("--validation_freq").empty()) {
    return draft.report(kUnneeded, given, "without effect unless --validation_freq");
  }
  draft.report(kChanged, given, "left out with --validation_freq");
}

void finish_guide(const Document& d, Draft& draft) {
  const std::string type = d.text_of("--model_type");
  const bool is_llama =
      type.find("llama_v2") != std::string::npos || type.find("llama_v3") != std::string::npos;
  const bool is_mistral =
      type.find("mistral") != std::string::npos && type.find("mixtral") == std::string::npos;
  if (!is_llama && !is_mistral) {
    draft.report(kImpossible, d.file + ": --model_type",
                 (type.empty() ? "gpt_neox, the default," : type) +
                     " is no architecture here: llama_v2, llama_v3 and mistral are");
    return;
  }
  Given rule = {"--model_type", type, {}, d.file + ": --model_type " + type, false};
  draft.set("workload.train.model.arch", is_llama ? "llama" : "mistral", rule);
  draft.set("workload.train.model.rope_theta", "10000", rule);
  draft.set("workload.train.model.norm_eps", "1e-5", rule);
  draft.set("workload.train.model.tied_embeddings", "false", rule);
  if (is_mistral) draft.set("workload.train.model.sliding_window", "4096", rule);
  const std::string heads = d.text_of("--num_heads");
  rule.is_default = true;
  rule.source = "default of the guide's --num_key_value_heads";
  draft.set("workload.train.model.kv_heads", heads.empty() ? "12" : heads, rule);
}

constexpr std::string_view kNeox = "of models that are not here";
constexpr std::string_view kGuideSpeed = "without effect on what is computed";
constexpr std::string_view kGuideValidation =
    "left out: the guide validates on a separate data set, hpctl on a part of data.split; give "
    "data.split and validation.every_steps with --set";

// clang-format off
constexpr Row kGuideRows[] = {
    {.key = "--train_batch_size", .ours = "workload.train.batch.micro", .initial = "2",
     .quantity = Quantity::kMicroBatch},
    unneeded("--val_batch_size", "validation takes batch.micro"),
    {.key = "--max_steps", .ours = "workload.train.steps", .initial = "5000",
     .quantity = Quantity::kSteps},
    {.key = "--max_training_steps", .ours = "workload.train.steps", .quantity = Quantity::kSteps},
    unneeded("--epochs", "--max_steps ends the run"),
    {.key = "--seed", .ours = "workload.train.seed", .initial = "12345"},
    unneeded("--same_seed", "all workers begin with the same weights"),
    {.key = "--bf16", .ours = "workload.train.precision", .words = "1=bf16|0=fp32"},
    {.key = "--grad_clip", .ours = "workload.train.optimizer.clip"},
    {.key = "--weight_decay", .ours = "workload.train.optimizer.weight_decay", .initial = "0.2"},
    {.key = "--beta1", .ours = "workload.train.optimizer.beta1"},
    {.key = "--beta2", .ours = "workload.train.optimizer.beta2"},
    {.key = "--activation_checkpointing", .ours = "workload.train.memory.activation_checkpointing",
     .initial = "1", .words = "1=full|0=none"},
    {.key = "--intermediate_size", .ours = "workload.train.model.ffn", .initial = "11008"},
    {.key = "--num_key_value_heads", .ours = "workload.train.model.kv_heads"},
    unneeded("--logging_freq", "metrics.jsonl of the job has every step"),
    unneeded("--tensorboard_dir", "metrics.tensorboard writes to the job's directory"),
    {.key = "--max_context_width", .fate = kTaken, .ours = "workload.train.data.seq_len",
     .initial = "2048"},
    {.key = "--vocab_size", .ours = "workload.train.model.vocab", .initial = "50432"},
    {.key = "--hidden_width", .ours = "workload.train.model.dim", .initial = "768"},
    {.key = "--num_layers", .ours = "workload.train.model.layers", .initial = "12"},
    {.key = "--num_heads", .ours = "workload.train.model.heads", .initial = "12"},
    unneeded("--resid_pdrop", kNeox),
    unneeded("--embd_pdrop", kNeox),
    unneeded("--attn_pdrop", kNeox),
    unneeded("--summary_first_pdrop", kNeox),
    {.key = "--initializer_range", .fate = kChanged,
     .note = "the built-in trainer has its own initial weights"},
    {.key = "--model_type", .ours = "workload.train.model.arch",
     .note = "llama_v2, llama_v3: llama; mistral: mistral; others are not possible",
     .take = take_later},
    unneeded("--rotary_pct", kNeox),
    unneeded("--rotary_emb_base", kNeox),
    {.key = "--offload_activations", .fate = kChanged, .ours = "workload.train.memory.offload",
     .note = "with memory.activation_checkpointing", .words = "1=[activations]|0="},
    unneeded("--activation_loading_horizon", kGuideSpeed),
    unneeded("--limit_all_gathers", kGuideSpeed),
    {.key = "--sharding_strategy", .ours = "workload.train.parallelism.strategy", .initial = "full",
     .words = "full=full|hybrid=hybrid|shard_grad_op=shard_grad_op|no_shard=no_shard"},
    {.key = "--cpu_offload", .ours = "workload.train.memory.offload",
     .words = "1=[optimizer, parameters]|0="},
    {.key = "--lr", .ours = "workload.train.optimizer.lr", .initial = "0.0001",
     .quantity = Quantity::kPeakLr},
    {.key = "--lr_decay_style", .fate = kChanged, .ours = "workload.train.schedule.name",
     .note = "the guide's rate falls to 0 and is held at --min_lr, ours ends there",
     .initial = "cosine", .words = "constant=constant|linear=linear|cosine=cosine"},
    {.key = "--lr_decay_iters", .fate = kChanged, .ours = "workload.train.schedule.decay_steps",
     .note = "less the warm-up", .quantity = Quantity::kDecayEnd},
    {.key = "--min_lr", .fate = kChanged, .ours = "workload.train.schedule.min_lr_ratio",
     .note = "divided by --lr", .initial = "1e-05", .quantity = Quantity::kMinLr},
    {.key = "--warmup", .fate = kChanged, .ours = "workload.train.schedule.warmup_steps",
     .note = "times the steps until the decay ends", .initial = "0.0032",
     .quantity = Quantity::kWarmupFraction},
    impossible("--plateau", "--lr_decay_style plateau", "0|0.0"),
    {.key = "--dataset", .fate = kChanged, .ours = "workload.train.data.path",
     .note = "a path; hpctl loads no data set by its name", .initial = "allenai/c4",
     .take = take_guide_dataset},
    unneeded("--dataset_config_name", "a part of --dataset"),
    unneeded("--train_split", "a part of --dataset"),
    unneeded("--val_split", "a part of --dataset"),
    {.key = "--tokenizer", .fate = kChanged, .ours = "workload.train.data.tokenizer",
     .note = "tokenizer.json of that directory", .initial = "EleutherAI/gpt-neox-20b",
     .take = take_guide_tokenizer},
    {.key = "--resume_from_checkpoint", .fate = kChanged, .ours = "checkpoint.resume",
     .note = "the directory of --checkpoint_dir: latest, the default; others are not possible",
     .take = take_guide_resume},
    {.key = "--checkpoint_dir", .ours = "checkpoint.dir"},
    {.key = "--checkpoint_freq", .ours = "checkpoint.every_steps", .initial = "1000"},
    {.key = "--validation_freq", .fate = kChanged,
     .note = kGuideValidation},
    {.key = "--validation_batches", .fate = kChanged, .ours = "workload.train.validation.sequences",
     .note = "left out with --validation_freq", .take = take_guide_batches},
};
// clang-format on

// RMSNorm's weights decay there, biases do not.
constexpr Habit kGuideHabits[] = {
    {"workload.train.optimizer.no_decay", "[biases]", "the guide decays all but biases"},
};

}  // namespace

const Tool& fsdp_guide_tool() {
  static const Tool tool = {"FSDP guide", "TRAINING_ARGS of train.py", kGuideRows, kGuideHabits,
                            finish_guide};
  return tool;
}

}  // namespace hpctl::migrate
