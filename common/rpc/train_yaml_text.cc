// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/yaml_put.h"

namespace hpctl {

using YAML::BeginMap;
using YAML::EndMap;
using YAML::Key;
using YAML::Value;

void put_train(YAML::Emitter& out, const TrainSpec& t) {
  out << Key << "train" << Value << BeginMap;
  out << Key << "model" << Value << BeginMap;
  if (!t.model.preset.empty()) put(out, "preset", t.model.preset);
  put(out, "arch", t.model.arch);
  put(out, "dim", t.model.dim);
  put(out, "layers", t.model.layers);
  put(out, "heads", t.model.heads);
  put(out, "kv_heads", t.model.kv_heads);
  put(out, "ffn", t.model.ffn);
  put(out, "vocab", t.model.vocab);
  put(out, "rope_theta", t.model.rope_theta);
  put(out, "norm_eps", t.model.norm_eps);
  put(out, "tied_embeddings", t.model.tied_embeddings);
  if (t.model.max_positions > 0) put(out, "max_positions", t.model.max_positions);
  out << Key << "rope_scaling" << Value << BeginMap;
  put(out, "factor", t.model.rope_scaling.factor);
  put(out, "low_freq_factor", t.model.rope_scaling.low_freq_factor);
  put(out, "high_freq_factor", t.model.rope_scaling.high_freq_factor);
  put(out, "original_max_len", t.model.rope_scaling.original_max_len);
  out << EndMap;
  out << EndMap << Key << "data" << Value << BeginMap;
  if (t.data.blend.empty()) put(out, "path", t.data.path);
  if (!t.data.blend.empty()) {
    out << Key << "blend" << Value << BeginMap;
    for (const BlendPart& part : t.data.blend) put(out, part.path.c_str(), part.weight);
    out << EndMap;
  }
  put(out, "tokenizer", t.data.tokenizer);
  out << Key << "split" << Value << YAML::Flow << YAML::BeginSeq;
  for (const double part : t.data.split) out << shortest(part);
  out << YAML::EndSeq;
  put(out, "reset_at_documents", t.data.reset_at_documents);
  put(out, "seq_len", t.data.seq_len);
  out << EndMap << Key << "validation" << Value << BeginMap;
  put(out, "every_steps", t.validation.every_steps);
  put(out, "sequences", t.validation.sequences);
  out << EndMap << Key << "batch" << Value << BeginMap;
  put(out, "micro", t.batch.micro);
  put(out, "global", t.batch.global);
  if (!t.batch.ramp.empty()) {
    out << Key << "ramp" << Value << BeginMap;
    for (const RampPoint& point : t.batch.ramp) {
      put(out, std::to_string(point.samples).c_str(), point.global);
    }
    out << EndMap;
  }
  out << EndMap;
  put(out, "steps", t.steps);
  put(out, "seed", std::to_string(t.seed));
  out << Key << "optimizer" << Value << BeginMap;
  put(out, "lr", t.optimizer.lr);
  put(out, "beta1", t.optimizer.beta1);
  put(out, "beta2", t.optimizer.beta2);
  put(out, "eps", t.optimizer.eps);
  put(out, "weight_decay", t.optimizer.weight_decay);
  out << Key << "no_decay" << Value << YAML::Flow << t.optimizer.no_decay;
  put(out, "moments", t.optimizer.moments);
  put(out, "clip", t.optimizer.clip);
  out << EndMap << Key << "schedule" << Value << BeginMap;
  put(out, "name", t.schedule.name);
  put(out, "unit", t.schedule.unit);
  put(out, "warmup_steps", t.schedule.warmup_steps);
  put(out, "decay_steps", t.schedule.decay_steps);
  put(out, "decay", t.schedule.decay);
  put(out, "min_lr_ratio", t.schedule.min_lr_ratio);
  out << EndMap << Key << "loss" << Value << BeginMap;
  put(out, "z_loss", t.loss.z_loss);
  put(out, "chunk_tokens", t.loss.chunk_tokens);
  out << EndMap << Key << "stability" << Value << BeginMap;
  put(out, "policy", t.stability.policy);
  put(out, "spikes", t.stability.spikes);
  put(out, "window", t.stability.window);
  put(out, "z_score", t.stability.z_score);
  put(out, "factor", t.stability.factor);
  put(out, "rollback_steps", t.stability.rollback_steps);
  put(out, "skip_steps", t.stability.skip_steps);
  put(out, "max_skips", t.stability.max_skips);
  put(out, "reexecute", t.stability.reexecute);
  out << EndMap << Key << "parallelism" << Value << BeginMap;
  put(out, "strategy", t.strategy);
  put(out, "shard_group", t.shard_group);
  put(out, "reshard_after_forward", t.reshard_after_forward);
  out << EndMap << Key << "memory" << Value << BeginMap;
  put(out, "activation_checkpointing", t.memory.activation_checkpointing);
  put(out, "every", t.memory.every);
  out << Key << "offload" << Value << YAML::Flow << t.memory.offload;
  out << EndMap;
  put(out, "precision", t.precision);
  out << Key << "loss_scale" << Value << BeginMap;
  put(out, "initial", t.loss_scale.initial);
  put(out, "growth_interval", t.loss_scale.growth_interval);
  put(out, "hysteresis", t.loss_scale.hysteresis);
  put(out, "min", t.loss_scale.min);
  out << EndMap;
  out << Key << "metrics" << Value << BeginMap;
  put(out, "tensorboard", t.metrics.tensorboard);
  put(out, "trace_from", t.metrics.trace_from);
  put(out, "trace_steps", t.metrics.trace_steps);
  out << EndMap;
  out << EndMap;
}

}  // namespace hpctl
