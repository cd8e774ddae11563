// SPDX-License-Identifier: Apache-2.0
// TrainingArguments of Hugging Face's Trainer, as JSON, YAML or arguments. Names and defaults:
// transformers/training_args.py of releases 4 and 5.
#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

void take_trainer_schedule(const Given& given, const Document& document, Draft& draft) {
  constexpr std::string_view kNames =
      "linear|cosine|cosine_with_min_lr|constant|constant_with_warmup|warmup_stable_decay";
  if (!is_one_of(given.text, kNames)) {
    return draft.report(kImpossible, given, "schedule.name is cosine, linear, wsd or constant");
  }
  std::string name = given.text.substr(0, given.text.find('_'));
  if (name == "warmup") name = "wsd";
  draft.set("workload.train.schedule.name", name, given);
  if (name == "wsd") draft.set("workload.train.schedule.decay", "cosine", given);
  if (name != "constant" && document.text_of("lr_scheduler_kwargs.min_lr_rate").empty() &&
      document.text_of("lr_scheduler_kwargs.min_lr_ratio").empty()) {
    draft.set_number(Quantity::kMinLrRatio, 0, given);
  }
  draft.report(kTaken, given, "workload.train.schedule.name: " + name);
}

// A number of steps, or below 1 a part of them.
void take_trainer_warmup(const Given& given, const Document&, Draft& draft) {
  const auto steps = number_of(given.text);
  if (!steps) return draft.report(kImpossible, given, "expected a number, found " + given.text);
  const bool is_part = *steps > 0 && *steps < 1;
  if (*steps > 0) {
    draft.set_number(is_part ? Quantity::kWarmupRatio : Quantity::kWarmupSteps, *steps, given);
  }
  draft.report(is_part ? kChanged : kTaken, given,
               std::string("workload.train.schedule.warmup_steps") +
                   (is_part ? ": that part of the steps" : ": " + given.text));
}

void take_flag(const Given& given, Draft& draft, const std::string& precision) {
  if (given.text != "true") return draft.report(kUnneeded, given, "off");
  draft.set("workload.train.precision", precision, given);
  draft.report(kTaken, given, "workload.train.precision: " + precision);
}
void take_trainer_bf16(const Given& given, const Document&, Draft& draft) {
  take_flag(given, draft, "bf16");
}
void take_trainer_fp16(const Given& given, const Document&, Draft& draft) {
  take_flag(given, draft, "fp16");
}

void take_fsdp(const Given& given, const Document&, Draft& draft) {
  std::string strategy;
  for (const std::string& item : given.items) {
    if (item == "full_shard" || item == "true") strategy = "full";
    if (item == "shard_grad_op") strategy = "shard_grad_op";
    if (item == "no_shard") strategy = "no_shard";
    if (item == "hybrid_shard") strategy = "hybrid";
    if (item == "hybrid_shard_zero2") {
      return draft.report(kImpossible, given, "strategy hybrid shards parameters too");
    }
    if (item == "offload") {
      draft.set("workload.train.memory.offload", "[optimizer, parameters]", given);
    }
  }
  if (strategy.empty()) return draft.report(kUnneeded, given, "off");
  draft.set("workload.train.parallelism.strategy", strategy, given);
  draft.report(kTaken, given, "workload.train.parallelism.strategy: " + strategy);
}

void take_save_steps(const Given& given, const Document& document, Draft& draft) {
  const std::string when = document.text_of("save_strategy");
  if (!when.empty() && when != "steps") {
    return draft.report(kUnneeded, given, "without effect with save_strategy " + when);
  }
  const auto steps = number_of(given.text);
  if (!steps || *steps < 1) {
    return draft.report(kImpossible, given, "checkpoint.every_steps is a number of steps");
  }
  draft.set("checkpoint.every_steps", given.text, given);
  draft.report(kTaken, given, "checkpoint.every_steps: " + given.text);
}

// finish_trainer() says that it is not possible where it counts.
void take_epochs(const Given& given, const Document& document, Draft& draft) {
  const auto steps = number_of(document.text_of("max_steps"));
  if (steps && *steps > 0) draft.report(kUnneeded, given, "max_steps counts");
}

// A script's --job-name counts.
void take_run_name(const Given& given, const Document&, Draft& draft) {
  if (draft.find("name") != nullptr) return draft.report(kUnneeded, given, "the job has a name");
  draft.set("name", yaml_text(given.text), given);
  draft.report(kTaken, given, "name: " + given.text);
}

void take_reports(const Given& given, const Document&, Draft& draft) {
  bool tensorboard = false;
  bool more = false;
  for (const std::string& item : given.items) {
    tensorboard = tensorboard || item == "tensorboard" || item == "all";
    more = more || !is_one_of(item, "tensorboard|none");
  }
  if (tensorboard || !more) {
    draft.set("workload.train.metrics.tensorboard", tensorboard ? "true" : "false", given);
  }
  if (more) {
    return draft.report(kChanged, given, "metrics.tensorboard and metrics.jsonl are what there is");
  }
  draft.report(
      kTaken, given,
      std::string("workload.train.metrics.tensorboard: ") + (tensorboard ? "true" : "false"));
}

void finish_trainer(const Document& d, Draft& draft) {
  const Given rule = {"", "", {}, "default of TrainingArguments", true};
  if (draft.find("workload.train.precision") == nullptr) {
    draft.set("workload.train.precision", "fp32", rule);
  }
  if (draft.find("workload.train.parallelism.strategy") == nullptr) {
    draft.set("workload.train.parallelism.strategy", "no_shard", rule);
  }
  const auto steps = number_of(d.text_of("max_steps"));
  if (!steps || *steps < 1) {
    const auto epochs = number_of(d.text_of("num_train_epochs"));
    draft.set_number(Quantity::kEpochs, epochs.value_or(3), rule);
  }
}

constexpr std::string_view kTrainerLogs = "metrics.jsonl of the job has every step";
constexpr std::string_view kHub =
    "nothing goes to the Hub; `hpctl checkpoint export` writes a model";
constexpr std::string_view kTrainerSpeed = "without effect on what is computed";
constexpr std::string_view kMetrics = "validation tells loss and perplexity";
constexpr std::string_view kTrainerValidation =
    "left out: the Trainer has a separate data set for it, hpctl a part of data.split; give "
    "data.split and validation.every_steps with --set";
constexpr std::string_view kMethod = "the built-in trainer has no such method";

// clang-format off
constexpr Row kTrainerRows[] = {
    {.key = "output_dir", .ours = "checkpoint.dir"},
    unneeded("overwrite_output_dir", "`hpctl submit --fresh` begins anew"),
    unneeded("do_train", "a job trains"),
    unneeded("do_eval", "validation.every_steps decides"),
    impossible("do_predict", "a job trains", "false"),
    {.key = "model_name_or_path", .fate = kChanged, .note = "give the model's config.json too; for "
     "its weights `hpctl checkpoint import` it and name it in checkpoint.resume"},
    {.key = "tokenizer_name", .ours = "workload.train.data.tokenizer"},
    {.key = "dataset_name", .fate = kChanged, .ours = "workload.train.data.path",
     .note = "a path; hpctl loads no data set by its name"},
    {.key = "train_file", .ours = "workload.train.data.path"},
    {.key = "block_size", .ours = "workload.train.data.seq_len"},
    {.key = "max_seq_length", .ours = "workload.train.data.seq_len"},
    {.key = "per_device_train_batch_size", .ours = "workload.train.batch.micro", .initial = "8",
     .quantity = Quantity::kMicroBatch},
    {.key = "gradient_accumulation_steps", .fate = kChanged, .ours = "workload.train.batch.global",
     .note = "accumulation x micro x workers", .initial = "1", .quantity = Quantity::kAccumulation},
    unneeded("per_device_eval_batch_size", "validation takes batch.micro"),
    unneeded("auto_find_batch_size", "batch.micro: auto is chosen by the plan"),
    {.key = "num_train_epochs", .fate = kImpossible,
     .note = "steps needs the number of sequences, which no file says; without effect with "
     "max_steps", .take = take_epochs},
    {.key = "max_steps", .ours = "workload.train.steps", .off = "-1", .quantity = Quantity::kSteps},
    {.key = "learning_rate", .ours = "workload.train.optimizer.lr", .initial = "5e-5",
     .quantity = Quantity::kPeakLr},
    {.key = "lr_scheduler_type", .ours = "workload.train.schedule.name",
     .note = "linear, cosine, cosine_with_min_lr, constant, constant_with_warmup; "
     "warmup_stable_decay: wsd; others are not possible", .initial = "linear",
     .take = take_trainer_schedule},
    {.key = "lr_scheduler_kwargs.min_lr", .fate = kChanged,
     .ours = "workload.train.schedule.min_lr_ratio", .note = "divided by learning_rate",
     .quantity = Quantity::kMinLr},
    {.key = "lr_scheduler_kwargs.min_lr_rate", .ours = "workload.train.schedule.min_lr_ratio",
     .quantity = Quantity::kMinLrRatio},
    {.key = "lr_scheduler_kwargs.min_lr_ratio", .ours = "workload.train.schedule.min_lr_ratio",
     .quantity = Quantity::kMinLrRatio},
    {.key = "lr_scheduler_kwargs.num_decay_steps", .ours = "workload.train.schedule.decay_steps",
     .quantity = Quantity::kDecayLength},
    unneeded("lr_scheduler_kwargs.num_stable_steps", "what is neither warm-up nor decay"),
    {.key = "lr_scheduler_kwargs.decay_type", .ours = "workload.train.schedule.decay",
     .words = "cosine=cosine|linear=linear|1-sqrt=sqrt"},
    {.key = "warmup_steps", .ours = "workload.train.schedule.warmup_steps",
     .note = "below 1: a part of the steps", .take = take_trainer_warmup},
    {.key = "warmup_ratio", .fate = kChanged, .ours = "workload.train.schedule.warmup_steps",
     .note = "times the steps", .off = "0|0.0", .quantity = Quantity::kWarmupRatio},
    {.key = "optim", .ours = "workload.train.optimizer", .note = "AdamW is the only one",
     .words = "adamw_torch=|adamw_torch_fused=|adamw_hf=|adamw_apex_fused="},
    impossible("optim_args", "AdamW is the only one"),
    impossible("optim_target_modules", "AdamW is the only one"),
    {.key = "weight_decay", .ours = "workload.train.optimizer.weight_decay", .initial = "0"},
    {.key = "adam_beta1", .ours = "workload.train.optimizer.beta1"},
    {.key = "adam_beta2", .ours = "workload.train.optimizer.beta2", .initial = "0.999"},
    {.key = "adam_epsilon", .ours = "workload.train.optimizer.eps"},
    {.key = "max_grad_norm", .ours = "workload.train.optimizer.clip"},
    impossible("label_smoothing_factor", kMethod, "0|0.0"),
    impossible("neftune_noise_alpha", kMethod),
    unneeded("average_tokens_across_devices", "the loss is the mean over all tokens of the batch"),
    {.key = "bf16", .ours = "workload.train.precision", .note = "true: bf16",
     .take = take_trainer_bf16},
    {.key = "fp16", .ours = "workload.train.precision", .note = "true: fp16",
     .take = take_trainer_fp16},
    unneeded("half_precision_backend", "precision decides"),
    unneeded("fp16_opt_level", "precision decides"),
    unneeded("bf16_full_eval", "validation has the precision of training"),
    unneeded("fp16_full_eval", "validation has the precision of training"),
    unneeded("tf32", "precision decides"),
    {.key = "gradient_checkpointing", .ours = "workload.train.memory.activation_checkpointing",
     .initial = "false", .words = "true=full|false=none"},
    unneeded("gradient_checkpointing_kwargs", kTrainerSpeed),
    {.key = "fsdp", .ours = "workload.train.parallelism.strategy", .note = "full_shard: full; "
     "shard_grad_op, no_shard; hybrid_shard: hybrid; offload: memory.offload", .take = take_fsdp},
    {.key = "fsdp_config.activation_checkpointing",
     .ours = "workload.train.memory.activation_checkpointing", .words = "true=full|false="},
    unneeded("fsdp_config.fsdp_version", kTrainerSpeed),
    unneeded("fsdp_config.version", kTrainerSpeed),
    unneeded("fsdp_config.min_num_params", "every block is a unit"),
    unneeded("fsdp_config.transformer_layer_cls_to_wrap", "every block is a unit"),
    unneeded("fsdp_config.backward_prefetch", kTrainerSpeed),
    unneeded("fsdp_config.forward_prefetch", kTrainerSpeed),
    unneeded("fsdp_config.limit_all_gathers", kTrainerSpeed),
    unneeded("fsdp_config.use_orig_params", kTrainerSpeed),
    unneeded("fsdp_config.sync_module_states", "all workers begin with the same weights"),
    unneeded("fsdp_config.cpu_ram_efficient_loading", "every worker reads its part"),
    impossible("fsdp_config.xla", "workers are CPUs or GPUs", "false"),
    unneeded("fsdp_min_num_params", "every block is a unit"),
    unneeded("fsdp_transformer_layer_cls_to_wrap", "every block is a unit"),
    unneeded("deepspeed", "give that file beside this one"),
    unneeded("ddp_find_unused_parameters", "every parameter has a gradient"),
    unneeded("ddp_bucket_cap_mb", kTrainerSpeed),
    unneeded("ddp_broadcast_buffers", kTrainerSpeed),
    unneeded("ddp_backend", "NCCL between GPUs, Gloo between CPUs"),
    unneeded("ddp_timeout", "hpctl finds faults and restarts by itself"),
    unneeded("local_rank", "hpctl numbers the workers"),
    unneeded("torch_compile", kTrainerSpeed),
    unneeded("torch_compile_backend", kTrainerSpeed),
    unneeded("torch_compile_mode", kTrainerSpeed),
    unneeded("use_liger_kernel", kTrainerSpeed),
    unneeded("liger_kernel_config", kTrainerSpeed),
    unneeded("use_cache", kTrainerSpeed),
    unneeded("torch_empty_cache_steps", kTrainerSpeed),
    unneeded("logging_dir", kTrainerLogs),
    unneeded("logging_strategy", kTrainerLogs),
    unneeded("logging_steps", kTrainerLogs),
    unneeded("logging_first_step", kTrainerLogs),
    unneeded("logging_nan_inf_filter", kTrainerLogs),
    unneeded("log_on_each_node", kTrainerLogs),
    unneeded("log_level", kTrainerLogs),
    unneeded("log_level_replica", kTrainerLogs),
    unneeded("include_num_input_tokens_seen", kTrainerLogs),
    unneeded("include_tokens_per_second", kTrainerLogs),
    unneeded("disable_tqdm", kTrainerLogs),
    unneeded("skip_memory_metrics", kTrainerLogs),
    {.key = "report_to", .ours = "workload.train.metrics.tensorboard",
     .note = "tensorboard; others are left out", .take = take_reports},
    {.key = "run_name", .ours = "name", .take = take_run_name},
    unneeded("project", kTrainerLogs),
    unneeded("trackio_space_id", kTrainerLogs),
    {.key = "eval_strategy", .fate = kChanged,
     .note = kTrainerValidation, .off = "no"},
    {.key = "evaluation_strategy", .fate = kChanged, .note = kTrainerValidation, .off = "no"},
    unneeded("eval_steps", "a part of eval_strategy"),
    unneeded("eval_delay", "a part of eval_strategy"),
    unneeded("eval_on_start", "a part of eval_strategy"),
    unneeded("eval_accumulation_steps", kMetrics),
    unneeded("eval_do_concat_batches", kMetrics),
    unneeded("eval_use_gather_object", kMetrics),
    unneeded("batch_eval_metrics", kMetrics),
    unneeded("include_for_metrics", kMetrics),
    unneeded("include_inputs_for_metrics", kMetrics),
    unneeded("prediction_loss_only", kMetrics),
    unneeded("label_names", kMetrics),
    unneeded("metric_for_best_model", kMetrics),
    unneeded("greater_is_better", kMetrics),
    impossible("load_best_model_at_end",
               "the last checkpoint counts; checkpoint.keep_every keeps others", "false"),
    {.key = "save_strategy", .fate = kTaken, .ours = "checkpoint.every_steps",
     .note = "steps; no: checkpoints are always on; epoch and best are not possible",
     .words = "steps=|no="},
    {.key = "save_steps", .ours = "checkpoint.every_steps", .take = take_save_steps},
    {.key = "save_total_limit", .ours = "checkpoint.keep"},
    unneeded("save_safetensors", "`hpctl checkpoint export` writes safetensors"),
    unneeded("save_only_model",
             "a checkpoint has the whole state; `hpctl checkpoint export` writes weights"),
    unneeded("save_on_each_node", "checkpoint.dir is shared"),
    unneeded("enable_jit_checkpoint", "SIGTERM saves a checkpoint"),
    unneeded("resume_from_checkpoint",
             "checkpoint.resume: latest is the default; for imported weights name the directory"),
    impossible("ignore_data_skip", "every sample is taken once", "false"),
    unneeded("restore_callback_states_from_checkpoint", "there are no callbacks"),
    {.key = "seed", .ours = "workload.train.seed", .initial = "42"},
    {.key = "data_seed", .fate = kChanged, .note = "seed is of weights and data"},
    unneeded("full_determinism", "the default here"),
    unneeded("use_cpu", "`hpctl submit --local` looks for GPUs"),
    unneeded("no_cuda", "`hpctl submit --local` looks for GPUs"),
    unneeded("accelerator_config", kTrainerSpeed),
    impossible("parallelism_config",
               "the built-in trainer divides data, and layers in fp32 on CPUs only"),
    unneeded("past_index", "of models that are not here"),
    unneeded("remove_unused_columns", "data.format says what is read"),
    unneeded("group_by_length", "sequences are packed to one length"),
    unneeded("length_column_name", "sequences are packed to one length"),
    unneeded("train_sampling_strategy", "samples come in an order that depends on the seed"),
    unneeded("dataloader_drop_last", "every step has a whole batch"),
    unneeded("dataloader_num_workers", kTrainerSpeed),
    unneeded("dataloader_pin_memory", kTrainerSpeed),
    unneeded("dataloader_persistent_workers", kTrainerSpeed),
    unneeded("dataloader_prefetch_factor", kTrainerSpeed),
    unneeded("split_batches", kTrainerSpeed),
    {.key = "push_to_hub", .fate = kChanged, .note = kHub, .off = "false"},
    unneeded("hub_model_id", kHub),
    unneeded("hub_token", kHub),
    unneeded("hub_private_repo", kHub),
    unneeded("hub_strategy", kHub),
    unneeded("hub_always_push", kHub),
    unneeded("hub_revision", kHub),
    unneeded("debug", "stability.policy decides about bad steps"),
};
// clang-format on

}  // namespace

const Tool& hf_trainer_tool() {
  static const Tool tool = {"Hugging Face Trainer",
                            "TrainingArguments in JSON or YAML",
                            kTrainerRows,
                            {},
                            finish_trainer};
  return tool;
}

}  // namespace hpctl::migrate
