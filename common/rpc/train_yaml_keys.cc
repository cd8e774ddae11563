// SPDX-License-Identifier: Apache-2.0
// The keys below workload.train. The ranges written here are for people; check_train() in
// common/base/train_spec.cc enforces them.
#include <charconv>
#include <utility>
#include <vector>

#include "common/base/join.h"
#include "common/rpc/job_yaml_keys.h"
#include "common/rpc/nearest_word.h"

namespace hpctl {
namespace {

using enum KeyKind;

bool parse_whole(const std::string& text, int64_t& out) {
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && last == end;
}

void read_preset(YamlValue& value, JobSpec& spec) {
  std::string name;
  value.read(name);
  auto model = model_preset(name);
  if (!model) {
    const auto nearest = nearest_word(name, model_preset_names());
    value.fail("expected one of " + join(model_preset_names(), ", ") + ", found " +
               describe_node(value.node()) +
               (nearest ? "; did you mean \"" + *nearest + "\"?" : ""));
  }
  // After a mistake any dimensions will do: only the preset should be reported.
  spec.train->model = model ? *model : *model_preset("tiny");
}

void read_ramp(YamlValue& value, JobSpec& spec) {
  const YAML::Node& node = value.node();
  std::vector<RampPoint> ramp;
  for (auto it = node.begin(); node.IsMap() && it != node.end(); ++it) {
    RampPoint point;
    if (!it->first.IsScalar() || !it->second.IsScalar() ||
        !parse_whole(it->first.Scalar(), point.samples) ||
        !parse_whole(it->second.Scalar(), point.global)) {
      break;
    }
    ramp.push_back(point);
  }
  if (!node.IsMap() || ramp.size() != node.size()) {
    return value.fail_expected("whole numbers as in {1000: 8, 3000: 16}");
  }
  spec.train->batch.ramp = std::move(ramp);
}

void read_blend(YamlValue& value, JobSpec& spec) {
  std::vector<std::pair<std::string, double>> parts;
  value.read_weighted_paths(parts);
  for (auto& [path, weight] : parts) spec.train->data.blend.push_back({std::move(path), weight});
}

void read_tokenizer(YamlValue& value, JobSpec& spec) {
  std::string& tokenizer = spec.train->data.tokenizer;
  value.read(tokenizer);
  if (tokenizer == "byte") return;
  // The name of a method, say "bpe", is not a file that is missing.
  if (tokenizer.find_first_of("./") == std::string::npos) {
    tokenizer = "byte";
    return value.fail_expected("byte, or the path of a SentencePiece model or a tokenizer.json");
  }
  value.read_path(tokenizer);
}

#define HP_READ(member) [](YamlValue& v, JobSpec& s) { v.read(s.member); }

// clang-format off
constexpr JobYamlKey kKeys[] = {
    {"workload.train.model", kSection, "section with preset or dimensions", "required", "",
     "A model: a preset, or all of dim, layers, heads, kv_heads, ffn and vocab, and for arch gpt "
     "max_positions. With a preset, a dimension given as well overrides it.", nullptr},
    {"workload.train.model.preset", kValue, "text", "",
     "tiny, debugmodel, llama2-7b, llama2-13b, llama2-70b, llama3-8b, llama3-70b, llama3-405b, "
     "llama3.1-8b, llama3.1-70b, llama3.1-405b, llama3.2-1b, llama3.2-3b, tiny-gpt, gpt3-1.7b, "
     "gpt3-3.6b, gpt3-7.5b, gpt3-18.4b, gpt3-39.1b, gpt3-76.1b, gpt3-145.6b, gpt3-310b",
     "Named dimensions. gpt3-*: the family of Megatron-LM's published scaling runs (vocabulary "
     "51200, 2048 positions, tied embeddings).", read_preset},
    {"workload.train.model.arch", kValue, "text", "of the preset", "llama, gpt",
     "llama (without a preset): RMSNorm, rotary positions, grouped queries, SwiGLU, no biases. "
     "gpt: as GPT-2, and GPT-3 in Megatron-LM; LayerNorm, learned positions, GELU (tanh form), "
     "biases; kv_heads = heads.", HP_READ(train->model.arch)},
    {"workload.train.model.dim", kValue, "integer", "of the preset", "1 to 1048576",
     "Width of the residual stream; dim / heads is a whole number, for llama an even one.",
     HP_READ(train->model.dim)},
    {"workload.train.model.layers", kValue, "integer", "of the preset", "1 to 10000",
     "Transformer blocks.", HP_READ(train->model.layers)},
    {"workload.train.model.heads", kValue, "integer", "of the preset", "1 to 65536",
     "Query heads; divide dim.", HP_READ(train->model.heads)},
    {"workload.train.model.kv_heads", kValue, "integer", "of the preset", "1 to 65536",
     "Key and value heads; divide heads, for gpt equal them.", HP_READ(train->model.kv_heads)},
    {"workload.train.model.ffn", kValue, "integer", "of the preset", "1 to 4194304",
     "Hidden width of the feed-forward part.", HP_READ(train->model.ffn)},
    {"workload.train.model.vocab", kValue, "integer", "of the preset", "256 to 16777216",
     "Rows of the embedding; the byte tokenizer uses the first 256.",
     HP_READ(train->model.vocab)},
    {"workload.train.model.rope_theta", kValue, "number", "of the preset", "1 to 1e9",
     "llama: base of the rotary embedding; 500000 without a preset.",
     HP_READ(train->model.rope_theta)},
    {"workload.train.model.norm_eps", kValue, "number", "1e-05", "1e-12 to 0.01",
     "Added under the root of RMSNorm or LayerNorm.", HP_READ(train->model.norm_eps)},
    {"workload.train.model.tied_embeddings", kValue, "true or false", "of the preset", "",
     "The output projection is the embedding; false without a preset.",
     HP_READ(train->model.tied_embeddings)},
    {"workload.train.model.max_positions", kValue, "integer", "of the preset", "1 to 16777216",
     "gpt: rows of the learned position embedding; data.seq_len is at most that. llama: what an "
     "export says, max_position_embeddings; that of an imported model stays.",
     HP_READ(train->model.max_positions)},
    {"workload.train.model.rope_scaling", kSection, "section with factor", "", "",
     "Llama 3.1's change of the rotary frequencies for long contexts.", nullptr},
    {"workload.train.model.rope_scaling.factor", kValue, "number", "of the preset",
     "0, or 1 to 10000",
     "Long waves become longer by it; 0 = no scaling.", HP_READ(train->model.rope_scaling.factor)},
    {"workload.train.model.rope_scaling.low_freq_factor", kValue, "number", "1", "0.001 to 10000",
     "Waves longer than original_max_len / low_freq_factor are scaled in full.",
     HP_READ(train->model.rope_scaling.low_freq_factor)},
    {"workload.train.model.rope_scaling.high_freq_factor", kValue, "number", "4",
     "more than low_freq_factor",
     "Waves shorter than original_max_len / high_freq_factor stay; in between the change is "
     "gradual.", HP_READ(train->model.rope_scaling.high_freq_factor)},
    {"workload.train.model.rope_scaling.original_max_len", kValue, "integer", "8192",
     "1 to 16777216", "Context length without scaling.",
     HP_READ(train->model.rope_scaling.original_max_len)},

    {"workload.train.data", kSection, "section with path and seq_len", "required", "",
     "What is trained on.", nullptr},
    {"workload.train.data.path", kValue, "path", "required", "",
     "A text file, a directory of text files, or the prefix of an indexed dataset (PREFIX.bin and "
     "PREFIX.idx, as `hpctl data prepare` and Megatron-LM write them).",
     [](YamlValue& v, JobSpec& s) { v.read_path(s.train->data.path); }},
    {"workload.train.data.blend", kValue, "mapping", "{}", "1 to 256 paths",
     "Instead of path, which is then left out: several of what path may be, with their weights, as "
     "in {data/web: 0.7, data/code: 0.3}. Training samples are taken from them in proportion, in "
     "an order that depends on seed alone; a source that is used up begins again in another "
     "order.", read_blend},
    {"workload.train.data.tokenizer", kValue, "byte or path", "byte",
     "byte, or a SentencePiece model or a tokenizer.json",
     "How text becomes tokens; byte: one token per byte. Others: text of up to 64 MiB is prepared "
     "by `hpctl submit` and kept in $HPCTL_HOME/data; for more it tells the `hpctl data prepare` "
     "to run. An indexed dataset must have been prepared with the same tokenizer.",
     read_tokenizer},
    {"workload.train.data.split", kValue, "list of numbers", "[1, 0, 0]", "",
     "Parts of the documents for training, validation and test, such as [98, 2, 0]: the first are "
     "trained on, the next are for validation, and the last are evaluated once at the end. The "
     "files of a directory are its documents.",
     [](YamlValue& v, JobSpec& s) { v.read_numbers(s.train->data.split); }},
    {"workload.train.data.reset_at_documents", kValue, "true or false", "false", "",
     "Attention does not cross the documents within a sequence, positions begin again at each, and "
     "none predicts the first token of the next. Where they begin, the index of the dataset tells; "
     "the files of a directory are documents.",
     HP_READ(train->data.reset_at_documents)},
    {"workload.train.data.seq_len", kValue, "integer", "required", "2 to 16777216",
     "Tokens per sequence.", HP_READ(train->data.seq_len)},

    {"workload.train.validation", kSection, "section", "", "",
     "Loss and perplexity of text that is not trained on.", nullptr},
    {"workload.train.validation.every_steps", kValue, "integer", "0", "0 to 2^40",
     "After this many steps, and after the last; 0 = never. Needs a validation part in data.split.",
     HP_READ(train->validation.every_steps)},
    {"workload.train.validation.sequences", kValue, "integer", "0", "0 to 2^40",
     "How many sequences of the validation part are taken, rounded down to whole micro-batches; "
     "the same ones every time. 0 = all.", HP_READ(train->validation.sequences)},

    {"workload.train.batch", kSection, "section with global", "required", "",
     "Sequences per step.", nullptr},
    {"workload.train.batch.micro", kValue, "integer", "1", "1 to 1048576",
     "Sequences per worker and forward pass.", HP_READ(train->batch.micro)},
    {"workload.train.batch.global", kValue, "integer", "required",
     "nodes x workers_per_node to 2^40",
     "Sequences per optimizer step over all workers, whatever their number. Shares of workers "
     "differ by one at most; all run as many micro-batches as the largest share needs, so a "
     "multiple of micro x nodes x workers_per_node is fastest.", HP_READ(train->batch.global)},
    {"workload.train.batch.ramp", kValue, "mapping", "{}", "increasing samples",
     "A smaller start: `{1000: 8, 3000: 16}` takes 8 sequences per step until 1000 were taken, "
     "then 16 until 3000, then `global`.", read_ramp},
    {"workload.train.steps", kValue, "integer", "required", "1 to 2^40",
     "Optimizer steps of the whole job.", HP_READ(train->steps)},
    {"workload.train.seed", kValue, "integer", "1", "0 to 2^64 - 1",
     "Of the initial weights and of the data order.", HP_READ(train->seed)},

    {"workload.train.optimizer", kSection, "section", "", "", "AdamW.", nullptr},
    {"workload.train.optimizer.lr", kValue, "number", "0.0003", "0 to 10",
     "Highest learning rate.", HP_READ(train->optimizer.lr)},
    {"workload.train.optimizer.beta1", kValue, "number", "0.9", "0 to 0.9999999",
     "Decay of the first moment.", HP_READ(train->optimizer.beta1)},
    {"workload.train.optimizer.beta2", kValue, "number", "0.95", "0 to 0.9999999",
     "Decay of the second moment.", HP_READ(train->optimizer.beta2)},
    {"workload.train.optimizer.eps", kValue, "number", "1e-08", "1e-16 to 1",
     "Added to the root of the second moment.", HP_READ(train->optimizer.eps)},
    {"workload.train.optimizer.weight_decay", kValue, "number", "0.1", "0 to 10",
     "Decoupled weight decay.", HP_READ(train->optimizer.weight_decay)},
    {"workload.train.optimizer.no_decay", kValue, "list", "[norms, biases]",
     "norms, biases, embeddings", "Parameters that are exempt from weight decay.",
     [](YamlValue& v, JobSpec& s) { v.read_words(s.train->optimizer.no_decay); }},
    {"workload.train.optimizer.moments", kValue, "text", "fp32", "fp32, bf16",
     "Type in which a worker keeps the two moments of a parameter. bf16 saves a third of the "
     "memory of the state; with beta2 near 1 the second moment then stands still.",
     HP_READ(train->optimizer.moments)},
    {"workload.train.optimizer.clip", kValue, "number", "1", "0 to 1e9",
     "Largest global gradient norm; 0 = no clipping.", HP_READ(train->optimizer.clip)},

    {"workload.train.schedule", kSection, "section", "", "", "Learning rate over the steps.",
     nullptr},
    {"workload.train.schedule.name", kValue, "text", "cosine",
     "cosine, linear, wsd, constant",
     "Shape after the warm-up. wsd: lr stays until the last decay_steps.",
     HP_READ(train->schedule.name)},
    {"workload.train.schedule.unit", kValue, "text", "steps", "steps, samples",
     "Of warmup_steps and decay_steps, and what progress is measured in.",
     HP_READ(train->schedule.unit)},
    {"workload.train.schedule.warmup_steps", kValue, "integer", "0", "0 to 2^40",
     "Length of the linear increase from 0 to lr, in unit.",
     HP_READ(train->schedule.warmup_steps)},
    {"workload.train.schedule.decay_steps", kValue, "integer", "0", "0 to 2^40; wsd: at least 1",
     "wsd: length of the decrease at the end, in unit.", HP_READ(train->schedule.decay_steps)},
    {"workload.train.schedule.decay", kValue, "text", "sqrt", "linear, sqrt, cosine",
     "wsd: shape of the decrease; sqrt is 1 - sqrt(progress).", HP_READ(train->schedule.decay)},
    {"workload.train.schedule.min_lr_ratio", kValue, "number", "0.1", "0 to 1",
     "Learning rate at the last step, as a part of lr.",
     HP_READ(train->schedule.min_lr_ratio)},

    {"workload.train.loss", kSection, "section", "", "", "Cross entropy and what is added to it.",
     nullptr},
    {"workload.train.loss.z_loss", kValue, "number", "0", "0 to 1",
     "Adds this times the mean of log^2 Z, Z the sum of the exponentials of a token's logits. "
     "Reported losses leave it out.", HP_READ(train->loss.z_loss)},
    {"workload.train.loss.chunk_tokens", kValue, "integer", "0", "0 to 16777216",
     "Tokens whose logits are in memory at a time; 0 = all of a micro-batch.",
     HP_READ(train->loss.chunk_tokens)},

    {"workload.train.stability", kSection, "section", "", "",
     "What is done about a step whose loss or gradient norm is bad. Such a step is never "
     "applied.", nullptr},
    {"workload.train.stability.policy", kValue, "text", "stop", "stop, skip, rollback",
     "For values that are not finite. stop: the workers end, and the job is restarted by its "
     "recovery rules. skip: the samples of the step are left out for good. rollback: as skip, "
     "after going back rollback_steps.", HP_READ(train->stability.policy)},
    {"workload.train.stability.spikes", kValue, "true or false", "false", "",
     "The same for values far above those of the last steps.", HP_READ(train->stability.spikes)},
    {"workload.train.stability.window", kValue, "integer", "128", "16 to 100000",
     "Steps that a spike is measured against; the first 16 of a run are never spikes.",
     HP_READ(train->stability.window)},
    {"workload.train.stability.z_score", kValue, "number", "6", "1 to 1e6",
     "A spike is more than this many deviations (1.4826 times the median absolute deviation, at "
     "least 1 % of the median) above the median.", HP_READ(train->stability.z_score)},
    {"workload.train.stability.factor", kValue, "number", "0", "0, or 1 to 1e6",
     "A spike is also what exceeds this many times the median; 0 = off.",
     HP_READ(train->stability.factor)},
    {"workload.train.stability.rollback_steps", kValue, "integer", "100", "1 to 2^40",
     "rollback: at least so far back, to a checkpoint or to where the workers started. At most "
     "checkpoint.keep x checkpoint.every_steps, unless checkpoint.keep_every is given.",
     HP_READ(train->stability.rollback_steps)},
    {"workload.train.stability.skip_steps", kValue, "integer", "0", "0 to 1000000",
     "rollback: batches left out in addition, those that follow.",
     HP_READ(train->stability.skip_steps)},
    {"workload.train.stability.max_skips", kValue, "integer", "10", "0 to 1000000",
     "After so many skips the next one fails the job.", HP_READ(train->stability.max_skips)},
    {"workload.train.stability.reexecute", kValue, "true or false", "false", "",
     "Execute such a step again first. Another result is a fault of the hardware: the worker that "
     "computed another loss is blamed, and the job restarts. With stop, the same result fails the "
     "job without a restart.", HP_READ(train->stability.reexecute)},

    {"workload.train.parallelism", kSection, "section", "", "", "How the model is sharded.",
     nullptr},
    {"workload.train.parallelism.strategy", kValue, "text", "full",
     "full, shard_grad_op, optimizer, no_shard, hybrid",
     "What the workers share out: full: parameters, gradients and optimizer state (FSDP, ZeRO-3); "
     "shard_grad_op: gradients and optimizer state (ZeRO-2); optimizer: its state alone (ZeRO-1), "
     "with one reduction per step however many micro-batches; no_shard: nothing (DDP); hybrid: all "
     "three within a group of workers, replicated across groups (HSDP).",
     HP_READ(train->strategy)},
    {"workload.train.parallelism.shard_group", kValue, "integer", "0", "0 to 1048576",
     "Workers of a group of hybrid; divides nodes x workers_per_node; 0 = those of a node.",
     HP_READ(train->shard_group)},
    {"workload.train.parallelism.reshard_after_forward", kValue, "text", "auto",
     "auto, always, never",
     "Whether full and hybrid free gathered parameters after the forward pass; auto: yes. never: "
     "kept until the step ends, which saves a gather and costs the memory.",
     HP_READ(train->reshard_after_forward)},
    {"workload.train.parallelism.pp", kUnavailable, "", "", "", "Pipeline stages.", nullptr},
    {"workload.train.parallelism.dp_replicate", kUnavailable, "", "", "",
     "Replicas of the sharded model.", nullptr},
    {"workload.train.parallelism.dp_shard", kUnavailable, "", "", "",
     "Workers that share one replica.", nullptr},
    {"workload.train.parallelism.cp", kUnavailable, "", "", "",
     "Workers that share one sequence.", nullptr},
    {"workload.train.parallelism.tp", kUnavailable, "", "", "",
     "Workers that share one layer.", nullptr},

    {"workload.train.memory", kSection, "section", "", "", "What is kept and what is recomputed.",
     nullptr},
    {"workload.train.memory.activation_checkpointing", kValue, "text", "none",
     "none, operations, selective, full",
     "What the backward pass computes again, with the same bits, instead of keeping it. "
     "operations: norms, attention scores and what lies between the products of the feed-forward "
     "part; selective: every k-th block but its input; full: every block but its input.",
     HP_READ(train->memory.activation_checkpointing)},
    {"workload.train.memory.every", kValue, "integer", "2", "1 to 10000",
     "k of selective.", HP_READ(train->memory.every)},
    {"workload.train.memory.offload", kValue, "list", "[]", "optimizer, parameters, activations",
     "What a GPU leaves in host memory, with the same bits. optimizer: fp32 parameters and "
     "moments, which pass through the GPU in pieces at each step. parameters: the same, and the "
     "weights that blocks are gathered from; with strategies full and hybrid. activations: the "
     "inputs of recomputed layers; with activation_checkpointing full and selective. On a CPU "
     "there is nothing to move.",
     [](YamlValue& v, JobSpec& s) { v.read_words(s.train->memory.offload); }},
    {"workload.train.precision", kValue, "text", "bf16", "bf16, fp16, fp32",
     "Of the forward and backward pass; weights and reductions are fp32 always. fp16 scales the "
     "loss; on a CPU its products are computed in fp32 and rounded to fp16, which is slow.",
     HP_READ(train->precision)},

    {"workload.train.loss_scale", kSection, "section", "", "",
     "fp16: the factor of the loss that keeps small gradients from vanishing. Where a gradient "
     "overflows, the step is left out, samples and all, and does not count as a step.", nullptr},
    {"workload.train.loss_scale.initial", kValue, "integer", "65536", "power of two to 2^32",
     "At the first step.", HP_READ(train->loss_scale.initial)},
    {"workload.train.loss_scale.growth_interval", kValue, "integer", "1000", "1 to 2^40",
     "It doubles after so many steps in a row without overflow.",
     HP_READ(train->loss_scale.growth_interval)},
    {"workload.train.loss_scale.hysteresis", kValue, "integer", "2", "1 to 1000",
     "It halves at every overflow but the first so many less one since it last doubled.",
     HP_READ(train->loss_scale.hysteresis)},
    {"workload.train.loss_scale.min", kValue, "integer", "1", "power of two to 2^32",
     "It does not become smaller: an overflow there is bad in the sense of stability.",
     HP_READ(train->loss_scale.min)},

    {"workload.train.metrics", kSection, "section", "", "",
     "Besides metrics.jsonl, which the job's directory always has.", nullptr},
    {"workload.train.metrics.tensorboard", kValue, "true or false", "false", "",
     "Also write TensorBoard event files, in tensorboard/ of the job's directory.",
     HP_READ(train->metrics.tensorboard)},
    {"workload.train.metrics.trace_from", kValue, "integer", "0", "0 to 2^40",
     "First step of a trace for ui.perfetto.dev or chrome://tracing, trace/gG.rR.json in the job's "
     "directory, one file per worker.", HP_READ(train->metrics.trace_from)},
    {"workload.train.metrics.trace_steps", kValue, "integer", "0", "0 to 1000",
     "Length of the trace in steps; 0: no trace.", HP_READ(train->metrics.trace_steps)},
};
// clang-format on

#undef HP_READ

}  // namespace

std::span<const JobYamlKey> train_yaml_keys() { return kKeys; }

}  // namespace hpctl
