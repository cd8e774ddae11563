// SPDX-License-Identifier: Apache-2.0
#include "common/job/train_keys.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "common/job/spec_checks.h"

namespace hpctl {
namespace {

using enum TrainKeyKind;

template <WordEnum E>
bool assign(E& value, std::string_view word) {
  const std::optional<E> known = from_word<E>(word);
  if (known) value = *known;
  return known.has_value();
}

template <WordEnum E>
std::vector<std::string> words_in(const std::vector<E>& values) {
  std::vector<std::string> words;
  for (const E value : values) words.emplace_back(to_word(value));
  return words;
}

template <WordEnum E>
bool append(std::vector<E>& values, std::string_view word) {
  const std::optional<E> known = from_word<E>(word);
  if (known) values.push_back(*known);
  return known.has_value();
}

#define HP_FIELD(member) \
  [](TrainSpec & t) -> auto& { return t.member; }
#define HP_WORD(member)                                                             \
  WordAccess {                                                                      \
    [](const TrainSpec& t) { return to_word(t.member); },                           \
        [](TrainSpec& t, std::string_view word) { return assign(t.member, word); }, \
        [] { return all_words<decltype(TrainSpec().member)>(); }                    \
  }
#define HP_WORDS(member)                                                            \
  WordListAccess {                                                                  \
    [](const TrainSpec& t) { return words_in(t.member); },                          \
        [](TrainSpec& t, std::string_view word) { return append(t.member, word); }, \
        [](TrainSpec& t) { t.member.clear(); },                                     \
        [] { return all_words<decltype(TrainSpec().member)::value_type>(); }        \
  }

// clang-format off
constexpr TrainKey kKeys[] = {
    {.path = "workload.train.model", .kind = kSection, .initial = "required",
     .meaning = "A model: a preset, or all of dim, layers, heads, kv_heads, ffn and vocab, and "
     "for arch gpt max_positions. With a preset, a dimension given as well overrides it.",
     .type = "section with preset or dimensions"},
    {.path = "workload.train.model.preset",
     .meaning = "Named dimensions, as published with the weights. mistral-7b: version 0.1, which "
     "has the sliding window. gpt3-*: the family of Megatron-LM's published scaling runs "
     "(vocabulary 51200, 2048 positions, tied embeddings).", .type = "text",
     .range = "tiny, debugmodel, llama2-7b, llama2-13b, llama2-70b, llama3-8b, llama3-70b, "
     "llama3-405b, llama3.1-8b, llama3.1-70b, llama3.1-405b, llama3.2-1b, llama3.2-3b, "
     "tiny-qwen2, qwen2.5-0.5b, qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, qwen2.5-32b, "
     "qwen2.5-72b, tiny-qwen3, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, "
     "tiny-mistral, mistral-7b, mistral-7b-v0.3, mistral-nemo-12b, "
     "tiny-gpt, gpt3-1.7b, gpt3-3.6b, gpt3-7.5b, gpt3-18.4b, gpt3-39.1b, gpt3-76.1b, "
     "gpt3-145.6b, gpt3-310b"},
    {.path = "workload.train.model.from",
     .meaning = "Instead of a preset: the directory of a Hugging Face model. Its config.json gives "
     "the dimensions, and the job begins with its weights, unless checkpoint.resume or a "
     "checkpoint in checkpoint.dir says otherwise. `hpctl submit` imports them into "
     "$HPCTL_HOME/models; `hpctl prune` removes what no job names.", .type = "path"},
    {.path = "workload.train.model.arch", .field = HP_WORD(model.arch), .initial = "of the preset",
     .meaning = "llama (without a preset): RMSNorm, rotary positions, grouped queries, SwiGLU, no "
     "biases. qwen2 (Qwen2 and 2.5): adds biases of queries, keys and values. qwen3: adds an "
     "RMSNorm of each head's query and key. mistral: adds a sliding window. gpt: GPT-2, and GPT-3 "
     "as in Megatron-LM. It has LayerNorm, learned positions, GELU (tanh form), biases, and "
     "kv_heads = heads."},
    {.path = "workload.train.model.dim", .field = HP_FIELD(model.dim), .limits = {1, 1 << 20},
     .initial = "of the preset",
     .meaning = "Width of the residual stream; without head_dim, dim / heads is a whole number, "
     "for all but gpt an even one."},
    {.path = "workload.train.model.layers", .field = HP_FIELD(model.layers), .limits = {1, 10'000},
     .initial = "of the preset", .meaning = "Transformer blocks."},
    {.path = "workload.train.model.heads", .field = HP_FIELD(model.heads), .limits = {1, 1 << 16},
     .initial = "of the preset", .meaning = "Query heads; without head_dim they divide dim."},
    {.path = "workload.train.model.kv_heads", .field = HP_FIELD(model.kv_heads),
     .limits = {1, 1 << 16}, .initial = "of the preset",
     .meaning = "Key and value heads; divide heads, for gpt equal them."},
    {.path = "workload.train.model.head_dim", .field = HP_FIELD(model.head_dim),
     .limits = {0, 1 << 16}, .initial = "of the preset",
     .meaning = "llama, qwen3, mistral: width of a head, an even number; 0 = dim / heads."},
    {.path = "workload.train.model.ffn", .field = HP_FIELD(model.ffn), .limits = {1, 1 << 22},
     .initial = "of the preset", .meaning = "Hidden width of the feed-forward part."},
    {.path = "workload.train.model.vocab", .field = HP_FIELD(model.vocab),
     .limits = {256, 1 << 24}, .initial = "of the preset",
     .meaning = "Rows of the embedding; the byte tokenizer uses the first 256."},
    {.path = "workload.train.model.rope_theta", .field = HP_FIELD(model.rope_theta),
     .limits = {1, 1e9}, .initial = "of the preset",
     .meaning = "All but gpt: base of the rotary embedding; 500000 without a preset."},
    {.path = "workload.train.model.norm_eps", .field = HP_FIELD(model.norm_eps),
     .limits = {1e-12, 1e-2}, .meaning = "Added under the root of RMSNorm or LayerNorm."},
    {.path = "workload.train.model.tied_embeddings", .field = HP_FIELD(model.tied_embeddings),
     .initial = "of the preset",
     .meaning = "The output projection is the embedding; false without a preset."},
    {.path = "workload.train.model.init_std", .field = HP_FIELD(model.init_std),
     .limits = {0, 1}, .initial = "of the preset",
     .meaning = "Standard deviation of the initial matrices, embeddings included; those that write "
     "to the residual stream get less with depth. Presets with tied embeddings have 0.02, so the "
     "first loss is near ln(vocab). 0, the default: 0.02. Architectures other than gpt then have 1 "
     "for the embedding, and 1 / sqrt(dim) for the output projection and a tied embedding."},
    {.path = "workload.train.model.max_positions", .field = HP_FIELD(model.max_positions),
     .limits = {0, 1 << 24}, .initial = "of the preset",
     .meaning = "gpt: rows of the learned position embedding, the limit of data.seq_len. Others: "
     "max_position_embeddings of an export; an imported model keeps its own.",
     .range = "1 to 16777216"},
    {.path = "workload.train.model.sliding_window", .field = HP_FIELD(model.sliding_window),
     .limits = {0, 1 << 24}, .initial = "of the preset",
     .meaning = "mistral: tokens that a token attends to, itself and those before it; 0 = all. "
     "Layers stacked see further than one."},
    {.path = "workload.train.model.rope_scaling", .kind = kSection,
     .meaning = "Llama 3.1's change of the rotary frequencies for long contexts.",
     .type = "section with factor"},
    {.path = "workload.train.model.rope_scaling.factor",
     .field = HP_FIELD(model.rope_scaling.factor),
     .limits = {.low = 1, .high = 1e4, .or_zero = true},
     .initial = "of the preset", .meaning = "Long waves become longer by it; 0 = no scaling."},
    {.path = "workload.train.model.rope_scaling.low_freq_factor",
     .field = HP_FIELD(model.rope_scaling.low_freq_factor), .limits = {1e-3, 1e4},
     .meaning = "Waves longer than original_max_len / low_freq_factor are scaled in full."},
    {.path = "workload.train.model.rope_scaling.high_freq_factor",
     .field = HP_FIELD(model.rope_scaling.high_freq_factor),
     .meaning = "Waves shorter than original_max_len / high_freq_factor stay; in between the "
     "change is gradual.", .range = "more than low_freq_factor"},
    {.path = "workload.train.model.rope_scaling.original_max_len",
     .field = HP_FIELD(model.rope_scaling.original_max_len), .limits = {1, 1 << 24},
     .meaning = "Context length without scaling."},

    {.path = "workload.train.lora", .kind = kSection,
     .meaning = "Trains low-rank adapters beside the matrices of a model that stays as it is "
     "(docs/tuning.md). Checkpoints hold adapters only. Not with arch gpt.",
     .type = "section with base and rank"},
    {.path = "workload.train.lora.base",
     .meaning = "A checkpoint of the model: what `hpctl checkpoint import` made, or one of a job "
     "that trained it whole. It must stay while the job runs.", .type = "path"},
    {.path = "workload.train.lora.rank", .field = HP_FIELD(lora.rank), .limits = {0, 4096},
     .meaning = "Inner dimension of an adapter; 0 = no adapters."},
    {.path = "workload.train.lora.alpha", .field = HP_FIELD(lora.alpha), .limits = {1e-6, 1e6},
     .meaning = "An adapter's output is multiplied by alpha / rank."},
    {.path = "workload.train.lora.targets", .field = HP_WORDS(lora.targets),
     .meaning = "Matrices of each layer that get an adapter, by Hugging Face's names."},

    {.path = "workload.train.data", .kind = kSection, .initial = "required",
     .meaning = "The training data.", .type = "section with path and seq_len"},
    {.path = "workload.train.data.path", .initial = "required",
     .meaning = "A text file, a directory of text files, or the prefix of an indexed dataset "
     "(PREFIX.bin and PREFIX.idx, as `hpctl data prepare` and Megatron-LM write them); with format "
     "sft and chat also JSON lines.",
     .type = "path"},
    {.path = "workload.train.data.blend", .initial = "{}",
     .meaning = "Instead of path, which is then left out: several of what path may be, with "
     "their weights, as in {data/web: 0.7, data/code: 0.3}. Training samples are taken from "
     "them in proportion, in an order that depends on seed alone; a source that is used up "
     "begins again in another order.", .type = "mapping", .range = "1 to 256 paths"},
    {.path = "workload.train.data.tokenizer", .initial = "byte",
     .meaning = "Turns text into tokens. byte: one token per byte. Others: `hpctl submit` "
     "prepares up to 64 MiB of text and keeps it in $HPCTL_HOME/data; for more it prints the "
     "`hpctl data prepare` to run. An indexed dataset must have been prepared with the same "
     "tokenizer.", .type = "byte or path",
     .range = "byte, or a tokenizer.json, vocab.json or tokenizer.model"},
    {.path = "workload.train.data.format", .field = HP_WORD(data.format),
     .meaning = "Form of the data. sft: JSON lines with prompt and completion. chat: JSON lines "
     "with messages (role, content). Only completions, or the assistant's messages, are learnt. "
     "Whole pairs or conversations are packed into sequences that keep them apart (docs/data.md). "
     "They are prepared as text with a tokenizer is."},
    {.path = "workload.train.data.chat_template", .field = HP_WORD(data.chat_template),
     .meaning = "chat: form of the messages as text. chatml: Qwen's and others', without a "
     "default system message. llama3: Llama 3's. The tokenizer must have its special tokens."},
    {.path = "workload.train.data.split", .initial = "[1, 0, 0]",
     .meaning = "Parts of the documents for training, validation and test, such as [98, 2, 0]: "
     "the first are trained on, the next are for validation, and the last are evaluated once at "
     "the end. The files of a directory are its documents.", .type = "list of numbers"},
    {.path = "workload.train.data.mask", .field = HP_WORD(data.mask),
     .meaning = "Effect of document borders within a sequence. borders: the first token of a "
     "document is not predicted, as with Megatron-LM's eod_mask_loss. documents: also, attention "
     "does not cross borders and positions restart, as with its reset_attention_mask and "
     "reset_position_ids. The dataset's index has the borders; the files of a directory are "
     "documents. Formats sft and chat use documents."},
    {.path = "workload.train.data.reset_at_documents",
     .meaning = "true: the older name of `mask: documents`.", .type = "true or false"},
    {.path = "workload.train.data.seq_len", .field = HP_FIELD(data.seq_len),
     .limits = {2, 1 << 24}, .initial = "required", .meaning = "Tokens per sequence."},

    {.path = "workload.train.validation", .kind = kSection,
     .meaning = "Loss and perplexity of held-out text.", .type = "section"},
    {.path = "workload.train.validation.every_steps", .field = HP_FIELD(validation.every_steps),
     .limits = {0, kMaxSteps},
     .meaning = "After this many steps, and after the last; 0 = never. Needs a validation part "
     "in data.split."},
    {.path = "workload.train.validation.sequences", .field = HP_FIELD(validation.sequences),
     .limits = {0, kMaxSteps},
     .meaning = "Sequences of the validation part, the same every time. 0 = all."},

    {.path = "workload.train.batch", .kind = kSection, .initial = "required",
     .meaning = "Sequences per step.", .type = "section with global"},
    {.path = "workload.train.batch.micro", .field = HP_FIELD(batch.micro), .limits = {1, kMaxMicro},
     .meaning = "Sequences per worker and forward pass. auto: a number that shares `global` out "
     "without a rest.", .automatic = &AutoKeys::micro},
    {.path = "workload.train.batch.global", .field = HP_FIELD(batch.global),
     .limits = {1, kMaxSteps}, .initial = "required",
     .meaning = "Sequences per optimizer step over all workers, whatever their number. Shares "
     "of workers differ by one at most; all run as many micro-batches as the largest share "
     "needs, so a multiple of micro x nodes x workers_per_node is fastest.",
     .range = "nodes x workers_per_node to 2^40"},
    {.path = "workload.train.batch.ramp", .initial = "{}",
     .meaning = "A smaller start: `{1000: 8, 3000: 16}` takes 8 sequences per step until 1000 "
     "were taken, then 16 until 3000, then `global`.", .type = "mapping",
     .range = "increasing samples"},
    {.path = "workload.train.steps", .field = HP_FIELD(steps), .limits = {1, kMaxSteps},
     .initial = "required", .meaning = "Optimizer steps of the whole job."},
    {.path = "workload.train.seed", .field = HP_FIELD(seed),
     .meaning = "Seed of the initial weights and of the data order.", .range = "0 to 2^64 - 1"},

    {.path = "workload.train.optimizer", .kind = kSection, .meaning = "AdamW.", .type = "section"},
    {.path = "workload.train.optimizer.lr", .field = HP_FIELD(optimizer.lr), .limits = {0, 10},
     .meaning = "Highest learning rate."},
    {.path = "workload.train.optimizer.beta1", .field = HP_FIELD(optimizer.beta1),
     .limits = {0, 0.9999999}, .meaning = "Decay of the first moment."},
    {.path = "workload.train.optimizer.beta2", .field = HP_FIELD(optimizer.beta2),
     .limits = {0, 0.9999999}, .meaning = "Decay of the second moment."},
    {.path = "workload.train.optimizer.eps", .field = HP_FIELD(optimizer.eps),
     .limits = {1e-16, 1}, .meaning = "Added to the root of the second moment."},
    {.path = "workload.train.optimizer.weight_decay", .field = HP_FIELD(optimizer.weight_decay),
     .limits = {0, 10}, .meaning = "Decoupled weight decay."},
    {.path = "workload.train.optimizer.no_decay", .field = HP_WORDS(optimizer.no_decay),
     .meaning = "Parameters that are exempt from weight decay."},
    {.path = "workload.train.optimizer.moments", .field = HP_WORD(optimizer.moments),
     .meaning = "Type in which a worker keeps the two moments of a parameter. bf16 saves a "
     "third of the memory of the state. It is rounded stochastically, with the same bits in each "
     "run."},
    {.path = "workload.train.optimizer.master", .field = HP_WORD(optimizer.master),
     .meaning = "Type in which a worker keeps the parameters themselves. bf16 needs `precision: "
     "bf16` and `moments: bf16`, and leaves 6 bytes of state for a parameter instead of 12. It is "
     "rounded as moments are."},
    {.path = "workload.train.optimizer.clip", .field = HP_FIELD(optimizer.clip),
     .limits = {0, 1e9}, .meaning = "Largest global gradient norm; 0 = no clipping."},

    {.path = "workload.train.schedule", .kind = kSection,
     .meaning = "Learning rate over the steps.", .type = "section"},
    {.path = "workload.train.schedule.name", .field = HP_WORD(schedule.name),
     .meaning = "Shape after the warm-up. wsd: lr stays until the last decay_steps."},
    {.path = "workload.train.schedule.unit", .field = HP_WORD(schedule.unit),
     .meaning = "Unit of warmup_steps, decay_steps and progress."},
    {.path = "workload.train.schedule.warmup_steps", .field = HP_FIELD(schedule.warmup_steps),
     .limits = {0, kMaxSteps}, .meaning = "Length of the linear increase from 0 to lr, in unit."},
    {.path = "workload.train.schedule.decay_steps", .field = HP_FIELD(schedule.decay_steps),
     .limits = {0, kMaxSteps},
     .meaning = "Length of the decrease, in unit. wsd: at the end of the job. cosine, linear: "
     "after the warm-up, and then lr stays at its lowest; 0 = to the last step.",
     .range = "0 to 2^40; wsd: at least 1; constant: 0"},
    {.path = "workload.train.schedule.decay", .field = HP_WORD(schedule.decay),
     .meaning = "wsd: shape of the decrease; sqrt is 1 - sqrt(progress)."},
    {.path = "workload.train.schedule.min_lr_ratio", .field = HP_FIELD(schedule.min_lr_ratio),
     .limits = {0, 1}, .meaning = "Learning rate at the last step, as a part of lr."},

    {.path = "workload.train.loss", .kind = kSection,
     .meaning = "Cross entropy and what is added to it.", .type = "section"},
    {.path = "workload.train.loss.z_loss", .field = HP_FIELD(loss.z_loss), .limits = {0, 1},
     .meaning = "Adds this times the mean of log^2 Z, Z the sum of the exponentials of a "
     "token's logits. Reported losses leave it out."},
    {.path = "workload.train.loss.chunk_tokens", .field = HP_FIELD(loss.chunk_tokens),
     .limits = {0, 1 << 24},
     .meaning = "Tokens whose logits are in memory at a time; 0 = all of a micro-batch.",
     .automatic = &AutoKeys::chunk_tokens},

    {.path = "workload.train.stability", .kind = kSection,
     .meaning = "Reaction to a step with a bad loss or gradient norm. Such a step is never "
     "applied.", .type = "section"},
    {.path = "workload.train.stability.policy", .field = HP_WORD(stability.policy),
     .meaning = "For values that are not finite. stop: the workers end, and the job restarts by "
     "its recovery rules. skip: the step's samples are left out for good. rollback: goes back "
     "rollback_steps, then as skip."},
    {.path = "workload.train.stability.spikes", .field = HP_FIELD(stability.spikes),
     .meaning = "The same for values far above the recent ones."},
    {.path = "workload.train.stability.window", .field = HP_FIELD(stability.window),
     .limits = {16, 100'000},
     .meaning = "Steps that a spike is measured against; the first 16 of a run are never "
     "spikes."},
    {.path = "workload.train.stability.z_score", .field = HP_FIELD(stability.z_score),
     .limits = {1, 1e6},
     .meaning = "A spike is more than this many deviations (1.4826 times the median absolute "
     "deviation, at least 1 % of the median) above the median."},
    {.path = "workload.train.stability.factor", .field = HP_FIELD(stability.factor),
     .limits = {.low = 1, .high = 1e6, .or_zero = true},
     .meaning = "A spike is also what exceeds this many times the median; 0 = off."},
    {.path = "workload.train.stability.rollback_steps",
     .field = HP_FIELD(stability.rollback_steps), .limits = {1, kMaxSteps},
     .meaning = "rollback: at least so far back, to a checkpoint or to where the workers "
     "started. At most checkpoint.keep x checkpoint.every_steps, unless checkpoint.keep_every "
     "is given."},
    {.path = "workload.train.stability.skip_steps", .field = HP_FIELD(stability.skip_steps),
     .limits = {0, 1'000'000},
     .meaning = "rollback: batches left out in addition, those that follow."},
    {.path = "workload.train.stability.max_skips", .field = HP_FIELD(stability.max_skips),
     .limits = {0, 1'000'000}, .meaning = "After so many skips the next one fails the job."},
    {.path = "workload.train.stability.reexecute", .field = HP_FIELD(stability.reexecute),
     .meaning = "Execute such a step again first. Another result is a fault of the hardware: "
     "the worker that computed another loss is blamed, and the job restarts. With stop, the "
     "same result fails the job without a restart."},

    {.path = "workload.train.parallelism", .kind = kSection,
     .meaning = "Sharding of the model.", .type = "section"},
    {.path = "workload.train.parallelism.strategy", .field = HP_WORD(strategy),
     .meaning = "Tensors that are sharded over the workers. full: parameters, gradients and "
     "optimizer state (FSDP, ZeRO-3); shard_grad_op: gradients and optimizer state (ZeRO-2); "
     "optimizer: its state alone (ZeRO-1), with one reduction per step for any number of "
     "micro-batches; no_shard: none (DDP); hybrid: all three within a group of workers, "
     "replicated across groups (HSDP).", .automatic = &AutoKeys::strategy},
    {.path = "workload.train.parallelism.shard_group", .field = HP_FIELD(shard_group),
     .limits = {0, 1 << 20},
     .meaning = "hybrid: workers of a group; divides nodes x workers_per_node; 0 = "
     "workers_per_node."},
    {.path = "workload.train.parallelism.reshard_after_forward",
     .field = HP_WORD(reshard_after_forward),
     .meaning = "full and hybrid: time to free gathered parameters. auto: after the forward pass. "
     "never: when the step ends (a frozen base: never), which saves a gather and costs the "
     "memory."},
    {.path = "workload.train.parallelism.tensor_parallel_degree",
     .field = HP_FIELD(degrees.tensor), .limits = {1, 1 << 16},
     .meaning = "Workers that share each layer; divides model.heads and model.ffn, and divides "
     "model.kv_heads or is a multiple of it. Above 1 with the Llama family, fp32, on a CPU; "
     "divides workers_per_node."},
    {.path = "workload.train.parallelism.pipeline_parallel_degree",
     .field = HP_FIELD(degrees.pipeline), .limits = {1, 10'000},
     .meaning = "Stages of layers; at most model.layers. Not above 1 yet."},
    {.path = "workload.train.parallelism.context_parallel_degree",
     .field = HP_FIELD(degrees.context), .limits = {1, 1 << 16},
     .meaning = "Workers that share each sequence; data.seq_len is a multiple of 128 times it. "
     "Not above 1 yet."},
    {.path = "workload.train.parallelism.expert_parallel_degree",
     .field = HP_FIELD(degrees.expert), .limits = {1, 1 << 16},
     .meaning = "Workers that share the experts of a layer; 1 for a model without experts."},
    {.path = "workload.train.parallelism.dp_replicate", .kind = kUnavailable,
     .meaning = "Replicas of the sharded model."},
    {.path = "workload.train.parallelism.dp_shard", .kind = kUnavailable,
     .meaning = "Workers that share one replica."},

    {.path = "workload.train.memory", .kind = kSection,
     .meaning = "Memory against recomputation and transfers.", .type = "section"},
    {.path = "workload.train.memory.activation_checkpointing",
     .field = HP_WORD(memory.activation_checkpointing),
     .meaning = "Activations that the backward pass computes again, with the same bits, instead "
     "of keeping them. operations: norms, stored attention scores, and activations between the "
     "feed-forward matmuls; selective: every k-th block except its input; full: every block "
     "except its input.", .automatic = &AutoKeys::activation_checkpointing},
    {.path = "workload.train.memory.every", .field = HP_FIELD(memory.every), .limits = {1, 10'000},
     .meaning = "k of selective."},
    {.path = "workload.train.memory.offload", .field = HP_WORDS(memory.offload),
     .meaning = "State of a GPU worker that stays in host memory, with the same bits. optimizer: "
     "fp32 parameters and moments; they pass through the GPU in pieces at each step. parameters: "
     "also the weights that blocks are gathered from, with strategies full and hybrid. "
     "activations: inputs of recomputed layers, with activation_checkpointing full and selective. "
     "Without effect on a CPU."},
    {.path = "workload.train.precision", .field = HP_WORD(precision),
     .meaning = "Type of the forward and backward pass. Reductions are always fp32, weights too, "
     "except with optimizer.master. fp16 scales the loss. On a CPU its matmuls are computed in "
     "fp32 and rounded to fp16, which is slow."},

    {.path = "workload.train.loss_scale", .kind = kSection,
     .meaning = "fp16: the factor of the loss that keeps small gradients from vanishing. Where "
     "a gradient overflows, the step is left out, samples and all, and does not count as a "
     "step.", .type = "section"},
    {.path = "workload.train.loss_scale.initial", .field = HP_FIELD(loss_scale.initial),
     .meaning = "At the first step.", .range = "power of two to 2^32"},
    {.path = "workload.train.loss_scale.growth_interval",
     .field = HP_FIELD(loss_scale.growth_interval), .limits = {1, kMaxSteps},
     .meaning = "It doubles after so many steps in a row without overflow."},
    {.path = "workload.train.loss_scale.hysteresis", .field = HP_FIELD(loss_scale.hysteresis),
     .limits = {1, 1000},
     .meaning = "It halves at every overflow but the first so many less one since it last "
     "doubled."},
    {.path = "workload.train.loss_scale.min", .field = HP_FIELD(loss_scale.min),
     .meaning = "It does not become smaller: an overflow there is bad in the sense of "
     "stability.", .range = "power of two to 2^32"},

    {.path = "workload.train.gpu", .kind = kSection,
     .meaning = "GPU settings (docs/tuning.md), without effect on a CPU.",
     .type = "section"},
    {.path = "workload.train.gpu.attention", .field = HP_WORD(gpu.attention),
     .meaning = "Kernels of attention. auto: LibTorch's choice in bf16 and fp16, products in "
     "fp32. flash: FlashAttention only; bf16 and fp16. cudnn: cuDNN only; bf16 and fp16, with "
     "deterministic: false, without separate documents or a window. products: matmuls, which "
     "store all scores. A job that asks for a kernel that the GPU or LibTorch lacks is refused at "
     "its start."},
    {.path = "workload.train.gpu.deterministic", .field = HP_FIELD(gpu.deterministic),
     .meaning = "Only kernels with the same bits each time, so a recovered run is bit-exact. "
     "false: the fastest kernels; checkpoints then say exact: false."},

    {.path = "workload.train.metrics", .kind = kSection,
     .meaning = "Besides metrics.jsonl, which the job's directory always has.", .type = "section"},
    {.path = "workload.train.metrics.tensorboard", .field = HP_FIELD(metrics.tensorboard),
     .meaning = "Also write TensorBoard event files, in tensorboard/ of the job's directory."},
    {.path = "workload.train.metrics.trace_from", .field = HP_FIELD(metrics.trace_from),
     .limits = {0, kMaxSteps},
     .meaning = "First step of a trace for ui.perfetto.dev or chrome://tracing, "
     "trace/gG.rR.json in the job's directory, one file per worker."},
    {.path = "workload.train.metrics.trace_steps", .field = HP_FIELD(metrics.trace_steps),
     .limits = {0, 1000}, .meaning = "Length of the trace in steps; 0: no trace."},
};
// clang-format on

#undef HP_FIELD
#undef HP_WORD
#undef HP_WORDS

// 1e9, not 1e+09; 2^40, not 1099511627776.
std::string number_text(double value) {
  int exponent = 0;
  if (value >= 4294967296.0 && std::frexp(value, &exponent) == 0.5) {
    return "2^" + std::to_string(exponent - 1);
  }
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), value >= 1e6 ? "%.3g" : "%.9g", value);
  std::string text = buffer.data();
  const size_t sign = text.find("e+0");
  if (sign != std::string::npos) text.replace(sign, 3, "e");
  return text;
}

}  // namespace

std::span<const TrainKey> train_keys() { return kKeys; }

std::string range_text(const TrainKey& key) {
  if (!key.range.empty()) return std::string(key.range);
  if (const auto* word = std::get_if<WordAccess>(&key.field)) return word->all();
  if (const auto* list = std::get_if<WordListAccess>(&key.field)) return list->all();
  const KeyLimits& limits = key.limits;
  if (limits.low == limits.high) return "";
  const bool whole = !std::holds_alternative<double& (*)(TrainSpec&)>(key.field);
  const auto text = [&](double value) {
    return whole && value < 4294967296.0 ? std::to_string(static_cast<int64_t>(value))
                                         : number_text(value);
  };
  return (limits.or_zero ? "0, or " : "") + text(limits.low) + " to " + text(limits.high);
}

}  // namespace hpctl
