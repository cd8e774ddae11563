// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/attention.h"

#include <cmath>
#include <limits>

#include "trainer/model/model.h"

namespace hpctl {

CausalAttention::CausalAttention(const ModelSpec& model, int64_t seq_len, at::ScalarType compute)
    : compute_(compute),
      wide_(wide_type(compute)),
      group_(model.heads / model.kv_heads),
      scale_(1.0 / std::sqrt(static_cast<double>(model.dim / model.heads))) {
  mask_ = at::full({seq_len, seq_len}, -std::numeric_limits<float>::infinity(), wide_)
              .triu(1)
              .repeat({group_, 1});
}

// The G query heads that share a key head are stacked along the rows of one product, so keys and
// values are not copied per query head.
at::Tensor CausalAttention::operator()(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v) const {
  const int64_t batch = q.size(0);
  const int64_t tokens = q.size(1);
  const int64_t kv_heads = k.size(2);
  const int64_t head_dim = q.size(3);
  const at::Tensor rows = (q * scale_)
                              .view({batch, tokens, kv_heads, group_, head_dim})
                              .permute({0, 2, 3, 1, 4})
                              .reshape({batch, kv_heads, group_ * tokens, head_dim});
  const at::Tensor scores = at::matmul(rows, k.permute({0, 2, 3, 1}));
  const at::Tensor weights = at::softmax(scores + mask_, -1, wide_).to(compute_);
  const at::Tensor mixed = at::matmul(weights, v.transpose(1, 2));
  return mixed.view({batch, kv_heads, group_, tokens, head_dim})
      .permute({0, 3, 1, 2, 4})
      .reshape({batch, tokens, kv_heads * group_ * head_dim});
}

}  // namespace hpctl
