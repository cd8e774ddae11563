// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "trainer/arch/cuda_ops.h"
#include "trainer/arch/model.h"
#include "trainer/arch/ops.h"
#include "trainer/arch/rotary.h"

namespace hpctl {

CausalAttention::By CausalAttention::choose(at::ScalarType compute, at::Device device,
                                            bool windowed, bool packed, GpuAttention asked) {
  if (device.is_cpu()) return By::kBlocks;
  const bool narrow = wide_type(compute) != compute;
  if (!narrow || asked == GpuAttention::kProducts) return By::kProducts;
  if (asked == GpuAttention::kCudnn) return By::kFused;
  if (packed) return By::kPacked;
  return compat::kHasFusedAttention && !windowed ? By::kFused : By::kProducts;
}

CausalAttention::CausalAttention(const ModelSpec& model, int64_t seq_len, at::ScalarType compute,
                                 at::Device device, GpuAttention asked, std::optional<By> by,
                                 const PackedKernels* packed)
    : compute_(compute),
      wide_(wide_type(compute)),
      scale_(1.0 / std::sqrt(static_cast<double>(model.head_size()))),
      window_(model.window(seq_len)),
      packed_(packed != nullptr ? packed : packed_kernels(model, compute, device)),
      by_(by.value_or(
          choose(compute, device, model.is_windowed(seq_len), packed_ != nullptr, asked))) {
  const c10::NoGradGuard no_grad;
  if (traits_of(model.arch).positions == Positions::kRotary) make_angles(model, seq_len, device);
  if (by_ != By::kProducts) return;
  const at::Tensor hidden =
      at::full({seq_len, seq_len}, -std::numeric_limits<float>::infinity(), wide_);
  mask_ = (hidden.triu(1) + hidden.tril(-window_)).to(device);
}

// Angles in fp64, since fp32 loses whole turns at long positions.
void CausalAttention::make_angles(const ModelSpec& model, int64_t seq_len, at::Device device) {
  const at::Tensor frequency = at::tensor(rotary_frequencies(model), at::kDouble);
  const at::Tensor half = at::outer(at::arange(seq_len, at::kDouble), frequency);
  const at::Tensor angle = by_ == By::kBlocks ? half : at::cat({half, half}, 1).unsqueeze(1);
  rotary_ = {angle.cos().to(wide_).to(device), angle.sin().to(wide_).to(device)};
}

// x: [B, T, heads, h]
at::Tensor CausalAttention::rotate(const at::Tensor& x, const Documents& documents) const {
  if (!rotary_.cos.defined()) return x;
  if (x.is_cuda() && has_fused_rows(x.device(), compute_)) {
    return on_device::rotary(*device_kernels(), x, rotary_.cos, rotary_.sin, documents.positions);
  }
  const auto at_positions = [&](const at::Tensor& table) {
    return documents.empty() ? table
                             : at::embedding(table.squeeze(1), documents.positions).unsqueeze(2);
  };
  const at::Tensor wide = x.to(wide_);
  const std::vector<at::Tensor> halves = wide.chunk(2, -1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return (wide * at_positions(rotary_.cos) + turned * at_positions(rotary_.sin)).to(compute_);
}

at::Tensor CausalAttention::operator()(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const Documents& documents,
                                       Recomputed* recomputed) const {
  if (by_ == By::kBlocks) {
    return blocked_attention(q, k, v, documents.lengths, {scale_, window_}, rotary_);
  }
  const at::Tensor queries = rotate(q, documents);
  const at::Tensor keys = rotate(k, documents);
  const bool whole_sequences = documents.empty() && window_ >= q.size(1);
  if (by_ == By::kPacked && !whole_sequences) {
    return packed_attention(*packed_, queries, keys, v, documents, {scale_, window_});
  }
  return by_document(queries, keys, v, documents, recomputed);
}

// With documents, the tokens of all sequences are one row, cut by one operation: its gradient is
// one concatenation, where a slice per document would have gradients as long as the row.
at::Tensor CausalAttention::by_document(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const Documents& documents,
                                        Recomputed* recomputed) const {
  if (documents.empty()) return whole(q, k, v, recomputed);
  const auto cut = [&](const at::Tensor& x) {
    return x.flatten(0, 1).unsqueeze(0).split_with_sizes(documents.lengths, 1);
  };
  const std::vector<at::Tensor> queries = cut(q);
  const std::vector<at::Tensor> keys = cut(k);
  const std::vector<at::Tensor> values = cut(v);
  std::vector<at::Tensor> mixed;
  for (size_t d = 0; d < queries.size(); ++d) {
    mixed.push_back(whole(queries[d], keys[d], values[d], recomputed));
  }
  return at::cat(mixed, 1).view({q.size(0), q.size(1), -1});
}

// For sequences that are one document each. The G query heads that share a key head are stacked
// along the rows of one product, so keys and values are not copied per query head.
at::Tensor CausalAttention::whole(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  Recomputed* recomputed) const {
  if (by_ != By::kProducts) return compat::fused_causal_attention(q, k, v, scale_).flatten(2);
  const int64_t batch = q.size(0);
  const int64_t tokens = q.size(1);
  const int64_t kv_heads = k.size(2);
  const int64_t group = q.size(2) / kv_heads;
  const int64_t head_dim = q.size(3);
  const at::Tensor rows = (q * scale_)
                              .view({batch, tokens, kv_heads, group, head_dim})
                              .permute({0, 2, 3, 1, 4})
                              .reshape({batch, kv_heads, group * tokens, head_dim});
  // The scores grow with the square of the length: computed again, as fused kernels do.
  const at::Tensor weights = run(recomputed, [=, this] {
    const at::Tensor scores =
        ops::matmul(rows, k.permute({0, 2, 3, 1})).view({batch, kv_heads, group, tokens, tokens});
    const at::Tensor mask = mask_.narrow(0, 0, tokens).narrow(1, 0, tokens);
    const at::Tensor wide = at::softmax(scores + mask, -1, wide_);
    return std::vector<at::Tensor>{
        wide, wide.to(compute_).view({batch, kv_heads, group * tokens, tokens})};
  });
  const at::Tensor mixed = ops::matmul(weights, v.transpose(1, 2));
  return mixed.view({batch, kv_heads, group, tokens, head_dim})
      .permute({0, 3, 1, 2, 4})
      .reshape({batch, tokens, kv_heads * group * head_dim});
}

}  // namespace hpctl
