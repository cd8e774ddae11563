// SPDX-License-Identifier: Apache-2.0
#include "common/job/train_spec.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "common/job/spec_checks.h"
#include "common/job/train_keys.h"

namespace hpctl {

namespace {

// What the rows of the table say of single keys. The checks after it are of relations between keys;
// where one of those is out of its range already, they may say nothing or repeat the key, of which
// people see the first problem.
// A copy, since accessors give references that can be written.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void check_limits(TrainSpec train, SpecChecks& checks) {
  for (const TrainKey& key : train_keys()) {
    const KeyLimits& limits = key.limits;
    if (limits.low == limits.high) continue;
    const std::string path(key.path);
    if (const auto* whole = std::get_if<int64_t& (*)(TrainSpec&)>(&key.field)) {
      checks.range(path, (*whole)(train), static_cast<int64_t>(limits.low),
                   static_cast<int64_t>(limits.high));
    } else if (const auto* number = std::get_if<double& (*)(TrainSpec&)>(&key.field)) {
      const double value = (*number)(train);
      if (value != 0 || !limits.or_zero) checks.number(path, value, limits.low, limits.high);
    }
  }
}

void check_positions(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.";
  const ModelSpec& m = t.model;
  const RopeScalingSpec& scaling = m.rope_scaling;
  if (traits_of(m.arch).positions == Positions::kRotary) {
    if (scaling.factor != 0 && !(scaling.high_freq_factor > scaling.low_freq_factor)) {
      checks.fail(at + "model.rope_scaling.high_freq_factor", "expected more than low_freq_factor");
    }
    return;
  }
  checks.range(at + "model.max_positions", m.max_positions, 1, 1 << 24);
  if (m.rope_theta != ModelSpec().rope_theta || scaling.factor != 0) {
    checks.fail(at + "model.rope_theta", "expected neither it nor rope_scaling with arch " +
                                             std::string(to_word(m.arch)) +
                                             ", whose positions are learned");
  }
  if (m.max_positions > 0 && t.data.seq_len > m.max_positions) {
    checks.fail(at + "data.seq_len", "expected at most model.max_positions (" +
                                         std::to_string(m.max_positions) + "), found " +
                                         std::to_string(t.data.seq_len));
  }
}

void check_heads(const ModelSpec& m, SpecChecks& checks) {
  if (m.dim < 1 || m.heads < 1 || m.kv_heads < 1) return;
  const std::string at = "workload.train.model.";
  const ArchitectureTraits& traits = traits_of(m.arch);
  // Rotary positions turn pairs.
  const bool even = traits.positions == Positions::kRotary;
  if (m.head_dim > 0) {
    if (traits.head_dim == HeadDim::kOfDim && m.head_dim * m.heads != m.dim) {
      checks.fail(at + "head_dim", "expected dim / heads, which arch " +
                                       std::string(to_word(m.arch)) + " always has; found " +
                                       std::to_string(m.head_dim));
    } else if (even && m.head_dim % 2 != 0) {
      checks.fail(at + "head_dim", "expected an even number, found " + std::to_string(m.head_dim));
    }
  } else if (m.dim % m.heads != 0 || (even && (m.dim / m.heads) % 2 != 0)) {
    checks.fail(at + "heads", std::string("expected dim / heads to be ") +
                                  (even ? "an even" : "a") + " whole number, found " +
                                  std::to_string(m.dim) + " / " + std::to_string(m.heads));
  }
  if (m.sliding_window > 0 && traits.window == Window::kNone) {
    checks.fail(at + "sliding_window", "expected 0: arch " + std::string(to_word(m.arch)) +
                                           " has no window; found " +
                                           std::to_string(m.sliding_window));
  }
  const std::string heads = "heads (" + std::to_string(m.heads) + ")";
  if (traits.key_heads == KeyHeads::kOwn && m.kv_heads != m.heads) {
    checks.fail(at + "kv_heads", "expected " + heads + ": arch " + to_word(m.arch) +
                                     " does not share them; found " + std::to_string(m.kv_heads));
  } else if (m.heads % m.kv_heads != 0) {
    checks.fail(at + "kv_heads",
                "expected a divisor of " + heads + ", found " + std::to_string(m.kv_heads));
  }
}

void check_loss_scale(const LossScaleSpec& s, SpecChecks& checks) {
  const std::string at = "workload.train.loss_scale.";
  const auto power_of_two = [&](const char* key, int64_t value) {
    return value >= 1 && value <= kMaxLossScale && (value & (value - 1)) == 0
               ? true
               : checks.fail(at + key, "expected a power of two from 1 to " +
                                           std::to_string(kMaxLossScale) + ", found " +
                                           std::to_string(value));
  };
  if (power_of_two("initial", s.initial) && power_of_two("min", s.min) && s.min > s.initial) {
    checks.fail(at + "min", "expected at most initial (" + std::to_string(s.initial) + "), found " +
                                std::to_string(s.min));
  }
}

// No worker may be without a sample. Those that share a layer or a sequence have the same ones.
void check_batch(const TrainSpec& t, int64_t world_size, SpecChecks& checks) {
  const BatchSpec& batch = t.batch;
  const int64_t unit = std::max<int64_t>(1, t.degrees.unit());
  const int64_t fewest = world_size / unit;
  const std::string at = "workload.train.batch.";
  const auto enough = [&](const std::string& key, int64_t global) {
    if (!checks.range(key, global, 1, int64_t{1} << 40)) return;
    if (global >= fewest) return;
    checks.fail(key, std::string("expected at least nodes x workers_per_node ") +
                         (unit == 1 ? "(" : "/ pipeline x context x tensor degree (") +
                         std::to_string(fewest) + "), found " + std::to_string(global));
  };
  enough(at + "global", batch.global);
  int64_t until = 0;
  for (const RampPoint& point : batch.ramp) {
    if (point.samples <= until) {
      checks.fail(at + "ramp", "expected increasing numbers of samples, found " +
                                   std::to_string(point.samples) + " after " +
                                   std::to_string(until));
    }
    until = point.samples;
    enough(at + "ramp", point.global);
  }
}

void check_parallelism(const TrainSpec& t, int64_t world_size, SpecChecks& checks) {
  const std::string at = "workload.train.parallelism.";
  if (t.shard_group > 0 && t.strategy != Strategy::kHybrid && !t.automatic.strategy) {
    checks.fail(at + "shard_group", "expected with strategy hybrid only");
  } else if (t.shard_group > 0 && world_size % t.shard_group != 0) {
    checks.fail(at + "shard_group", "expected a divisor of nodes x workers_per_node (" +
                                        std::to_string(world_size) + "), found " +
                                        std::to_string(t.shard_group));
  }
  const bool shards_parameters = t.strategy == Strategy::kFull || t.strategy == Strategy::kHybrid;
  if (t.reshard_after_forward == Reshard::kAlways && !shards_parameters) {
    checks.fail(at + "reshard_after_forward", std::string("expected auto or never: strategy ") +
                                                  to_word(t.strategy) + " keeps whole parameters");
  }
  const std::string memory = "workload.train.memory.";
  const Checkpointing checkpointing = t.memory.activation_checkpointing;
  for (const Offload part : t.memory.offload) {
    const bool frees = shards_parameters && t.reshard_after_forward != Reshard::kNever;
    if (part == Offload::kParameters && !frees) {
      checks.fail(memory + "offload",
                  "parameters expected with strategy full or hybrid, not with "
                  "reshard_after_forward never: whole parameters stay on the GPU here; "
                  "offload optimizer alone");
    }
    const bool recomputes_layers = checkpointing == Checkpointing::kFull ||
                                   checkpointing == Checkpointing::kSelective ||
                                   t.automatic.activation_checkpointing;
    if (part == Offload::kActivations && !recomputes_layers) {
      checks.fail(memory + "offload",
                  "activations expected with activation_checkpointing full or selective: what "
                  "leaves are the inputs of recomputed layers");
    }
  }
}

void check_blend(const DataSpec& data, SpecChecks& checks) {
  const std::string at = "workload.train.data.";
  if (!data.path.empty()) checks.fail(at + "blend", "given together with path; give one of them");
  checks.range(at + "blend", static_cast<int64_t>(data.blend.size()), 1, 256);
  for (const BlendPart& part : data.blend) {
    checks.number(at + "blend." + part.path, part.weight, 1e-9, 1e9);
  }
}

void check_split(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.data.split";
  const std::vector<double>& split = t.data.split;
  if (split.size() != 3) {
    checks.fail(at, "expected three numbers, of training, validation and test");
    return;
  }
  for (const double part : split) checks.number(at, part, 0, 1e9);
  if (split[0] == 0) checks.fail(at, "expected a training part above 0");
  if (t.validation.every_steps > 0 && split[1] == 0) {
    checks.fail(at, "expected a validation part above 0, as validation.every_steps is given");
  }
}

void check_format(const DataSpec& data, SpecChecks& checks) {
  const std::string at = "workload.train.data.";
  const bool chat = data.format == DataFormat::kChat;
  if (chat && data.chat_template == ChatTemplate::kNone) {
    checks.fail(at + "chat_template", "expected chatml or llama3 with format chat");
  } else if (!chat && data.chat_template != ChatTemplate::kNone) {
    checks.fail(at + "chat_template", "expected with format chat only");
  }
  if (data.has_answers() && data.mask == DocumentMask::kBorders) {
    checks.fail(at + "mask", std::string("expected documents, or no mask, with format ") +
                                 to_word(data.format) + ", which keeps what it packs apart");
  }
}

void check_data(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.";
  check_format(t.data, checks);
  if (!t.data.blend.empty()) check_blend(t.data, checks);
  if (t.data.blend.empty() && t.data.path.empty()) {
    checks.fail(at + "data.path",
                "expected a text file, a directory of text files or the prefix of a dataset");
  }
  if (t.data.tokenizer != "byte" && !t.data.tokenizer.starts_with('/')) {
    checks.fail(at + "data.tokenizer",
                "expected byte or the path of a tokenizer.json, vocab.json or tokenizer.model");
  }
  check_split(t, checks);
}

void check_lora(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.lora.";
  if (!t.lora.on()) {
    if (!t.lora.base.empty()) checks.fail(at + "rank", "expected at least 1, as base is given");
    return;
  }
  if (!t.lora.base.starts_with('/')) {
    checks.fail(at + "base", "expected the path of a checkpoint of the model");
  }
  if (t.model.arch == Arch::gpt) checks.fail(at + "rank", "expected 0 with arch gpt");
  std::vector<LoraTarget> targets = t.lora.targets;
  std::sort(targets.begin(), targets.end());
  if (targets.empty() || std::adjacent_find(targets.begin(), targets.end()) != targets.end()) {
    checks.fail(at + "targets",
                "expected one or more of " + all_words<LoraTarget>() + ", each once");
  }
  for (const Offload part : t.memory.offload) {
    if (part == Offload::kActivations) continue;
    checks.fail("workload.train.memory.offload",
                std::string("expected no ") + to_word(part) +
                    " with lora: the state of adapters is small, and the base's weights stay on "
                    "the GPU");
  }
}

// Gathers send parameters in bf16 as they are, so they must be of the type of computation.
void check_master(const TrainSpec& t, SpecChecks& checks) {
  if (t.optimizer.master == StateType::kFp32) return;
  const std::string at = "workload.train.optimizer.master";
  if (t.precision != Precision::kBf16) {
    checks.fail(at, std::string("expected fp32 with precision ") + to_word(t.precision) +
                        ", or precision bf16; found bf16");
  }
  if (t.optimizer.moments == StateType::kFp32) {
    checks.fail(at, "expected fp32 with moments fp32, or moments bf16; found bf16");
  }
  if (t.lora.on()) {
    checks.fail(at, "expected fp32 with lora: the state of adapters is small; found bf16");
  }
  for (const Offload part : t.memory.offload) {
    if (part == Offload::kActivations) continue;
    checks.fail("workload.train.memory.offload",
                std::string("expected no ") + to_word(part) +
                    " with optimizer.master bf16: offload moves fp32 parameters; take one of the "
                    "two");
  }
}

// Values that no LibTorch supports. The trainer finds those that only some do
// (trainer/arch/gpu_attention.h).
void check_gpu(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.gpu.attention";
  const GpuAttention attention = t.gpu.attention;
  const bool fused = attention == GpuAttention::kFlash || attention == GpuAttention::kCudnn;
  const std::string word = to_word(attention);
  if (fused && t.precision == Precision::kFp32) {
    checks.fail(at, "expected auto or products with precision fp32, which " + word +
                        " does not take; found " + word);
  }
  if (attention == GpuAttention::kCudnn) {
    const bool windowed = t.model.is_windowed(t.data.seq_len);
    if (windowed || t.data.keeps_apart()) {
      checks.fail(at, std::string("expected auto or flash with ") +
                          (windowed ? "a sliding window" : "documents kept apart") +
                          ", which cudnn does not know; found cudnn");
    } else if (t.gpu.deterministic) {
      checks.fail(at,
                  "expected auto or flash, or deterministic: false: LibTorch takes cuDNN's "
                  "attention for one that may add in any order; found cudnn");
    }
  }
  if (t.stability.reexecute && !t.gpu.deterministic) {
    checks.fail("workload.train.stability.reexecute",
                "expected false with gpu.deterministic: false: another result of the same step "
                "is then no fault of the hardware");
  }
}

}  // namespace

void check_train(const TrainSpec& t, WorkerCounts workers, SpecChecks& checks) {
  check_limits(t, checks);
  check_heads(t.model, checks);
  check_positions(t, checks);
  check_data(t, checks);
  check_batch(t, workers.world_size, checks);
  if (t.schedule.name == ScheduleShape::kWsd) {
    checks.range("workload.train.schedule.decay_steps", t.schedule.decay_steps, 1, kMaxSteps);
  }
  if (t.schedule.name == ScheduleShape::kConstant && t.schedule.decay_steps > 0) {
    checks.fail("workload.train.schedule.decay_steps",
                "expected 0 with schedule.name: constant, which has no decrease");
  }
  check_parallelism(t, workers.world_size, checks);
  check_degrees(t, workers, checks);
  check_loss_scale(t.loss_scale, checks);
  check_master(t, checks);
  check_gpu(t, checks);
  check_lora(t, checks);
}

}  // namespace hpctl
