// SPDX-License-Identifier: Apache-2.0
// May this job continue from that checkpoint? If not, the reason names the first difference.
#include <array>
#include <charconv>
#include <string>

#include "trainer/checkpoint/manifest.h"

namespace hpctl {
namespace {

std::string difference(const char* what, const std::string& there, const std::string& here) {
  return there == here ? "" : std::string(what) + " is " + there + " there and " + here + " here";
}

// Unlike numbers have unlike texts: the fewest digits that name this one.
template <typename T>
std::string number_text(T value) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string model_difference(const ModelSpec& a, const ModelSpec& b) {
  const auto number = [](const char* what, auto there, auto here) {
    return there == here ? "" : difference(what, number_text(there), number_text(here)) + ", ";
  };
  if (a.arch != b.arch) return difference("model.arch", to_word(a.arch), to_word(b.arch));
  return number("model.dim", a.dim, b.dim) + number("model.layers", a.layers, b.layers) +
         number("model.heads", a.heads, b.heads) +
         number("model.kv_heads", a.kv_heads, b.kv_heads) +
         number("model.head_dim", a.head_size(), b.head_size()) +
         number("model.sliding_window", a.sliding_window, b.sliding_window) +
         number("model.ffn", a.ffn, b.ffn) + number("model.vocab", a.vocab, b.vocab) +
         number("model.rope_theta", a.rope_theta, b.rope_theta) +
         number("model.rope_scaling.factor", a.rope_scaling.factor, b.rope_scaling.factor) +
         number("model.rope_scaling.low_freq_factor", a.rope_scaling.low_freq_factor,
                b.rope_scaling.low_freq_factor) +
         number("model.rope_scaling.high_freq_factor", a.rope_scaling.high_freq_factor,
                b.rope_scaling.high_freq_factor) +
         number("model.rope_scaling.original_max_len", a.rope_scaling.original_max_len,
                b.rope_scaling.original_max_len) +
         number("model.norm_eps", a.norm_eps, b.norm_eps) +
         number("model.tied_embeddings", int{a.tied_embeddings}, int{b.tied_embeddings}) +
         // Rotary positions have no end: there it is for exports.
         (traits_of(a.arch).positions == Positions::kLearned
              ? number("model.max_positions", a.max_positions, b.max_positions)
              : "");
}

// Weight decay may change from one run to the next: it is no part of what is stored.
bool same_tensors(std::vector<Block> a, std::vector<Block> b) {
  for (auto* blocks : {&a, &b}) {
    for (Block& block : *blocks) {
      for (TensorSlot& tensor : block.tensors) tensor.no_decay = false;
    }
  }
  return a == b;
}

}  // namespace

std::string find_model_difference(const Manifest& manifest, const ModelSpec& model,
                                  const std::vector<Block>& blocks) {
  std::string why = model_difference(manifest.model, model);
  if (why.ends_with(", ")) why.resize(why.size() - 2);
  if (!why.empty() || same_tensors(manifest.blocks, blocks)) return why;
  return std::string("it holds ") + (manifest.lora.on() ? "adapters" : "a whole model") +
         ", with another layout than this job's";
}

Outcome check_resumable(const Manifest& manifest, const RunIdentity& run,
                        const std::string& step_dir) {
  std::string remedy =
      "; restore it as it was, or start from the beginning with checkpoint.resume: none and hpctl "
      "submit --fresh";
  std::string why = find_model_difference(manifest, run.model, run.blocks);
  if (why.empty() && manifest.weights_only) return Ok{};
  if (why.empty() && !manifest.lora.on()) {
    remedy += ", or begin with its weights alone (hpctl checkpoint export, then import)";
  }
  if (why.empty()) {
    why = difference("seed", std::to_string(manifest.seed), std::to_string(run.seed));
  }
  if (why.empty()) {
    why = difference("data.seq_len", std::to_string(manifest.data.seq_len),
                     std::to_string(run.data.seq_len));
  }
  if (why.empty() && manifest.data != run.data) {
    why = "the data have changed since it was written (" + std::to_string(manifest.data.tokens) +
          " tokens there, " + std::to_string(run.data.tokens) + " here)";
  }
  if (why.empty()) return Ok{};
  return Error{ErrorCode::kInvalidArgument, "cannot resume from " + step_dir + ": " + why + remedy};
}

}  // namespace hpctl
