// SPDX-License-Identifier: Apache-2.0
#include "common/recorder/dump.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/join.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"
#include "common/recorder/pickle.h"

using nlohmann::json;

namespace hpctl::recorder {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 50;
constexpr int32_t kMostRanks = 1 << 20;
constexpr size_t kShownTensors = 3;
constexpr size_t kShownBytes = 300;  // of what is wrong, which quotes the dump

Error wrong(const std::string& what) {
  return {ErrorCode::kInvalidArgument,
          "not a flight recorder's dump: " + printable_line(what, kShownBytes)};
}

// json::value() throws where the type is another; here that is as if there were none.
std::string text_at(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
int64_t number_at(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() ? whole_number<int64_t>(*found).value_or(0) : 0;
}
bool flag_at(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}
const json& list_at(const json& object, const char* name) {
  static const json empty = json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : empty;
}

// "[0, 1, 2]"
std::vector<int32_t> ranks_of(const std::string& text) {
  std::vector<int32_t> ranks;
  for (size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string::npos;) {
    char* end = nullptr;
    const long rank = std::strtol(text.c_str() + at, &end, 10);
    at = static_cast<size_t>(end - text.c_str());
    if (rank >= 0 && rank < kMostRanks) ranks.push_back(static_cast<int32_t>(rank));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

int64_t elements_of(const json& shape) {
  int64_t product = 1;
  for (const json& extent : shape) {
    const int64_t n = whole_number<int64_t>(extent).value_or(1);
    if (n <= 0) return 0;
    product = product > kMostElements / n ? kMostElements : product * n;
  }
  return product;
}

// Shapes and types of the tensors: counted, and for people.
void add_tensors(const json& entry, const char* sizes, const char* types,
                 std::vector<int64_t>& elements, Operation& operation, std::string* shown) {
  std::vector<std::string> names;
  for (const json& type : list_at(entry, types)) {
    names.push_back(type.is_string() ? type.get<std::string>() : "");
    operation.types.push_back(names.back());
  }
  std::vector<std::string> texts;
  for (const json& shape : list_at(entry, sizes)) {
    if (!shape.is_array()) continue;
    std::vector<std::string> extents;
    for (const json& extent : shape) {
      extents.push_back(extent.is_number_integer() ? json_text(extent) : "?");
    }
    if (elements.size() == kShownTensors) texts.emplace_back("…");
    if (elements.size() < kShownTensors) {
      const std::string type = elements.size() < names.size() ? " " + names[elements.size()] : "";
      texts.push_back("[" + join(extents, ", ") + "]" + type);
    }
    elements.push_back(elements_of(shape));
  }
  if (shown != nullptr) *shown = join(texts, ", ");
}

// The innermost frame that is not of PyTorch itself, whose paths have ".../torch/...", or else the
// innermost.
std::string caller_of(const json& entry) {
  std::string innermost;
  for (const json& frame : list_at(entry, "frames")) {
    const std::string file = frame.is_object() ? text_at(frame, "filename") : "";
    if (file.empty()) continue;
    std::string text = file.substr(file.rfind('/') + 1) + ":" +
                       std::to_string(number_at(frame, "line")) + " in " + text_at(frame, "name");
    if (file.find("/torch/") == std::string::npos) return text;
    if (innermost.empty()) innermost = text;
  }
  return innermost;
}

class DumpReader {
 public:
  Result<RankDump> read(const json& document) {
    if (!document.is_object()) return wrong("no dictionary");
    const std::string version = text_at(document, "version");
    if (!version.starts_with("2.")) {
      return wrong(version.empty() ? "it has no version"
                                   : "its format is " + version + ", and 2.x is known");
    }
    read_groups(document);
    for (const json& entry : list_at(document, "entries")) {
      if (!entry.is_object()) return wrong("an entry is no dictionary");
      HP_TRY(read_entry(entry));
    }
    drop_old();
    return std::move(dump_);
  }

 private:
  void read_groups(const json& document) {
    const auto config = document.find("pg_config");
    if (config == document.end() || !config->is_object()) return;
    for (const auto& [name, group] : config->items()) {
      if (!group.is_object()) continue;
      places_[name] = dump_.groups.size();
      dump_.groups.push_back({name, text_at(group, "desc"), ranks_of(text_at(group, "ranks"))});
    }
  }
  size_t group_of(const json& entry) {
    const json& names = list_at(entry, "process_group");
    const auto name = [&](size_t i) {
      return i < names.size() && names[i].is_string() ? names[i].get<std::string>() : "";
    };
    const auto [place, is_new] = places_.emplace(name(0), dump_.groups.size());
    if (is_new) dump_.groups.push_back({name(0), name(1), {}});
    return place->second;
  }
  Outcome read_entry(const json& entry) {
    Operation operation;
    operation.group = group_of(entry);
    operation.sequence = number_at(entry, "collective_seq_id");
    operation.is_p2p = flag_at(entry, "is_p2p");
    operation.completed = text_at(entry, "state") == "completed";
    const std::string name = text_at(entry, "profiling_name");
    if (name.empty()) return wrong("an entry has no profiling_name");
    operation.name = name.substr(name.find(':') + 1);  // npos + 1 = 0
    add_tensors(entry, "input_sizes", "input_dtypes", operation.input_elements, operation,
                &operation.inputs);
    add_tensors(entry, "output_sizes", "output_dtypes", operation.output_elements, operation,
                nullptr);
    operation.caller = caller_of(entry);
    dump_.operations.push_back(std::move(operation));
    return Ok{};
  }

  void drop_old() {
    const auto completed = static_cast<size_t>(
        std::count_if(dump_.operations.begin(), dump_.operations.end(),
                      [](const Operation& operation) { return operation.completed; }));
    size_t surplus = completed > kMostCompleted ? completed - kMostCompleted : 0;
    std::erase_if(dump_.operations, [&](const Operation& operation) {
      return operation.completed && surplus > 0 && surplus-- > 0;
    });
  }

  RankDump dump_;
  std::map<std::string, size_t> places_;  // of groups, by name
};

}  // namespace

Result<RankDump> read_dump(std::string_view text) {
  if (text.starts_with('{')) {
    const json document = parse_json_or_discard(text, {.bytes = PickleLimits().bytes});
    if (document.is_discarded()) return wrong("damaged JSON");
    return DumpReader().read(document);
  }
  HP_TRY_ASSIGN(const json document, read_pickle(text));
  return DumpReader().read(document);
}

}  // namespace hpctl::recorder
