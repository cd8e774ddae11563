// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "common/base/rng.h"
#include "common/rpc/nearest_word.h"
#include "common/rpc/yaml_text.h"
#include "common/rpc/yaml_value.h"

namespace hpctl {
namespace {

constexpr YamlKind kPlanFile = {"a plan", "one plan", "hpctl chaos --help"};
constexpr int64_t kLongestPauses = 20;  // of the mean; so long a pause comes once in 10^8

// Exponentially distributed: how long a fault with this mean time between faults takes to come.
int64_t random_pause_ms(Rng& rng, int64_t mean_ms) {
  const double pause = -std::log1p(-rng.uniform()) * static_cast<double>(mean_ms);
  return std::min(static_cast<int64_t>(pause), kLongestPauses * mean_ms);
}

// One fault as it stands in a plan; with `every` it stands for many.
struct FaultEntry {
  PlannedFault planned;
  YAML::Mark mark;
  bool has_fault = false;
  bool has_after = false;
  int64_t every_ms = 0;
  int64_t count = 1;
};

class PlanReader {
 public:
  explicit PlanReader(std::string file) : file_(std::move(file)) {}

  Result<ChaosPlan> read(std::string_view text) {
    const auto problem =
        read_yaml(text, kPlanFile, [this](const YAML::Node& root) { read_root(root); });
    if (problem) problems_ = {*problem};
    if (problems_.empty()) return std::move(plan_);
    return Error{ErrorCode::kInvalidArgument, describe_problems(file_, problems_)};
  }

 private:
  using ReadValue = std::function<void(YamlValue& value)>;
  struct Key {
    const char* name;
    ReadValue read;
  };

  void add(const YAML::Mark& mark, const std::string& key, const std::string& message) {
    problems_.push_back({mark.line + 1, mark.column + 1, key, message});
  }

  // Every key of the mapping is one of `keys`, and there once.
  void read_mapping(const YAML::Node& node, const std::string& path, const std::vector<Key>& keys) {
    std::set<std::string> seen;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) {
        add(pair.first.Mark(), path, "expected a key, found " + describe_node(pair.first));
        continue;
      }
      const std::string name = pair.first.Scalar();
      const auto key =
          std::find_if(keys.begin(), keys.end(), [&](const Key& k) { return k.name == name; });
      if (key == keys.end()) {
        add(pair.first.Mark(), path, "unknown key " + describe_node(pair.first) + hint(name, keys));
      } else if (!seen.insert(name).second) {
        add(pair.first.Mark(), path, "the key \"" + name + "\" is given twice");
      } else {
        const std::string below = path.empty() ? name : path + "." + name;
        YamlValue value(pair.second, pair.first.Mark(), below, directory_, problems_);
        problems_before_value_ = problems_.size();
        key->read(value);
      }
    }
  }

  // Of a value that is of the right type.
  void fail_once(YamlValue& value, const std::string& message) {
    if (problems_.size() == problems_before_value_) value.fail(message);
  }

  static std::string hint(const std::string& name, const std::vector<Key>& keys) {
    std::vector<std::string> names;
    std::string all;
    for (const Key& key : keys) {
      names.emplace_back(key.name);
      all += (all.empty() ? "" : ", ") + std::string(key.name);
    }
    const auto nearest = nearest_word(name, names);
    return nearest ? "; did you mean \"" + *nearest + "\"?" : "; expected one of " + all;
  }

  void read_root(const YAML::Node& root) {
    if (!root.IsMap()) {
      add(root.Mark(), "", "expected keys such as \"faults:\", found " + describe_node(root));
      return;
    }
    read_mapping(root, "",
                 {{"seed", [this](YamlValue& v) { v.read(plan_.seed); }},
                  {"recover_within",
                   [this](YamlValue& v) {
                     v.read_duration(plan_.recover_within_ms);
                     if (plan_.recover_within_ms < 1000) fail_once(v, "expected at least 1s");
                   }},
                  {"faults", [this](YamlValue& v) {
                     if (!v.node().IsSequence()) return v.fail_expected("a list of faults");
                     for (size_t i = 0; i < v.node().size(); ++i) {
                       read_fault(v.node()[i], "faults[" + std::to_string(i) + "]");
                     }
                   }}});
    if (problems_.empty() && entries_.empty()) {
      add(root.Mark(), "faults", "this key is required: a list such as [{fault: kill-worker}]");
    }
    if (problems_.empty()) expand();
  }

  void read_fault(const YAML::Node& node, const std::string& path) {
    if (!node.IsMap()) {
      add(node.Mark(), path,
          "expected a fault such as {fault: kill-worker, rank: 3, after: 10s}, found " +
              describe_node(node));
      return;
    }
    FaultEntry entry;
    entry.mark = node.Mark();
    PlannedFault& planned = entry.planned;
    planned.where = file_ + ":" + std::to_string(entry.mark.line + 1) + ": " + path;
    read_mapping(node, path,
                 {{"fault",
                   [&](YamlValue& v) {
                     entry.has_fault = true;
                     v.read_word(all_words<InjectedFault>(), [&](std::string_view word) {
                       const auto known = from_word<InjectedFault>(word);
                       if (known) planned.fault = *known;
                       return known.has_value();
                     });
                   }},
                  {"rank",
                   [&](YamlValue& v) {
                     v.read(planned.rank.emplace());
                     if (*planned.rank < 0) fail_once(v, "expected a rank, 0 or more");
                   }},
                  {"node", [&](YamlValue& v) { v.read(planned.node); }},
                  {"at_step",
                   [&](YamlValue& v) {
                     v.read(planned.at_step.emplace());
                     if (*planned.at_step == 0) fail_once(v, "expected a step, 1 or more");
                   }},
                  {"after",
                   [&](YamlValue& v) {
                     entry.has_after = true;
                     v.read_duration(planned.after_ms);
                   }},
                  {"every",
                   [&](YamlValue& v) {
                     v.read_duration(entry.every_ms);
                     if (entry.every_ms < 1) fail_once(v, "expected more than nothing");
                   }},
                  {"count", [&](YamlValue& v) {
                     v.read(entry.count);
                     if (entry.count < 1 || entry.count > kMaxPlannedFaults) {
                       fail_once(v, "expected 1 to " + std::to_string(kMaxPlannedFaults));
                     }
                   }}});
    check(entry, path);
    entries_.push_back(std::move(entry));
  }

  // How the keys of one fault fit together.
  void check(const FaultEntry& entry, const std::string& path) {
    const PlannedFault& planned = entry.planned;
    const int moments =
        (planned.at_step ? 1 : 0) + (entry.has_after ? 1 : 0) + (entry.every_ms > 0 ? 1 : 0);
    if (!entry.has_fault) {
      add(entry.mark, path, "\"fault\" is required: one of " + all_words<InjectedFault>());
      return;
    }
    const std::string fault = to_word(planned.fault);
    if (planned.rank && target_of(planned.fault) != FaultTarget::kRank) {
      add(entry.mark, path + ".rank", fault + " is not done to a rank");
    }
    if (!planned.node.empty() && target_of(planned.fault) != FaultTarget::kNode) {
      add(entry.mark, path + ".node", fault + " is not done to a node");
    }
    if (moments > 1) {
      add(entry.mark, path, "expected one of at_step, after and every, found several");
    }
    if (entry.count > 1 && planned.at_step) {
      add(entry.mark, path + ".count", "a step is completed once; use after or every with it");
    }
    if (planned.at_step && *planned.at_step < last_step_) {
      add(entry.mark, path + ".at_step",
          "an earlier step than that of a fault above; faults happen in the order of the list");
    }
    last_step_ = std::max(last_step_, planned.at_step.value_or(0));
  }

  void expand() {
    Rng rng(plan_.seed);
    int64_t total = 0;
    for (const FaultEntry& entry : entries_) total += entry.count;
    if (total > kMaxPlannedFaults) {
      add(YAML::Mark(), "faults",
          std::to_string(total) + " faults; at most " + std::to_string(kMaxPlannedFaults));
      return;
    }
    for (const FaultEntry& entry : entries_) {
      for (int64_t i = 0; i < entry.count; ++i) {
        PlannedFault planned = entry.planned;
        if (entry.every_ms > 0) planned.after_ms = random_pause_ms(rng, entry.every_ms);
        planned.draw = rng.next();
        plan_.faults.push_back(std::move(planned));
      }
    }
  }

  const std::string file_;
  const std::string directory_;
  ChaosPlan plan_;
  std::vector<JobYamlProblem> problems_;
  std::vector<FaultEntry> entries_;
  size_t problems_before_value_ = 0;
  uint64_t last_step_ = 0;
};

bool has_rank(const JobView& job, int32_t rank) {
  return std::any_of(job.workers.begin(), job.workers.end(),
                     [&](const WorkerView& worker) { return worker.rank == rank; });
}

bool has_node(const JobView& job, const std::string& name) {
  return std::any_of(job.nodes.begin(), job.nodes.end(),
                     [&](const NodeView& node) { return node.name == name; });
}

}  // namespace

Result<ChaosPlan> parse_chaos_plan(std::string_view text, const std::string& file) {
  return PlanReader(file).read(text);
}

Result<ChaosPlan> load_chaos_plan(const std::string& path) {
  const YamlFile file = read_yaml_file(path, kPlanFile);
  if (!file.problem) return parse_chaos_plan(file.text, path);
  return Error{ErrorCode::kInvalidArgument, describe_problems(path, {*file.problem})};
}

Result<ChaosPlan> make_chaos_plan(const std::string& words, int64_t every_ms, int64_t count,
                                  uint64_t seed) {
  std::vector<InjectedFault> faults;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    const auto fault = from_word<InjectedFault>(word);
    if (!fault) {
      return Error{ErrorCode::kInvalidArgument,
                   "--faults: expected some of " + all_words<InjectedFault>() +
                       " with commas between them, found \"" + word + "\"\n"};
    }
    faults.push_back(*fault);
  }
  if (faults.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 "--faults: expected some of " + all_words<InjectedFault>() + "\n"};
  }
  ChaosPlan plan;
  plan.seed = seed;
  Rng rng(seed);
  for (int64_t i = 0; i < count; ++i) {
    PlannedFault planned;
    planned.fault = faults[rng.below(faults.size())];
    planned.after_ms = random_pause_ms(rng, every_ms);
    planned.draw = rng.next();
    planned.where = "--faults";
    plan.faults.push_back(std::move(planned));
  }
  return plan;
}

std::string find_misfit(const ChaosPlan& plan, const JobView& job) {
  const std::string name = "job " + std::to_string(job.job);
  for (const PlannedFault& planned : plan.faults) {
    if (planned.rank && !has_rank(job, *planned.rank)) {
      return planned.where + ": " + name + " has no rank " + std::to_string(*planned.rank);
    }
    if (!planned.node.empty() && !has_node(job, planned.node)) {
      return planned.where + ": " + name + " has no node \"" + planned.node + "\"";
    }
    const bool too_late = job.total_steps > 0 && planned.at_step.value_or(0) >= job.total_steps;
    if (too_late) {
      return planned.where + ": " + name + " ends at step " + std::to_string(job.total_steps);
    }
  }
  return "";
}

}  // namespace hpctl
