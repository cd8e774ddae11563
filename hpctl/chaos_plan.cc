// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_plan.h"

#include <algorithm>
#include <sstream>

#include "common/base/rng.h"
#include "common/jobfile/yaml_text.h"
#include "hpctl/failure_trace.h"
#include "hpctl/plan_yaml.h"

namespace hpctl {
namespace {

constexpr YamlKind kPlanFile = {"a plan", "one plan", "hpctl chaos --help"};

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
    if (problem) yaml_.problems() = {*problem};
    if (yaml_.problems().empty()) return std::move(plan_);
    return Error{ErrorCode::kInvalidArgument, describe_problems(file_, yaml_.problems())};
  }

 private:
  void read_root(const YAML::Node& root) {
    if (!root.IsMap()) {
      yaml_.add(root.Mark(), "", "expected keys such as \"faults:\", found " + describe_node(root));
      return;
    }
    yaml_.read_mapping(
        root, "",
        {{"seed", [this](YamlValue& v) { v.read(plan_.seed); }},
         {"recover_within",
          [this](YamlValue& v) {
            v.read_duration(plan_.recover_within_ms);
            if (plan_.recover_within_ms < 1000) yaml_.fail_once(v, "expected at least 1s");
          }},
         {"faults",
          [this](YamlValue& v) {
            PlanYaml::read_list(
                v, "a list of faults",
                [this](const YAML::Node& n, const std::string& below) { read_fault(n, below); });
          }},
         {"trace", [this](YamlValue& v) {
            read_failure_trace(yaml_, v.node(), v.path(), trace_.emplace());
          }}});
    if (yaml_.problems().empty() && entries_.empty() && !trace_) {
      yaml_.add(root.Mark(), "faults",
                "this key is required: a list such as [{fault: kill-worker}]; or \"trace\"");
    }
    if (!entries_.empty() && trace_) {
      yaml_.add(root.Mark(), "trace", "expected one of faults and trace, found both");
    }
    if (yaml_.problems().empty()) expand();
  }

  void read_fault(const YAML::Node& node, const std::string& path) {
    if (!node.IsMap()) {
      yaml_.add(node.Mark(), path,
                "expected a fault such as {fault: kill-worker, rank: 3, after: 10s}, found " +
                    describe_node(node));
      return;
    }
    FaultEntry entry;
    entry.mark = node.Mark();
    PlannedFault& planned = entry.planned;
    planned.where = file_ + ":" + std::to_string(entry.mark.line + 1) + ": " + path;
    yaml_.read_mapping(node, path,
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
                           if (*planned.rank < 0) yaml_.fail_once(v, "expected a rank, 0 or more");
                         }},
                        {"node", [&](YamlValue& v) { v.read(planned.node); }},
                        {"at_step",
                         [&](YamlValue& v) {
                           v.read(planned.at_step.emplace());
                           if (*planned.at_step == 0)
                             yaml_.fail_once(v, "expected a step, 1 or more");
                         }},
                        {"after",
                         [&](YamlValue& v) {
                           entry.has_after = true;
                           v.read_duration(planned.after_ms);
                         }},
                        {"every",
                         [&](YamlValue& v) {
                           v.read_duration(entry.every_ms);
                           if (entry.every_ms < 1) yaml_.fail_once(v, "expected more than nothing");
                         }},
                        {"count", [&](YamlValue& v) {
                           v.read(entry.count);
                           if (entry.count < 1 || entry.count > kMaxPlannedFaults) {
                             yaml_.fail_once(v,
                                             "expected 1 to " + std::to_string(kMaxPlannedFaults));
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
      yaml_.add(entry.mark, path, "\"fault\" is required: one of " + all_words<InjectedFault>());
      return;
    }
    const std::string fault = to_word(planned.fault);
    if (planned.rank && target_of(planned.fault) != FaultTarget::kRank) {
      yaml_.add(entry.mark, path + ".rank", fault + " is not done to a rank");
    }
    if (!planned.node.empty() && target_of(planned.fault) != FaultTarget::kNode) {
      yaml_.add(entry.mark, path + ".node", fault + " is not done to a node");
    }
    if (moments > 1) {
      yaml_.add(entry.mark, path, "expected one of at_step, after and every, found several");
    }
    if (entry.count > 1 && planned.at_step) {
      yaml_.add(entry.mark, path + ".count",
                "a step is completed once; use after or every with it");
    }
    if (planned.at_step && *planned.at_step < last_step_) {
      yaml_.add(entry.mark, path + ".at_step",
                "an earlier step than a fault above has; faults happen in the order of the list");
    }
    last_step_ = std::max(last_step_, planned.at_step.value_or(0));
  }

  void expand() {
    Rng rng(plan_.seed);
    int64_t total = trace_ ? trace_->wanted() : 0;
    for (const FaultEntry& entry : entries_) total += entry.count;
    if (total > kMaxPlannedFaults) {
      yaml_.add(YAML::Mark(), trace_ ? "trace.count" : "faults",
                std::to_string(total) + " faults; at most " + std::to_string(kMaxPlannedFaults));
      return;
    }
    for (const FaultEntry& entry : entries_) {
      for (int64_t i = 0; i < entry.count; ++i) {
        PlannedFault planned = entry.planned;
        if (entry.every_ms > 0) {
          planned.after_ms = random_pause_ms(rng, static_cast<double>(entry.every_ms));
        }
        planned.draw = rng.next();
        plan_.faults.push_back(std::move(planned));
      }
    }
    for (int64_t i = 0; trace_ && i < trace_->wanted(); ++i) {
      const TracedFault drawn = draw_fault(*trace_, rng);
      PlannedFault planned;
      planned.fault = drawn.fault;
      planned.after_ms = drawn.pause_ms;
      planned.draw = rng.next();
      planned.where = file_ + ": trace" + (drawn.cause.empty() ? "" : ": " + drawn.cause);
      plan_.faults.push_back(std::move(planned));
    }
  }

  const std::string file_;
  PlanYaml yaml_;
  ChaosPlan plan_;
  std::vector<FaultEntry> entries_;
  std::optional<FailureTrace> trace_;
  uint64_t last_step_ = 0;
};

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
    planned.after_ms = random_pause_ms(rng, static_cast<double>(every_ms));
    planned.draw = rng.next();
    planned.where = "--faults";
    plan.faults.push_back(std::move(planned));
  }
  return plan;
}

}  // namespace hpctl
