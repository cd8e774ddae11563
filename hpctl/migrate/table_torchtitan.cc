// SPDX-License-Identifier: Apache-2.0
// TorchTitan's TOML, from the first release until TOML was dropped in February 2026. Names and
// defaults: torchtitan/config/job_config.py, whose keys changed meanwhile; both names have a row.
#include "hpctl/migrate/draft.h"
#include "hpctl/migrate/key_table.h"

namespace hpctl::migrate {
namespace {

using enum Fate;

struct Flavor {
  std::string_view name;
  std::string_view flavor;
  std::string_view preset;
};
constexpr Flavor kFlavors[] = {
    {"llama3", "debugmodel", "debugmodel"},
    {"llama3", "8B", "llama3-8b"},
    {"llama3", "70B", "llama3-70b"},
    {"llama3", "405B", "llama3-405b"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "1.7B", "qwen3-1.7b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "14B", "qwen3-14b"},
    {"qwen3", "32B", "qwen3-32b"},
};

void take_flavor(const Given& given, const Document& document, Draft& draft) {
  const std::string name = document.text_of("model.name");
  for (const Flavor& known : kFlavors) {
    if (known.flavor != given.text || known.name != (name.empty() ? "llama3" : name)) continue;
    draft.set("workload.train.model.preset", std::string(known.preset), given);
    draft.report(kTaken, given, "workload.train.model.preset: " + std::string(known.preset));
    return;
  }
  draft.report(kImpossible, given,
               "there is no preset for " + (name.empty() ? "llama3" : name) + " " + given.text);
}

void take_torchtitan_dataset(const Given& given, const Document& document, Draft& draft) {
  if (!document.text_of("training.dataset_path").empty()) {
    return draft.report(kUnneeded, given, "training.dataset_path says where the data are");
  }
  draft.set("workload.train.data.path", yaml_text(given.text), given);
  draft.report(kChanged, given,
               "workload.train.data.path: " + given.text +
                   ": hpctl reads files; put the text of this data set there, or name its place "
                   "with --set workload.train.data.path=PATH");
}

void take_assets(const Given& given, const Document&, Draft& draft) {
  const std::string file = given.text + "/tokenizer.json";
  draft.set("workload.train.data.tokenizer", yaml_text(file), given);
  draft.report(kChanged, given, "workload.train.data.tokenizer: " + file);
}

void take_replicas(const Given& given, const Document& document, Draft& draft) {
  const std::string shards = document.text_of("parallelism.data_parallel_shard_degree");
  const std::string strategy = shards == "1" ? "no_shard" : "hybrid";
  draft.compute("workload.train.parallelism.strategy", strategy, given.source);
  const auto replicas = number_of(given.text);
  const auto group = number_of(shards);
  if (replicas && group && *group > 0) {
    Given tasks = given;
    tasks.source += " x parallelism.data_parallel_shard_degree";
    draft.set_number(Quantity::kTasks, *replicas * *group, tasks);
    if (*group > 1) draft.set("workload.train.parallelism.shard_group", shards, given);
  } else if (replicas) {
    draft.set_number(Quantity::kReplicas, *replicas, given);
  }
  draft.report(kTaken, given, "workload.train.parallelism.strategy: " + strategy);
}

void take_shards(const Given& given, const Document& document, Draft& draft) {
  const std::string replicas = document.text_of("parallelism.data_parallel_replicate_degree");
  if (!replicas.empty() && replicas != "1") {
    return draft.report(kTaken, given, "with data_parallel_replicate_degree");
  }
  const std::string strategy = given.text == "1" ? "no_shard" : "full";
  draft.set("workload.train.parallelism.strategy", strategy, given);
  const auto shards = number_of(given.text);
  if (shards && *shards > 0) draft.set_number(Quantity::kTasks, *shards, given);
  draft.report(kTaken, given, "workload.train.parallelism.strategy: " + strategy);
}

void take_selective(const Given& given, const Document& document, Draft& draft) {
  const std::string mode = document.text_of("activation_checkpoint.mode");
  if (!mode.empty() && mode != "selective") {
    return draft.report(kUnneeded, given, "without effect in mode " + mode);
  }
  const std::string key = "workload.train.memory.activation_checkpointing";
  if (given.text == "op") {
    draft.set(key, "operations", given);
    return draft.report(kChanged, given,
                        key + ": operations: which operations are computed again differs a little");
  }
  draft.set(key, "selective", given);
  draft.set("workload.train.memory.every", given.text, given);
  draft.report(kTaken, given, key + ": selective, every: " + given.text);
}

void take_checkpoint_folder(const Given& given, const Document& document, Draft& draft) {
  const std::string dump = document.text_of("job.dump_folder");
  const std::string folder = (dump.empty() ? "./outputs" : dump) + "/" + given.text;
  draft.set("checkpoint.dir", yaml_text(folder), given);
  draft.report(kChanged, given, "checkpoint.dir: " + folder + ", below job.dump_folder");
}

void take_kept(const Given& given, const Document& document, Draft& draft) {
  if (given.text != "0") {
    draft.set("checkpoint.keep", given.text, given);
    return draft.report(kTaken, given, "checkpoint.keep: " + given.text);
  }
  const std::string every = document.text_of("checkpoint.interval");
  draft.set("checkpoint.keep_every", every.empty() ? "500" : every, given);
  draft.report(kChanged, given, "checkpoint.keep_every: all checkpoints are kept");
}

constexpr std::string_view kNoParallel =
    "the built-in trainer divides data, and layers in fp32 on CPUs only; a program that has more "
    "runs as a command";
constexpr std::string_view kNoEight = "the built-in trainer computes in bf16, fp16 or fp32";
constexpr std::string_view kLogs = "metrics.jsonl of the job has every step";
constexpr std::string_view kFaults = "hpctl finds faults and restarts by itself";
constexpr std::string_view kFast = "without effect on what is computed";
constexpr std::string_view kTitanValidation =
    "TorchTitan validates on a separate data set; hpctl on a part of data.split, which "
    "validation.every_steps needs; give both with --set";

// clang-format off
constexpr Row kTorchTitanRows[] = {
    unneeded("job.config_file", "it is this file"),
    unneeded("job.dump_folder",
             "the job's directory has logs and traces; checkpoint.folder counts from it"),
    unneeded("job.description", "the job's name tells"),
    unneeded("job.use_for_integration_test", "for TorchTitan's own tests"),
    unneeded("job.print_args", "`hpctl submit --dry-run` prints all values"),
    unneeded("job.print_config", "`hpctl submit --dry-run` prints all values"),
    unneeded("job.save_config_file", "the job's directory keeps it"),
    impossible("job.custom_config_module", "keys of your own code"),
    {.key = "profiling.enable_profiling", .fate = kUnneeded,
     .note = "metrics.trace_from and trace_steps write a trace", .off = "false"},
    unneeded("profiling.save_traces_folder", "traces are in the job's directory"),
    unneeded("profiling.profile_freq", "metrics.trace_from and trace_steps write one trace"),
    unneeded("profiling.profiler_active", "metrics.trace_from and trace_steps write one trace"),
    unneeded("profiling.profiler_warmup", "metrics.trace_from and trace_steps write one trace"),
    unneeded("profiling.enable_memory_snapshot", "`hpctl plan` tells the memory"),
    unneeded("profiling.save_memory_snapshot_folder", "`hpctl plan` tells the memory"),
    unneeded("metrics.log_freq", kLogs),
    {.key = "metrics.enable_tensorboard", .ours = "workload.train.metrics.tensorboard",
     .words = "true=true|false=false"},
    unneeded("metrics.disable_color_printing", kLogs),
    unneeded("metrics.save_tb_folder", "tensorboard/ of the job's directory"),
    unneeded("metrics.save_for_all_ranks", kLogs),
    {.key = "metrics.enable_wandb", .fate = kChanged,
     .note = "left out: metrics.tensorboard and metrics.jsonl are what there is", .off = "false"},
    {.key = "model.name", .fate = kTaken, .ours = "workload.train.model.preset",
     .note = "with model.flavor", .words = "llama3=|qwen3="},
    {.key = "model.flavor", .ours = "workload.train.model.preset", .initial = "debugmodel",
     .take = take_flavor},
    {.key = "model.tokenizer_path", .ours = "workload.train.data.tokenizer"},
    {.key = "model.hf_assets_path", .fate = kChanged, .ours = "workload.train.data.tokenizer",
     .note = "tokenizer.json of that directory", .initial = "./tests/assets/tokenizer",
     .take = take_assets},
    impossible("model.converters", kNoEight),
    unneeded("model.print_after_conversion", "nothing is converted"),
    {.key = "optimizer.name", .fate = kTaken, .ours = "workload.train.optimizer",
     .note = "AdamW is the only one", .words = "AdamW="},
    {.key = "optimizer.lr", .ours = "workload.train.optimizer.lr", .initial = "8e-4",
     .quantity = Quantity::kPeakLr},
    {.key = "optimizer.beta1", .ours = "workload.train.optimizer.beta1"},
    {.key = "optimizer.beta2", .ours = "workload.train.optimizer.beta2"},
    {.key = "optimizer.eps", .ours = "workload.train.optimizer.eps"},
    {.key = "optimizer.weight_decay", .ours = "workload.train.optimizer.weight_decay"},
    unneeded("optimizer.implementation", kFast),
    unneeded("optimizer.fused", kFast),
    impossible("optimizer.early_step_in_backward", "gradients are clipped before the step",
               "false"),
    {.key = "lr_scheduler.warmup_steps", .ours = "workload.train.schedule.warmup_steps",
     .initial = "200", .quantity = Quantity::kWarmupSteps},
    {.key = "lr_scheduler.total_steps", .fate = kChanged,
     .ours = "workload.train.schedule.decay_steps", .note = "less the warm-up",
     .quantity = Quantity::kDecayEnd},
    {.key = "lr_scheduler.decay_ratio", .fate = kChanged,
     .ours = "workload.train.schedule.decay_steps", .note = "times steps, with schedule.name: wsd",
     .quantity = Quantity::kDecayRatio},
    {.key = "lr_scheduler.decay_type", .ours = "workload.train.schedule.decay", .initial = "linear",
     .words = "linear=linear|sqrt=sqrt|cosine=cosine"},
    {.key = "lr_scheduler.lr_min", .ours = "workload.train.schedule.min_lr_ratio",
     .quantity = Quantity::kMinLrRatio},
    {.key = "lr_scheduler.min_lr_factor", .ours = "workload.train.schedule.min_lr_ratio",
     .initial = "0.0", .quantity = Quantity::kMinLrRatio},
    {.key = "training.dataset", .fate = kChanged, .ours = "workload.train.data.path",
     .note = "a path; hpctl loads no data set by its name", .initial = "c4_test",
     .take = take_torchtitan_dataset},
    {.key = "training.dataset_path", .ours = "workload.train.data.path"},
    {.key = "training.local_batch_size", .ours = "workload.train.batch.micro", .initial = "8",
     .quantity = Quantity::kMicroBatch},
    {.key = "training.batch_size", .ours = "workload.train.batch.micro",
     .quantity = Quantity::kMicroBatch},
    {.key = "training.global_batch_size", .ours = "workload.train.batch.global",
     .note = "-1 is the local batch times the workers", .off = "-1",
     .quantity = Quantity::kGlobalBatch},
    {.key = "training.seq_len", .ours = "workload.train.data.seq_len", .initial = "2048"},
    {.key = "training.max_norm", .ours = "workload.train.optimizer.clip"},
    {.key = "training.steps", .ours = "workload.train.steps", .initial = "10000",
     .quantity = Quantity::kSteps},
    {.key = "training.enable_cpu_offload", .ours = "workload.train.memory.offload",
     .words = "true=[optimizer, parameters]|false="},
    {.key = "training.dtype", .fate = kTaken, .ours = "workload.train.optimizer.master",
     .note = "weights are fp32", .words = "float32="},
    {.key = "training.mixed_precision_param", .ours = "workload.train.precision",
     .words = "bfloat16=bf16|float32=fp32"},
    unneeded("training.mixed_precision_reduce", "reductions are fp32"),
    unneeded("training.compile", kFast),
    unneeded("training.gc_freq", "the trainer is no Python program"),
    unneeded("training.gc_debug", "the trainer is no Python program"),
    {.key = "training.seed", .ours = "workload.train.seed"},
    unneeded("training.deterministic", "the default here; gpu.deterministic: false is the other"),
    unneeded("training.dataloader.num_workers", kFast),
    unneeded("training.dataloader.persistent_workers", kFast),
    unneeded("training.dataloader.pin_memory", kFast),
    unneeded("training.dataloader.prefetch_factor", kFast),
    {.key = "debug.seed", .ours = "workload.train.seed"},
    unneeded("debug.deterministic", "the default here; gpu.deterministic: false is the other"),
    unneeded("debug.deterministic_warn_only", "the default here is deterministic"),
    impossible("debug.moe_force_load_balance", "the built-in trainer has no experts", "false"),
    {.key = "parallelism.data_parallel_replicate_degree",
     .ours = "workload.train.parallelism.strategy",
     .note = "above 1: hybrid, or no_shard with a shard degree of 1", .off = "1",
     .take = take_replicas},
    {.key = "parallelism.data_parallel_shard_degree", .ours = "workload.train.parallelism.strategy",
     .note = "full; 1: no_shard", .initial = "-1", .take = take_shards},
    {.key = "parallelism.fsdp_reshard_after_forward",
     .ours = "workload.train.parallelism.reshard_after_forward",
     .words = "default=auto|always=always|never=never"},
    unneeded("parallelism.enable_compiled_autograd", kFast),
    impossible("parallelism.tensor_parallel_degree", kNoParallel, "1"),
    unneeded("parallelism.disable_loss_parallel", "a part of tensor parallelism"),
    impossible("parallelism.enable_async_tensor_parallel", kNoParallel, "false"),
    impossible("parallelism.pipeline_parallel_degree", kNoParallel, "1"),
    impossible("parallelism.pipeline_parallel_split_points", kNoParallel),
    impossible("parallelism.module_fqns_per_model_part", kNoParallel),
    unneeded("parallelism.pipeline_parallel_first_stage_less_layers",
             "a part of pipeline parallelism"),
    unneeded("parallelism.pipeline_parallel_last_stage_less_layers",
             "a part of pipeline parallelism"),
    unneeded("parallelism.pipeline_parallel_layers_per_stage", "a part of pipeline parallelism"),
    unneeded("parallelism.pipeline_parallel_schedule", "a part of pipeline parallelism"),
    unneeded("parallelism.pipeline_parallel_schedule_csv", "a part of pipeline parallelism"),
    unneeded("parallelism.pipeline_parallel_microbatch_size", "a part of pipeline parallelism"),
    impossible("parallelism.context_parallel_degree", kNoParallel, "1"),
    unneeded("parallelism.context_parallel_load_balancer", "a part of context parallelism"),
    unneeded("parallelism.context_parallel_rotate_method", "a part of context parallelism"),
    impossible("parallelism.expert_parallel_degree", kNoParallel, "1"),
    impossible("parallelism.expert_tensor_parallel_degree", kNoParallel, "1"),
    unneeded("parallelism.expert_parallel_comm_backend", "a part of expert parallelism"),
    unneeded("checkpoint.enable_checkpoint", "checkpoints are always on: recovery needs them"),
    unneeded("checkpoint.enable", "checkpoints are always on: recovery needs them"),
    {.key = "checkpoint.folder", .fate = kChanged, .ours = "checkpoint.dir",
     .note = "below job.dump_folder", .take = take_checkpoint_folder},
    impossible("checkpoint.initial_load_path", "a checkpoint of TorchTitan; export it as "
               "safetensors there, then `hpctl checkpoint import`"),
    unneeded("checkpoint.initial_load_model_only", "a part of initial_load_path"),
    unneeded("checkpoint.initial_load_in_hf",
             "a part of initial_load_path; `hpctl checkpoint import` reads safetensors"),
    {.key = "checkpoint.interval", .ours = "checkpoint.every_steps"},
    unneeded("checkpoint.model_weights_only",
             "a checkpoint has the whole state; `hpctl checkpoint export` writes weights"),
    unneeded("checkpoint.last_save_model_only",
             "a checkpoint has the whole state; `hpctl checkpoint export` writes weights"),
    unneeded("checkpoint.last_save_in_hf", "`hpctl checkpoint export` writes safetensors"),
    unneeded("checkpoint.export_dtype", "`hpctl checkpoint export` takes --dtype"),
    unneeded("checkpoint.create_seed_checkpoint",
             "the seed gives the same weights for any number of workers"),
    unneeded("checkpoint.async_mode", "saves are always beside the steps"),
    {.key = "checkpoint.keep_latest_k", .ours = "checkpoint.keep",
     .note = "0 keeps all: checkpoint.keep_every", .initial = "10", .take = take_kept},
    impossible("checkpoint.load_step", "name the directory in checkpoint.resume", "-1"),
    impossible("checkpoint.load_only", "a final checkpoint is always written", "false"),
    impossible("checkpoint.exclude_from_loading", "a checkpoint is loaded whole"),
    unneeded("checkpoint.enable_first_step_checkpoint", "submit checks the directory first"),
    {.key = "activation_checkpoint.mode", .ours = "workload.train.memory.activation_checkpointing",
     .note = "selective: see selective_ac_option", .words = "none=none|full=full|selective="},
    {.key = "activation_checkpoint.selective_ac_option", .fate = kChanged,
     .ours = "workload.train.memory.activation_checkpointing",
     .note = "a number: selective, with memory.every; op: operations", .initial = "2",
     .take = take_selective},
    unneeded("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "for experts"),
    unneeded("activation_checkpoint.memory_budget", "a part of mode memory_budget"),
    unneeded("activation_checkpoint.early_stop", kFast),
    unneeded("activation_checkpoint.preserve_rng_state", "there is no dropout"),
    unneeded("activation_checkpoint.determinism_check", "recomputation gives the same bits"),
    unneeded("activation_checkpoint.debug", "recomputation gives the same bits"),
    unneeded("compile.enable", kFast),
    unneeded("compile.components", kFast),
    unneeded("compile.backend", kFast),
    impossible("float8.enable_fsdp_float8_all_gather", kNoEight, "false"),
    impossible("float8.precompute_float8_dynamic_scale_for_fsdp", kNoEight, "false"),
    unneeded("float8.force_recompute_fp8_weight_in_bwd", "a part of float8"),
    unneeded("float8.recipe_name", "without effect unless model.converters names float8"),
    unneeded("float8.filter_fqns", "without effect unless model.converters names float8"),
    unneeded("float8.emulate", "without effect unless model.converters names float8"),
    unneeded("float8.moe_fqns_prototype", "without effect unless model.converters names float8"),
    unneeded("quantize.linear.float8.recipe_name",
             "without effect unless model.converters names float8"),
    impossible("quantize.linear.float8.enable_fsdp_float8_all_gather", kNoEight, "false"),
    impossible("quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", kNoEight,
               "false"),
    unneeded("quantize.linear.float8.filter_fqns",
             "without effect unless model.converters names float8"),
    unneeded("quantize.linear.float8.emulate",
             "without effect unless model.converters names float8"),
    unneeded("mx.mxfp8_dim1_cast_kernel_choice", "without effect unless model.converters names mx"),
    unneeded("mx.recipe_name", "without effect unless model.converters names mx"),
    unneeded("mx.filter_fqns", "without effect unless model.converters names mx"),
    unneeded("comm.init_timeout_seconds", kFaults),
    unneeded("comm.train_timeout_seconds", kFaults),
    unneeded("comm.trace_buf_size", "hpctl tells which rank a hang waits for"),
    unneeded("comm.save_traces_folder", "hpctl tells which rank a hang waits for"),
    unneeded("comm.save_traces_file_prefix", "hpctl tells which rank a hang waits for"),
    impossible("comm.mode", "a dry run of many ranks on one GPU; `hpctl plan` estimates them",
               "default"),
    unneeded("memory_estimation.enabled", "`hpctl plan` tells the memory"),
    unneeded("memory_estimation.disable_fake_mode", "`hpctl plan` tells the memory"),
    unneeded("fault_tolerance.enable", kFaults),
    unneeded("fault_tolerance.process_group", kFaults),
    unneeded("fault_tolerance.process_group_timeout_ms", kFaults),
    unneeded("fault_tolerance.replica_id", kFaults),
    unneeded("fault_tolerance.group_size", kFaults),
    unneeded("fault_tolerance.min_replica_size", "nodes.min is the fewest nodes"),
    impossible("fault_tolerance.semi_sync_method", "every step is synchronous"),
    unneeded("fault_tolerance.sync_steps", "a part of semi_sync_method"),
    unneeded("fault_tolerance.should_quantize", "a part of semi_sync_method"),
    unneeded("fault_tolerance.fragment_sync_delay", "a part of semi_sync_method"),
    unneeded("fault_tolerance.fragment_update_alpha", "a part of semi_sync_method"),
    impossible("experimental.custom_import", "code of your own"),
    impossible("experimental.custom_args_module", "keys of your own code"),
    impossible("validation.enabled", kTitanValidation, "false"),
    impossible("validation.enable", kTitanValidation, "false"),
    unneeded("validation.dataset", "a part of validation.enable"),
    unneeded("validation.dataset_path", "a part of validation.enable"),
    unneeded("validation.local_batch_size", "a part of validation.enable"),
    unneeded("validation.seq_len", "a part of validation.enable"),
    unneeded("validation.freq", "a part of validation.enable"),
    unneeded("validation.steps", "a part of validation.enable"),
};
// clang-format on

constexpr Habit kTorchTitanHabits[] = {
    {"workload.train.optimizer.no_decay", "[]", "TorchTitan decays every parameter"},
};

}  // namespace

const Tool& torchtitan_tool() {
  static const Tool tool = {"TorchTitan", "TOML", kTorchTitanRows, kTorchTitanHabits, nullptr};
  return tool;
}

}  // namespace hpctl::migrate
