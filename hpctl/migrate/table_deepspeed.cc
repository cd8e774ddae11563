// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's ds_config.json. Names and defaults: its page "DeepSpeed Configuration JSON",
// deepspeed/runtime/zero/config.py and deepspeed/runtime/lr_schedules.py. The file has no model, no
// data and no number of steps: TrainingArguments and config.json beside it do.
#include <cmath>

#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

void take_betas(const Given& given, const Document&, Draft& draft) {
  if (given.items.size() != 2) {
    return draft.report(kImpossible, given, "expected two numbers, found " + given.text);
  }
  draft.set("workload.train.optimizer.beta1", given.items[0], given);
  draft.set("workload.train.optimizer.beta2", given.items[1], given);
  draft.report(kTaken, given,
               "workload.train.optimizer.beta1: " + given.items[0] + ", beta2: " + given.items[1]);
}

void take_scheduler(const Given& given, const Document& document, Draft& draft) {
  const std::string& type = given.text;
  std::string name;
  if (type == "WarmupLR" || type == "none") name = "constant";
  if (type == "WarmupDecayLR") name = "linear";
  if (type == "WarmupCosineLR") name = "cosine";
  if (name.empty()) {
    return draft.report(kImpossible, given, "schedule.name is cosine, linear, wsd or constant");
  }
  draft.set("workload.train.schedule.name", name, given);
  if (name == "linear") draft.set_number(Quantity::kMinLrRatio, 0, given);
  if (name == "cosine" && document.text_of("scheduler.params.cos_min_ratio").empty()) {
    draft.set_number(Quantity::kMinLrRatio, 0.0001, given);
  }
  draft.report(kTaken, given, "workload.train.schedule.name: " + name);
}

// The optimizer's learning rate does not count with these schedules.
void take_highest_lr(const Given& given, const Document& document, Draft& draft) {
  if (document.text_of("scheduler.type") == "WarmupCosineLR") {
    return draft.report(kUnneeded, given, "WarmupCosineLR goes up to optimizer.params.lr");
  }
  const auto lr = number_of(given.text);
  if (!lr) return draft.report(kImpossible, given, "expected a number, found " + given.text);
  draft.replace_number(Quantity::kPeakLr, *lr, given);
  draft.report(kTaken, given, "workload.train.optimizer.lr: " + given.text);
}

void take_warmup_type(const Given& given, const Document&, Draft& draft) {
  if (given.text == "linear") return draft.report(kTaken, given, "the warm-up is linear");
  draft.report(kChanged, given, "the warm-up is linear, not " + given.text);
}

void take_bf16(const Given& given, const Document& document, Draft& draft) {
  if (given.text != "true") {
    if (document.text_of("fp16.enabled") == "true") return draft.report(kUnneeded, given, "off");
    draft.set("workload.train.precision", "fp32", given);
    return draft.report(kTaken, given, "workload.train.precision: fp32");
  }
  draft.set("workload.train.precision", "bf16", given);
  draft.report(kTaken, given, "workload.train.precision: bf16");
}

void take_fp16(const Given& given, const Document&, Draft& draft) {
  if (given.text != "true") return draft.report(kUnneeded, given, "off");
  draft.set("workload.train.precision", "fp16", given);
  draft.report(kTaken, given, "workload.train.precision: fp16");
}

// A key of the scale of the loss, with its value here.
void take_scale(const Given& given, const Document& document, Draft& draft, const char* key,
                const std::string& value) {
  if (document.text_of("fp16.enabled") != "true") {
    return draft.report(kUnneeded, given, "without effect unless fp16.enabled");
  }
  const std::string ours = std::string("workload.train.loss_scale.") + key;
  draft.set(ours, value, given);
  draft.report(kTaken, given, ours + ": " + value);
}
void take_scale_power(const Given& given, const Document& document, Draft& draft) {
  const auto power = number_of(given.text);
  take_scale(given, document, draft, "initial",
             power ? number_text(std::exp2(*power)) : given.text);
}
void take_scale_window(const Given& given, const Document& document, Draft& draft) {
  take_scale(given, document, draft, "growth_interval", given.text);
}
void take_hysteresis(const Given& given, const Document& document, Draft& draft) {
  take_scale(given, document, draft, "hysteresis", given.text);
}
void take_least_scale(const Given& given, const Document& document, Draft& draft) {
  const auto least = number_of(given.text);
  take_scale(given, document, draft, "min", least ? number_text(*least) : given.text);
}

void add_offload(const Given& given, Draft& draft, const std::string& what) {
  const std::string key = "workload.train.memory.offload";
  const Value* known = draft.find(key);
  const std::string list = known == nullptr
                               ? "[" + what + "]"
                               : known->yaml.substr(0, known->yaml.size() - 1) + ", " + what + "]";
  draft.compute(key, list, given.source);
  draft.report(kTaken, given, key + ": " + what);
}
void take_offload(const Given& given, Draft& draft, const std::string& what) {
  if (given.text == "none") return draft.report(kUnneeded, given, "off");
  if (given.text == "cpu") return add_offload(given, draft, what);
  draft.report(kImpossible, given, "hpctl offloads to host memory only, not to " + given.text);
}
void take_optimizer_offload(const Given& given, const Document&, Draft& draft) {
  take_offload(given, draft, "optimizer");
}
void take_parameter_offload(const Given& given, const Document&, Draft& draft) {
  take_offload(given, draft, "parameters");
}
void take_activation_offload(const Given& given, const Document&, Draft& draft) {
  if (given.text != "true") return draft.report(kUnneeded, given, "off");
  draft.set("workload.train.memory.activation_checkpointing", "full", given);
  add_offload(given, draft, "activations");
}

void take_mics(const Given& given, const Document&, Draft& draft) {
  draft.compute("workload.train.parallelism.strategy", "hybrid", given.source);
  draft.set("workload.train.parallelism.shard_group", given.text, given);
  draft.report(kTaken, given,
               "workload.train.parallelism.strategy: hybrid, shard_group: " + given.text);
}

constexpr std::string_view kBuckets = "hpctl chooses its own buckets and their order";
constexpr std::string_view kDeepspeedLogs = "metrics.jsonl of the job has every step";
constexpr std::string_view kDisk = "hpctl offloads to host memory only";
constexpr std::string_view kOwnCode = "the built-in trainer has no such method";
constexpr std::string_view kPart = "a part of a feature that its `enabled` decides about";
constexpr std::string_view kPointless = "without effect on what is computed";

// clang-format off
constexpr Row kDeepspeedRows[] = {
    {.key = "train_batch_size", .ours = "workload.train.batch.global",
     .quantity = Quantity::kGlobalBatch},
    {.key = "train_micro_batch_size_per_gpu", .ours = "workload.train.batch.micro",
     .quantity = Quantity::kMicroBatch},
    {.key = "gradient_accumulation_steps", .fate = kChanged, .ours = "workload.train.batch.global",
     .note = "accumulation x micro x workers", .quantity = Quantity::kAccumulation},
    unneeded("managed_gradient_accumulation", "batch.global decides"),
    {.key = "optimizer.type", .ours = "workload.train.optimizer", .note = "AdamW is the only one",
     .words = "Adam=|AdamW="},
    {.key = "optimizer.params.lr", .ours = "workload.train.optimizer.lr", .initial = "0.001",
     .initial_with = "optimizer.", .quantity = Quantity::kPeakLr},
    {.key = "optimizer.params.betas", .ours = "workload.train.optimizer.beta1", .note = "and beta2",
     .initial = "0.9,0.999", .initial_with = "optimizer.", .take = take_betas},
    {.key = "optimizer.params.eps", .ours = "workload.train.optimizer.eps"},
    {.key = "optimizer.params.weight_decay", .ours = "workload.train.optimizer.weight_decay",
     .initial = "0", .initial_with = "optimizer."},
    impossible("optimizer.params.bias_correction", "the moments are always corrected", "true"),
    impossible("optimizer.params.adam_w_mode", "weight decay is decoupled", "true"),
    impossible("optimizer.params.amsgrad", kOwnCode, "false"),
    unneeded("optimizer.params.torch_adam", kPointless),
    unneeded("optimizer.legacy_fusion", kPointless),
    {.key = "scheduler.type", .ours = "workload.train.schedule.name", .note = "WarmupLR: constant; "
     "WarmupDecayLR: linear; WarmupCosineLR: cosine; others are not possible", .initial = "none",
     .initial_with = kAlone, .take = take_scheduler},
    impossible("scheduler.params.warmup_min_lr", "the warm-up begins at 0", "0|0.0|auto"),
    {.key = "scheduler.params.warmup_max_lr", .ours = "workload.train.optimizer.lr",
     .note = "in place of optimizer.params.lr", .initial = "0.001", .initial_with = "scheduler.",
     .take = take_highest_lr},
    {.key = "scheduler.params.warmup_num_steps", .ours = "workload.train.schedule.warmup_steps",
     .initial = "1000", .initial_with = "scheduler.", .quantity = Quantity::kWarmupSteps},
    {.key = "scheduler.params.warmup_type", .fate = kChanged, .note = "the warm-up is linear",
     .initial = "log", .initial_with = "scheduler.", .take = take_warmup_type},
    {.key = "scheduler.params.total_num_steps", .fate = kChanged,
     .ours = "workload.train.schedule.decay_steps", .note = "less the warm-up",
     .quantity = Quantity::kDecayEnd},
    impossible("scheduler.params.warmup_min_ratio", "the warm-up begins at 0", "0|0.0"),
    {.key = "scheduler.params.cos_min_ratio", .ours = "workload.train.schedule.min_lr_ratio",
     .quantity = Quantity::kMinLrRatio},
    unneeded("scheduler.params.last_batch_iteration", "a checkpoint knows its step"),
    {.key = "gradient_clipping", .ours = "workload.train.optimizer.clip", .initial = "0"},
    {.key = "bf16.enabled", .ours = "workload.train.precision", .note = "true: bf16",
     .initial = "false", .take = take_bf16},
    unneeded("bf16.immediate_grad_update", kPointless),
    unneeded("bf16.check_grad_overflow", "stability.policy decides about bad steps"),
    impossible("bf16.bf16_master_weights_and_grads", "optimizer.master and moments are alike here, "
               "and gradients fp32; set them with --set", "false"),
    {.key = "bf16.bf16_optimizer_states", .ours = "workload.train.optimizer.moments",
     .words = "true=bf16|false=fp32"},
    {.key = "fp16.enabled", .ours = "workload.train.precision", .note = "true: fp16",
     .take = take_fp16},
    unneeded("fp16.auto_cast", "inputs are tokens"),
    impossible("fp16.loss_scale", "the scale is dynamic", "0|0.0"),
    {.key = "fp16.initial_scale_power", .fate = kChanged,
     .ours = "workload.train.loss_scale.initial", .note = "2 to that power",
     .take = take_scale_power},
    {.key = "fp16.loss_scale_window", .ours = "workload.train.loss_scale.growth_interval",
     .take = take_scale_window},
    {.key = "fp16.hysteresis", .ours = "workload.train.loss_scale.hysteresis",
     .take = take_hysteresis},
    impossible("fp16.consecutive_hysteresis", kOwnCode, "false"),
    {.key = "fp16.min_loss_scale", .ours = "workload.train.loss_scale.min",
     .take = take_least_scale},
    impossible("fp16.fp16_master_weights_and_grads", "master weights are fp32 with fp16", "false"),
    impossible("amp.enabled", "precision is bf16, fp16 or fp32", "false"),
    unneeded("amp.opt_level", kPart),
    impossible("torch_autocast.enabled", "precision is bf16, fp16 or fp32", "false"),
    unneeded("torch_autocast.dtype", kPart),
    {.key = "data_types.grad_accum_dtype", .ours = "workload.train.precision",
     .note = "gradients add up in fp32", .words = "fp32="},
    {.key = "communication_data_type", .fate = kChanged, .note = "reductions are fp32",
     .off = "fp32"},
    unneeded("seq_parallel_communication_data_type", "there is no sequence parallelism"),
    unneeded("prescale_gradients", "gradients are averages in fp32"),
    unneeded("gradient_predivide_factor", "gradients are averages in fp32"),
    impossible("sparse_gradients", kOwnCode, "false"),
    unneeded("disable_allgather", kBuckets),
    unneeded("zero_allow_untested_optimizer", "AdamW is the only one"),
    unneeded("zero_force_ds_cpu_optimizer", "AdamW is the only one"),
    {.key = "zero_optimization.stage", .ours = "workload.train.parallelism.strategy",
     .initial = "0", .words = "0=no_shard|1=optimizer|2=shard_grad_op|3=full"},
    unneeded("zero_optimization.contiguous_gradients", kBuckets),
    unneeded("zero_optimization.reduce_scatter", kBuckets),
    unneeded("zero_optimization.reduce_bucket_size", kBuckets),
    unneeded("zero_optimization.use_multi_rank_bucket_allreduce", kBuckets),
    unneeded("zero_optimization.allgather_partitions", kBuckets),
    unneeded("zero_optimization.allgather_bucket_size", kBuckets),
    unneeded("zero_optimization.overlap_comm", kBuckets),
    unneeded("zero_optimization.load_from_fp32_weights", "checkpoints have fp32 weights"),
    unneeded("zero_optimization.elastic_checkpoint",
             "checkpoints are read by any number of workers"),
    {.key = "zero_optimization.offload_param.device", .ours = "workload.train.memory.offload",
     .note = "cpu: parameters", .take = take_parameter_offload},
    unneeded("zero_optimization.offload_param.nvme_path", kDisk),
    unneeded("zero_optimization.offload_param.pin_memory", kPointless),
    unneeded("zero_optimization.offload_param.buffer_count", kPointless),
    unneeded("zero_optimization.offload_param.buffer_size", kPointless),
    unneeded("zero_optimization.offload_param.max_in_cpu", kPointless),
    {.key = "zero_optimization.offload_optimizer.device", .ours = "workload.train.memory.offload",
     .note = "cpu: optimizer", .take = take_optimizer_offload},
    unneeded("zero_optimization.offload_optimizer.nvme_path", kDisk),
    unneeded("zero_optimization.offload_optimizer.pin_memory", kPointless),
    unneeded("zero_optimization.offload_optimizer.buffer_count", kPointless),
    unneeded("zero_optimization.offload_optimizer.pipeline_read", kDisk),
    unneeded("zero_optimization.offload_optimizer.pipeline_write", kDisk),
    unneeded("zero_optimization.offload_optimizer.fast_init", kPointless),
    {.key = "zero_optimization.offload_optimizer.ratio", .fate = kChanged,
     .note = "the whole state is offloaded", .off = "1|1.0"},
    unneeded("zero_optimization.offload_optimizer.super_offload", kPointless),
    unneeded("zero_optimization.offload_optimizer.cpuadam_cores_perc", kPointless),
    {.key = "zero_optimization.cpu_offload", .ours = "workload.train.memory.offload",
     .words = "true=[optimizer]|false="},
    unneeded("zero_optimization.sub_group_size", kBuckets),
    unneeded("zero_optimization.stage3_prefetch_bucket_size", kBuckets),
    unneeded("zero_optimization.stage3_param_persistence_threshold", kBuckets),
    unneeded("zero_optimization.stage3_model_persistence_threshold", kBuckets),
    unneeded("zero_optimization.stage3_max_live_parameters", kBuckets),
    unneeded("zero_optimization.stage3_max_reuse_distance", kBuckets),
    unneeded("zero_optimization.stage3_gather_16bit_weights_on_model_save",
             "`hpctl checkpoint export` gathers them"),
    unneeded("zero_optimization.stage3_gather_fp16_weights_on_model_save",
             "`hpctl checkpoint export` gathers them"),
    unneeded("zero_optimization.stage3_module_granularity_threshold", kBuckets),
    unneeded("zero_optimization.stage3_use_all_reduce_for_fetch_params", kBuckets),
    unneeded("zero_optimization.stage3_allgather_sequential", kBuckets),
    unneeded("zero_optimization.ignore_unused_parameters", "every parameter has a gradient"),
    unneeded("zero_optimization.round_robin_gradients", kBuckets),
    impossible("zero_optimization.zero_hpz_partition_size",
               "strategy hybrid is the nearest; set it with --set", "1"),
    impossible("zero_optimization.zero_quantized_weights", kOwnCode, "false"),
    impossible("zero_optimization.zero_quantized_nontrainable_weights", kOwnCode, "false"),
    impossible("zero_optimization.zero_quantized_gradients", kOwnCode, "false"),
    impossible("zero_optimization.zeropp_loco_param", kOwnCode),
    {.key = "zero_optimization.mics_shard_size", .ours = "workload.train.parallelism.shard_group",
     .note = "with strategy: hybrid", .off = "-1", .take = take_mics},
    unneeded("zero_optimization.mics_hierarchical_params_gather", kBuckets),
    unneeded("zero_optimization.memory_efficient_linear", kPointless),
    unneeded("zero_optimization.override_module_apply", kPointless),
    unneeded("zero_optimization.log_trace_cache_warnings", kDeepspeedLogs),
    unneeded("zero_optimization.enable_sanity_checks", kPointless),
    unneeded("activation_checkpointing.partition_activations", "a part of tensor parallelism"),
    {.key = "activation_checkpointing.cpu_checkpointing", .fate = kChanged,
     .ours = "workload.train.memory.offload",
     .note = "activations, with activation_checkpointing: full", .take = take_activation_offload},
    unneeded("activation_checkpointing.contiguous_memory_optimization", kPointless),
    unneeded("activation_checkpointing.number_checkpoints",
             "memory.activation_checkpointing decides"),
    unneeded("activation_checkpointing.synchronize_checkpoint_boundary", kPointless),
    unneeded("activation_checkpointing.profile", kDeepspeedLogs),
    unneeded("steps_per_print", kDeepspeedLogs),
    unneeded("wall_clock_breakdown", kDeepspeedLogs),
    unneeded("dump_state", kDeepspeedLogs),
    unneeded("memory_breakdown", "`hpctl plan` tells the memory"),
    unneeded("dataloader_drop_last", "every step has a whole batch"),
    unneeded("flops_profiler.enabled", "metrics.jsonl has MFU"),
    unneeded("flops_profiler.profile_step", kPart),
    unneeded("flops_profiler.module_depth", kPart),
    unneeded("flops_profiler.top_modules", kPart),
    unneeded("flops_profiler.detailed", kPart),
    unneeded("flops_profiler.output_file", kPart),
    {.key = "tensorboard.enabled", .ours = "workload.train.metrics.tensorboard",
     .words = "true=true|false=false"},
    unneeded("tensorboard.output_path", "tensorboard/ of the job's directory"),
    unneeded("tensorboard.job_name", "tensorboard/ of the job's directory"),
    {.key = "wandb.enabled", .fate = kChanged,
     .note = "left out: metrics.tensorboard and metrics.jsonl are what there is", .off = "false"},
    unneeded("wandb.group", kPart),
    unneeded("wandb.team", kPart),
    unneeded("wandb.project", kPart),
    unneeded("csv_monitor.enabled", kDeepspeedLogs),
    unneeded("csv_monitor.output_path", kDeepspeedLogs),
    unneeded("csv_monitor.job_name", kDeepspeedLogs),
    unneeded("comms_logger.enabled", kDeepspeedLogs),
    unneeded("comms_logger.verbose", kPart),
    unneeded("comms_logger.prof_all", kPart),
    unneeded("comms_logger.debug", kPart),
    unneeded("aio.block_size", kDisk),
    unneeded("aio.queue_depth", kDisk),
    unneeded("aio.thread_count", kDisk),
    unneeded("aio.intra_op_parallelism", kDisk),
    unneeded("aio.single_submit", kDisk),
    unneeded("aio.overlap_events", kDisk),
    unneeded("checkpoint.tag_validation", "a checkpoint is committed as a whole"),
    unneeded("checkpoint.load_universal", "checkpoints are read by any number of workers"),
    impossible("checkpoint.use_node_local_storage", "checkpoint.dir is shared", "false"),
    unneeded("checkpoint.parallel_write.pipeline_stage", "every worker writes its part"),
    impossible("elasticity.enabled",
               "nodes.min is the fewest nodes, and the global batch stays; set it with --set",
               "false"),
    unneeded("autotuning.enabled", "keys that are auto are chosen by the plan"),
    impossible("curriculum_learning.enabled", kOwnCode, "false"),
    impossible("data_efficiency.enabled", kOwnCode, "false"),
    impossible("progressive_layer_drop.enabled", kOwnCode, "false"),
    impossible("eigenvalue.enabled", kOwnCode, "false"),
    impossible("hybrid_engine.enabled", "it trains, and does not serve", "false"),
    unneeded("compile.enabled", kPointless),
    unneeded("compile.deepcompile", kPointless),
    unneeded("compile.backend", kPointless),
    impossible("tensor_parallel.autotp_size",
               "the built-in trainer divides data, and layers in fp32 on CPUs only",
               "0|1"),
    impossible("sequence_parallel_size",
               "the built-in trainer divides data, and layers in fp32 on CPUs only", "1"),
    impossible("compression_training", kOwnCode),
    impossible("sparse_attention", kOwnCode),
};
// clang-format on

constexpr Habit kDeepspeedHabits[] = {
    {"workload.train.optimizer.no_decay", "[]", "DeepSpeed decays every parameter", "optimizer."},
};

}  // namespace

const Tool& deepspeed_tool() {
  static const Tool tool = {"DeepSpeed", "ds_config.json", kDeepspeedRows, kDeepspeedHabits,
                            nullptr};
  return tool;
}

}  // namespace hpctl::migrate
