// SPDX-License-Identifier: Apache-2.0
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "common/base/join.h"
#include "common/jobfile/yaml_put.h"

namespace hpctl {
namespace {

using YAML::BeginMap;
using YAML::EndMap;
using YAML::Key;
using YAML::Value;

constexpr std::string_view kTrain = "workload.train";

struct Text {
  TrainSpec train;

  std::string operator()(std::monostate) const { HP_CHECK(false); }
  std::string operator()(int64_t& (*field)(TrainSpec&)) { return std::to_string(field(train)); }
  std::string operator()(uint64_t& (*field)(TrainSpec&)) { return std::to_string(field(train)); }
  std::string operator()(double& (*field)(TrainSpec&)) { return shortest(field(train)); }
  std::string operator()(bool& (*field)(TrainSpec&)) { return field(train) ? "true" : "false"; }
  std::string operator()(const WordAccess& word) const { return word.get(train); }
  std::string operator()(const WordListAccess& list) const {
    return "[" + join(list.get(train), ", ") + "]";
  }
};

// Values with a special form.
struct OwnText {
  std::string_view path;
  void (*put)(YAML::Emitter& out, const TrainSpec& t);
};
constexpr OwnText kOwnTexts[] = {
    {"workload.train.model.preset",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (!t.model.preset.empty()) put(out, "preset", t.model.preset);
     }},
    {"workload.train.model.from",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (!t.model_from.empty()) put(out, "from", t.model_from);
     }},
    {"workload.train.model.max_positions",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (t.model.max_positions > 0) put(out, "max_positions", t.model.max_positions);
     }},
    {"workload.train.lora.base",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (t.lora.on()) put(out, "base", t.lora.base);
     }},
    {"workload.train.data.path",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (t.data.blend.empty()) put(out, "path", t.data.path);
     }},
    {"workload.train.data.blend",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (t.data.blend.empty()) return;
       out << Key << "blend" << Value << BeginMap;
       for (const BlendPart& part : t.data.blend) put(out, part.path.c_str(), part.weight);
       out << EndMap;
     }},
    {"workload.train.data.tokenizer",
     [](YAML::Emitter& out, const TrainSpec& t) { put(out, "tokenizer", t.data.tokenizer); }},
    {"workload.train.data.split",
     [](YAML::Emitter& out, const TrainSpec& t) {
       out << Key << "split" << Value << YAML::Flow << YAML::BeginSeq;
       for (const double part : t.data.split) out << shortest(part);
       out << YAML::EndSeq;
     }},
    {"workload.train.data.reset_at_documents", [](YAML::Emitter&, const TrainSpec&) {}},
    {"workload.train.batch.ramp",
     [](YAML::Emitter& out, const TrainSpec& t) {
       if (t.batch.ramp.empty()) return;
       out << Key << "ramp" << Value << BeginMap;
       for (const RampPoint& point : t.batch.ramp) {
         put(out, std::to_string(point.samples).c_str(), point.global);
       }
       out << EndMap;
     }},
};

void put_value(YAML::Emitter& out, const std::string& name, const TrainKey& key,
               const TrainSpec& t) {
  for (const OwnText& own : kOwnTexts) {
    if (own.path == key.path) return own.put(out, t);
  }
  if (key.automatic != nullptr && t.automatic.*key.automatic) {
    put(out, name.c_str(), "auto");
  } else if (const auto* list = std::get_if<WordListAccess>(&key.field)) {
    out << Key << name << Value << YAML::Flow << list->get(t);
  } else {
    put(out, name.c_str(), field_text(key.field, t));
  }
}

}  // namespace

std::string field_text(const TrainField& field, const TrainSpec& train) {
  return std::visit(Text{train}, field);
}

void put_train(YAML::Emitter& out, const TrainSpec& t) {
  out << Key << "train" << Value << BeginMap;
  std::vector<std::string_view> open = {kTrain};  // sections, the innermost last
  for (const TrainKey& key : train_keys()) {
    if (key.kind == TrainKeyKind::kUnavailable) continue;
    const size_t dot = key.path.rfind('.');
    for (; open.back() != key.path.substr(0, dot); open.pop_back()) out << EndMap;
    const std::string name(key.path.substr(dot + 1));
    if (key.kind == TrainKeyKind::kSection) {
      out << Key << name << Value << BeginMap;
      open.push_back(key.path);
    } else {
      put_value(out, name, key, t);
    }
  }
  for (size_t i = 0; i < open.size(); ++i) out << EndMap;
}

}  // namespace hpctl
