// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/nearest_preset.h"

#include <string>
#include <vector>

#include "common/job/train_spec.h"

namespace hpctl::migrate {
namespace {

constexpr size_t kFewDifferences = 3;

struct Field {
  const char* name;
  double (*get)(const ModelSpec& model);
};

double of(int64_t value) { return static_cast<double>(value); }

const Field kFields[] = {
    {"dim", [](const ModelSpec& m) { return of(m.dim); }},
    {"layers", [](const ModelSpec& m) { return of(m.layers); }},
    {"heads", [](const ModelSpec& m) { return of(m.heads); }},
    {"kv_heads", [](const ModelSpec& m) { return of(m.kv_heads); }},
    {"head_dim", [](const ModelSpec& m) { return of(m.head_size()); }},
    {"ffn", [](const ModelSpec& m) { return of(m.ffn); }},
    {"vocab", [](const ModelSpec& m) { return of(m.vocab); }},
    {"rope_theta", [](const ModelSpec& m) { return m.rope_theta; }},
    {"norm_eps", [](const ModelSpec& m) { return m.norm_eps; }},
    {"tied_embeddings", [](const ModelSpec& m) { return m.tied_embeddings ? 1.0 : 0.0; }},
    {"max_positions", [](const ModelSpec& m) { return of(m.max_positions); }},
    {"sliding_window", [](const ModelSpec& m) { return of(m.sliding_window); }},
    {"rope_scaling.factor", [](const ModelSpec& m) { return m.rope_scaling.factor; }},
};

// Without an effect on what is computed: exports alone have it.
bool counts(const Field& field, const ModelSpec& model) {
  return std::string_view(field.name) != "max_positions" ||
         traits_of(model.arch).positions == Positions::kLearned;
}

// What the files say. Scaling and a window are off, and a head is dim / heads, where they say
// nothing; another field that they do not say is not compared.
std::optional<double> told(const Draft& draft, const std::string& name) {
  const std::string section = "workload.train.model.";
  const Value* value = draft.find(section + name);
  if (value == nullptr) {
    if (is_one_of(name, "rope_scaling.factor|sliding_window")) return 0;
    if (name != "head_dim") return std::nullopt;
    const auto dim = told(draft, "dim");
    const auto heads = told(draft, "heads");
    return dim && heads && *heads > 0 ? std::optional<double>(*dim / *heads) : std::nullopt;
  }
  if (value->yaml == "true") return 1;
  if (value->yaml == "false") return 0;
  return number_of(value->yaml);
}

std::vector<std::string> differences(const Draft& draft, const ModelSpec& preset) {
  std::vector<std::string> found;
  for (const Field& field : kFields) {
    const auto ours = told(draft, field.name);
    if (!ours || !counts(field, preset) || *ours == field.get(preset)) continue;
    found.push_back(std::string(field.name) + " " + number_text(*ours) + " (" +
                    number_text(field.get(preset)) + ")");
  }
  return found;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

}  // namespace

void name_preset(Draft& draft) {
  const Value* arch = draft.find("workload.train.model.arch");
  const Value* dim = draft.find("workload.train.model.dim");
  if (arch == nullptr || dim == nullptr || draft.find("workload.train.model.preset") != nullptr) {
    return;
  }
  std::optional<ModelSpec> nearest;
  std::vector<std::string> fewest;
  for (const std::string& name : model_preset_names()) {
    const std::optional<ModelSpec> preset = model_preset(name);
    if (!preset || to_word(preset->arch) != arch->yaml) continue;
    std::vector<std::string> found = differences(draft, *preset);
    if (nearest && found.size() >= fewest.size()) continue;
    nearest = preset;
    fewest = std::move(found);
  }
  if (!nearest) return;
  const std::string text = fewest.empty() ? "model: " + nearest->preset
                                          : "model: nearest to " + nearest->preset +
                                                ", whose values are in brackets: " + joined(fewest);
  const std::string source = dim->source;
  draft.report(Fate::kTaken, source, text);
  if (fewest.size() > kFewDifferences) return;
  draft.compute("workload.train.model.preset", nearest->preset, source);
  for (const char* off : {"rope_scaling.factor", "sliding_window"}) {
    const std::string key = std::string("workload.train.model.") + off;
    if (draft.find(key) == nullptr) draft.compute(key, "0", source);
  }
}

}  // namespace hpctl::migrate
