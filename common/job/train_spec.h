// SPDX-License-Identifier: Apache-2.0
// The specification of a run of the built-in trainer: workload.train of job.yaml. The fields bear
// the names of their keys; docs/job-yaml.md gives their meaning, and the values that a release
// accepts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/word_enum.h"
#include "common/job/architecture.h"

namespace hpctl {

// Choices of words. The order is that in which messages and docs/job-yaml.md list them.
enum class Precision { kBf16, kFp16, kFp32 };
constexpr auto words_of(Precision) { return std::to_array<const char*>({"bf16", "fp16", "fp32"}); }
enum class StateType { kFp32, kBf16 };
constexpr auto words_of(StateType) { return std::to_array<const char*>({"fp32", "bf16"}); }
enum class DecayGroup { kNorms, kBiases, kEmbeddings };
constexpr auto words_of(DecayGroup) {
  return std::to_array<const char*>({"norms", "biases", "embeddings"});
}
enum class ScheduleShape { kCosine, kLinear, kWsd, kConstant };
constexpr auto words_of(ScheduleShape) {
  return std::to_array<const char*>({"cosine", "linear", "wsd", "constant"});
}
enum class ScheduleUnit { kSteps, kSamples };
constexpr auto words_of(ScheduleUnit) { return std::to_array<const char*>({"steps", "samples"}); }
enum class DecayShape { kLinear, kSqrt, kCosine };
constexpr auto words_of(DecayShape) {
  return std::to_array<const char*>({"linear", "sqrt", "cosine"});
}
enum class Strategy { kFull, kShardGradOp, kOptimizer, kNoShard, kHybrid };
constexpr auto words_of(Strategy) {
  return std::to_array<const char*>({"full", "shard_grad_op", "optimizer", "no_shard", "hybrid"});
}
enum class Reshard { kAuto, kAlways, kNever };
constexpr auto words_of(Reshard) { return std::to_array<const char*>({"auto", "always", "never"}); }
enum class Checkpointing { kNone, kOperations, kSelective, kFull };
constexpr auto words_of(Checkpointing) {
  return std::to_array<const char*>({"none", "operations", "selective", "full"});
}
enum class Offload { kActivations, kOptimizer, kParameters };
constexpr auto words_of(Offload) {
  return std::to_array<const char*>({"activations", "optimizer", "parameters"});
}
// Kernels of attention on a GPU: PyTorch's SDPBackend, except products, which are our own.
enum class GpuAttention { kAuto, kFlash, kCudnn, kProducts };
constexpr auto words_of(GpuAttention) {
  return std::to_array<const char*>({"auto", "flash", "cudnn", "products"});
}
enum class BadStepPolicy { kStop, kSkip, kRollback };
constexpr auto words_of(BadStepPolicy) {
  return std::to_array<const char*>({"stop", "skip", "rollback"});
}
// The content of a line of JSON, or of a document, of the data.
enum class DataFormat { kText, kSft, kChat };
constexpr auto words_of(DataFormat) { return std::to_array<const char*>({"text", "sft", "chat"}); }
// The template that turns the messages of a conversation into one text.
enum class ChatTemplate { kNone, kChatml, kLlama3 };
constexpr auto words_of(ChatTemplate) {
  return std::to_array<const char*>({"none", "chatml", "llama3"});
}
enum class LoraTarget { kQProj, kKProj, kVProj, kOProj, kGateProj, kUpProj, kDownProj };
constexpr auto words_of(LoraTarget) {
  return std::to_array<const char*>(
      {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"});
}
enum class DocumentMask { kNone, kBorders, kDocuments };
constexpr auto words_of(DocumentMask) {
  return std::to_array<const char*>({"none", "borders", "documents"});
}

// Llama 3.1's change of the rotary frequencies for longer contexts; factor 0 = none.
struct RopeScalingSpec {
  double factor = 0;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_len = 8192;  // tokens
};

struct ModelSpec {
  std::string preset;  // "" when the dimensions were given directly
  Arch arch = Arch::llama;
  int64_t dim = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;  // 0 = dim / heads
  int64_t ffn = 0;
  int64_t vocab = 0;
  double rope_theta = 500000.0;
  double norm_eps = 1e-5;
  bool tied_embeddings = false;  // the output projection is the embedding
  double init_std = 0;           // of initial matrices; 0 = those of the architecture
  int64_t max_positions = 0;     // gpt: rows of the learned position embedding
  int64_t sliding_window = 0;    // keys that a token attends to, its own included; 0 = all
  RopeScalingSpec rope_scaling;

  // Width of a head.
  int64_t head_size() const { return head_dim > 0 || heads < 1 ? head_dim : dim / heads; }
  // Returns whether some token of a sequence of `seq_len` does not attend to all tokens before it:
  // the model has a window, and the sequence is longer than the window.
  bool is_windowed(int64_t seq_len) const { return sliding_window > 0 && sliding_window < seq_len; }
  // Keys that a token of such a sequence attends to, at most, its own included.
  int64_t window(int64_t seq_len) const { return is_windowed(seq_len) ? sliding_window : seq_len; }
};

// One source of a weighted blend.
struct BlendPart {
  std::string path;
  double weight = 1;
};

struct DataSpec {
  std::string path;  // a text file, a directory of text files, or the prefix of PREFIX.bin/.idx
  std::vector<BlendPart> blend;           // instead of path
  std::string tokenizer = "byte";         // byte | path of a .model or tokenizer.json
  std::vector<double> split = {1, 0, 0};  // train, validation, test: parts of the documents
  DataFormat format = DataFormat::kText;
  ChatTemplate chat_template = ChatTemplate::kNone;  // of format chat
  DocumentMask mask = DocumentMask::kNone;  // what does not cross from a document to the next
  int64_t seq_len = 0;

  // Only answers are learnt, and whole pairs are packed into sequences.
  bool has_answers() const { return format != DataFormat::kText; }
  // Attention does not leave a document.
  bool keeps_apart() const { return mask == DocumentMask::kDocuments || has_answers(); }
};

struct ValidationSpec {
  int64_t every_steps = 0;  // 0 = off
  int64_t sequences = 0;    // 0 = the whole validation part
};

// Until this many samples were taken, the global batch is `global`.
struct RampPoint {
  int64_t samples = 0;
  int64_t global = 0;
};

inline constexpr int64_t kMaxMicro = int64_t{1} << 20;

struct BatchSpec {
  int64_t micro = 1;   // sequences per worker and forward pass
  int64_t global = 0;  // sequences per optimizer step over all workers, one or more for each
  std::vector<RampPoint> ramp;  // increasing; `global` applies after its last point
};

struct OptimizerSpec {
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::vector<DecayGroup> no_decay = {DecayGroup::kNorms, DecayGroup::kBiases};
  StateType moments = StateType::kFp32;
  StateType master = StateType::kFp32;  // of the parameters that the optimizer steps from
  double clip = 1.0;                    // global gradient norm; 0 = off
};

// Low-rank adapters (Hu et al. 2021): the base's weights W stay, W + alpha / rank * B A is used,
// and A [rank, in] and B [out, rank] of each target are trained.
struct LoraSpec {
  std::string base;  // a checkpoint of the model that is adapted
  int64_t rank = 0;  // 0 = no adapters: the model itself is trained
  double alpha = 16;
  std::vector<LoraTarget> targets = {
      LoraTarget::kQProj,    LoraTarget::kKProj,  LoraTarget::kVProj,   LoraTarget::kOProj,
      LoraTarget::kGateProj, LoraTarget::kUpProj, LoraTarget::kDownProj};

  bool on() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
};

struct ScheduleSpec {
  ScheduleShape name = ScheduleShape::kCosine;
  ScheduleUnit unit = ScheduleUnit::kSteps;  // of warmup and decay
  int64_t warmup_steps = 0;                  // in `unit`
  int64_t decay_steps = 0;                   // length of the decay, in `unit`; 0: to the last step
  DecayShape decay = DecayShape::kSqrt;      // wsd
  double min_lr_ratio = 0.1;
};

struct LossSpec {
  double z_loss = 0;         // coefficient of log^2 Z
  int64_t chunk_tokens = 0;  // logits in memory at a time; 0 = all of a micro-batch
};

// fp16: the factor of the loss that keeps small gradients from vanishing (trainer/optim/
// loss_scaler.h). Powers of two.
inline constexpr int64_t kMaxLossScale = int64_t{1} << 32;
struct LossScaleSpec {
  int64_t initial = 65536;
  int64_t growth_interval = 1000;  // steps without overflow before it doubles
  int64_t hysteresis = 2;          // overflows before it halves
  int64_t min = 1;
};

// The tensors that a worker keeps, recomputes or moves to host memory.
struct MemorySpec {
  Checkpointing activation_checkpointing = Checkpointing::kNone;
  int64_t every = 2;  // selective: every k-th block
  std::vector<Offload> offload;
};

// Settings of computation on a GPU; without effect on a CPU (docs/decisions/1405-gpu-keys.md).
struct GpuSpec {
  GpuAttention attention = GpuAttention::kAuto;
  bool deterministic = true;  // the same bits each time

  bool operator==(const GpuSpec&) const = default;
};

// The reaction to a loss or gradient norm that is not finite or far from its recent values.
struct StabilitySpec {
  BadStepPolicy policy = BadStepPolicy::kStop;  // for values that are not finite
  bool spikes = false;                          // the same for finite outliers
  int64_t window = 128;                         // steps whose median and deviation make the score
  double z_score = 6;                           // robust: over 1.4826 x median absolute deviation
  double factor = 0;                            // hard limit: times the median; 0 = off
  int64_t rollback_steps = 100;
  int64_t skip_steps = 0;  // rollback: batches skipped besides the offending one
  int64_t max_skips = 10;  // then the job stops
  bool reexecute = false;  // repeat the step to tell a hardware fault from a cause in the data
};

struct MetricsSpec {
  bool tensorboard = true;  // event files in the job's directory
  int64_t trace_from = 0;   // first step of the trace; 0 = none
  int64_t trace_steps = 0;
};

// Keys that job.yaml leaves to `auto`: the plan chooses their values once, when the job is
// submitted (trainer/plan/automatic.h). Until then their fields have what a job without a plan
// gets. Not part of a job that was submitted, whose values are all known.
struct AutoKeys {
  bool strategy = false;
  bool activation_checkpointing = false;
  bool micro = false;
  bool chunk_tokens = false;

  static AutoKeys all() { return {true, true, true, true}; }
};

// Into how many parts each dimension of the mesh divides a job, besides the data.
struct DegreesSpec {
  int64_t pipeline = 1;  // stages of layers
  int64_t context = 1;   // parts of each sequence
  int64_t tensor = 1;    // parts of each layer
  int64_t expert = 1;    // parts of the experts of a layer

  // The workers that have the same samples.
  int64_t unit() const { return pipeline * context * tensor; }
};

struct TrainSpec {
  ModelSpec model;
  std::string model_from;  // a Hugging Face model that submit imports; "" = none, or it has
  LoraSpec lora;
  DataSpec data;
  ValidationSpec validation;
  BatchSpec batch;
  int64_t steps = 0;
  uint64_t seed = 1;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  LossSpec loss;
  Strategy strategy = Strategy::kFull;  // parallelism.strategy
  int64_t shard_group = 0;  // parallelism.shard_group: hybrid, workers; 0 = those of a node
  Reshard reshard_after_forward = Reshard::kAuto;  // parallelism
  DegreesSpec degrees;                             // parallelism.*_parallel_degree
  MemorySpec memory;
  StabilitySpec stability;
  MetricsSpec metrics;
  Precision precision = Precision::kBf16;  // of computation; state and reductions are fp32
  LossScaleSpec loss_scale;                // fp16
  GpuSpec gpu;
  AutoKeys automatic;  // of parallelism, memory, batch and loss
};

// Dimensions of a named model.
std::optional<ModelSpec> model_preset(const std::string& name);
std::vector<std::string> model_preset_names();

}  // namespace hpctl
