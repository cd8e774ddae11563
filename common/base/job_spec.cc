// SPDX-License-Identifier: Apache-2.0
#include "common/base/job_spec.h"

#include <array>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/job_spec_json.h"

namespace hpctl {

namespace {

using nlohmann::json;

// Llama-3 flavors of TorchTitan (models/llama3/__init__.py at b5bcd76); "tiny" is ours, for tests.
struct Preset {
  const char* name;
  int64_t dim, layers, heads, kv_heads, ffn, vocab;
};
constexpr std::array<Preset, 5> kPresets = {{
    {"tiny", 64, 2, 4, 2, 192, 256},
    {"debugmodel", 256, 6, 16, 16, 768, 2048},
    {"llama3-8b", 4096, 32, 32, 8, 14336, 128256},
    {"llama3-70b", 8192, 80, 64, 8, 28672, 128256},
    {"llama3-405b", 16384, 126, 128, 8, 53248, 128256},
}};

constexpr int64_t kMaxNodes = 100'000;
constexpr int64_t kMaxSteps = int64_t{1} << 40;
constexpr int64_t kMaxDurationMs = int64_t{365} * 86'400'000;

// Collects what is wrong; every check returns true when the value is good.
class Checks {
 public:
  bool fail(const std::string& key, const std::string& message) {
    problems_.push_back(SpecProblem{key, message});
    return false;
  }

  bool range(const std::string& key, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    const std::string expected = high == kNoLimit
                                     ? "at least " + std::to_string(low)
                                     : std::to_string(low) + " to " + std::to_string(high);
    return fail(key, "expected " + expected + ", found " + std::to_string(value));
  }
  bool at_least(const std::string& key, int64_t value, int64_t low) {
    return range(key, value, low, kNoLimit);
  }

  bool number(const std::string& key, double value, double low, double high) {
    if (value >= low && value <= high) return true;
    return fail(key, "expected a number from " + text(low) + " to " + text(high) + ", found " +
                         text(value));
  }

  bool one_of(const std::string& key, const std::string& value,
              const std::vector<std::string>& allowed) {
    std::string list;
    for (const auto& word : allowed) {
      if (word == value) return true;
      list += (list.empty() ? "" : ", ") + word;
    }
    return fail(key, (allowed.size() == 1 ? "expected " : "expected one of ") + list +
                         "; found \"" + value + "\"");
  }

  std::vector<SpecProblem> take() { return std::move(problems_); }

 private:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  static std::string text(double value) {
    std::array<char, 32> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%.9g", value);
    return buffer.data();
  }

  std::vector<SpecProblem> problems_;
};

void check_model(const ModelSpec& m, Checks& checks) {
  const std::string at = "workload.train.model.";
  const bool dim = checks.range(at + "dim", m.dim, 1, 1 << 20);
  checks.range(at + "layers", m.layers, 1, 10'000);
  const bool heads = checks.range(at + "heads", m.heads, 1, 1 << 16);
  const bool kv_heads = checks.range(at + "kv_heads", m.kv_heads, 1, 1 << 16);
  checks.range(at + "ffn", m.ffn, 1, 1 << 22);
  checks.range(at + "vocab", m.vocab, 256, 1 << 24);
  if (dim && heads && (m.dim % m.heads != 0 || (m.dim / m.heads) % 2 != 0)) {
    checks.fail(at + "heads", "expected dim / heads to be an even whole number, found " +
                                  std::to_string(m.dim) + " / " + std::to_string(m.heads));
  }
  if (heads && kv_heads && m.heads % m.kv_heads != 0) {
    checks.fail(at + "kv_heads", "expected a divisor of heads (" + std::to_string(m.heads) +
                                     "), found " + std::to_string(m.kv_heads));
  }
  checks.number(at + "rope_theta", m.rope_theta, 1.0, 1e9);
  checks.number(at + "norm_eps", m.norm_eps, 1e-12, 1e-2);
}

void check_optimizer(const TrainSpec& t, Checks& checks) {
  const std::string at = "workload.train.optimizer.";
  const OptimizerSpec& o = t.optimizer;
  checks.number(at + "lr", o.lr, 0.0, 10.0);
  checks.number(at + "beta1", o.beta1, 0.0, 0.9999999);
  checks.number(at + "beta2", o.beta2, 0.0, 0.9999999);
  checks.number(at + "eps", o.eps, 1e-16, 1.0);
  checks.number(at + "weight_decay", o.weight_decay, 0.0, 10.0);
  checks.number(at + "clip", o.clip, 0.0, 1e9);
  const std::string schedule = "workload.train.schedule.";
  checks.one_of(schedule + "name", t.schedule.name, {"cosine"});
  checks.range(schedule + "warmup_steps", t.schedule.warmup_steps, 0, kMaxSteps);
  checks.number(schedule + "min_lr_ratio", t.schedule.min_lr_ratio, 0.0, 1.0);
}

void check_train(const TrainSpec& t, int64_t world_size, Checks& checks) {
  const std::string at = "workload.train.";
  check_model(t.model, checks);
  if (t.data.path.empty()) {
    checks.fail(at + "data.path", "expected a text file or a directory of text files");
  }
  checks.one_of(at + "data.tokenizer", t.data.tokenizer, {"byte"});
  checks.range(at + "data.seq_len", t.data.seq_len, 2, 1 << 24);
  const bool micro = checks.range(at + "batch.micro", t.batch.micro, 1, 1 << 20);
  const bool global = checks.range(at + "batch.global", t.batch.global, 1, int64_t{1} << 40);
  if (micro && global && world_size > 0 && t.batch.global % (t.batch.micro * world_size) != 0) {
    checks.fail(at + "batch.global", "expected a multiple of micro x nodes x workers_per_node (" +
                                         std::to_string(t.batch.micro * world_size) + "), found " +
                                         std::to_string(t.batch.global));
  }
  checks.range(at + "steps", t.steps, 1, kMaxSteps);
  check_optimizer(t, checks);
  checks.one_of(at + "parallelism.strategy", t.strategy, {"full"});
  checks.one_of(at + "precision", t.precision, {"bf16", "fp32"});
}

void check_checkpoint(const CheckpointSpec& c, Checks& checks) {
  if (!c.dir.empty() && c.dir[0] != '/') {
    checks.fail("checkpoint.dir", "expected an absolute path; found \"" + c.dir + "\"");
  }
  checks.range("checkpoint.every_steps", c.every_steps, 0, kMaxSteps);
  checks.number("checkpoint.every_minutes", c.every_minutes, 0, 1e6);
  checks.range("checkpoint.keep", c.keep, 1, 1'000'000);
  if (c.resume != "latest" && c.resume != "none" && (c.resume.empty() || c.resume[0] != '/')) {
    checks.fail("checkpoint.resume",
                "expected latest, none or an absolute path; found \"" + c.resume + "\"");
  }
}

void check_on_node_loss(const std::vector<std::string>& actions, Checks& checks) {
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

void check_recovery(const RecoverySpec& r, Checks& checks) {
  checks.range("recovery.max_restarts", r.max_restarts, 0, 1'000'000);
  const auto duration = [&](const char* key, int64_t ms, int64_t low_ms) {
    if (ms >= low_ms && ms <= kMaxDurationMs) return;
    checks.fail(key, "expected " + std::to_string(low_ms) + "ms to 365d, found " +
                         std::to_string(ms) + "ms");
  };
  duration("recovery.window", r.window_ms, 1);
  duration("recovery.heartbeat_timeout", r.heartbeat_timeout_ms, 100);
  duration("recovery.hang_timeout", r.hang_timeout_ms, 0);
  check_on_node_loss(r.on_node_loss, checks);
}

// Ends up in command lines and in Slurm's request: one line without control characters.
bool is_one_line(const std::string& text) {
  return text.find_first_of("\n\r\t") == std::string::npos;
}

void check_slurm(const SlurmSpec& s, Checks& checks) {
  const auto word = [&](const char* key, const std::string& text) {
    if (is_one_line(text) && text.find(' ') == std::string::npos && text.size() <= 4096) return;
    checks.fail(std::string("slurm.") + key, "expected one word; found \"" + text + "\"");
  };
  word("partition", s.partition);
  word("account", s.account);
  word("qos", s.qos);
  checks.range("slurm.time", s.time_minutes, 0, kMaxDurationMs / 60'000);
  word("gres", s.gres);
  word("constraint", s.constraint);
  word("reservation", s.reservation);
  word("nodelist", s.nodelist);
  word("exclude", s.exclude);
  checks.range("slurm.mem", s.mem_mb, -1, int64_t{1} << 40);
  if (!is_one_line(s.container.image)) {
    checks.fail("slurm.container.image", "expected a path or an image name on one line");
  }
  for (const std::string& mount : s.container.mounts) {
    const bool good = !mount.empty() && mount[0] == '/' && is_one_line(mount) &&
                      mount.find(',') == std::string::npos;
    if (good) continue;
    checks.fail("slurm.container.mounts",
                "expected absolute paths /SOURCE[:/TARGET[:FLAGS]] without commas; found \"" +
                    mount + "\"");
    break;
  }
  if (s.container.image.empty() && !s.container.mounts.empty()) {
    checks.fail("slurm.container.image", "expected an image, since mounts are given");
  }
}

void check_around(const JobSpec& spec, Checks& checks) {
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
    if (!checks.one_of("health.preflight", check, {"gpu", "efa", "net"})) return;
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
            {"slurm", spec.slurm},
            {"environment", spec.environment},
            {"hooks", spec.hooks},
            {"health", spec.health},
            {"ledger", spec.ledger}};
  if (spec.train) j["train"] = *spec.train;
  return j.dump();
}

Result<JobSpec> job_spec_from_json(const std::string& text) {
  try {
    const json j = json::parse(text);
    JobSpec spec;
    j.at("name").get_to(spec.name);
    j.at("nodes").get_to(spec.nodes);
    spec.min_nodes = j.value("min_nodes", spec.min_nodes);
    spec.spares = j.value("spares", spec.spares);
    j.at("workers_per_node").get_to(spec.workers_per_node);
    j.at("env").get_to(spec.env);
    j.at("command").get_to(spec.command);
    j.at("checkpoint").get_to(spec.checkpoint);
    j.at("recovery").get_to(spec.recovery);
    if (j.contains("slurm")) j.at("slurm").get_to(spec.slurm);  // absent in older stores
    if (j.contains("environment")) j.at("environment").get_to(spec.environment);
    if (j.contains("hooks")) j.at("hooks").get_to(spec.hooks);
    if (j.contains("health")) j.at("health").get_to(spec.health);
    j.at("ledger").get_to(spec.ledger);
    if (j.contains("train")) spec.train = j.at("train").get<TrainSpec>();
    if (const auto problems = find_problems(spec); !problems.empty()) {
      return Error{ErrorCode::kInvalidArgument,
                   problems.front().key + ": " + problems.front().message};
    }
    return spec;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, std::string("not a job document: ") + e.what()};
  }
}

std::vector<SpecProblem> find_problems(const JobSpec& spec) {
  Checks checks;
  if (!valid_name(spec.name)) {
    checks.fail("name", "expected 1 to 64 of A-Z a-z 0-9 - _ . and not digits only; found \"" +
                            spec.name + "\"");
  }
  const bool nodes = checks.range("nodes.count", spec.nodes, 1, kMaxNodes);
  if (nodes && spec.min_nodes != 0) checks.range("nodes.min", spec.min_nodes, 1, spec.nodes);
  checks.range("nodes.spares", spec.spares, 0, kMaxNodes);
  const bool workers = checks.range("workers_per_node", spec.workers_per_node, 1, 1024);
  if (spec.train.has_value() == !spec.command.empty()) {
    checks.fail("workload", "expected exactly one of train and command");
  }
  if (spec.train && spec.command.empty()) {
    check_train(*spec.train, nodes && workers ? spec.world_size() : 0, checks);
  }
  check_checkpoint(spec.checkpoint, checks);
  check_recovery(spec.recovery, checks);
  check_slurm(spec.slurm, checks);
  check_around(spec, checks);
  return checks.take();
}

std::optional<ModelSpec> model_preset(const std::string& name) {
  for (const Preset& p : kPresets) {
    if (name != p.name) continue;
    ModelSpec model;
    model.preset = p.name;
    model.dim = p.dim;
    model.layers = p.layers;
    model.heads = p.heads;
    model.kv_heads = p.kv_heads;
    model.ffn = p.ffn;
    model.vocab = p.vocab;
    return model;
  }
  return std::nullopt;
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

}  // namespace hpctl
