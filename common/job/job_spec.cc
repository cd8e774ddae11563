// SPDX-License-Identifier: Apache-2.0
#include "common/job/job_spec.h"

#include <set>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/job/environment_file.h"
#include "common/job/job_spec_json.h"
#include "common/job/spec_checks.h"
#include "common/process/python_command.h"

namespace hpctl {

namespace {

using nlohmann::json;

constexpr int64_t kMaxNodes = 100'000;
constexpr size_t kShownName = 80;  // bytes, of one that is wrong
constexpr int64_t kMaxDurationMs = int64_t{365} * 86'400'000;

void check_duration(const char* key, int64_t ms, int64_t low_ms, SpecChecks& checks) {
  if (ms >= low_ms && ms <= kMaxDurationMs) return;
  checks.fail(
      key, "expected " + std::to_string(low_ms) + "ms to 365d, found " + std::to_string(ms) + "ms");
}

bool is_inside(const std::string& path, const std::string& directory) {
  return !directory.empty() && path.size() > directory.size() && path.starts_with(directory) &&
         (directory.ends_with('/') || path[directory.size()] == '/');
}

// Links and mounts are compared where the directories are (common/base/apart.h).
void check_mirror(const CheckpointSpec& c, SpecChecks& checks) {
  const MirrorSpec& m = c.mirror;
  checks.range("checkpoint.mirror.every", m.every, 0, kMaxSteps);
  check_duration("checkpoint.mirror.after", m.after_ms, 1, checks);
  if (m.dir.empty()) return;
  if (m.dir[0] != '/') {
    checks.fail("checkpoint.mirror.dir", "expected an absolute path; found \"" + m.dir + "\"");
  } else if (m.dir == c.dir || is_inside(m.dir, c.dir) || is_inside(c.dir, m.dir)) {
    checks.fail("checkpoint.mirror.dir", "expected a directory apart from checkpoint.dir (" +
                                             c.dir + "), best on another file system; found \"" +
                                             m.dir + "\"");
  }
}

void check_checkpoint(const CheckpointSpec& c, SpecChecks& checks) {
  if (!c.dir.empty() && c.dir[0] != '/') {
    checks.fail("checkpoint.dir", "expected an absolute path; found \"" + c.dir + "\"");
  }
  checks.range("checkpoint.every_steps", c.every_steps, 0, kMaxSteps);
  checks.number("checkpoint.every_minutes", c.every_minutes, 0, 1e6);
  checks.range("checkpoint.keep", c.keep, 1, 1'000'000);
  if (checks.range("checkpoint.keep_every", c.keep_every, 0, kMaxSteps) && c.keep_every > 0 &&
      (c.every_steps < 1 || c.keep_every % c.every_steps != 0)) {
    checks.fail("checkpoint.keep_every", "expected a multiple of checkpoint.every_steps (" +
                                             std::to_string(c.every_steps) + "), found " +
                                             std::to_string(c.keep_every));
  }
  if (c.resume != "latest" && c.resume != "none" && (c.resume.empty() || c.resume[0] != '/')) {
    checks.fail("checkpoint.resume",
                "expected latest, none or an absolute path; found \"" + c.resume + "\"");
  }
  check_mirror(c, checks);
}

// Without a checkpoint so far back, a rollback would stop short of what it is to leave behind.
void check_rollback(const StabilitySpec& s, const CheckpointSpec& c, SpecChecks& checks) {
  if (s.policy != BadStepPolicy::kRollback || c.keep_every > 0 || c.keep < 1 || c.every_steps < 0)
    return;
  // The product itself may be too large.
  const int64_t needed = s.rollback_steps / c.keep + (s.rollback_steps % c.keep != 0 ? 1 : 0);
  if (c.every_steps >= needed) return;
  checks.fail(
      "workload.train.stability.rollback_steps",
      "expected at most checkpoint.keep x checkpoint.every_steps (" + std::to_string(c.keep) +
          " x " + std::to_string(c.every_steps) + " = " + std::to_string(c.keep * c.every_steps) +
          "), since older checkpoints are gone; " + "found " + std::to_string(s.rollback_steps) +
          "; raise checkpoint.keep or every_steps, give checkpoint.keep_every, or lower it");
}

void check_on_node_loss(const std::vector<std::string>& actions, SpecChecks& checks) {
  const std::string key = "recovery.on_node_loss";
  if (actions.empty()) {
    checks.fail(key, "expected at least one of spare, shrink, requeue, wait");
    return;
  }
  std::set<std::string> seen;
  for (const std::string& action : actions) {
    if (!checks.one_of(
            key, action,
            {kOnNodeLossSpare, kOnNodeLossShrink, kOnNodeLossRequeue, kOnNodeLossWait})) {
      return;
    }
    if (!seen.insert(action).second) {
      checks.fail(key, "expected each action once, found " + action + " twice");
      return;
    }
    if (seen.contains(kOnNodeLossWait) && action != kOnNodeLossWait) {
      checks.fail(key, "expected wait as the last action, since it never ends; found " + action +
                           " after it");
      return;
    }
  }
}

void check_recovery(const RecoverySpec& r, SpecChecks& checks) {
  checks.range("recovery.max_restarts", r.max_restarts, 0, 1'000'000);
  if (r.grace_ms < 0 || r.grace_ms > 300'000) {
    checks.fail("recovery.grace", "expected 0s to 5m, found " + std::to_string(r.grace_ms) + "ms");
  }
  checks.range("recovery.standbys", r.standbys, 0, 64);
  checks.range("recovery.snapshot.every_steps", r.snapshot.every_steps, 0, 1'000'000);
  checks.range("recovery.snapshot.replicas", r.snapshot.replicas, 0, 1);
  check_duration("recovery.window", r.window_ms, 1, checks);
  check_duration("recovery.heartbeat_timeout", r.heartbeat_timeout_ms, 100, checks);
  check_duration("recovery.hang_timeout", r.hang_timeout_ms, 0, checks);
  check_on_node_loss(r.on_node_loss, checks);
}

void check_environment_files(const std::vector<std::string>& files, SpecChecks& checks) {
  if (files.size() > kMostEnvironmentFiles) {
    checks.fail("env.files", "expected at most " + std::to_string(kMostEnvironmentFiles) +
                                 " files, found " + std::to_string(files.size()));
    return;
  }
  for (const std::string& file : files) {
    if (file.starts_with('/')) continue;
    checks.fail("env.files", "expected paths, found \"" + file + "\"");
    return;
  }
}

void check_observe(const JobSpec& spec, SpecChecks& checks) {
  if (!spec.recovery.observe || !spec.train) return;
  checks.fail("recovery.observe",
              "only a workload.command can be observed; the built-in trainer's ranks do not go on "
              "without hpctl; remove this key");
}

// The reader of job.yaml checks the patterns, and the holder, which searches with them.
std::string problem_of(const HangRule& rule) {
  if (rule.pattern.empty() || rule.pattern.size() > kMostHangPatternBytes) {
    return "expected a pattern of 1 to " + std::to_string(kMostHangPatternBytes) +
           " bytes, found one of " + std::to_string(rule.pattern.size());
  }
  if (rule.pattern.find_first_of("\n\r") != std::string::npos) {
    return "expected a pattern on one line, as it is looked for in lines";
  }
  const auto is_in_range = [](int64_t ms) { return ms >= kLeastHangRuleMs && ms <= kMostLimitMs; };
  if (!is_in_range(rule.within_ms)) {
    return "expected within: 1s to 30d, found " + std::to_string(rule.within_ms) + "ms";
  }
  if (rule.first_ms != 0 && !is_in_range(rule.first_ms)) {
    return "expected first: auto or 1s to 30d, found " + std::to_string(rule.first_ms) + "ms";
  }
  return "";
}

void check_hang_rules(const JobSpec& spec, SpecChecks& checks) {
  const std::string key = "recovery.hang_rules";
  const std::vector<HangRule>& rules = spec.recovery.hang_rules;
  if (rules.empty()) return;
  if (spec.train) {
    checks.fail(key,
                "these are for a workload.command; hpctl sees the steps of the built-in trainer "
                "(recovery.hang_timeout); remove this key");
    return;
  }
  if (rules.size() > kMostHangRules) {
    checks.fail(key, "expected at most " + std::to_string(kMostHangRules) + " rules, found " +
                         std::to_string(rules.size()));
    return;
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    const std::string problem = problem_of(rules[i]);
    if (problem.empty()) continue;
    checks.fail(key, "rule " + std::to_string(i + 1) + ": " + problem);
    return;
  }
}

void check_standby_imports(const JobSpec& spec, SpecChecks& checks) {
  const std::string key = "recovery.standby_imports";
  const std::vector<std::string>& modules = spec.recovery.standby_imports;
  if (modules.empty()) return;
  if (modules.size() > kMostStandbyImports) {
    checks.fail(key, "expected at most " + std::to_string(kMostStandbyImports) +
                         " modules, found " + std::to_string(modules.size()));
  }
  for (const std::string& module : modules) {
    if (is_module_name(module)) continue;
    checks.fail(
        key, "expected names as `import` takes them, such as torch.distributed, found " + module);
    return;
  }
  // A script's first line is not checked here: the script may be on the nodes alone.
  if (!python_command(spec.command) && !may_be_script(spec.command)) {
    checks.fail(key,
                "only a workload.command that starts with python (python train.py, python -m x, "
                "uv run -- python train.py) or with the path of a Python script (./train.py) can "
                "be run by a standby; remove this key or start the program so");
  }
}

void check_limits(const Limits& limits, SpecChecks& checks) {
  for (const LimitKey& key : kLimitKeys) {
    const int64_t ms = limits.*key.ms;
    if (ms == 0 || (ms >= kLeastLimitMs && ms <= kMostLimitMs)) continue;
    checks.fail(std::string("limits.") + key.name,
                "expected auto or 100ms to 30d, found " + std::to_string(ms) + "ms");
  }
}

void check_around(const JobSpec& spec, SpecChecks& checks) {
  check_environment_files(spec.env_files, checks);
  checks.one_of("env.kind", spec.environment.kind, {"auto", "venv", "uv", "container", "none"});
  const int64_t timeout = spec.hooks.timeout_ms;
  if (timeout < 1000 || timeout > 3'600'000) {
    checks.fail("hooks.timeout", "expected 1s to 1h, found " + std::to_string(timeout) + "ms");
  }
  constexpr size_t kMostHooks = 16;
  for (const auto& [key, lines] :
       {std::pair("hooks.pre", &spec.hooks.pre), std::pair("hooks.post", &spec.hooks.post)}) {
    if (lines->size() <= kMostHooks) continue;
    checks.fail(key, "expected at most " + std::to_string(kMostHooks) + " command lines, found " +
                         std::to_string(lines->size()));
  }
  std::set<std::string> seen;
  for (const std::string& check : spec.health.preflight) {
    if (!checks.one_of("health.preflight", check, {"gpu", "efa", "net", "host", "fs"})) return;
    if (seen.insert(check).second) continue;
    checks.fail("health.preflight", check + " is given twice");
    return;
  }
}

bool valid_name(const std::string& name) {
  if (name.empty() || name.size() > 64) return false;
  for (const char c : name) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_' || c == '.';
    if (!ok) return false;
  }
  return name.find_first_not_of("0123456789") != std::string::npos;
}

// A spec of a release that had the limit for a full disk alone.
void take_former_limit(const json& checkpoint, Limits& limits) {
  const int64_t former_ms = checkpoint.value("disk_full_limit_ms", int64_t{0});
  if (limits.storage_ms == 0 && former_ms > 0) {
    limits.storage_ms = std::clamp(former_ms, kLeastLimitMs, kMostLimitMs);
  }
}

}  // namespace

std::string to_json_text(const JobSpec& spec) {
  json j = {{"name", spec.name},
            {"nodes", spec.nodes},
            {"min_nodes", spec.min_nodes},
            {"spares", spec.spares},
            {"workers_per_node", spec.workers_per_node},
            {"env", spec.env},
            {"command", spec.command},
            {"checkpoint", spec.checkpoint},
            {"recovery", spec.recovery},
            {"limits", spec.limits},
            {"slurm", spec.slurm},
            {"environment", spec.environment},
            {"hooks", spec.hooks},
            {"health", spec.health},
            {"notify", spec.notify},
            {"ledger", spec.ledger},
            {"chaos", spec.chaos}};
  if (!spec.env_files.empty()) j["env_files"] = spec.env_files;
  if (spec.train) j["train"] = *spec.train;
  if (!spec.chosen.values.empty()) j["chosen"] = spec.chosen;
  return json_text(j);
}

Result<JobSpec> job_spec_from_json(const std::string& text) {
  json j;
  try {
    j = parse_json(text);
    JobSpec spec;
    j.at("name").get_to(spec.name);
    j.at("nodes").get_to(spec.nodes);
    spec.min_nodes = j.value("min_nodes", spec.min_nodes);
    spec.spares = j.value("spares", spec.spares);
    j.at("workers_per_node").get_to(spec.workers_per_node);
    j.at("env").get_to(spec.env);
    if (j.contains("env_files")) j.at("env_files").get_to(spec.env_files);
    j.at("command").get_to(spec.command);
    j.at("checkpoint").get_to(spec.checkpoint);
    j.at("recovery").get_to(spec.recovery);
    if (j.contains("limits")) j.at("limits").get_to(spec.limits);
    take_former_limit(j.at("checkpoint"), spec.limits);
    if (j.contains("slurm")) j.at("slurm").get_to(spec.slurm);  // absent in older stores
    if (j.contains("environment")) j.at("environment").get_to(spec.environment);
    if (j.contains("hooks")) j.at("hooks").get_to(spec.hooks);
    if (j.contains("health")) j.at("health").get_to(spec.health);
    if (j.contains("notify")) j.at("notify").get_to(spec.notify);
    j.at("ledger").get_to(spec.ledger);
    spec.chaos = j.value("chaos", false);  // absent from specs stored before it was known
    if (j.contains("train")) spec.train = j.at("train").get<TrainSpec>();
    if (j.contains("chosen")) j.at("chosen").get_to(spec.chosen);
    if (const auto problems = find_problems(spec); !problems.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   problems.front().key + ": " + problems.front().message};
    }
    return spec;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, "not a job document: " + problem_in(j, e)};
  }
}

std::vector<SpecProblem> find_problems(const JobSpec& spec) {
  SpecChecks checks;
  if (!valid_name(spec.name)) {
    checks.fail("name", "expected 1 to 64 of A-Z a-z 0-9 - _ . and not digits only; found \"" +
                            printable_line(spec.name, kShownName) + "\"");
  }
  const bool nodes = checks.range("nodes.count", spec.nodes, 1, kMaxNodes);
  if (nodes && spec.min_nodes != 0) checks.range("nodes.min", spec.min_nodes, 1, spec.nodes);
  checks.range("nodes.spares", spec.spares, 0, kMaxNodes);
  const bool workers = checks.range("workers_per_node", spec.workers_per_node, 1, 1024);
  if (spec.train.has_value() == !spec.command.empty()) {
    checks.fail("workload", "expected exactly one of train and command");
  }
  if (spec.train && spec.command.empty()) {
    WorkerCounts counts = {.is_auto = spec.auto_workers,
                           .has_gpus = spec.slurm.gres.starts_with("gpu")};
    if (nodes && workers && !spec.auto_workers) {
      counts.world_size = spec.world_size();
      counts.per_node = spec.workers_per_node;
    }
    check_train(*spec.train, counts, checks);
  }
  check_checkpoint(spec.checkpoint, checks);
  if (spec.train) check_rollback(spec.train->stability, spec.checkpoint, checks);
  check_recovery(spec.recovery, checks);
  check_observe(spec, checks);
  check_hang_rules(spec, checks);
  check_standby_imports(spec, checks);
  check_limits(spec.limits, checks);
  check_slurm(spec.slurm, checks);
  if (workers && spec.slurm.cpus_per_task > 65'535 / spec.workers_per_node) {
    checks.fail("slurm.cpus_per_task", "expected at most 65535 on a node, times workers_per_node");
  }
  check_around(spec, checks);
  check_notify(spec.notify, checks);
  return checks.take();
}

}  // namespace hpctl
