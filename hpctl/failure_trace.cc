// SPDX-License-Identifier: Apache-2.0
#include "hpctl/failure_trace.h"

#include <algorithm>
#include <cmath>

namespace hpctl {
namespace {

constexpr double kLongestPauses = 20;  // of the mean; so long a pause comes once in 10^8
constexpr int64_t kMaxOfACause = 1'000'000;
constexpr int64_t kMaxFaster = 1'000'000'000;

void read_cause(PlanYaml& yaml, const YAML::Node& node, const std::string& path,
                FailureTrace& trace) {
  constexpr const char* kExample = "{cause: faulty GPU, count: 148, faults: [crash-worker]}";
  if (!node.IsMap()) {
    yaml.add(
        node.Mark(), path,
        "expected a cause such as " + std::string(kExample) + ", found " + describe_node(node));
    return;
  }
  TraceCause cause;
  yaml.read_mapping(node, path,
                    {{"cause", [&](YamlValue& v) { v.read(cause.cause); }},
                     {"count",
                      [&](YamlValue& v) {
                        v.read(cause.count);
                        if (cause.count < 1 || cause.count > kMaxOfACause) {
                          yaml.fail_once(v, "expected 1 to " + std::to_string(kMaxOfACause));
                        }
                      }},
                     {"faults", [&](YamlValue& v) {
                        v.read_word_list(all_words<InjectedFault>(), [&](std::string_view word) {
                          const auto known = from_word<InjectedFault>(word);
                          if (known) cause.faults.push_back(*known);
                          return known.has_value();
                        });
                      }}});
  if (yaml.problems().empty() && (cause.count == 0 || cause.faults.empty())) {
    yaml.add(node.Mark(), path,
             "\"count\" and \"faults\" are required, as in " + std::string(kExample));
  }
  trace.causes.push_back(std::move(cause));
}

}  // namespace

int64_t FailureTrace::total() const {
  int64_t sum = 0;
  for (const TraceCause& cause : causes) sum += cause.count;
  return sum;
}

void read_failure_trace(PlanYaml& yaml, const YAML::Node& node, const std::string& path,
                        FailureTrace& trace) {
  if (!node.IsMap()) {
    yaml.add(node.Mark(), path,
             "expected keys such as \"period:\" and \"causes:\", found " + describe_node(node));
    return;
  }
  yaml.read_mapping(node, path,
                    {{"period",
                      [&](YamlValue& v) {
                        v.read_duration(trace.period_ms);
                        if (trace.period_ms < 1000) yaml.fail_once(v, "expected at least 1s");
                      }},
                     {"faster",
                      [&](YamlValue& v) {
                        v.read(trace.faster);
                        if (trace.faster < 1 || trace.faster > kMaxFaster) {
                          yaml.fail_once(v, "expected 1 to " + std::to_string(kMaxFaster));
                        }
                      }},
                     {"count",
                      [&](YamlValue& v) {
                        v.read(trace.count);
                        if (trace.count < 1) yaml.fail_once(v, "expected 1 or more");
                      }},
                     {"causes", [&](YamlValue& v) {
                        PlanYaml::read_list(v, "a list of causes",
                                            [&](const YAML::Node& cause, const std::string& below) {
                                              read_cause(yaml, cause, below, trace);
                                            });
                      }}});
  if (yaml.problems().empty() && (trace.period_ms == 0 || trace.causes.empty())) {
    yaml.add(node.Mark(), path, "\"period\" and \"causes\" are required");
  }
}

TracedFault draw_fault(const FailureTrace& trace, Rng& rng) {
  const int64_t total = trace.total();
  auto chosen = static_cast<int64_t>(rng.below(static_cast<uint64_t>(total)));
  auto cause = trace.causes.begin();
  for (; chosen >= cause->count; ++cause) chosen -= cause->count;
  TracedFault drawn;
  drawn.cause = cause->cause;
  drawn.fault = cause->faults[rng.below(cause->faults.size())];
  drawn.pause_ms =
      random_pause_ms(rng, static_cast<double>(trace.period_ms) / static_cast<double>(total) /
                               static_cast<double>(trace.faster));
  return drawn;
}

int64_t random_pause_ms(Rng& rng, double mean_ms) {
  const double pause = -std::log1p(-rng.uniform());
  return static_cast<int64_t>(std::min(pause, kLongestPauses) * mean_ms);
}

}  // namespace hpctl
