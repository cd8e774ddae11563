// SPDX-License-Identifier: Apache-2.0
// The keys below workload.train, made of their table (common/job/train_keys.h), and the readers of
// those values that are more than a number, a word or true and false.
#include <charconv>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/check.h"
#include "common/base/join.h"
#include "common/jobfile/job_yaml_keys.h"
#include "common/jobfile/nearest_word.h"
#include "common/jobfile/yaml_put.h"

namespace hpctl {
namespace {

bool parse_whole(const std::string& text, int64_t& out) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && last == end;
}

void read_preset(YamlValue& value, JobSpec& spec) {
  std::string name;
  value.read(name);
  auto model = model_preset(name);
  if (!model) {
    const auto nearest = nearest_word(name, model_preset_names());
    value.fail("no preset is called " + describe_node(value.node()) +
               (nearest ? "; did you mean \"" + *nearest + "\"? There are: " : "; there are: ") +
               join(model_preset_names(), ", "));
  }
  // After a mistake any dimensions will do: only the preset should be reported.
  spec.train->model = model ? *model : *model_preset("tiny");
}

void read_ramp(YamlValue& value, JobSpec& spec) {
  const YAML::Node& node = value.node();
  std::vector<RampPoint> ramp;
  for (auto it = node.begin(); node.IsMap() && it != node.end(); ++it) {
    RampPoint point;
    if (!it->first.IsScalar() || !it->second.IsScalar() ||
        !parse_whole(it->first.Scalar(), point.samples) ||
        !parse_whole(it->second.Scalar(), point.global)) {
      break;
    }
    ramp.push_back(point);
  }
  if (!node.IsMap() || ramp.size() != node.size()) {
    return value.fail_expected("whole numbers as in {1000: 8, 3000: 16}");
  }
  spec.train->batch.ramp = std::move(ramp);
}

void read_blend(YamlValue& value, JobSpec& spec) {
  std::vector<std::pair<std::string, double>> parts;
  value.read_weighted_paths(parts);
  for (auto& [path, weight] : parts) spec.train->data.blend.push_back({std::move(path), weight});
}

void read_tokenizer(YamlValue& value, JobSpec& spec) {
  std::string& tokenizer = spec.train->data.tokenizer;
  value.read(tokenizer);
  if (tokenizer == "byte") return;
  // The name of a method, say "bpe", is not a file that is missing.
  if (tokenizer.find_first_of("./") == std::string::npos) {
    tokenizer = "byte";
    return value.fail_expected(
        "byte, or the path of a tokenizer.json, vocab.json or tokenizer.model");
  }
  value.read_path(tokenizer);
}

void read_reset_at_documents(YamlValue& value, JobSpec& spec) {
  bool reset = false;
  value.read(reset);
  if (reset) spec.train->data.mask = DocumentMask::kDocuments;
}

// Values with a special form; all others are read as the type of their field.
struct OwnForm {
  std::string_view path;
  void (*read)(YamlValue& value, JobSpec& spec);
};
constexpr OwnForm kOwnForms[] = {
    {"workload.train.model.preset", read_preset},
    {"workload.train.model.from",
     [](YamlValue& v, JobSpec& s) { v.read_path(s.train->model_from); }},
    {"workload.train.lora.base", [](YamlValue& v, JobSpec& s) { v.read_path(s.train->lora.base); }},
    {"workload.train.data.path", [](YamlValue& v, JobSpec& s) { v.read_path(s.train->data.path); }},
    {"workload.train.data.blend", read_blend},
    {"workload.train.data.tokenizer", read_tokenizer},
    {"workload.train.data.split",
     [](YamlValue& v, JobSpec& s) { v.read_numbers(s.train->data.split); }},
    {"workload.train.data.reset_at_documents", read_reset_at_documents},
    {"workload.train.batch.ramp", read_ramp},
};

struct TypeName {
  const char* operator()(std::monostate) const { return ""; }
  const char* operator()(int64_t& (*)(TrainSpec&)) const { return "integer"; }
  const char* operator()(uint64_t& (*)(TrainSpec&)) const { return "integer"; }
  const char* operator()(double& (*)(TrainSpec&)) const { return "number"; }
  const char* operator()(bool& (*)(TrainSpec&)) const { return "true or false"; }
  const char* operator()(const WordAccess&) const { return "text"; }
  const char* operator()(const WordListAccess&) const { return "list"; }
};

struct Reader {
  YamlValue& value;
  TrainSpec& train;
  bool may_be_auto = false;

  void operator()(std::monostate) const { HP_CHECK(false); }
  template <typename T>
  void operator()(T& (*field)(TrainSpec&)) const {
    value.read(field(train));
  }
  void operator()(const WordAccess& word) const {
    value.read_word((may_be_auto ? "auto, " : "") + word.all(),
                    [&](std::string_view text) { return word.set(train, text); });
  }
  void operator()(const WordListAccess& list) const {
    list.clear(train);
    value.read_word_list(list.all(), [&](std::string_view text) { return list.add(train, text); });
  }
};

// `texts` keeps what the key refers to.
JobYamlKey yaml_key(const TrainKey& key, std::deque<std::string>& texts) {
  const auto kept = [&](const std::string& text) {
    return std::string_view(texts.emplace_back(text));
  };
  JobYamlKey result;
  result.path = key.path;
  result.kind = key.kind == TrainKeyKind::kSection ? KeyKind::kSection
                : key.kind == TrainKeyKind::kValue ? KeyKind::kValue
                                                   : KeyKind::kUnavailable;
  const bool has_field = !std::holds_alternative<std::monostate>(key.field);
  result.type = key.type.empty() ? std::visit(TypeName(), key.field) : key.type;
  if (key.automatic != nullptr) result.type = kept(std::string(result.type) + " or auto");
  result.initial = key.automatic != nullptr ? "auto" : key.initial;
  if (has_field && result.initial.empty()) {
    TrainSpec defaults;
    result.initial = kept(field_text(key.field, defaults));
  }
  result.range = kept(range_text(key));
  result.meaning = key.meaning;
  if (has_field) result.field = &key;
  for (const OwnForm& form : kOwnForms) {
    if (form.path == key.path) result.read = form.read;
  }
  return result;
}

}  // namespace

std::span<const JobYamlKey> train_yaml_keys() {
  static std::deque<std::string> texts;
  static const std::vector<JobYamlKey> keys = [] {
    std::vector<JobYamlKey> all;
    for (const TrainKey& key : train_keys()) all.push_back(yaml_key(key, texts));
    return all;
  }();
  return keys;
}

void read_train_field(const TrainKey& key, YamlValue& value, JobSpec& spec) {
  const bool may_be_auto = key.automatic != nullptr;
  if (may_be_auto) {
    bool& is_auto = spec.train->automatic.*key.automatic;
    is_auto = value.is_word("auto");
    if (is_auto) return;
  }
  std::visit(Reader{value, *spec.train, may_be_auto}, key.field);
}

}  // namespace hpctl
