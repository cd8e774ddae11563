// SPDX-License-Identifier: Apache-2.0
// The way back: a spec as YAML with every default written out, and the key tables for the docs.
#include <yaml-cpp/yaml.h>

#include <array>
#include <charconv>

#include "common/rpc/job_yaml.h"
#include "common/rpc/job_yaml_keys.h"

namespace hpctl {
namespace {

using YAML::BeginMap;
using YAML::EndMap;
using YAML::Key;
using YAML::Value;

// The shortest text that reads back as the same number.
std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const bool plain = value == 0 || (value >= 1e-4 && value < 1e15);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::general;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
  return {buffer.data(), end};
}

template <typename T>
void put(YAML::Emitter& out, const char* key, const T& value) {
  out << Key << key << Value << value;
}
void put(YAML::Emitter& out, const char* key, double value) {
  out << Key << key << Value << shortest(value);
}

void put_train(YAML::Emitter& out, const TrainSpec& t) {
  out << Key << "train" << Value << BeginMap;
  out << Key << "model" << Value << BeginMap;
  if (!t.model.preset.empty()) put(out, "preset", t.model.preset);
  put(out, "dim", t.model.dim);
  put(out, "layers", t.model.layers);
  put(out, "heads", t.model.heads);
  put(out, "kv_heads", t.model.kv_heads);
  put(out, "ffn", t.model.ffn);
  put(out, "vocab", t.model.vocab);
  put(out, "rope_theta", t.model.rope_theta);
  put(out, "norm_eps", t.model.norm_eps);
  out << EndMap << Key << "data" << Value << BeginMap;
  put(out, "path", t.data.path);
  put(out, "tokenizer", t.data.tokenizer);
  put(out, "seq_len", t.data.seq_len);
  out << EndMap << Key << "batch" << Value << BeginMap;
  put(out, "micro", t.batch.micro);
  put(out, "global", t.batch.global);
  out << EndMap;
  put(out, "steps", t.steps);
  put(out, "seed", std::to_string(t.seed));
  out << Key << "optimizer" << Value << BeginMap;
  put(out, "lr", t.optimizer.lr);
  put(out, "beta1", t.optimizer.beta1);
  put(out, "beta2", t.optimizer.beta2);
  put(out, "eps", t.optimizer.eps);
  put(out, "weight_decay", t.optimizer.weight_decay);
  put(out, "clip", t.optimizer.clip);
  out << EndMap << Key << "schedule" << Value << BeginMap;
  put(out, "name", t.schedule.name);
  put(out, "warmup_steps", t.schedule.warmup_steps);
  put(out, "min_lr_ratio", t.schedule.min_lr_ratio);
  out << EndMap << Key << "parallelism" << Value << BeginMap;
  put(out, "strategy", t.strategy);
  out << EndMap;
  put(out, "precision", t.precision);
  out << EndMap;
}

void put_slurm(YAML::Emitter& out, const SlurmSpec& s) {
  out << Key << "slurm" << Value << BeginMap;
  put(out, "partition", s.partition);
  put(out, "account", s.account);
  put(out, "qos", s.qos);
  put(out, "time", s.time_minutes == 0 ? "0" : format_time_limit(s.time_minutes));
  put(out, "exclusive", s.exclusive);
  put(out, "gres", s.gres);
  put(out, "constraint", s.constraint);
  put(out, "reservation", s.reservation);
  put(out, "nodelist", s.nodelist);
  put(out, "exclude", s.exclude);
  put(out, "mem", s.mem_mb < 0 ? std::string("auto") : std::to_string(s.mem_mb));
  out << Key << "container" << Value << BeginMap;
  put(out, "image", s.container.image);
  out << Key << "mounts" << Value << YAML::Flow << YAML::BeginSeq;
  for (const std::string& mount : s.container.mounts) out << YAML::DoubleQuoted << mount;
  out << YAML::EndSeq << EndMap << EndMap;
}

void put_checkpoint(YAML::Emitter& out, const CheckpointSpec& c) {
  out << Key << "checkpoint" << Value << BeginMap;
  put(out, "dir", c.dir);
  if (c.dir.empty()) out << YAML::Comment("$HPCTL_HOME/jobs/JOB/checkpoints");
  put(out, "every_steps", c.every_steps);
  put(out, "every_minutes", c.every_minutes);
  put(out, "keep", c.keep);
  put(out, "resume", c.resume);
  out << EndMap;
}

void put_recovery(YAML::Emitter& out, const RecoverySpec& r) {
  out << Key << "recovery" << Value << BeginMap;
  put(out, "max_restarts", r.max_restarts);
  put(out, "window", format_duration_ms(r.window_ms));
  put(out, "heartbeat_timeout", format_duration_ms(r.heartbeat_timeout_ms));
  put(out, "hang_timeout",
      r.hang_timeout_ms == 0 ? std::string("auto") : format_duration_ms(r.hang_timeout_ms));
  out << Key << "on_node_loss" << Value << YAML::Flow << YAML::BeginSeq;
  for (const std::string& action : r.on_node_loss) out << action;
  out << YAML::EndSeq << EndMap;
}

void put_texts(YAML::Emitter& out, const char* key, const std::vector<std::string>& texts) {
  out << Key << key << Value << YAML::Flow << YAML::BeginSeq;
  for (const std::string& text : texts) out << YAML::DoubleQuoted << text;
  out << YAML::EndSeq;
}

void put_around(YAML::Emitter& out, const JobSpec& spec) {
  out << Key << "hooks" << Value << BeginMap;
  put_texts(out, "pre", spec.hooks.pre);
  put_texts(out, "post", spec.hooks.post);
  put(out, "timeout", format_duration_ms(spec.hooks.timeout_ms));
  out << EndMap << Key << "health" << Value << BeginMap;
  put_texts(out, "preflight", spec.health.preflight);
  out << EndMap;
}

}  // namespace

std::string to_yaml(const JobSpec& spec) {
  YAML::Emitter out;
  out << BeginMap;
  put(out, "name", spec.name);
  out << Key << "nodes" << Value << BeginMap;
  put(out, "count", spec.nodes);
  put(out, "min", spec.fewest_nodes());
  put(out, "spares", spec.spares);
  out << EndMap;
  put(out, "workers_per_node", spec.workers_per_node);
  out << Key << "env" << Value << BeginMap;
  put(out, "kind", spec.environment.kind);
  if (spec.environment.kind == "uv") {
    out << YAML::Comment("the command is run by: uv run --project " + spec.environment.path);
  }
  put(out, "path", spec.environment.path);
  out << Key << "set" << Value << YAML::Flow << BeginMap;
  for (const auto& [name, value] : spec.env) out << Key << name << Value << value;
  out << EndMap << EndMap;
  put_slurm(out, spec.slurm);
  out << Key << "workload" << Value << BeginMap;
  if (spec.train) put_train(out, *spec.train);
  if (!spec.command.empty()) {
    out << Key << "command" << Value << YAML::BeginSeq;
    for (const std::string& word : spec.command) out << YAML::DoubleQuoted << word;
    out << YAML::EndSeq;
  }
  out << EndMap;
  put_checkpoint(out, spec.checkpoint);
  put_recovery(out, spec.recovery);
  put_around(out, spec);
  out << Key << "debug" << Value << BeginMap;
  put(out, "ledger", spec.ledger);
  out << EndMap << EndMap;
  return std::string(out.c_str()) + "\n";
}

std::string job_yaml_reference() {
  std::string text =
      "| Key | Type | Default | Range | Meaning |\n"
      "|---|---|---|---|---|\n";
  std::string later;
  for (const JobYamlKey& key : job_yaml_keys()) {
    const std::string path = "`" + std::string(key.path) + "`";
    if (key.kind == KeyKind::kUnavailable) {
      later += "| " + path + " | " + std::string(key.meaning) + " |\n";
      continue;
    }
    text += "| " + path;
    for (const std::string_view cell : {key.type, key.initial, key.range, key.meaning}) {
      text += " | " + std::string(cell);
    }
    text += " |\n";
  }
  return text + "\nNot available yet in this version; giving one of these is an error:\n\n" +
         "| Key | Meaning |\n|---|---|\n" + later;
}

}  // namespace hpctl
