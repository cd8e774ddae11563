// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/advice.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "trainer/plan/plan_text.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace {

constexpr int32_t kMaxNodes = 4096;
constexpr int64_t kChunkTokens = 2048;
// A change for less gain than this is not worth an edit.
constexpr double kWorthwhile = 0.97;

constexpr std::array kAllCheckpointing = {Checkpointing::kNone, Checkpointing::kOperations,
                                          Checkpointing::kSelective, Checkpointing::kFull};

class Search {
 public:
  Search(const std::vector<Block>& blocks, const GpuModel& device, double memory_bytes,
         const std::vector<Strategy>& strategies)
      : blocks_(blocks),
        device_(device),
        usable_(memory_bytes * kUsableMemory),
        strategies_(strategies) {}

  bool fits(const PlanSetting& s) const { return memory(s) <= usable_; }
  double memory(const PlanSetting& s) const { return most_memory(s, blocks_); }
  // The memory of a node, with the largest shards.
  double host_memory(PlanSetting s) const {
    s.nodes = s.fewest_nodes();
    double sum = 0;
    for (const MemoryPart& part : plan_memory(s, blocks_).host) sum += part.bytes;
    return sum * s.workers_per_node;
  }
  double seconds(const PlanSetting& s) const { return plan_speed(s, blocks_, device_).middle_s(); }

  // The fastest variant that fits; of equally fast ones the one nearest to `given`.
  std::optional<PlanSetting> best(const PlanSetting& given) const {
    std::optional<PlanSetting> best;
    double least = 0;
    for (const PlanSetting& candidate : variants(given)) {
      if (!fits(candidate)) continue;
      const double time = seconds(candidate);
      if (best && time > least * kWorthwhile) continue;
      best = candidate;
      least = time;
    }
    return best;
  }

 private:
  // Nearest first: the given one, then fewer and fewer things as they are.
  std::vector<PlanSetting> variants(const PlanSetting& given) const {
    std::vector<PlanSetting> all;
    add(all, given);  // an offload that the caller tries may not go with its other values
    std::vector<Strategy> strategies = {given.train.strategy};
    for (const Strategy strategy : strategies_) {
      PlanSetting s = given;
      s.train.strategy = strategy;
      const bool one_group = shard_count(s) == s.world_size();
      if (strategy == Strategy::kHybrid && one_group) continue;  // full by another name
      strategies.push_back(strategy);
    }
    std::vector<int64_t> micros = {given.train.batch.micro};
    const std::vector<int64_t> even = even_micros(given.train, given.world_size());
    micros.insert(micros.end(), even.begin(), even.end());
    for (const int64_t chunk : {given.train.loss.chunk_tokens, kChunkTokens}) {
      for (const Strategy strategy : strategies) {
        for (const int64_t micro : micros) {
          for (const Checkpointing checkpointing : kAllCheckpointing) {
            PlanSetting s = given;
            s.train.strategy = strategy;
            s.train.batch.micro = micro;
            s.train.loss.chunk_tokens = chunk;
            s.train.memory.activation_checkpointing = checkpointing;
            add(all, s);
            if (s.train.memory.offload.empty()) continue;
            s.train.memory.offload.clear();
            add(all, s);
          }
        }
      }
    }
    return all;
  }

  static void add(std::vector<PlanSetting>& all, const PlanSetting& s) {
    const Checkpointing checkpointing = s.train.memory.activation_checkpointing;
    const bool inputs_alone =
        checkpointing == Checkpointing::kSelective || checkpointing == Checkpointing::kFull;
    if (offloads_parameters(s.train) && keeps_parameters(s.train)) return;
    if (offloads_optimizer(s.train) && s.train.lora.on()) return;
    if (offloads_activations(s.train) && !inputs_alone) return;
    all.push_back(s);
  }

  const std::vector<Block>& blocks_;
  const GpuModel& device_;
  double usable_;
  const std::vector<Strategy>& strategies_;
};

std::string list_of(const std::vector<Offload>& parts) {
  std::string list;
  for (const Offload part : parts) list += std::string(list.empty() ? "" : ", ") + to_word(part);
  return "[" + list + "]";
}

// A difference between two settings: how it is applied, written and explained.
struct Difference {
  std::string change;
  const char* what;
  std::function<void(PlanSetting&)> apply;
};

const char* why_strategy(const TrainSpec& had, const TrainSpec& has) {
  if (has.strategy == Strategy::kHybrid) {
    return "between groups of workers, each of which has the whole, only gradients of shards pass";
  }
  return keeps_parameters(has) && !keeps_parameters(had)
             ? "there is room for parameters that stay gathered, which saves messages"
             : "shards more of what each worker holds";
}

std::vector<Difference> differences(const PlanSetting& from, const PlanSetting& to) {
  std::vector<Difference> found;
  const TrainSpec& had = from.train;
  const TrainSpec& has = to.train;
  const std::string train = "workload.train.";
  if (to.nodes != from.nodes) {
    found.push_back({"nodes: " + std::to_string(to.nodes), "each worker then holds a smaller shard",
                     [n = to.nodes](PlanSetting& s) { s.nodes = n; }});
  }
  if (has.strategy != had.strategy) {
    found.push_back({train + "parallelism.strategy: " + to_word(has.strategy),
                     why_strategy(had, has),
                     [v = has.strategy](PlanSetting& s) { s.train.strategy = v; }});
  }
  if (has.memory.offload != had.memory.offload) {
    found.push_back({train + "memory.offload: " + list_of(has.memory.offload),
                     "nothing then travels between host and GPU",
                     [v = has.memory.offload](PlanSetting& s) { s.train.memory.offload = v; }});
  }
  const Checkpointing checkpointing = has.memory.activation_checkpointing;
  if (checkpointing != had.memory.activation_checkpointing) {
    found.push_back({train + "memory.activation_checkpointing: " + to_word(checkpointing),
                     checkpointing == Checkpointing::kNone
                         ? "activations fit without recomputing them"
                         : "recomputes activations",
                     [checkpointing](PlanSetting& s) {
                       s.train.memory.activation_checkpointing = checkpointing;
                     }});
  }
  if (has.batch.micro != had.batch.micro) {
    found.push_back({train + "batch.micro: " + std::to_string(has.batch.micro),
                     has.batch.micro > had.batch.micro ? "fewer gathers for the same global batch"
                                                       : "fewer activations at a time",
                     [v = has.batch.micro](PlanSetting& s) { s.train.batch.micro = v; }});
  }
  if (has.loss.chunk_tokens != had.loss.chunk_tokens) {
    found.push_back({train + "loss.chunk_tokens: " + std::to_string(has.loss.chunk_tokens),
                     "never has all logits in memory", [v = has.loss.chunk_tokens](PlanSetting& s) {
                       s.train.loss.chunk_tokens = v;
                     }});
  }
  return found;
}

// "memory 74.2 -> 60.9 GiB on nodes.min, step 1.2 -> 1.3 s"
std::string effect(const Search& search, const PlanSetting& from, const PlanSetting& to) {
  return plan_text("memory %.1f -> %.1f GiB%s, step %.3g -> %.3g s", gibibytes(search.memory(from)),
                   gibibytes(search.memory(to)), from.may_shrink() ? " on nodes.min" : "",
                   search.seconds(from), search.seconds(to));
}

// The way from one setting to the other, a change at a time: always the one that leaves the least
// memory in use.
std::vector<Change> way(const Search& search, const PlanSetting& from, const PlanSetting& to) {
  std::vector<Change> changes;
  std::vector<Difference> left = differences(from, to);
  PlanSetting now = from;
  const auto with = [&now](const Difference& difference) {
    PlanSetting changed = now;
    difference.apply(changed);
    return changed;
  };
  while (!left.empty()) {
    const auto next = std::min_element(left.begin(), left.end(), [&](const auto& a, const auto& b) {
      return search.memory(with(a)) < search.memory(with(b));
    });
    const PlanSetting changed = with(*next);
    changes.push_back({next->change, next->what + (": " + effect(search, now, changed))});
    now = changed;
    left.erase(next);
  }
  return changes;
}

// The offload that makes the job fit on these nodes, as one change: it is slower, and only the user
// knows how much memory a node has.
std::optional<std::pair<Change, PlanSetting>> offload_here(const Search& search,
                                                           const PlanSetting& setting) {
  using enum Offload;
  for (const std::vector<Offload>& offload : {std::vector<Offload>{kOptimizer},
                                              {kOptimizer, kParameters},
                                              {kOptimizer, kParameters, kActivations}}) {
    PlanSetting moved = setting;
    moved.train.memory.offload = offload;
    const auto best = search.best(moved);
    if (!best) continue;
    std::string change = "workload.train.memory.offload: " + list_of(offload);
    for (const Difference& other : differences(moved, *best)) {
      change += ", " + other.change.substr(std::string("workload.train.").size());
    }
    const std::string host =
        plan_text("host memory %.0f GiB on each node: ", gibibytes(search.host_memory(*best)));
    return std::pair{Change{change, host + effect(search, setting, *best)}, *best};
  }
  return std::nullopt;
}

// For one step: each worker has to have one.
int64_t fewest_sequences(const BatchSpec& batch) {
  int64_t fewest = batch.global;
  for (const RampPoint& point : batch.ramp) fewest = std::min(fewest, point.global);
  return fewest;
}

}  // namespace

Advice advise(const PlanSetting& setting, const std::vector<Block>& blocks, const GpuModel& device,
              double memory_bytes, const std::vector<Strategy>& strategies) {
  const Search search(blocks, device, memory_bytes, strategies);
  if (const auto best = search.best(setting)) return {way(search, setting, *best), {}, best};
  if (setting.may_shrink()) {
    PlanSetting all = setting;
    all.min_nodes = all.nodes;
    Advice advice = advise(all, blocks, device, memory_bytes, strategies);
    advice.on_all_nodes = true;
    return advice;
  }
  const auto here = offload_here(search, setting);
  PlanSetting larger = setting;
  while (larger.nodes < kMaxNodes) {
    larger.nodes *= 2;
    larger.min_nodes = larger.nodes;
    // The global batch stays; workers without a sequence do not help.
    if (fewest_sequences(larger.train.batch) < larger.world_size()) break;
    larger.train.batch.micro = 1;
    if (const auto best = search.best(larger)) {
      Advice advice{way(search, setting, *best), {}, best};
      if (here) advice.instead.push_back(here->first);
      return advice;
    }
  }
  if (here) return {{here->first}, {}, here->second};
  return {{{"a device with more memory, or a larger workload.train.batch.global over more nodes",
            plan_text("no number of nodes that the global batch is enough for, no strategy and no "
                      "checkpointing fits into %.0f %% of %.0f GiB",
                      kUsableMemory * 100, gibibytes(memory_bytes))}},
          {},
          std::nullopt};
}

}  // namespace hpctl
