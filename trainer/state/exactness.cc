// SPDX-License-Identifier: Apache-2.0
#include "trainer/state/exactness.h"

#include <utility>

#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/job_spec_json.h"
#include "common/layout/sharding.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr const char* kDeterministicLabel = "gpu.deterministic";

std::string described(const ScheduleSpec& schedule, int64_t steps) {
  json text = schedule;
  if (schedule.name != ScheduleShape::kConstant) text["steps"] = steps;
  return json_text(text);
}

// Nothing of it matters while only what is not finite is bad: such a step is never applied.
std::string described(const StabilitySpec& s) {
  if (!s.spikes) return "no spikes";
  return json_text(json{{"factor", s.factor}, {"window", s.window}, {"z_score", s.z_score}});
}

// Without `master` where it is fp32, as in checkpoints from before there was a choice.
std::string described(const OptimizerSpec& optimizer) {
  json text = optimizer;
  if (optimizer.master == StateType::kFp32) text.erase("master");
  return json_text(text);
}

// Where the base lies changes nothing; which it is, another label tells.
std::string described(LoraSpec lora) {
  lora.base.clear();
  return json_text(json(lora));
}

}  // namespace

void write_environment(PacketWriter& w, const Environment& environment) {
  w.number(static_cast<uint32_t>(environment.size()));
  for (const auto& [name, value] : environment) w.text(name).text(value);
}

Environment read_environment(PacketReader& r) {
  Environment environment;
  for (auto count = r.number<uint32_t>(); count > 0 && !r.at_end(); --count) {
    std::string name = r.text();
    environment[std::move(name)] = r.text();
  }
  return environment;
}

Environment environment_of(const TrainSpec& train) {
  Environment environment = {
      {"batch.global", std::to_string(train.batch.global)},
      {"batch.micro", std::to_string(train.batch.micro)},
      // A label that stored checkpoints have: the name of `mask: documents` when it was alone.
      {"data.reset_at_documents", train.data.keeps_apart() ? "true" : "false"},
      {"loss", json_text(json(train.loss))},
      {"optimizer", described(train.optimizer)},
      {"precision", to_word(train.precision)},
      {"schedule", described(train.schedule, train.steps)},
      {"stability", described(train.stability)},
      {"strategy", describe_sharding(train)},
  };
  if (train.data.mask == DocumentMask::kBorders) environment["data.mask"] = "borders";
  if (train.lora.on()) environment["lora"] = described(train.lora);
  if (train.data.has_answers()) environment["data.format"] = to_word(train.data.format);
  if (train.degrees.tensor > 1) {
    environment["tensor_parallel_degree"] = std::to_string(train.degrees.tensor);
  }
  const bool narrow_state = train.optimizer.moments == StateType::kBf16;
  if (narrow_state) environment["optimizer.rounding"] = "stochastic";
  if (!train.batch.ramp.empty()) environment["batch.ramp"] = json_text(json(train.batch.ramp));
  if (train.precision == Precision::kFp16)
    environment["loss_scale"] = json_text(json(train.loss_scale));
  return environment;
}

std::string ranks_by_node(const std::vector<std::string>& nodes) {
  std::string text;
  for (size_t first = 0; first < nodes.size();) {
    size_t end = first;
    while (end < nodes.size() && nodes[end] == nodes[first]) ++end;
    text += (text.empty() ? "" : " ") + std::to_string(end - first);
    first = end;
  }
  return text;
}

void note_order_of_sums(int32_t ranks, Environment& environment) {
  if (ranks > 3) environment["sums"] = "in pairs";
}

void note_weight_gradients(const TrainSpec& train, bool whole_gradients, Environment& environment) {
  const int64_t rows = train.batch.micro * train.data.seq_len;
  const bool chunks = train.loss.chunk_tokens > 0 && train.loss.chunk_tokens < rows;
  if (whole_gradients || train.precision == Precision::kBf16 || chunks ||
      train.model.tied_embeddings) {
    environment["weight_gradients"] = "added by products";
  }
}

void note_wide_gradients(bool wide, Environment& environment) {
  if (wide) environment["weight_gradients"] = "in fp32";
}

void note_joined_projections(const ModelSpec& model, Environment& environment) {
  if (model.arch != Arch::gpt) environment["projections"] = "joined";
}

void note_bf16_products(const TrainSpec& train, Bf16Products products, Environment& environment) {
  if (train.precision == Precision::kBf16) environment["bf16_products"] = to_word(products);
}

void note_gpu_keys(const GpuSpec& gpu, Environment& environment) {
  if (gpu.attention != GpuAttention::kAuto) environment["gpu.attention"] = to_word(gpu.attention);
  if (!gpu.deterministic) environment[kDeterministicLabel] = "false";
}

void note_attention(const TrainSpec& train, AttentionBackend by, Environment& environment) {
  const bool kernels_wanted =
      train.precision != Precision::kFp32 && train.gpu.attention != GpuAttention::kProducts;
  if (by == AttentionBackend::kProducts && kernels_wanted) environment["attention"] = "products";
  if (by == AttentionBackend::kFused && train.data.keeps_apart()) {
    environment["attention"] = "document by document";
  }
}

std::string unrepeatable_reason(const Environment& environment) {
  if (!environment.contains(kDeterministicLabel)) return "";
  return "gpu.deterministic is false: the GPU may add in another order each time";
}

std::string inexact_reason(const Manifest& loaded, int32_t world_size,
                           const Environment& environment) {
  if (!loaded.exact) return loaded.inexact_reason;
  const std::string after = " after step " + std::to_string(loaded.step);
  if (loaded.world_size != world_size) {
    return "world size changed from " + std::to_string(loaded.world_size) + " to " +
           std::to_string(world_size) + after;
  }
  const auto label = [](const Environment& of, const std::string& key) {
    const auto found = of.find(key);
    return found == of.end() ? std::string("(not recorded)") : found->second;
  };
  Environment keys = environment;
  keys.insert(loaded.environment.begin(), loaded.environment.end());
  for (const auto& [key, value] : keys) {
    const std::string before = label(loaded.environment, key);
    const std::string now = label(environment, key);
    if (before != now) return key + " changed from " + before + " to " + now + after;
  }
  return "";
}

}  // namespace hpctl
