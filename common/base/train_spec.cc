// SPDX-License-Identifier: Apache-2.0
#include "common/base/train_spec.h"

#include <array>

#include "common/base/spec_checks.h"

namespace hpctl {

namespace {

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

void check_model(const ModelSpec& m, SpecChecks& checks) {
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

void check_optimizer(const TrainSpec& t, SpecChecks& checks) {
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

}  // namespace

void check_train(const TrainSpec& t, int64_t world_size, SpecChecks& checks) {
  const std::string at = "workload.train.";
  check_model(t.model, checks);
  if (t.data.path.empty()) {
    checks.fail(at + "data.path",
                "expected a text file, a directory of text files or the prefix of a dataset");
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
