// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/block_layout.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace hpctl {
namespace {

Block llama_layer(const ModelSpec& m, int64_t index) {
  const int64_t head_dim = m.dim / m.heads;
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  Block block;
  append_tensor(block, prefix + "input_layernorm.weight", {m.dim});
  append_tensor(block, prefix + "self_attn.q_proj.weight", {m.heads * head_dim, m.dim});
  append_tensor(block, prefix + "self_attn.k_proj.weight", {m.kv_heads * head_dim, m.dim});
  append_tensor(block, prefix + "self_attn.v_proj.weight", {m.kv_heads * head_dim, m.dim});
  append_tensor(block, prefix + "self_attn.o_proj.weight", {m.dim, m.heads * head_dim});
  append_tensor(block, prefix + "post_attention_layernorm.weight", {m.dim});
  append_tensor(block, prefix + "mlp.gate_proj.weight", {m.ffn, m.dim});
  append_tensor(block, prefix + "mlp.up_proj.weight", {m.ffn, m.dim});
  append_tensor(block, prefix + "mlp.down_proj.weight", {m.dim, m.ffn});
  return block;
}

Block gpt_layer(const ModelSpec& m, int64_t index) {
  const std::string prefix = "transformer.h." + std::to_string(index) + ".";
  Block block;
  const auto append_pair = [&](const char* name, std::vector<int64_t> shape) {
    const int64_t out = shape.back();
    append_tensor(block, prefix + name + ".weight", std::move(shape));
    append_tensor(block, prefix + name + ".bias", {out});
  };
  append_pair("ln_1", {m.dim});
  append_pair("attn.c_attn", {m.dim, 3 * m.dim});
  append_pair("attn.c_proj", {m.dim, m.dim});
  append_pair("ln_2", {m.dim});
  append_pair("mlp.c_fc", {m.dim, m.ffn});
  append_pair("mlp.c_proj", {m.ffn, m.dim});
  return block;
}

// Names the blocks; the output projection is in the head unless it is the embedding.
std::vector<Block> stack_blocks(const ModelSpec& m, Block embed,
                                Block (*layer)(const ModelSpec&, int64_t), Block head) {
  std::vector<Block> blocks;
  blocks.reserve(static_cast<size_t>(m.layers) + 2);
  embed.name = "embed";
  blocks.push_back(std::move(embed));
  for (int64_t i = 0; i < m.layers; ++i) {
    blocks.push_back(layer(m, i));
    blocks.back().name = "layers." + std::to_string(i);
  }
  head.name = "head";
  if (!m.tied_embeddings) append_tensor(head, "lm_head.weight", {m.vocab, m.dim});
  blocks.push_back(std::move(head));
  return blocks;
}

}  // namespace

int64_t shard_capacity(int64_t block_numel, int32_t world_size) {
  HP_CHECK(block_numel >= 0 && world_size >= 1);
  return align_elements((block_numel + world_size - 1) / world_size);
}

ElementRange shard_range(int64_t block_numel, int32_t rank, int32_t world_size) {
  HP_CHECK(rank >= 0 && rank < world_size);
  const int64_t capacity = shard_capacity(block_numel, world_size);
  return {std::min(rank * capacity, block_numel), std::min((rank + 1) * capacity, block_numel)};
}

ElementRange intersect(ElementRange a, ElementRange b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

void append_tensor(Block& block, std::string name, std::vector<int64_t> shape) {
  TensorSlot slot;
  slot.name = std::move(name);
  slot.offset = block.numel;
  slot.numel = 1;
  for (const int64_t extent : shape) slot.numel *= extent;
  slot.no_decay = shape.size() < 2;
  slot.shape = std::move(shape);
  block.numel = align_elements(slot.offset + slot.numel);
  block.tensors.push_back(std::move(slot));
}

void set_no_decay(std::vector<Block>& blocks, const std::vector<std::string>& groups) {
  const auto group_of = [](const TensorSlot& tensor) -> const char* {
    if (tensor.name.ends_with(".bias")) return "biases";
    if (tensor.shape.size() < 2) return "norms";
    for (const char* embedding : {".embed_", ".wte.", ".wpe."}) {
      if (tensor.name.find(embedding) != std::string::npos) return "embeddings";
    }
    return "";
  };
  for (Block& block : blocks) {
    for (TensorSlot& tensor : block.tensors) {
      tensor.no_decay = std::find(groups.begin(), groups.end(), group_of(tensor)) != groups.end();
    }
  }
}

std::vector<Block> llama_layout(const ModelSpec& model) {
  Block embed;
  append_tensor(embed, "model.embed_tokens.weight", {model.vocab, model.dim});
  Block head;
  append_tensor(head, "model.norm.weight", {model.dim});
  return stack_blocks(model, std::move(embed), llama_layer, std::move(head));
}

std::vector<Block> gpt_layout(const ModelSpec& model) {
  Block embed;
  append_tensor(embed, "transformer.wte.weight", {model.vocab, model.dim});
  append_tensor(embed, "transformer.wpe.weight", {model.max_positions, model.dim});
  Block head;
  append_tensor(head, "transformer.ln_f.weight", {model.dim});
  append_tensor(head, "transformer.ln_f.bias", {model.dim});
  return stack_blocks(model, std::move(embed), gpt_layer, std::move(head));
}

std::vector<Block> model_layout(const ModelSpec& model) {
  HP_CHECK(model.arch == "llama" || model.arch == "gpt");
  return model.arch == "gpt" ? gpt_layout(model) : llama_layout(model);
}

int64_t parameter_count(const std::vector<Block>& blocks) {
  int64_t count = 0;
  for (const Block& block : blocks) {
    for (const TensorSlot& tensor : block.tensors) count += tensor.numel;
  }
  return count;
}

}  // namespace hpctl
