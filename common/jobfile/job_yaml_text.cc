// SPDX-License-Identifier: Apache-2.0
// The way back: a spec as YAML with every default written out, and the key tables for the docs.
#include <yaml-cpp/yaml.h>

#include "common/jobfile/job_yaml.h"
#include "common/jobfile/job_yaml_keys.h"
#include "common/jobfile/yaml_put.h"

namespace hpctl {
namespace {

using YAML::BeginMap;
using YAML::EndMap;
using YAML::Key;
using YAML::Value;

void put_texts(YAML::Emitter& out, const char* key, const std::vector<std::string>& texts) {
  out << Key << key << Value << YAML::Flow << YAML::BeginSeq;
  for (const std::string& text : texts) out << YAML::DoubleQuoted << text;
  out << YAML::EndSeq;
}

void put_slurm(YAML::Emitter& out, const SlurmSpec& s) {
  out << Key << "slurm" << Value << BeginMap;
  put(out, "partition", s.partition);
  put(out, "account", s.account);
  put(out, "qos", s.qos);
  put(out, "time", s.time_minutes == 0 ? "0" : format_time_limit(s.time_minutes));
  put(out, "requeue_at_limit", s.requeue_at_limit);
  put(out, "exclusive", s.exclusive);
  put(out, "gres", s.gres);
  put(out, "cpus_per_task", s.cpus_per_task);
  put(out, "constraint", s.constraint);
  put(out, "reservation", s.reservation);
  put(out, "nodelist", s.nodelist);
  put(out, "exclude", s.exclude);
  put(out, "mem", s.mem_mb < 0 ? std::string("auto") : std::to_string(s.mem_mb));
  put(out, "dependency", s.dependency);
  put(out, "begin", s.begin);
  put(out, "mail_user", s.mail_user);
  put(out, "mail_type", s.mail_type);
  put(out, "nice", s.nice);
  put(out, "licenses", s.licenses);
  put(out, "comment", s.comment);
  put(out, "signal", "B:TERM@" + std::to_string(s.warning_seconds));
  put_texts(out, "extra", s.extra);
  out << Key << "container" << Value << BeginMap;
  put(out, "image", s.container.image);
  put_texts(out, "mounts", s.container.mounts);
  out << EndMap << EndMap;
}

void put_checkpoint(YAML::Emitter& out, const CheckpointSpec& c) {
  out << Key << "checkpoint" << Value << BeginMap;
  put(out, "dir", c.dir);
  if (c.dir.empty()) out << YAML::Comment("$HPCTL_HOME/jobs/JOB/checkpoints");
  put(out, "every_steps", c.every_steps);
  put(out, "every_minutes", c.every_minutes);
  put(out, "keep", c.keep);
  put(out, "keep_every", c.keep_every);
  put(out, "verify_before_delete", to_word(c.verify_before_delete));
  put(out, "resume", c.resume);
  out << Key << "mirror" << Value << BeginMap;
  put(out, "dir", c.mirror.dir);
  put(out, "every", c.mirror.every);
  put(out, "after", format_duration_ms(c.mirror.after_ms));
  out << EndMap << EndMap;
}

void put_hang_rules(YAML::Emitter& out, const std::vector<HangRule>& rules) {
  out << Key << "hang_rules" << Value << YAML::Flow << YAML::BeginSeq;
  for (const HangRule& rule : rules) {
    out << BeginMap << Key << "pattern" << Value << YAML::DoubleQuoted << rule.pattern;
    put(out, "within", format_duration_ms(rule.within_ms));
    put(out, "first", rule.first_ms == 0 ? std::string("auto") : format_duration_ms(rule.first_ms));
    put(out, "action", to_word(rule.action));
    out << EndMap;
  }
  out << YAML::EndSeq;
}

void put_recovery(YAML::Emitter& out, const RecoverySpec& r) {
  out << Key << "recovery" << Value << BeginMap;
  put(out, "max_restarts", r.max_restarts);
  put(out, "window", format_duration_ms(r.window_ms));
  put(out, "heartbeat_timeout", format_duration_ms(r.heartbeat_timeout_ms));
  put(out, "hang_timeout",
      r.hang_timeout_ms == 0 ? std::string("auto") : format_duration_ms(r.hang_timeout_ms));
  put(out, "grace", format_duration_ms(r.grace_ms));
  put(out, "standbys", r.standbys);
  put_texts(out, "standby_imports", r.standby_imports);
  out << Key << "snapshot" << Value << BeginMap;
  put(out, "every_steps",
      r.snapshot.every_steps == 0 ? std::string("auto") : std::to_string(r.snapshot.every_steps));
  put(out, "replicas", r.snapshot.replicas);
  out << EndMap;
  put(out, "straggler", to_word(r.straggler));
  out << Key << "on_node_loss" << Value << YAML::Flow << YAML::BeginSeq;
  for (const std::string& action : r.on_node_loss) out << action;
  out << YAML::EndSeq;
  put(out, "observe", r.observe);
  put_hang_rules(out, r.hang_rules);
  out << EndMap;
}

void put_limits(YAML::Emitter& out, const Limits& limits) {
  out << Key << "limits" << Value << BeginMap;
  for (const LimitKey& key : kLimitKeys) {
    const int64_t ms = limits.*key.ms;
    put(out, key.name, ms == 0 ? std::string("auto") : format_duration_ms(ms));
  }
  out << EndMap;
}

void put_around(YAML::Emitter& out, const JobSpec& spec) {
  out << Key << "hooks" << Value << BeginMap;
  put_texts(out, "pre", spec.hooks.pre);
  put_texts(out, "post", spec.hooks.post);
  put(out, "timeout", format_duration_ms(spec.hooks.timeout_ms));
  out << EndMap << Key << "health" << Value << BeginMap;
  put_texts(out, "preflight", spec.health.preflight);
  out << EndMap << Key << "notify" << Value << BeginMap;
  put(out, "webhook", spec.notify.webhook);
  put(out, "webhook_file", spec.notify.webhook_file);
  put_texts(out, "command", spec.notify.command);
  out << Key << "on" << Value << YAML::Flow << YAML::BeginSeq;
  for (const NoticeKind kind : spec.notify.on) out << to_word(kind);
  out << YAML::EndSeq << EndMap;
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
  put(out, "workers_per_node",
      spec.auto_workers ? std::string("auto") : std::to_string(spec.workers_per_node));
  out << Key << "env" << Value << BeginMap;
  put(out, "kind", spec.environment.kind);
  if (spec.environment.kind == "uv") {
    out << YAML::Comment("the command is run by: uv run --project " + spec.environment.path);
  }
  put(out, "path", spec.environment.path);
  put_texts(out, "files", spec.env_files);
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
  put_limits(out, spec.limits);
  put_around(out, spec);
  out << Key << "debug" << Value << BeginMap;
  put(out, "ledger", spec.ledger);
  put(out, "chaos", spec.chaos);
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
