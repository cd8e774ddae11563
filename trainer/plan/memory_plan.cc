// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "trainer/arch/registry.h"

namespace hpctl {
namespace {

constexpr double kFp32 = 4;

double elements_of(const std::vector<Block>& blocks, int32_t shards) {
  double sum = 0;
  for (const Block& block : blocks) sum += static_cast<double>(shard_capacity(block.numel, shards));
  return sum;
}

double largest_block(const std::vector<Block>& blocks) {
  int64_t most = 0;
  for (const Block& block : blocks) most = std::max(most, block.numel);
  return static_cast<double>(most);
}

// Bytes that autograd keeps of one layer and micro-batch, and what its backward pass needs beside
// them at its peak.
struct LayerActivations {
  double input = 0;     // always kept
  double kept = 0;      // the rest, unless it is recomputed
  double products = 0;  // what remains of that when cheap operations are done again
  double work = 0;
};

// Returns whether attention is computed by products of matrices. That is so if the job asks for it,
// or if no kernel takes it: on a GPU in fp32, or with a window where flash attention does not take
// the heads (trainer/arch/attention.h).
bool attends_by_products(const PlanSetting& s) {
  const bool windowed = s.train.model.is_windowed(s.train.data.seq_len);
  const bool odd_heads = s.train.model.head_size() % 8 != 0;
  return s.gpu && ((windowed && odd_heads) || compute_bytes(s.train) == kFp32 ||
                   s.train.gpu.attention == GpuAttention::kProducts);
}

// The weights of attention by products, of all pairs of tokens.
struct AttentionWeights {
  double kept = 0;  // in fp32 and, if that is another, in the type of computation
  // Beside them in the forward pass the scores without and with the mask, in the backward pass two
  // gradients.
  double work = 0;
};

AttentionWeights attention_weights(const PlanSetting& s) {
  if (!attends_by_products(s)) return {};
  const int64_t tokens = s.train.data.seq_len;
  const double c = compute_bytes(s.train);
  const auto pairs =
      static_cast<double>(s.train.batch.micro * s.train.model.heads * tokens * tokens);
  return {pairs * (c < kFp32 ? kFp32 + c : kFp32), pairs * 2 * kFp32};
}

LayerActivations layer_activations(const PlanSetting& s) {
  const ModelSpec& m = s.train.model;
  const double c = compute_bytes(s.train);
  const bool narrow = c < kFp32;
  const LayerMemory layer = architecture_of(m).layer_memory;
  const auto tokens = static_cast<double>(s.train.batch.micro * s.train.data.seq_len);
  const double wide_row = tokens * static_cast<double>(m.dim);
  const double q_row = tokens * static_cast<double>(m.heads * m.head_size());
  const double kv_row = tokens * static_cast<double>(m.kv_heads * m.head_size());
  const double ffn_row = tokens * static_cast<double>(m.ffn);
  const double per_head = tokens * static_cast<double>(m.heads);
  LayerActivations a;
  a.input = wide_row * c;
  const double norms = (wide_row * layer.norms_kept + (q_row + kv_row) * layer.head_norms_kept) * c;
  const double attention = q_row * 2 * c + kv_row * 2 * c;  // queries, mixed values; keys, values
  const AttentionWeights weights = attention_weights(s);
  const double fused = attends_by_products(s) ? 0 : per_head * kFp32;
  // Between A and B of each adapter.
  const double adapters = tokens * static_cast<double>(s.train.lora.rank) * c *
                          static_cast<double>(s.train.lora.on() ? s.train.lora.targets.size() : 0);
  const double feed_forward = ffn_row * layer.ffn_kept * c;
  a.kept = norms + attention + fused + weights.kept + feed_forward + adapters;
  // Instead of the second norm's part its input stays; and where products need one, the keys' copy.
  const double transposed = attends_by_products(s) ? kv_row * c : 0;
  a.products =
      wide_row * c + attention + transposed + fused + ffn_row * layer.ffn_products * c + adapters;
  // The widened operands of attention, and their gradients, while the feed-forward part is done; or
  // the ones of that part's wide products.
  const double widened = !s.gpu && narrow ? (q_row + kv_row) * 4 * kFp32 : 0;
  const double in_attention = widened + weights.work - feed_forward;
  a.work = std::max(in_attention, ffn_row * layer.ffn_backward * c) + wide_row * 2 * c;
  return a;
}

// Whether the loss reads a copy of the logits in fp32: a CPU's kernels take all but fp16 as it is.
bool copies_logits(const PlanSetting& s) { return !s.gpu && s.train.precision == Precision::kFp16; }

// An element of the logits at the head's peak. Their gradient is written over what the loss reads.
double logit_bytes(const PlanSetting& s) {
  return compute_bytes(s.train) + (copies_logits(s) ? kFp32 : 0);
}
double head_bytes(const PlanSetting& s) {
  const TrainSpec& t = s.train;
  const int64_t all = t.batch.micro * t.data.seq_len;
  const int64_t chunk = t.loss.chunk_tokens;
  const auto rows = static_cast<double>(chunk > 0 ? std::min(chunk, all) : all);
  return rows * static_cast<double>(t.model.vocab) * logit_bytes(s);
}

// The model beside the adapters that are trained: each worker's shard of it, and what is gathered.
void add_base(MemoryPlan& plan, const PlanSetting& s) {
  const std::vector<Block> base = model_layout(s.train.model);
  const int32_t shards = shard_count(s);
  const double c = compute_bytes(s.train);
  plan.parts.push_back({"base", elements_of(base, shards) * c,
                        std::string(to_word(s.train.precision)) + " of 1/" +
                            std::to_string(shards) + " of the model, not trained"});
  if (shards == 1) return;  // used where it lies
  if (keeps_parameters(s.train)) {
    plan.parts.push_back({"gathered base", elements_of(base, 1) * c, "all, from step to step"});
  } else {
    plan.parts.push_back(
        {"gathered base", 2 * largest_block(base) * c, "one in use, one under way"});
  }
}

// The rest of the state on a GPU with an offloaded optimizer.
void add_offloaded_state(MemoryPlan& plan, const PlanSetting& s, const std::vector<Block>& blocks) {
  const int32_t shards = shard_count(s);
  const double shard = elements_of(blocks, shards);
  const double c = compute_bytes(s.train);
  const double state = kFp32 + 2 * moment_bytes(s.train);
  const std::string of = " of 1/" + std::to_string(shards) + " of the parameters";
  const bool weights_leave = offloads_parameters(s.train);
  if (!weights_leave) {
    plan.parts.push_back({"parameters", shard * c, to_word(s.train.precision) + of});
  } else if (c < kFp32) {
    plan.host.push_back({"parameters", shard * c, to_word(s.train.precision) + of});
  }
  const int64_t largest = shard_capacity(static_cast<int64_t>(largest_block(blocks)), shards);
  const auto piece = static_cast<double>(std::min(kOffloadPiece, largest));
  const double rounded = weights_leave && c < kFp32 ? c : 0;
  plan.parts.push_back({"offloaded state", 2 * piece * (state + rounded),
                        "two pieces on their way; the rest is in host memory"});
  plan.host.push_back({"state", shard * state, "fp32 parameters and two moments" + of});
  const double replicas = static_cast<double>(s.world_size()) / shards;
  plan.host.push_back({"save", shard * state / replicas, "the copy that a save writes"});
}

void add_state(MemoryPlan& plan, const PlanSetting& s, const std::vector<Block>& blocks) {
  if (s.gpu && offloads_optimizer(s.train)) return add_offloaded_state(plan, s, blocks);
  const int32_t shards = shard_count(s);
  const double shard = elements_of(blocks, shards);
  const double copies = s.gpu ? 1 : 3;
  const std::string of = " of 1/" + std::to_string(shards) + " of the parameters" +
                         (s.gpu ? "" : ", two slots and what a save writes from");
  plan.parts.push_back({"parameters", copies * shard * param_bytes(s.train),
                        to_word(s.train.optimizer.master) + of});
  plan.parts.push_back({"moments", copies * shard * 2 * moment_bytes(s.train),
                        std::string("two in ") + to_word(s.train.optimizer.moments) + of});
  if (s.gpu && keeps_rounded_weights(s.train, shards)) {
    plan.parts.push_back(
        {"rounded weights", shard * compute_bytes(s.train), "bf16" + of + ", for the gathers"});
  }
  const double slot = shard * (param_bytes(s.train) + 2 * moment_bytes(s.train));
  if (s.gpu) {
    plan.host.push_back(
        {kHostCopiesPart, 3 * slot,
         "parameters and moments" + of + ", two slots and what a save writes from"});
  }
  if (!keeps_copies(s)) return;
  (s.gpu ? plan.host : plan.parts)
      .push_back({kPeerSnapshotsPart, 3 * slot,
                  "one more slot, and two for a peer's parameters and moments"});
}

void add_buffers(MemoryPlan& plan, const PlanSetting& s, const std::vector<Block>& blocks) {
  const int32_t shards = shard_count(s);
  const double c = compute_bytes(s.train);
  const double largest = largest_block(blocks);
  const double whole = elements_of(blocks, 1);
  const double shard = elements_of(blocks, shards);
  const double partial =
      static_cast<double>(shard_capacity(static_cast<int64_t>(largest), shards)) * kFp32;
  // One worker's shard is the whole gradient (sharding_of()).
  if (keeps_gradients(s.train) || shards == 1) {
    plan.parts.push_back({"gradients", whole * kFp32, "fp32, of all parameters"});
  } else {
    plan.parts.push_back(
        {"gradients", shard * kFp32 + partial, "fp32 of 1/" + std::to_string(shards)});
    plan.parts.push_back({"gradient buffers", 2 * largest * kFp32, "two blocks in fp32"});
  }
  // One shard in the type of computation is used where it lies.
  const bool offloaded = s.gpu && offloads_optimizer(s.train);
  const bool rounded = s.gpu && keeps_rounded_weights(s.train, shards);
  const bool as_computed = c == kFp32 || offloaded || rounded || c == param_bytes(s.train);
  const bool here = !(s.gpu && offloads_parameters(s.train));
  if (shards == 1 && here && as_computed) return;
  if (keeps_parameters(s.train)) {
    plan.parts.push_back({"gathered blocks", whole * c, "all, for the whole step"});
  } else {
    plan.parts.push_back({"gathered blocks", 2 * largest * c, "one in use, one under way"});
  }
}

void add_activations(MemoryPlan& plan, const PlanSetting& s) {
  const LayerActivations layer = layer_activations(s);
  double kept = 0;
  double leaving = 0;
  const bool operations = s.train.memory.activation_checkpointing == Checkpointing::kOperations;
  bool any_recomputed = false;
  for (int64_t i = 0; i < s.train.model.layers; ++i) {
    const bool again = is_recomputed(s.train, i);
    any_recomputed = any_recomputed || again;
    kept += layer.input + (again ? 0 : operations ? layer.products : layer.kept);
    // The last layer's input stays.
    const bool leaves = s.gpu && offloads_activations(s.train) && again;
    if (leaves && i + 1 < s.train.model.layers) leaving += layer.input;
  }
  if (leaving > 0) {
    kept -= leaving - std::min(leaving, 2 * layer.input);
    plan.host.push_back({"activations", leaving, "inputs of recomputed layers but the last"});
  }
  const std::string of = std::to_string(s.train.model.layers) + " layers, " +
                         std::to_string(s.train.batch.micro) + " x " +
                         std::to_string(s.train.data.seq_len) + " tokens, checkpointing " +
                         to_word(s.train.memory.activation_checkpointing);
  plan.parts.push_back({"activations", kept, of});
  if (attends_by_products(s)) {
    const auto tokens = static_cast<double>(s.train.data.seq_len);
    const bool asked = s.train.gpu.attention == GpuAttention::kProducts;
    plan.parts.push_back(
        {"attention mask", tokens * tokens * kFp32,
         asked ? "gpu.attention: products: scores are kept"
               : "no fused kernel takes fp32, or a window and such heads: scores are kept"});
  }
  // The head works before the first layer's backward: the larger of the two counts.
  const double head = head_bytes(s);
  const double work = layer.work + (any_recomputed ? layer.kept : 0) +
                      (operations ? layer.kept - layer.products : 0);
  const std::string chunk = s.train.loss.chunk_tokens > 0
                                ? std::to_string(s.train.loss.chunk_tokens) + " tokens at a time"
                                : "all tokens of a micro-batch";
  if (head >= work) {
    const char* type = copies_logits(s) ? "fp32" : to_word(s.train.precision);
    plan.parts.push_back({"logits", head, chunk + " in " + type + ", their gradient over them"});
  } else {
    plan.parts.push_back({"one layer's backward", work, "larger than the logits"});
  }
}

}  // namespace

PlanSetting setting_of(const Workload& workload, bool gpu) {
  return {.train = workload.train,
          .nodes = workload.world_size / workload.workers_per_node,
          .workers_per_node = workload.workers_per_node,
          .gpu = gpu,
          .snapshots = workload.snapshot.replicas > 0};
}

PlanSetting setting_of(const JobSpec& spec, bool gpu) {
  return {.train = *spec.train,
          .nodes = spec.nodes,
          .min_nodes = spec.min_nodes,
          .workers_per_node = spec.workers_per_node,
          .gpu = gpu,
          .snapshots = spec.recovery.snapshot.replicas > 0};
}

double MemoryPlan::total() const {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const MemoryPart& part) { return sum + part.bytes; });
}

double compute_bytes(const TrainSpec& train) {
  return train.precision == Precision::kFp32 ? kFp32 : 2;
}

double moment_bytes(const TrainSpec& train) {
  return train.optimizer.moments == StateType::kBf16 ? 2 : kFp32;
}

double param_bytes(const TrainSpec& train) {
  return train.optimizer.master == StateType::kBf16 ? 2 : kFp32;
}

int32_t shard_count(const PlanSetting& setting) {
  const int32_t world_size = setting.world_size();
  // Of a group that is larger than the job, all workers.
  return std::min(state_parts(setting.train, world_size, setting.workers_per_node), world_size);
}

bool keeps_copies(const PlanSetting& setting) {
  const bool in_host_memory = !setting.gpu || !offloads_optimizer(setting.train);
  return setting.snapshots && in_host_memory && setting.nodes > 1 &&
         shard_count(setting) == setting.world_size();
}

MemoryPlan plan_memory(const PlanSetting& setting, const std::vector<Block>& blocks) {
  MemoryPlan plan;
  if (setting.train.lora.on()) add_base(plan, setting);
  add_state(plan, setting, blocks);
  add_buffers(plan, setting, blocks);
  add_activations(plan, setting);
  return plan;
}

double checkpoint_bytes(const std::vector<Block>& blocks) {
  constexpr double kKinds = 3;  // parameters, two moments
  return kKinds * kFp32 * elements_of(blocks, 1);
}

double most_memory(const PlanSetting& setting, const std::vector<Block>& blocks) {
  const auto on = [&](int32_t nodes) {
    PlanSetting s = setting;
    s.nodes = nodes;
    return plan_memory(s, blocks).total();
  };
  const int32_t fewest = setting.fewest_nodes();
  double most = on(setting.nodes);
  if (fewest < setting.nodes) most = std::max(most, on(fewest));
  // Copies at peers, and what a single worker need not gather, begin with two.
  if (fewest == 1 && setting.nodes > 2) most = std::max(most, on(2));
  return most;
}

}  // namespace hpctl
