// SPDX-License-Identifier: Apache-2.0
// Whether a run that resumes from a checkpoint computes the bits of an undisturbed run: it does
// while the same machine code adds the same numbers in the same order. Each checkpoint has the
// conditions for that as text labels (its environment), which are compared when one is loaded.
// docs/formats.md lists the labels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/job/train_spec.h"
#include "common/net/packet.h"
#include "trainer/arch/attention_backend.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/kernels/level.h"

namespace hpctl {

using Environment = std::map<std::string, std::string>;

// As fields of a packet, which may be untrusted.
void write_environment(PacketWriter& w, const Environment& environment);
Environment read_environment(PacketReader& r);

// The labels that the job itself decides. Checkpoints of moments in bf16 without the label
// "optimizer.rounding" were written when moments were rounded to nearest. Where the state lies, how
// often it is saved, and which activations are computed twice changes no bits.
Environment environment_of(const TrainSpec& train);

// How ranks share nodes, for a library with its own order of addition: "8 8 4". `nodes` by rank.
std::string ranks_by_node(const std::vector<std::string>& nodes);

// Our own sums over ranks: in what order, where groups of `ranks` at most add. Of three and fewer
// there is only one, which checkpoints without this label have too.
void note_order_of_sums(int32_t ranks, Environment& environment);

// On a CPU products add to the gradients of weights (trainer/arch/ops.h). Checkpoints without this
// label were written when sums were added that had been rounded first: a difference where there is
// something to add to, or the weights are in bf16.
void note_weight_gradients(const TrainSpec& train, bool whole_gradients, Environment& environment);

// On a GPU in bf16: whether gradients of weights are added in fp32 before they are rounded
// (trainer/arch/wide_matmul.h). Those of checkpoints without this label were rounded first.
void note_wide_gradients(bool wide, Environment& environment);

// On a GPU: one product for projections of the same activations
// (trainer/arch/joined_projections.h), as in Llama's family. Checkpoints without this label had one
// for each.
void note_joined_projections(const ModelSpec& model, Environment& environment);

// How a CPU computes products of bf16 (trainer/kernels/level.h): other bits on processors with
// matrix units. Checkpoints in bf16 without this label come from either.
void note_bf16_products(const TrainSpec& train, Bf16Products products, Environment& environment);

// The GPU settings of the job (workload.train.gpu). Checkpoints without these labels come from the
// defaults.
void note_gpu_keys(const GpuSpec& gpu, Environment& environment);

// How a GPU attends, if it, or its LibTorch, lacks the kernels that such a job has elsewhere: by
// products without a fused kernel, or document by document without one that takes them all. The
// labels of the release and of the device determine which of LibTorch's kernels a fused call is.
void note_attention(const TrainSpec& train, AttentionBackend by, Environment& environment);

// Why no run in `environment` gives the bits of another one; "" = it may.
std::string unrepeatable_reason(const Environment& environment);

// Why a run in `environment` that goes on from `loaded` is not bit-exact; "" = it is. A label that
// one side lacks is a difference: what it was is not known.
std::string inexact_reason(const Manifest& loaded, int32_t world_size,
                           const Environment& environment);

}  // namespace hpctl
