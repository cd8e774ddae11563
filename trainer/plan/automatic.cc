// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/automatic.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "common/base/check.h"
#include "trainer/plan/advice.h"
#include "trainer/plan/fit.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/plan/plan_text.h"
#include "trainer/plan/speed_plan.h"

namespace hpctl {
namespace {

// Sizes that keep the product with the output projection efficient, the best first.
constexpr std::array kChunks = {int64_t{4096}, int64_t{2048}, int64_t{1024}};

// A value for each key that may be auto.
struct Values {
  Strategy strategy = Strategy::kFull;
  Checkpointing checkpointing = Checkpointing::kNone;
  int64_t micro = 1;
  int64_t chunk_tokens = 0;
};

Values values_of(const TrainSpec& train) {
  return {train.strategy, train.memory.activation_checkpointing, train.batch.micro,
          train.loss.chunk_tokens};
}

void apply(const Values& values, TrainSpec& train) {
  train.strategy = values.strategy;
  train.memory.activation_checkpointing = values.checkpointing;
  train.batch.micro = values.micro;
  train.loss.chunk_tokens = values.chunk_tokens;
}

// The keys in the order of job.yaml.
struct Key {
  const char* path;
  bool AutoKeys::*automatic;
  std::string (*text)(const Values& values);
};
constexpr std::array<Key, 4> kKeys = {{
    {"workload.train.batch.micro", &AutoKeys::micro,
     [](const Values& v) { return std::to_string(v.micro); }},
    {"workload.train.loss.chunk_tokens", &AutoKeys::chunk_tokens,
     [](const Values& v) { return std::to_string(v.chunk_tokens); }},
    {"workload.train.parallelism.strategy", &AutoKeys::strategy,
     [](const Values& v) { return std::string(to_word(v.strategy)); }},
    {"workload.train.memory.activation_checkpointing", &AutoKeys::activation_checkpointing,
     [](const Values& v) { return std::string(to_word(v.checkpointing)); }},
}};

template <WordEnum E>
std::vector<E> all_or(bool is_free, E given) {
  if (!is_free) return {given};
  std::vector<E> all;
  for (size_t i = 0; i < words_of(E{}).size(); ++i) all.push_back(static_cast<E>(i));
  return all;
}

// The facts about a setting before the choice.
struct Candidate {
  Values values;
  double need = 0;     // bytes of a worker, at most, on the numbers of nodes in question
  double seconds = 0;  // of a step; on a CPU the recomputation in their place
  double sent = 0;     // bytes of a worker and step
  int64_t passes = 1;
  size_t place = 0;  // in the order of the documents

  auto order() const {
    const int64_t at_a_time =
        values.chunk_tokens == 0 ? std::numeric_limits<int64_t>::max() : values.chunk_tokens;
    return std::tuple(seconds, sent, passes, -at_a_time, need, place);
  }
  bool better_than(const Candidate& other) const { return order() < other.order(); }
};

class Choice {
 public:
  Choice(const JobSpec& spec, const std::vector<Block>& blocks, const WorkerMemory& memory)
      : spec_(spec), given_(*spec.train), blocks_(blocks), memory_(memory) {}

  Automatic make() {
    find_pairs();
    HP_CHECK(!pairs_.empty());
    const Values values = memory_.bytes > 0 ? choose() : assume();
    result_.train = given_;
    apply(values, result_.train);
    result_.train.automatic = {};
    return std::move(result_);
  }

 private:
  using Pair = std::pair<Strategy, Checkpointing>;

  // Strategies and checkpointing that agree with each other and with the job's other keys.
  void find_pairs() {
    for (const Strategy strategy : all_or(given_.automatic.strategy, given_.strategy)) {
      // On one node hybrid is full.
      if (given_.automatic.strategy && strategy == Strategy::kHybrid && spec_.nodes == 1 &&
          given_.shard_group == 0) {
        continue;
      }
      for (const Checkpointing checkpointing : all_or(given_.automatic.activation_checkpointing,
                                                      given_.memory.activation_checkpointing)) {
        JobSpec changed = spec_;
        changed.train->strategy = strategy;
        changed.train->memory.activation_checkpointing = checkpointing;
        changed.train->automatic = {};
        if (find_problems(changed).empty()) pairs_.emplace_back(strategy, checkpointing);
      }
    }
  }

  // Without a plan.
  Values assume() {
    Values values = values_of(given_);
    std::tie(values.strategy, values.checkpointing) = pairs_.front();
    result_.chosen.basis = "memory that is not known (" + memory_.source + ")";
    record(values, "what a job without a plan gets");
    return values;
  }

  std::vector<int64_t> micros() const {
    if (!given_.automatic.micro) return {given_.batch.micro};
    if (memory_.gpu == nullptr) return {1};
    return even_micros(given_, spec_.world_size());
  }

  std::vector<int64_t> chunks(int64_t micro) const {
    if (!given_.automatic.chunk_tokens) return {given_.loss.chunk_tokens};
    std::vector<int64_t> found = {0};
    for (const int64_t chunk : kChunks) {
      if (chunk < micro * given_.data.seq_len) found.push_back(chunk);
    }
    return found;
  }

  PlanSetting setting(const Values& values, int32_t fewest) const {
    PlanSetting s = setting_of(spec_, memory_.gpu != nullptr);
    s.min_nodes = fewest;
    apply(values, s.train);
    return s;
  }

  void weigh(Candidate& c, const PlanSetting& s) const {
    c.passes = passes_per_step(s);
    if (memory_.gpu == nullptr) {
      c.seconds = recompute_factor(
          s.train, flops_per_token(s.train.model, blocks_, s.train.data.seq_len, s.train.lora));
      return;
    }
    const SpeedPlan speed = plan_speed(s, blocks_, *memory_.gpu);
    c.seconds = speed.middle_s();
    c.sent = speed.send_bytes;
  }

  // The settings that fit on `fewest` nodes and more. For the same pair, a larger micro-batch needs
  // more.
  void find_fitting(int32_t fewest) {
    fitting_.clear();
    least_.reset();
    size_t place = 0;
    for (const auto& [strategy, checkpointing] : pairs_) {
      if (memory_.gpu == nullptr && strategy != pairs_.front().first) continue;
      for (const int64_t micro : micros()) {
        bool any = false;
        for (const int64_t chunk : chunks(micro)) {
          Candidate c = {.values = {strategy, checkpointing, micro, chunk}, .place = ++place};
          const PlanSetting s = setting(c.values, fewest);
          c.need = most_memory(s, blocks_);
          if (!least_ || c.need < least_->need) least_ = c;
          if (c.need > memory_.bytes * kUsableMemory) continue;
          any = true;
          weigh(c, s);
          fitting_.push_back(c);
        }
        if (!any) break;
      }
    }
  }

  Values choose() {
    const int32_t fewest = spec_.fewest_nodes();
    std::string& basis = result_.chosen.basis;
    basis = describe_memory(fewest);
    find_fitting(fewest);
    if (fitting_.empty() && fewest < spec_.nodes) {
      find_fitting(spec_.nodes);
      basis =
          describe_memory(spec_.nodes) + "; nothing fits on nodes.min, " + std::to_string(fewest);
    }
    if (fitting_.empty()) {
      explain_misfit();
      record(least_->values, "takes the least memory");
      return least_->values;
    }
    const Candidate best =
        *std::min_element(fitting_.begin(), fitting_.end(),
                          [](const auto& a, const auto& b) { return a.better_than(b); });
    for (const Key& key : kKeys) {
      if (given_.automatic.*key.automatic) add(key, best.values, reason(key, best));
    }
    return best.values;
  }

  // "8 workers, each with 90 % of 80.0 GiB (h100 of slurm.gres)"
  std::string describe_memory(int32_t fewest) const {
    const int32_t world = spec_.world_size();
    const std::string few =
        fewest == spec_.nodes ? "" : std::to_string(fewest * spec_.workers_per_node) + " to ";
    return few + std::to_string(world) + (world == 1 ? " worker" : " workers, each") + " with " +
           share_of_memory();
  }
  std::string share_of_memory() const {
    return plan_text("%.0f %% of %.1f GiB (", kUsableMemory * 100, gibibytes(memory_.bytes)) +
           memory_.source + ")";
  }

  void explain_misfit() {
    const PlanSetting s = setting(least_->values, spec_.fewest_nodes());
    const int64_t workers = spec_.world_size();
    std::string values;
    for (const Key& key : kKeys) {
      const std::string path = key.path;
      values += (values.empty() ? "" : ", ") + path.substr(path.rfind('.') + 1) + " " +
                key.text(least_->values);
    }
    std::string& text = result_.misfit;
    text = "out of memory: " + std::to_string(workers) +
           (workers == 1 ? " worker needs " : " workers need ") +
           plan_text("%.1f GiB", gibibytes(least_->need)) + (workers == 1 ? "" : " each") +
           " with " + values + ", and may have " + share_of_memory() + "; " +
           describe_largest(plan_memory(s, blocks_));
    if (memory_.gpu == nullptr) return;
    const Advice advice = advise(s, blocks_, *memory_.gpu, memory_.bytes, strategies());
    if (!advice.setting) return;
    text += advice.on_all_nodes ? "; on all nodes it fits with" : "; it fits with";
    for (const Change& change : advice.changes) text += " " + change.change + ",";
    text.pop_back();
    for (const Change& other : advice.instead) text += ", or instead with " + other.change;
  }

  std::vector<Strategy> strategies() const {
    std::vector<Strategy> known;
    for (const Pair& pair : pairs_) {
      if (known.empty() || known.back() != pair.first) known.push_back(pair.first);
    }
    return known;
  }

  void record(const Values& values, const std::string& reason) {
    for (const Key& key : kKeys) {
      if (given_.automatic.*key.automatic) add(key, values, reason);
    }
  }
  void add(const Key& key, const Values& values, std::string reason) {
    result_.chosen.values.push_back({key.path, key.text(values), std::move(reason)});
  }

  // Against the best that has another value of this key, whatever else it has.
  std::string reason(const Key& key, const Candidate& best) const {
    const Candidate* next = nullptr;
    for (const Candidate& c : fitting_) {
      const bool other = key.text(c.values) != key.text(best.values);
      if (other && (next == nullptr || c.better_than(*next))) next = &c;
    }
    if (next == nullptr) return alone(key, best);
    const std::string value = key.text(next->values);
    if (next->seconds > best.seconds && memory_.gpu == nullptr) {
      const std::string again =
          best.seconds == 1 ? std::string("nothing")
                            : plan_text("%.0f %% of the operations", 100 * (best.seconds - 1));
      return again + plan_text(" computed again; with %s %.0f %%", value.c_str(),
                               100 * (next->seconds - 1));
    }
    if (next->seconds > best.seconds) {
      return plan_text("a step takes %.3g s; with %s %.3g s", best.seconds, value.c_str(),
                       next->seconds);
    }
    if (next->sent > best.sent) {
      return plan_text("as fast as %s, and sends %.2f GiB a step instead of %.2f", value.c_str(),
                       gibibytes(best.sent), gibibytes(next->sent));
    }
    if (next->passes > best.passes) {
      return plan_text("as fast as %s, in %lld instead of %lld passes a step", value.c_str(),
                       static_cast<long long>(best.passes), static_cast<long long>(next->passes));
    }
    if (key.automatic == &AutoKeys::chunk_tokens) {
      return best.values.chunk_tokens == 0 ? "all logits at once fit" : "larger chunks do not fit";
    }
    return plan_text("as fast as %s, with %.2f instead of %.2f GiB", value.c_str(),
                     gibibytes(best.need), gibibytes(next->need));
  }

  // No other value fits, or there is no other.
  std::string alone(const Key& key, const Candidate& best) const {
    const bool thrifty = key.automatic == &AutoKeys::micro || key.automatic == &AutoKeys::strategy;
    if (memory_.gpu == nullptr && thrifty) {
      return "on a CPU the plan knows no times; this takes the least memory";
    }
    const bool whole =
        key.automatic == &AutoKeys::chunk_tokens && chunks(best.values.micro).size() == 1;
    return whole ? "a micro-batch is no more than the smallest chunk" : "nothing else fits";
  }

  const JobSpec& spec_;
  const TrainSpec& given_;
  const std::vector<Block>& blocks_;
  const WorkerMemory& memory_;
  std::vector<Pair> pairs_;
  std::vector<Candidate> fitting_;
  std::optional<Candidate> least_;  // of all that were considered
  Automatic result_;
};

}  // namespace

Automatic choose_automatic(const JobSpec& spec, const std::vector<Block>& blocks,
                           const WorkerMemory& memory) {
  const AutoKeys& keys = spec.train->automatic;
  const bool any =
      std::any_of(kKeys.begin(), kKeys.end(), [&](const Key& key) { return keys.*key.automatic; });
  return any ? Choice(spec, blocks, memory).make() : Automatic{*spec.train, {}, ""};
}

}  // namespace hpctl
