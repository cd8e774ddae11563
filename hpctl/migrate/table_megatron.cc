// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's arguments of pretrain_gpt.py. Names and defaults: megatron/training/arguments.py.
// Which architecture they mean follows from several of them together.
#include <cmath>

#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

void take_megatron_data(const Given& given, const Document&, Draft& draft) {
  const std::vector<std::string>& words = given.items;
  if (words.size() == 1) {
    draft.set("workload.train.data.path", yaml_text(words[0]), given);
    return draft.report(kTaken, given, "workload.train.data.path: " + words[0]);
  }
  std::string blend;
  const bool has_weights = words.size() % 2 == 0 && number_of(words[0]).has_value();
  for (size_t i = 0; i < words.size(); i += has_weights ? 2 : 1) {
    blend += (blend.empty() ? "" : ", ") + yaml_text(words[has_weights ? i + 1 : i]) + ": " +
             (has_weights ? words[i] : "1");
  }
  draft.set("workload.train.data.blend", "{" + blend + "}", given);
  draft.report(kTaken, given, "workload.train.data.blend: {" + blend + "}");
}

void take_split(const Given& given, const Document&, Draft& draft) {
  std::string list;
  for (const char c : given.text) list += c == ',' ? ", " : std::string(c == ' ' ? 0 : 1, c);
  draft.set("workload.train.data.split", "[" + list + "]", given);
  draft.report(kTaken, given, "workload.train.data.split: [" + list + "]");
}

void take_megatron_load(const Given& given, const Document& document, Draft& draft) {
  if (given.text == document.text_of("--save")) {
    return draft.report(kUnneeded, given, "checkpoint.resume: latest is the default");
  }
  draft.report(kImpossible, given,
               "a checkpoint of Megatron-LM; convert it to Hugging Face's form, then `hpctl "
               "checkpoint import` it and name it in checkpoint.resume");
}

void take_precision_flag(const Given& given, const Document&, Draft& draft) {
  const std::string word = given.key.substr(2);
  draft.set("workload.train.precision", word, given);
  draft.report(kTaken, given, "workload.train.precision: " + word);
}

void take_granularity(const Given& given, const Document&, Draft& draft) {
  const bool is_full = given.text == "full";
  const std::string ours = is_full ? "full" : "operations";
  draft.set("workload.train.memory.activation_checkpointing", ours, given);
  draft.report(is_full ? kTaken : kChanged, given,
               "workload.train.memory.activation_checkpointing: " + ours +
                   (is_full ? "" : ", which also computes norms again"));
}

// START INCREMENT SAMPLES: one more INCREMENT after each equal part of SAMPLES.
void take_rampup(const Given& given, const Document& document, Draft& draft) {
  std::vector<double> n;
  for (const std::string& word : given.items) n.push_back(number_of(word).value_or(0));
  const double global = number_of(document.text_of("--global-batch-size")).value_or(0);
  if (n.size() != 3 || n[0] < 1 || n[1] < 1 || n[2] < 1 || global <= n[0]) {
    return draft.report(kImpossible, given,
                        "expected START INCREMENT SAMPLES, and a larger --global-batch-size");
  }
  const auto parts = static_cast<int64_t>((global - n[0]) / n[1]);
  constexpr int64_t kMostParts = 1000;
  if (parts < 1 || parts > kMostParts) {
    return draft.report(kImpossible, given, "batch.ramp takes up to 1000 increments");
  }
  std::string ramp;
  for (int64_t i = 0; i < parts; ++i) {
    const double until = std::ceil(n[2] / static_cast<double>(parts) * static_cast<double>(i + 1));
    ramp += (ramp.empty() ? "" : ", ") + number_text(until) + ": " +
            number_text(n[0] + static_cast<double>(i) * n[1]);
  }
  draft.set("workload.train.batch.ramp", "{" + ramp + "}", given);
  draft.report(
      kChanged, given,
      "workload.train.batch.ramp: " + number_text(static_cast<double>(parts)) + " increments");
}

void take_wsd_style(const Given& given, const Document& document, Draft& draft) {
  if (document.text_of("--lr-decay-style") != "WSD") {
    return draft.report(kUnneeded, given, "without effect unless --lr-decay-style WSD");
  }
  const std::string ours = given.text == "minus_sqrt" ? "sqrt" : given.text;
  if (!is_one_of(ours, "linear|sqrt|cosine")) {
    return draft.report(kImpossible, given, "schedule.decay is linear, sqrt or cosine");
  }
  draft.set("workload.train.schedule.decay", ours, given);
  draft.report(kTaken, given, "workload.train.schedule.decay: " + ours);
}

void take_tensorboard(const Given& given, const Document&, Draft& draft) {
  draft.set("workload.train.metrics.tensorboard", "true", given);
  draft.report(kChanged, given, "workload.train.metrics.tensorboard: true, in the job's directory");
}

bool has(const Document& document, std::string_view key) { return !document.text_of(key).empty(); }

Given megatron_default(const std::string& what) {
  return {what, "", {}, "default of Megatron-LM's " + what, true};
}

// The architecture; "" = none of ours, which is reported.
std::string architecture_of(const Document& d, Draft& draft) {
  const bool swiglu = has(d, "--swiglu");
  const bool rms = d.text_of("--normalization") == "RMSNorm";
  const bool rope = d.text_of("--position-embedding-type") == "rope" ||
                    has(d, "--use-rotary-position-embeddings");
  const bool plain = has(d, "--disable-bias-linear");
  const bool query_bias = has(d, "--add-qkv-bias");
  const bool query_norm = has(d, "--qk-layernorm");
  if (swiglu && rms && rope && plain && !(query_bias && query_norm)) {
    if (query_norm) return "qwen3";
    return query_bias ? "qwen2" : "llama";
  }
  if (!swiglu && !rms && !rope && !plain && !query_bias && !query_norm) return "gpt";
  std::string missing;
  const auto lacks = [&](bool given, const char* option) {
    if (!given) missing += std::string(missing.empty() ? "" : ", ") + option;
  };
  lacks(swiglu, "--swiglu");
  lacks(rms, "--normalization RMSNorm");
  lacks(rope, "--position-embedding-type rope");
  lacks(plain, "--disable-bias-linear");
  draft.report(
      kImpossible, d.file,
      "no architecture here has these options; Llama and Qwen also need " +
          (missing.empty() ? "one of --add-qkv-bias and --qk-layernorm left out" : missing) +
          ", GPT none of them");
  return "";
}

void set_megatron_vocab(const Document& d, Draft& draft) {
  const auto vocab = number_of(d.text_of("--vocab-size"));
  if (!vocab) return;
  const double unit = number_of(d.text_of("--make-vocab-size-divisible-by")).value_or(128);
  const double rows = std::ceil(*vocab / unit) * unit;
  Given given = megatron_default("--make-vocab-size-divisible-by");
  given.source = d.file + ": --vocab-size";
  draft.set("workload.train.model.vocab", number_text(rows), given);
  if (rows == *vocab) return;
  draft.report(
      kChanged, given.source,
      "workload.train.model.vocab: " + number_text(rows) + ", a multiple of " + number_text(unit));
}

void finish_megatron(const Document& d, Draft& draft) {
  const std::string arch = architecture_of(d, draft);
  if (arch.empty()) return;
  Given rule = megatron_default("architecture");
  draft.set("workload.train.model.arch", arch, rule);
  const auto dim = number_of(d.text_of("--hidden-size"));
  const bool is_gpt = arch == "gpt";
  if (dim && !has(d, "--ffn-hidden-size")) {
    const double ffn = is_gpt ? 4 * *dim : std::floor(4 * *dim * 2 / 3 / 64) * 64;
    draft.set("workload.train.model.ffn", number_text(ffn), megatron_default("--ffn-hidden-size"));
  }
  const std::string groups =
      has(d, "--group-query-attention") ? d.text_of("--num-query-groups") : "";
  const std::string heads = d.text_of("--num-attention-heads");
  if (!groups.empty() || !heads.empty()) {
    draft.set("workload.train.model.kv_heads", groups.empty() ? heads : groups,
              megatron_default("--num-query-groups"));
  }
  draft.set("workload.train.model.tied_embeddings",
            has(d, "--untie-embeddings-and-output-weights") ? "false" : "true",
            megatron_default("--untie-embeddings-and-output-weights"));
  if (!is_gpt)
    draft.set("workload.train.model.rope_theta", "10000", megatron_default("--rotary-base"));
  const auto channels = number_of(d.text_of("--kv-channels"));
  const auto count = number_of(heads);
  if (channels && dim && count && *channels * *count != *dim) {
    draft.set("workload.train.model.head_dim", number_text(*channels),
              megatron_default("--kv-channels"));
  }
  set_megatron_vocab(d, draft);
  if (!has(d, "--bf16") && !has(d, "--fp16")) {
    draft.set("workload.train.precision", "fp32", megatron_default("--bf16"));
  }
  if (draft.find("workload.train.parallelism.strategy") == nullptr) {
    draft.set("workload.train.parallelism.strategy", "no_shard",
              megatron_default("--use-distributed-optimizer"));
  }
}

constexpr std::string_view kMegatronParallel =
    "the built-in trainer divides data, and layers in fp32 on CPUs only; a program that has more "
    "runs as a command";
constexpr std::string_view kMegatronSpeed = "without effect on what is computed";
constexpr std::string_view kMegatronLogs = "metrics.jsonl of the job has every step";
constexpr std::string_view kMegatronFaults = "hpctl finds faults and restarts by itself";
constexpr std::string_view kTokens = "the data of --data-path are tokens already";
constexpr std::string_view kExperts = "the built-in trainer has no experts";
constexpr std::string_view kEight = "the built-in trainer computes in bf16, fp16 or fp32";
constexpr std::string_view kDropout = "the built-in trainer has no dropout";
constexpr std::string_view kArchitecture = "with the others of the architecture";

// clang-format off
constexpr Row kMegatronRows[] = {
    {.key = "--num-layers", .ours = "workload.train.model.layers"},
    {.key = "--hidden-size", .ours = "workload.train.model.dim"},
    {.key = "--ffn-hidden-size", .ours = "workload.train.model.ffn"},
    {.key = "--num-attention-heads", .ours = "workload.train.model.heads"},
    {.key = "--group-query-attention", .ours = "workload.train.model.kv_heads",
     .note = kArchitecture, .words = "true="},
    {.key = "--num-query-groups", .ours = "workload.train.model.kv_heads", .note = kArchitecture,
     .take = take_later},
    {.key = "--kv-channels", .ours = "workload.train.model.head_dim", .note = kArchitecture,
     .take = take_later},
    {.key = "--max-position-embeddings", .ours = "workload.train.model.max_positions"},
    {.key = "--position-embedding-type", .ours = "workload.train.model.arch", .note = kArchitecture,
     .words = "rope=|learned_absolute="},
    {.key = "--use-rotary-position-embeddings", .ours = "workload.train.model.arch",
     .note = kArchitecture, .words = "true="},
    {.key = "--rotary-base", .ours = "workload.train.model.rope_theta"},
    impossible("--rotary-percent", "the whole head is turned", "1|1.0"),
    impossible("--rotary-seq-len-interpolation-factor", "rope_scaling is Llama 3.1's", "1"),
    {.key = "--use-rope-scaling", .ours = "workload.train.model.rope_scaling.factor",
     .note = "8, as Llama 3.1 has it", .words = "true=8"},
    {.key = "--rope-scaling-factor", .ours = "workload.train.model.rope_scaling.factor"},
    {.key = "--swiglu", .ours = "workload.train.model.arch", .note = kArchitecture,
     .words = "true="},
    {.key = "--normalization", .ours = "workload.train.model.arch", .note = kArchitecture,
     .words = "RMSNorm=|LayerNorm="},
    {.key = "--norm-epsilon", .ours = "workload.train.model.norm_eps"},
    {.key = "--layernorm-epsilon", .ours = "workload.train.model.norm_eps"},
    {.key = "--apply-layernorm-1p", .fate = kChanged,
     .note = "the same function; weights are stored as they are"},
    {.key = "--disable-bias-linear", .ours = "workload.train.model.arch", .note = kArchitecture,
     .words = "true="},
    {.key = "--add-qkv-bias", .ours = "workload.train.model.arch", .note = "qwen2",
     .words = "true="},
    {.key = "--qk-layernorm", .ours = "workload.train.model.arch", .note = "qwen3",
     .words = "true="},
    {.key = "--untie-embeddings-and-output-weights", .ours = "workload.train.model.tied_embeddings",
     .note = "false", .words = "true="},
    {.key = "--vocab-size", .fate = kChanged, .ours = "workload.train.model.vocab",
     .note = "up to a multiple of --make-vocab-size-divisible-by", .take = take_later},
    {.key = "--make-vocab-size-divisible-by", .ours = "workload.train.model.vocab",
     .note = "with --vocab-size", .take = take_later},
    {.key = "--init-method-std", .fate = kChanged,
     .note = "the built-in trainer has its own initial weights"},
    {.key = "--init-method-xavier-uniform", .fate = kChanged,
     .note = "the built-in trainer has its own initial weights"},
    {.key = "--hidden-dropout", .fate = kChanged, .note = kDropout, .initial = "0.1",
     .off = "0|0.0"},
    {.key = "--attention-dropout", .fate = kChanged, .note = kDropout, .initial = "0.1",
     .off = "0|0.0"},
    impossible("--squared-relu", "no architecture here has it"),
    unneeded("--openai-gelu", "GPT has GELU in its tanh form"),
    impossible("--multi-latent-attention", "no architecture here has it"),
    impossible("--window-size", "arch mistral has model.sliding_window; set both with --set"),
    {.key = "--seq-length", .ours = "workload.train.data.seq_len"},
    {.key = "--micro-batch-size", .ours = "workload.train.batch.micro",
     .quantity = Quantity::kMicroBatch},
    {.key = "--global-batch-size", .ours = "workload.train.batch.global",
     .quantity = Quantity::kGlobalBatch},
    {.key = "--rampup-batch-size", .fate = kChanged, .ours = "workload.train.batch.ramp",
     .note = "START INCREMENT SAMPLES as the samples until which each batch lasts",
     .take = take_rampup},
    {.key = "--train-iters", .ours = "workload.train.steps", .quantity = Quantity::kSteps},
    {.key = "--train-samples", .fate = kChanged, .ours = "workload.train.steps",
     .note = "divided by the global batch", .quantity = Quantity::kSamples},
    impossible("--exit-interval", "steps says when the job ends"),
    unneeded("--exit-duration-in-mins", "slurm.time, and slurm.requeue_at_limit to go on"),
    unneeded("--exit-signal-handler", "SIGTERM saves a checkpoint"),
    {.key = "--optimizer", .ours = "workload.train.optimizer", .note = "AdamW is the only one",
     .words = "adam="},
    {.key = "--lr", .ours = "workload.train.optimizer.lr", .quantity = Quantity::kPeakLr},
    {.key = "--min-lr", .fate = kChanged, .ours = "workload.train.schedule.min_lr_ratio",
     .note = "divided by --lr", .initial = "0", .quantity = Quantity::kMinLr},
    impossible("--decoupled-lr", "all parameters have one learning rate"),
    impossible("--decoupled-min-lr", "all parameters have one learning rate"),
    {.key = "--lr-decay-style", .ours = "workload.train.schedule.name", .initial = "linear",
     .words = "linear=linear|cosine=cosine|constant=constant|WSD=wsd"},
    {.key = "--lr-decay-iters", .fate = kChanged, .ours = "workload.train.schedule.decay_steps",
     .note = "less the warm-up", .quantity = Quantity::kDecayEnd},
    {.key = "--lr-decay-samples", .fate = kChanged, .ours = "workload.train.schedule.decay_steps",
     .note = "less the warm-up, with schedule.unit: samples",
     .quantity = Quantity::kDecayEndSamples},
    {.key = "--lr-warmup-iters", .ours = "workload.train.schedule.warmup_steps",
     .quantity = Quantity::kWarmupSteps},
    {.key = "--lr-warmup-samples", .ours = "workload.train.schedule.warmup_steps",
     .note = "with schedule.unit: samples", .quantity = Quantity::kWarmupSamples},
    {.key = "--lr-warmup-fraction", .fate = kChanged,
     .ours = "workload.train.schedule.warmup_steps", .note = "times the steps until the decay ends",
     .quantity = Quantity::kWarmupFraction},
    impossible("--lr-warmup-init", "the warm-up begins at 0", "0|0.0"),
    {.key = "--lr-wsd-decay-iters", .ours = "workload.train.schedule.decay_steps",
     .quantity = Quantity::kDecayLength},
    {.key = "--lr-wsd-decay-samples", .ours = "workload.train.schedule.decay_steps",
     .note = "with schedule.unit: samples", .quantity = Quantity::kDecayLengthSamples},
    {.key = "--lr-wsd-decay-style", .ours = "workload.train.schedule.decay",
     .note = "exponential, the default there, is not possible", .initial = "exponential",
     .take = take_wsd_style},
    unneeded("--override-opt_param-scheduler", "the job file counts"),
    unneeded("--use-checkpoint-opt_param-scheduler", "the job file counts"),
    {.key = "--weight-decay", .ours = "workload.train.optimizer.weight_decay", .initial = "0.01"},
    impossible("--start-weight-decay", "weight decay is constant"),
    impossible("--end-weight-decay", "weight decay is constant"),
    impossible("--weight-decay-incr-style", "weight decay is constant", "constant"),
    {.key = "--clip-grad", .ours = "workload.train.optimizer.clip"},
    {.key = "--adam-beta1", .ours = "workload.train.optimizer.beta1"},
    {.key = "--adam-beta2", .ours = "workload.train.optimizer.beta2", .initial = "0.999"},
    {.key = "--adam-eps", .ours = "workload.train.optimizer.eps"},
    {.key = "--seed", .ours = "workload.train.seed", .initial = "1234"},
    {.key = "--fp16", .ours = "workload.train.precision", .take = take_precision_flag},
    {.key = "--bf16", .ours = "workload.train.precision", .take = take_precision_flag},
    impossible("--loss-scale", "the scale is dynamic"),
    {.key = "--initial-loss-scale", .ours = "workload.train.loss_scale.initial"},
    {.key = "--min-loss-scale", .ours = "workload.train.loss_scale.min"},
    {.key = "--loss-scale-window", .ours = "workload.train.loss_scale.growth_interval"},
    {.key = "--hysteresis", .ours = "workload.train.loss_scale.hysteresis"},
    {.key = "--grad-reduce-in-bf16", .fate = kChanged, .note = "reductions are fp32"},
    unneeded("--accumulate-allreduce-grads-in-fp32", "reductions are fp32"),
    unneeded("--attention-softmax-in-fp32", "the softmax is fp32"),
    impossible("--fp8-format", kEight),
    unneeded("--fp8-amax-history-len", "a part of --fp8-format"),
    unneeded("--fp8-amax-compute-algo", "a part of --fp8-format"),
    unneeded("--fp8-param-gather", "a part of --fp8-format"),
    unneeded("--fp8-recipe", "a part of --fp8-format"),
    unneeded("--calculate-per-token-loss", "the loss is the mean over all tokens of the batch"),
    impossible("--tensor-model-parallel-size", kMegatronParallel, "1"),
    impossible("--pipeline-model-parallel-size", kMegatronParallel, "1"),
    impossible("--num-layers-per-virtual-pipeline-stage", kMegatronParallel),
    impossible("--context-parallel-size", kMegatronParallel, "1"),
    unneeded("--cp-comm-type", "a part of context parallelism"),
    impossible("--expert-model-parallel-size", kExperts, "1"),
    impossible("--num-experts", kExperts),
    unneeded("--sequence-parallel", "a part of tensor parallelism"),
    unneeded("--tp-comm-overlap", "a part of tensor parallelism"),
    {.key = "--use-distributed-optimizer", .ours = "workload.train.parallelism.strategy",
     .words = "true=optimizer"},
    unneeded("--use-megatron-fsdp", "--data-parallel-sharding-strategy decides"),
    {.key = "--use-torch-fsdp2", .ours = "workload.train.parallelism.strategy",
     .words = "true=full"},
    {.key = "--data-parallel-sharding-strategy", .ours = "workload.train.parallelism.strategy",
     .words = ""
     "no_shard=no_shard|optim=optimizer|optim_grads=shard_grad_op|optim_grads_params=full"},
    unneeded("--overlap-grad-reduce", kMegatronSpeed),
    unneeded("--overlap-param-gather", kMegatronSpeed),
    unneeded("--ddp-bucket-size", kMegatronSpeed),
    unneeded("--ddp-average-in-collective", kMegatronSpeed),
    {.key = "--recompute-activations", .fate = kChanged,
     .ours = "workload.train.memory.activation_checkpointing",
     .note = "the attention is computed again, and norms too", .words = "true=operations"},
    {.key = "--recompute-granularity", .fate = kChanged,
     .ours = "workload.train.memory.activation_checkpointing",
     .note = "full: full; selective: operations", .take = take_granularity},
    unneeded("--recompute-method", "every block is recomputed"),
    unneeded("--recompute-num-layers", "memory.every, with activation_checkpointing: selective"),
    unneeded("--recompute-modules", "activation_checkpointing: operations chooses"),
    unneeded("--distribute-saved-activations", "a part of tensor parallelism"),
    {.key = "--data-path", .ours = "workload.train.data.path", .note = "several: data.blend",
     .take = take_megatron_data},
    {.key = "--split", .ours = "workload.train.data.split", .initial = "969,30,1",
     .take = take_split},
    impossible("--train-data-path", "hpctl splits one data set: data.path and data.split"),
    impossible("--valid-data-path", "hpctl splits one data set: data.path and data.split"),
    impossible("--test-data-path", "hpctl splits one data set: data.path and data.split"),
    impossible("--mock-data", "the trainer reads data; give a text with --set "
               "workload.train.data.path=PATH and leave this out"),
    unneeded("--data-cache-path", "no index is written"),
    unneeded("--vocab-file", kTokens),
    unneeded("--merge-file", kTokens),
    unneeded("--tokenizer-type", kTokens),
    {.key = "--tokenizer-model", .ours = "workload.train.data.tokenizer"},
    unneeded("--tiktoken-pattern", kTokens),
    {.key = "--reset-position-ids", .ours = "workload.train.data.mask", .words = "true=documents"},
    {.key = "--reset-attention-mask", .ours = "workload.train.data.mask",
     .words = "true=documents"},
    unneeded("--eod-mask-loss", "a part of data.mask: documents; alone it is data.mask: borders"),
    unneeded("--num-workers", kMegatronSpeed),
    unneeded("--dataloader-type", "samples come in an order that depends on the seed"),
    unneeded("--no-create-attention-mask-in-dataloader", kMegatronSpeed),
    unneeded("--no-mmap-bin-files", kMegatronSpeed),
    {.key = "--save", .ours = "checkpoint.dir"},
    {.key = "--load", .fate = kChanged, .ours = "checkpoint.resume",
     .note = "the directory of --save: latest, the default; others are not possible",
     .take = take_megatron_load},
    {.key = "--save-interval", .ours = "checkpoint.every_steps"},
    {.key = "--save-retain-interval", .ours = "checkpoint.keep_every"},
    impossible("--finetune", "import the weights, and name them in checkpoint.resume"),
    impossible("--no-load-optim", "a checkpoint is loaded whole"),
    impossible("--no-load-rng", "a checkpoint is loaded whole"),
    unneeded("--no-save-optim",
             "a checkpoint has the whole state; `hpctl checkpoint export` writes weights"),
    unneeded("--no-save-rng",
             "a checkpoint has the whole state; `hpctl checkpoint export` writes weights"),
    unneeded("--ckpt-format", "checkpoints are read by any number of workers"),
    unneeded("--use-dist-ckpt", "checkpoints are read by any number of workers"),
    unneeded("--async-save", "saves are always beside the steps"),
    unneeded("--use-persistent-ckpt-worker", "saves are always beside the steps"),
    unneeded("--ckpt-fully-parallel-save", "every worker writes its part"),
    unneeded("--dist-ckpt-strictness", "a checkpoint is loaded whole"),
    unneeded("--auto-detect-ckpt-format", "checkpoints are read by any number of workers"),
    {.key = "--eval-interval", .ours = "workload.train.validation.every_steps", .initial = "1000",
     .quantity = Quantity::kEvalInterval},
    {.key = "--eval-iters", .fate = kChanged, .ours = "workload.train.validation.sequences",
     .note = "times the global batch", .initial = "100", .quantity = Quantity::kEvalBatches},
    unneeded("--log-interval", kMegatronLogs),
    unneeded("--log-throughput", kMegatronLogs),
    unneeded("--log-params-norm", kMegatronLogs),
    unneeded("--log-num-zeros-in-grad", kMegatronLogs),
    unneeded("--log-progress", kMegatronLogs),
    unneeded("--log-timers-to-tensorboard", kMegatronLogs),
    unneeded("--log-validation-ppl-to-tensorboard", kMegatronLogs),
    unneeded("--log-memory-to-tensorboard", kMegatronLogs),
    unneeded("--timing-log-level", kMegatronLogs),
    {.key = "--tensorboard-dir", .fate = kChanged, .ours = "workload.train.metrics.tensorboard",
     .note = "true: tensorboard/ of the job's directory", .take = take_tensorboard},
    unneeded("--tensorboard-log-interval", kMegatronLogs),
    unneeded("--tensorboard-queue-size", kMegatronLogs),
    {.key = "--wandb-project", .fate = kChanged,
     .note = "left out: metrics.tensorboard and metrics.jsonl are what there is"},
    unneeded("--wandb-exp-name", "a part of --wandb-project"),
    unneeded("--wandb-save-dir", "a part of --wandb-project"),
    unneeded("--profile", "metrics.trace_from and trace_steps write a trace"),
    unneeded("--profile-step-start", "metrics.trace_from and trace_steps write a trace"),
    unneeded("--profile-step-end", "metrics.trace_from and trace_steps write a trace"),
    unneeded("--profile-ranks", "metrics.trace_from and trace_steps write a trace"),
    unneeded("--use-pytorch-profiler", "metrics.trace_from and trace_steps write a trace"),
    unneeded("--distributed-timeout-minutes", kMegatronFaults),
    unneeded("--distributed-backend", "NCCL between GPUs, Gloo between CPUs"),
    unneeded("--enable-ft-package", kMegatronFaults),
    unneeded("--calc-ft-timeouts", kMegatronFaults),
    unneeded("--inprocess-restart", kMegatronFaults),
    unneeded("--log-straggler", "recovery.straggler tells them"),
    unneeded("--rerun-mode", "stability.reexecute repeats a bad step"),
    unneeded("--no-check-for-nan-in-loss-and-grad", "stability.policy decides about bad steps"),
    unneeded("--check-for-nan-in-loss-and-grad", "stability.policy decides about bad steps"),
    unneeded("--use-mcore-models", kMegatronSpeed),
    unneeded("--use-legacy-models", kMegatronSpeed),
    unneeded("--transformer-impl", kMegatronSpeed),
    unneeded("--attention-backend", "gpu.attention chooses the kernel"),
    unneeded("--use-flash-attn", "gpu.attention chooses the kernel"),
    unneeded("--cross-entropy-loss-fusion", kMegatronSpeed),
    unneeded("--no-rope-fusion", kMegatronSpeed),
    unneeded("--no-bias-dropout-fusion", kMegatronSpeed),
    unneeded("--no-bias-gelu-fusion", kMegatronSpeed),
    unneeded("--no-bias-swiglu-fusion", kMegatronSpeed),
    unneeded("--no-masked-softmax-fusion", kMegatronSpeed),
    unneeded("--no-gradient-accumulation-fusion", kMegatronSpeed),
    unneeded("--no-persist-layer-norm", kMegatronSpeed),
    unneeded("--deterministic-mode", "the default here"),
    unneeded("--manual-gc", "the trainer is no Python program"),
    unneeded("--manual-gc-interval", "the trainer is no Python program"),
    unneeded("--empty-unused-memory-level", kMegatronSpeed),
    unneeded("--enable-cuda-graph", kMegatronSpeed),
};
// clang-format on

}  // namespace

const Tool& megatron_tool() {
  static const Tool tool = {
      "Megatron-LM", "arguments of pretrain_gpt.py", kMegatronRows, {}, finish_megatron};
  return tool;
}

}  // namespace hpctl::migrate
