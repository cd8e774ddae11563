// SPDX-License-Identifier: Apache-2.0
#include "common/base/job_spec.h"

#include <array>
#include <nlohmann/json.hpp>

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

using Problem = std::optional<SpecProblem>;

Problem at_least(const std::string& key, int64_t value, int64_t minimum) {
  if (value >= minimum) return std::nullopt;
  return SpecProblem{
      key, "expected at least " + std::to_string(minimum) + ", found " + std::to_string(value)};
}

Problem in_range(const std::string& key, double value, double low, double high) {
  if (value >= low && value <= high) return std::nullopt;
  return SpecProblem{key, "expected a number from " + std::to_string(low) + " to " +
                              std::to_string(high) + ", found " + std::to_string(value)};
}

Problem one_of(const std::string& key, const std::string& value,
               const std::vector<std::string>& allowed) {
  std::string list;
  for (const auto& word : allowed) {
    if (word == value) return std::nullopt;
    list += (list.empty() ? "" : ", ") + word;
  }
  return SpecProblem{key, "expected one of " + list + "; found \"" + value + "\""};
}

Problem model_problem(const ModelSpec& m) {
  const std::string at = "workload.train.model.";
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"dim", m.dim},
                                                              {"layers", m.layers},
                                                              {"heads", m.heads},
                                                              {"kv_heads", m.kv_heads},
                                                              {"ffn", m.ffn}}) {
    if (auto p = at_least(at + key, value, 1)) return p;
  }
  if (auto p = at_least(at + "vocab", m.vocab, 256)) return p;
  if (m.dim % m.heads != 0 || (m.dim / m.heads) % 2 != 0) {
    return SpecProblem{at + "heads", "expected dim / heads to be an even whole number, found " +
                                         std::to_string(m.dim) + " / " + std::to_string(m.heads)};
  }
  if (m.heads % m.kv_heads != 0) {
    return SpecProblem{at + "kv_heads", "expected a divisor of heads (" + std::to_string(m.heads) +
                                            "), found " + std::to_string(m.kv_heads)};
  }
  if (auto p = in_range(at + "rope_theta", m.rope_theta, 1.0, 1e9)) return p;
  return in_range(at + "norm_eps", m.norm_eps, 1e-12, 1e-2);
}

Problem optimizer_problem(const TrainSpec& t) {
  const std::string at = "workload.train.optimizer.";
  const OptimizerSpec& o = t.optimizer;
  if (auto p = in_range(at + "lr", o.lr, 0.0, 10.0)) return p;
  if (auto p = in_range(at + "beta1", o.beta1, 0.0, 0.9999999)) return p;
  if (auto p = in_range(at + "beta2", o.beta2, 0.0, 0.9999999)) return p;
  if (auto p = in_range(at + "eps", o.eps, 1e-16, 1.0)) return p;
  if (auto p = in_range(at + "weight_decay", o.weight_decay, 0.0, 10.0)) return p;
  if (auto p = in_range(at + "clip", o.clip, 0.0, 1e9)) return p;
  const std::string schedule = "workload.train.schedule.";
  if (auto p = one_of(schedule + "name", t.schedule.name, {"cosine"})) return p;
  if (auto p = at_least(schedule + "warmup_steps", t.schedule.warmup_steps, 0)) return p;
  return in_range(schedule + "min_lr_ratio", t.schedule.min_lr_ratio, 0.0, 1.0);
}

Problem train_problem(const JobSpec& spec) {
  const TrainSpec& t = *spec.train;
  const std::string at = "workload.train.";
  if (auto p = model_problem(t.model)) return p;
  if (t.data.path.empty()) {
    return SpecProblem{at + "data.path", "expected a text file or a directory of text files"};
  }
  if (auto p = one_of(at + "data.tokenizer", t.data.tokenizer, {"byte"})) return p;
  if (auto p = at_least(at + "data.seq_len", t.data.seq_len, 2)) return p;
  if (auto p = at_least(at + "batch.micro", t.batch.micro, 1)) return p;
  if (auto p = at_least(at + "batch.global", t.batch.global, 1)) return p;
  const int64_t per_pass = t.batch.micro * spec.world_size();
  if (t.batch.global % per_pass != 0) {
    return SpecProblem{at + "batch.global",
                       "expected a multiple of micro x nodes x workers_per_node (" +
                           std::to_string(per_pass) + "), found " + std::to_string(t.batch.global)};
  }
  if (auto p = at_least(at + "steps", t.steps, 1)) return p;
  if (auto p = optimizer_problem(t)) return p;
  if (auto p = one_of(at + "parallelism.strategy", t.strategy, {"full"})) return p;
  return one_of(at + "precision", t.precision, {"bf16", "fp32"});
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
            {"workers_per_node", spec.workers_per_node},
            {"env", spec.env},
            {"command", spec.command},
            {"checkpoint", spec.checkpoint},
            {"recovery", spec.recovery},
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
    j.at("workers_per_node").get_to(spec.workers_per_node);
    j.at("env").get_to(spec.env);
    j.at("command").get_to(spec.command);
    j.at("checkpoint").get_to(spec.checkpoint);
    j.at("recovery").get_to(spec.recovery);
    j.at("ledger").get_to(spec.ledger);
    if (j.contains("train")) spec.train = j.at("train").get<TrainSpec>();
    if (const auto problem = find_problem(spec)) {
      return Error{ErrorCode::kInvalidArgument, problem->key + ": " + problem->message};
    }
    return spec;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, std::string("not a job document: ") + e.what()};
  }
}

std::optional<SpecProblem> find_problem(const JobSpec& spec) {
  if (!valid_name(spec.name)) {
    return SpecProblem{
        "name",
        "expected 1 to 64 of A-Z a-z 0-9 - _ . and not digits only; found \"" + spec.name + "\""};
  }
  if (auto p = at_least("nodes.count", spec.nodes, 1)) return p;
  if (spec.nodes > 100'000) return SpecProblem{"nodes.count", "expected at most 100000"};
  if (auto p = at_least("workers_per_node", spec.workers_per_node, 1)) return p;
  if (spec.workers_per_node > 1024) return SpecProblem{"workers_per_node", "expected at most 1024"};
  if (spec.train.has_value() == !spec.command.empty()) {
    return SpecProblem{"workload", "expected exactly one of train and command"};
  }
  if (auto p = at_least("checkpoint.every_steps", spec.checkpoint.every_steps, 0)) return p;
  if (auto p = in_range("checkpoint.every_minutes", spec.checkpoint.every_minutes, 0, 1e6)) {
    return p;
  }
  if (auto p = at_least("checkpoint.keep", spec.checkpoint.keep, 1)) return p;
  const std::string& resume = spec.checkpoint.resume;
  if (resume != "latest" && resume != "none" && (resume.empty() || resume[0] != '/')) {
    return SpecProblem{"checkpoint.resume",
                       "expected latest, none or an absolute path; found \"" + resume + "\""};
  }
  if (auto p = at_least("recovery.max_restarts", spec.recovery.max_restarts, 0)) return p;
  if (auto p = at_least("recovery.window (ms)", spec.recovery.window_ms, 1)) return p;
  if (auto p =
          at_least("recovery.heartbeat_timeout (ms)", spec.recovery.heartbeat_timeout_ms, 100)) {
    return p;
  }
  if (auto p = at_least("recovery.hang_timeout (ms)", spec.recovery.hang_timeout_ms, 0)) return p;
  return spec.train ? train_problem(spec) : std::nullopt;
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
