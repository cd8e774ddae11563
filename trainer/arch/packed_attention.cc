// SPDX-License-Identifier: Apache-2.0
#include "trainer/arch/packed_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "common/base/log.h"
#include "trainer/arch/model.h"

namespace hpctl {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct PackedDocuments {
  Tensor borders;
  int64_t longest;
};

// Of B sequences of T tokens.
PackedDocuments packed(const Documents& documents, const Tensor& q) {
  if (!documents.empty()) return {documents.borders, documents.longest};
  const int64_t tokens = q.size(1);
  return {at::arange(0, q.size(0) * tokens + 1, tokens, q.options().dtype(at::kInt)), tokens};
}

struct Packed : torch::autograd::Function<Packed> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const PackedDocuments& documents, const AttentionRule& rule,
                        const PackedKernels* kernels) {
    const compat::PackedAttention of = {q.flatten(0, 1),   k.flatten(0, 1),   v.flatten(0, 1),
                                        documents.borders, documents.longest, rule.scale,
                                        rule.window};
    const compat::PackedResult result = kernels->forward(of);
    context->save_for_backward(
        {of.q, of.k, of.v, of.borders, result.out, result.log_sums, result.seed, result.offset});
    context->saved_data["longest"] = of.longest;
    context->saved_data["scale"] = of.scale;
    context->saved_data["window"] = of.window;
    context->saved_data["kernels"] = reinterpret_cast<int64_t>(kernels);
    return result.out.reshape({q.size(0), q.size(1), -1});
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const compat::PackedAttention of = {saved[0],
                                        saved[1],
                                        saved[2],
                                        saved[3],
                                        context->saved_data["longest"].toInt(),
                                        context->saved_data["scale"].toDouble(),
                                        context->saved_data["window"].toInt()};
    const auto* const kernels =
        reinterpret_cast<const PackedKernels*>(context->saved_data["kernels"].toInt());
    const int64_t batch = gradients[0].size(0);
    const Tensor gradient = gradients[0].contiguous().view(of.q.sizes());
    const auto [q, k, v] =
        kernels->backward(gradient, of, {saved[4], saved[5], saved[6], saved[7]});
    const auto as_given = [batch](const Tensor& x) {
      return x.reshape({batch, -1, x.size(1), x.size(2)});
    };
    return {as_given(q), as_given(k), as_given(v), Tensor(), Tensor(), Tensor()};
  }
};

constexpr PackedKernels kLibTorchs = {&compat::packed_attention,
                                      &compat::packed_attention_backward};

}  // namespace

bool takes(const PackedKernels& kernels, const ModelSpec& model, at::ScalarType type,
           at::Device device) {
  const c10::NoGradGuard no_grad;
  const auto zeros = [&](int64_t heads) {
    return at::zeros({2, heads, model.head_size()}, at::TensorOptions(type).device(device));
  };
  try {
    const compat::PackedAttention of = {
        zeros(model.heads),
        zeros(model.kv_heads),
        zeros(model.kv_heads),
        at::arange(0, 3, 2, at::TensorOptions(at::kInt).device(device)),
        /*longest=*/2,
        /*scale=*/1.0,
        /*window=*/model.sliding_window > 0 ? 1 : 2};
    kernels.backward(of.q, of, kernels.forward(of));
    return true;
  } catch (const c10::Error& error) {
    log_info(std::string("no attention over packed documents in one call: ") +
             error.what_without_backtrace());
    return false;
  }
}

const PackedKernels* packed_kernels(const ModelSpec& model, at::ScalarType type,
                                    at::Device device) {
  const bool narrow = wide_type(type) != type;
  const bool asked = compat::kHasPackedAttention && narrow && device.is_cuda();
  return asked && takes(kLibTorchs, model, type, device) ? &kLibTorchs : nullptr;
}

at::Tensor packed_attention(const PackedKernels& kernels, const Tensor& q, const Tensor& k,
                            const Tensor& v, const Documents& documents,
                            const AttentionRule& rule) {
  return Packed::apply(q, k, v, packed(documents, q), rule, &kernels);
}

}  // namespace hpctl
