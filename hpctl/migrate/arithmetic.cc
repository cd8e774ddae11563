// SPDX-License-Identifier: Apache-2.0
#include "hpctl/migrate/arithmetic.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace hpctl::migrate {
namespace {

using enum Fate;

const std::string kSchedule = "workload.train.schedule.";
const std::string kBatch = "workload.train.batch.";
constexpr const char* kSteps = "workload.train.steps";

std::optional<double> value_of(const Draft& draft, std::string_view key) {
  const Value* value = draft.find(key);
  return value == nullptr ? std::nullopt : number_of(value->yaml);
}

bool is_word(const Draft& draft, const std::string& key, std::string_view word) {
  const Value* value = draft.find(key);
  return value != nullptr && value->yaml == word;
}

void put_number(Draft& draft, const std::string& key, double value, const std::string& source) {
  draft.compute(key, number_text(value), source);
}

// 1e-5 / 1e-4 is 0.1, whatever the last bit says.
double rounded(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.12g", value);
  return number_of(buffer.data()).value_or(value);
}

class Arithmetic {
 public:
  explicit Arithmetic(Draft& draft) : draft_(draft) {}

  void compute() {
    count_workers();
    compute_batch();
    compute_steps();
    compute_rates();
    compute_schedule();
    compute_validation();
    compute_groups();
  }

 private:
  std::optional<Number> number(Quantity quantity) const { return draft_.number(quantity); }

  void count_workers() {
    const auto nodes = value_of(draft_, "nodes.count");
    const auto each = value_of(draft_, "workers_per_node");
    const auto tasks = number(Quantity::kTasks);
    if (nodes && each) {
      workers_ = *nodes * *each;
      if (tasks && tasks->value != *workers_) {
        draft_.report(kImpossible, tasks->source,
                      number_text(tasks->value) + " workers, but nodes x workers_per_node is " +
                          number_text(*workers_));
      }
      return;
    }
    if (!tasks) {
      // One node, or one worker on each, as torchrun and srun have it without their options.
      const bool is_auto = draft_.find("workers_per_node") != nullptr && !each;
      if (!is_auto && (each || nodes)) workers_ = each.value_or(1) * nodes.value_or(1);
      return;
    }
    workers_ = tasks->value;
    const double count = nodes.value_or(1);
    const double per_node = tasks->value / count;
    if (per_node != std::floor(per_node)) {
      draft_.report(kImpossible, tasks->source,
                    number_text(tasks->value) + " workers do not share " + number_text(count) +
                        " nodes out evenly");
      return;
    }
    put_number(draft_, "workers_per_node", per_node, tasks->source);
  }

  // A job of several nodes has a product in it; its factors are told.
  void compute_batch() {
    auto micro = number(Quantity::kMicroBatch);
    const auto accumulation = number(Quantity::kAccumulation);
    auto global = number(Quantity::kGlobalBatch);
    const double rounds = accumulation ? accumulation->value : 1;
    if (!micro && global && accumulation && workers_) {
      const double each = global->value / (rounds * *workers_);
      if (each >= 1 && each == std::floor(each)) micro = Number{each, global->source, false};
    }
    if (global && micro && workers_ && accumulation && !accumulation->is_default &&
        !micro->is_default && global->value != micro->value * rounds * *workers_) {
      draft_.report(kImpossible, global->source,
                    number_text(global->value) + " is not " + factors(*micro, rounds));
    }
    if (global && micro && micro->is_default && workers_ &&
        global->value < micro->value * *workers_) {
      micro.reset();  // the plan chooses
    }
    if (!global && micro && workers_) {
      global = Number{micro->value * rounds * *workers_,
                      micro->source + ": " + factors(*micro, rounds), false};
    }
    if (micro) put_number(draft_, kBatch + "micro", micro->value, micro->source);
    if (global) {
      put_number(draft_, kBatch + "global", global->value, global->source);
    } else if (micro && !draft_.is_given(kBatch + "global")) {
      draft_.report(kImpossible, micro->source,
                    "batch.global is the micro batch times the workers, and no file says how many "
                    "there are: give the script that starts it too, or --set nodes=N --set "
                    "workers_per_node=N");
    }
    global_ = value_of(draft_, kBatch + "global");
  }

  std::string factors(const Number& micro, double rounds) const {
    return number_text(micro.value) + " x " + number_text(rounds) + " x " +
           number_text(workers_.value_or(0)) + " (micro batch x accumulation x workers)";
  }

  void compute_steps() {
    const auto steps = number(Quantity::kSteps);
    const auto samples = number(Quantity::kSamples);
    const auto epochs = number(Quantity::kEpochs);
    if (steps && steps->value >= 1) {
      put_number(draft_, kSteps, steps->value, steps->source);
    } else if (samples && global_ && *global_ >= 1) {
      put_number(draft_, kSteps, steps_of(samples->value),
                 samples->source + ": divided by " + number_text(*global_) + ", the global batch");
    } else if (epochs && !draft_.is_given(kSteps)) {
      draft_.report(kImpossible, epochs->source,
                    "steps is epochs x sequences / batch.global, and no file says how many "
                    "sequences there are: " +
                        number_text(epochs->value) + " epochs; --set " + kSteps + "=N");
    }
    steps_ = value_of(draft_, kSteps);
  }

  // The whole steps in so many samples.
  double steps_of(double samples) const {
    double taken = 0;
    double steps = 0;
    const Value* ramp = draft_.find(kBatch + "ramp");
    if (ramp != nullptr) {
      for (const auto& point : YAML::Load(ramp->yaml)) {
        const auto until = std::min(samples, point.first.as<double>());
        const auto size = point.second.as<double>();
        const double count = std::max(0.0, std::ceil((until - taken) / size));
        steps += count;
        taken += count * size;
      }
    }
    return steps + std::max(0.0, std::floor((samples - taken) / *global_));
  }

  void compute_rates() {
    const auto peak = number(Quantity::kPeakLr);
    const auto lowest = number(Quantity::kMinLr);
    const auto ratio = number(Quantity::kMinLrRatio);
    const std::string key = kSchedule + "min_lr_ratio";
    if (peak) put_number(draft_, "workload.train.optimizer.lr", peak->value, peak->source);
    if (lowest && peak && peak->value > 0 && (!ratio || ratio->is_default)) {
      put_number(draft_, key, rounded(lowest->value / peak->value),
                 lowest->source + ": divided by the highest rate");
    } else if (ratio) {
      put_number(draft_, key, ratio->value, ratio->source);
    }
  }

  void compute_schedule() {
    const auto end_samples = number(Quantity::kDecayEndSamples);
    const auto warm_samples = number(Quantity::kWarmupSamples);
    const auto length_samples = number(Quantity::kDecayLengthSamples);
    if (end_samples || warm_samples || length_samples) {
      return compute_by_samples(end_samples, warm_samples, length_samples);
    }
    const auto end = number(Quantity::kDecayEnd);
    const double last = end ? end->value : steps_.value_or(0);
    const double warmup = compute_warmup(last);
    const bool is_constant = is_word(draft_, kSchedule + "name", "constant");
    const auto length = number(Quantity::kDecayLength);
    const auto ratio = number(Quantity::kDecayRatio);
    if (length && !is_constant)
      put_number(draft_, kSchedule + "decay_steps", length->value, length->source);
    if (ratio && steps_) return set_wsd(*ratio, warmup);
    name_by_shape(warmup);
    if (!end || is_constant || end->value == steps_ || length) return;
    if (end->value <= warmup) {
      draft_.report(kImpossible, end->source, "the decay ends before the warm-up does");
      return;
    }
    put_number(draft_, kSchedule + "decay_steps", end->value - warmup,
               end->source + ": less the warm-up");
  }

  void compute_by_samples(const std::optional<Number>& end, const std::optional<Number>& warm,
                          const std::optional<Number>& length) {
    const Number& first = end ? *end : (warm ? *warm : *length);
    draft_.compute(kSchedule + "unit", "samples", first.source);
    double warmup = warm ? warm->value : 0;
    const auto fraction = number(Quantity::kWarmupFraction);
    if (!warm && fraction && end) warmup = std::ceil(fraction->value * end->value);
    if (warmup > 0) {
      put_number(draft_, kSchedule + "warmup_steps", warmup,
                 warm ? warm->source : fraction->source);
    }
    if (is_word(draft_, kSchedule + "name", "constant")) return;
    const auto samples = number(Quantity::kSamples);
    if (length) {
      put_number(draft_, kSchedule + "decay_steps", length->value, length->source);
    } else if (end && !(samples && samples->value == end->value)) {
      put_number(draft_, kSchedule + "decay_steps", end->value - warmup,
                 end->source + ": less the warm-up");
    }
  }

  double compute_warmup(double last) {
    const auto steps = number(Quantity::kWarmupSteps);
    const auto ratio = number(Quantity::kWarmupRatio);
    const auto fraction = number(Quantity::kWarmupFraction);
    const std::string key = kSchedule + "warmup_steps";
    if (steps && !(steps->is_default && (ratio || fraction))) {
      put_number(draft_, key, steps->value, steps->source);
    } else if (ratio && steps_) {
      put_number(draft_, key, std::ceil(ratio->value * *steps_),
                 ratio->source + ": of " + number_text(*steps_) + " steps");
    } else if (fraction && last > 0) {
      put_number(draft_, key, std::floor(fraction->value * last),
                 fraction->source + ": of " + number_text(last) + " steps");
    }
    return value_of(draft_, key).value_or(0);
  }

  // The decay is the last part of the run.
  void set_wsd(const Number& ratio, double warmup) {
    draft_.compute(kSchedule + "name", "wsd", ratio.source);
    const double length = std::min(std::round(*steps_ * ratio.value), *steps_ - warmup);
    put_number(draft_, kSchedule + "decay_steps", std::max(1.0, length),
               ratio.source + ": of " + number_text(*steps_) + " steps");
  }

  // TorchTitan says the shape alone: the decay begins after the warm-up.
  void name_by_shape(double warmup) {
    const Value* shape = draft_.find(kSchedule + "decay");
    if (shape == nullptr || draft_.find(kSchedule + "name") != nullptr) return;
    const Value found = *shape;
    if (found.yaml != "sqrt") {
      draft_.erase(kSchedule + "decay");
      draft_.compute(kSchedule + "name", found.yaml, found.source);
    } else if (steps_) {
      draft_.compute(kSchedule + "name", "wsd", found.source);
      put_number(draft_, kSchedule + "decay_steps", std::max(1.0, *steps_ - warmup), found.source);
    }
  }

  void compute_validation() {
    const auto every = number(Quantity::kEvalInterval);
    const auto batches = number(Quantity::kEvalBatches);
    const Value* split = draft_.find("workload.train.data.split");
    if (!every || !batches || split == nullptr || !global_) return;
    const YAML::Node parts = YAML::Load(split->yaml);
    const bool has_part = parts.IsSequence() && parts.size() > 1 && parts[1].as<double>(0) > 0;
    if (!has_part || batches->value < 1) return;
    put_number(draft_, "workload.train.validation.every_steps", every->value, every->source);
    put_number(draft_, "workload.train.validation.sequences", batches->value * *global_,
               batches->source + ": times the global batch");
  }

  void compute_groups() {
    const auto replicas = number(Quantity::kReplicas);
    if (!replicas || !workers_) return;
    put_number(draft_, "workload.train.parallelism.shard_group", *workers_ / replicas->value,
               replicas->source + ": workers divided by it");
  }

  Draft& draft_;
  std::optional<double> workers_;
  std::optional<double> global_;
  std::optional<double> steps_;
};

}  // namespace

void compute_values(Draft& draft) { Arithmetic(draft).compute(); }

}  // namespace hpctl::migrate
