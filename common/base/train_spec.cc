// SPDX-License-Identifier: Apache-2.0
#include "common/base/train_spec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/architecture.h"
#include "common/base/spec_checks.h"

namespace hpctl {

namespace {

void check_rotary(const ModelSpec& m, SpecChecks& checks) {
  const std::string at = "workload.train.model.";
  checks.range(at + "max_positions", m.max_positions, 0, 1 << 24);
  checks.number(at + "rope_theta", m.rope_theta, 1.0, 1e9);
  const RopeScalingSpec& scaling = m.rope_scaling;
  if (scaling.factor == 0) return;
  checks.number(at + "rope_scaling.factor", scaling.factor, 1.0, 1e4);
  checks.number(at + "rope_scaling.low_freq_factor", scaling.low_freq_factor, 1e-3, 1e4);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    checks.fail(at + "rope_scaling.high_freq_factor", "expected more than low_freq_factor");
  }
  checks.range(at + "rope_scaling.original_max_len", scaling.original_max_len, 1, 1 << 24);
}

void check_learned_positions(const ModelSpec& m, SpecChecks& checks) {
  const std::string at = "workload.train.model.";
  checks.range(at + "max_positions", m.max_positions, 1, 1 << 24);
  if (m.rope_theta != ModelSpec().rope_theta || m.rope_scaling.factor != 0) {
    checks.fail(at + "rope_theta", "expected neither it nor rope_scaling with arch " + m.arch +
                                       ", whose positions are learned");
  }
}

void check_heads(const ModelSpec& m, const ArchitectureTraits& traits, SpecChecks& checks) {
  const std::string at = "workload.train.model.";
  // Rotary positions turn pairs.
  const bool even = traits.positions == Positions::kRotary;
  if (m.dim % m.heads != 0 || (even && (m.dim / m.heads) % 2 != 0)) {
    checks.fail(at + "heads", std::string("expected dim / heads to be ") +
                                  (even ? "an even" : "a") + " whole number, found " +
                                  std::to_string(m.dim) + " / " + std::to_string(m.heads));
  }
  const std::string heads = "heads (" + std::to_string(m.heads) + ")";
  if (traits.key_heads == KeyHeads::kOwn && m.kv_heads != m.heads) {
    checks.fail(at + "kv_heads", "expected " + heads + ": arch " + m.arch +
                                     " does not share them; found " + std::to_string(m.kv_heads));
  } else if (m.heads % m.kv_heads != 0) {
    checks.fail(at + "kv_heads",
                "expected a divisor of " + heads + ", found " + std::to_string(m.kv_heads));
  }
}

void check_model(const ModelSpec& m, SpecChecks& checks) {
  const std::string at = "workload.train.model.";
  const bool dim = checks.range(at + "dim", m.dim, 1, 1 << 20);
  checks.range(at + "layers", m.layers, 1, 10'000);
  const bool heads = checks.range(at + "heads", m.heads, 1, 1 << 16);
  const bool kv_heads = checks.range(at + "kv_heads", m.kv_heads, 1, 1 << 16);
  checks.range(at + "ffn", m.ffn, 1, 1 << 22);
  checks.range(at + "vocab", m.vocab, 256, 1 << 24);
  checks.number(at + "norm_eps", m.norm_eps, 1e-12, 1e-2);
  std::vector<std::string> names;
  for (const ArchitectureTraits& traits : kArchitectureTraits) names.emplace_back(traits.name);
  if (!checks.one_of(at + "arch", m.arch, names)) return;
  const ArchitectureTraits& traits = *find_architecture_traits(m.arch);
  if (dim && heads && kv_heads) check_heads(m, traits, checks);
  if (traits.positions == Positions::kLearned) {
    check_learned_positions(m, checks);
  } else {
    check_rotary(m, checks);
  }
}

void check_schedule(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.schedule.";
  const ScheduleSpec& s = t.schedule;
  checks.one_of(at + "name", s.name, {"cosine", "linear", "wsd", "constant"});
  checks.one_of(at + "unit", s.unit, {"steps", "samples"});
  checks.range(at + "warmup_steps", s.warmup_steps, 0, kMaxSteps);
  checks.range(at + "decay_steps", s.decay_steps, s.name == "wsd" ? 1 : 0, kMaxSteps);
  checks.one_of(at + "decay", s.decay, {"linear", "sqrt", "cosine"});
  checks.number(at + "min_lr_ratio", s.min_lr_ratio, 0.0, 1.0);
}

void check_stability(const StabilitySpec& s, SpecChecks& checks) {
  const std::string at = "workload.train.stability.";
  checks.one_of(at + "policy", s.policy, {"stop", "skip", "rollback"});
  checks.range(at + "window", s.window, 16, 100'000);
  checks.number(at + "z_score", s.z_score, 1.0, 1e6);
  if (s.factor != 0) checks.number(at + "factor", s.factor, 1.0, 1e6);
  checks.range(at + "rollback_steps", s.rollback_steps, 1, kMaxSteps);
  checks.range(at + "skip_steps", s.skip_steps, 0, 1'000'000);
  checks.range(at + "max_skips", s.max_skips, 0, 1'000'000);
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
  checks.range(at + "growth_interval", s.growth_interval, 1, kMaxSteps);
  checks.range(at + "hysteresis", s.hysteresis, 1, 1000);
}

// No worker may be without a sample.
void check_batch(const BatchSpec& batch, int64_t world_size, SpecChecks& checks) {
  const std::string at = "workload.train.batch.";
  checks.range(at + "micro", batch.micro, 1, 1 << 20);
  const auto enough = [&](const std::string& key, int64_t global) {
    if (!checks.range(key, global, 1, int64_t{1} << 40)) return;
    if (global >= world_size) return;
    checks.fail(key, "expected at least nodes x workers_per_node (" + std::to_string(world_size) +
                         "), found " + std::to_string(global));
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

void check_optimizer(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.optimizer.";
  const OptimizerSpec& o = t.optimizer;
  checks.number(at + "lr", o.lr, 0.0, 10.0);
  checks.number(at + "beta1", o.beta1, 0.0, 0.9999999);
  checks.number(at + "beta2", o.beta2, 0.0, 0.9999999);
  checks.number(at + "eps", o.eps, 1e-16, 1.0);
  checks.number(at + "weight_decay", o.weight_decay, 0.0, 10.0);
  checks.one_of(at + "moments", o.moments, {"fp32", "bf16"});
  checks.number(at + "clip", o.clip, 0.0, 1e9);
  for (const std::string& group : o.no_decay) {
    checks.one_of(at + "no_decay", group, {"norms", "biases", "embeddings"});
  }
}

void check_parallelism(const TrainSpec& t, int64_t world_size, SpecChecks& checks) {
  const std::string at = "workload.train.parallelism.";
  checks.one_of(at + "strategy", t.strategy,
                {"full", "shard_grad_op", "optimizer", "no_shard", "hybrid"});
  const bool group = checks.range(at + "shard_group", t.shard_group, 0, 1 << 20);
  if (group && t.shard_group > 0 && t.strategy != "hybrid") {
    checks.fail(at + "shard_group",
                "expected with strategy hybrid only, found strategy " + t.strategy);
  } else if (group && t.shard_group > 0 && world_size % t.shard_group != 0) {
    checks.fail(at + "shard_group", "expected a divisor of nodes x workers_per_node (" +
                                        std::to_string(world_size) + "), found " +
                                        std::to_string(t.shard_group));
  }
  checks.one_of(at + "reshard_after_forward", t.reshard_after_forward, {"auto", "always", "never"});
  if (t.reshard_after_forward == "always" && t.strategy != "full" && t.strategy != "hybrid") {
    checks.fail(at + "reshard_after_forward",
                "expected auto or never: strategy " + t.strategy + " keeps whole parameters");
  }
  const std::string memory = "workload.train.memory.";
  checks.one_of(memory + "activation_checkpointing", t.memory.activation_checkpointing,
                {"none", "operations", "selective", "full"});
  checks.range(memory + "every", t.memory.every, 1, 10'000);
  for (const std::string& part : t.memory.offload) {
    checks.one_of(memory + "offload", part, {"activations", "optimizer", "parameters"});
    const bool frees =
        (t.strategy == "full" || t.strategy == "hybrid") && t.reshard_after_forward != "never";
    if (part == "parameters" && !frees) {
      checks.fail(memory + "offload",
                  "parameters expected with strategy full or hybrid, not with "
                  "reshard_after_forward never: whole parameters stay on the GPU here; "
                  "offload optimizer alone");
    }
    if (part == "activations" && t.memory.activation_checkpointing != "full" &&
        t.memory.activation_checkpointing != "selective") {
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

void check_data(const TrainSpec& t, SpecChecks& checks) {
  const std::string at = "workload.train.";
  if (!t.data.blend.empty()) check_blend(t.data, checks);
  if (t.data.blend.empty() && t.data.path.empty()) {
    checks.fail(at + "data.path",
                "expected a text file, a directory of text files or the prefix of a dataset");
  }
  if (t.data.tokenizer != "byte" && !t.data.tokenizer.starts_with('/')) {
    checks.fail(at + "data.tokenizer",
                "expected byte or the path of a SentencePiece model or a tokenizer.json");
  }
  const bool length = checks.range(at + "data.seq_len", t.data.seq_len, 2, 1 << 24);
  if (length && has_learned_positions(t.model.arch) && t.model.max_positions > 0 &&
      t.data.seq_len > t.model.max_positions) {
    checks.fail(at + "data.seq_len", "expected at most model.max_positions (" +
                                         std::to_string(t.model.max_positions) + "), found " +
                                         std::to_string(t.data.seq_len));
  }
  check_split(t, checks);
  checks.range(at + "validation.every_steps", t.validation.every_steps, 0, kMaxSteps);
  checks.range(at + "validation.sequences", t.validation.sequences, 0, kMaxSteps);
}

}  // namespace

void check_train(const TrainSpec& t, int64_t world_size, SpecChecks& checks) {
  const std::string at = "workload.train.";
  check_model(t.model, checks);
  check_data(t, checks);
  check_batch(t.batch, world_size, checks);
  checks.range(at + "steps", t.steps, 1, kMaxSteps);
  check_optimizer(t, checks);
  check_schedule(t, checks);
  check_stability(t.stability, checks);
  checks.number(at + "loss.z_loss", t.loss.z_loss, 0.0, 1.0);
  checks.range(at + "loss.chunk_tokens", t.loss.chunk_tokens, 0, 1 << 24);
  check_parallelism(t, world_size, checks);
  checks.range(at + "metrics.trace_from", t.metrics.trace_from, 0, kMaxSteps);
  checks.range(at + "metrics.trace_steps", t.metrics.trace_steps, 0, 1000);
  checks.one_of(at + "precision", t.precision, {"bf16", "fp16", "fp32"});
  check_loss_scale(t.loss_scale, checks);
}

}  // namespace hpctl
