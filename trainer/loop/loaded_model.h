// SPDX-License-Identifier: Apache-2.0
// A whole model in the memory of one device, from a checkpoint of any number of ranks: for
// evaluation and generation outside of a job. It computes in fp32. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"
#include "trainer/arch/documents.h"
#include "trainer/arch/model.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/device/device.h"

namespace hpctl {

class LoadedModel {
 public:
  // `manifest`: of `step_dir`. `seq_len`: the length of every sequence that run() gets.
  // kInvalidArgument: adapters without their model, or a longer sequence than the model's; other
  // errors as CheckpointLoader.
  static Result<LoadedModel> load(const std::string& step_dir, const Manifest& manifest,
                                  int64_t seq_len, Device& device);

  // [B, seq_len] int64 -> [B, seq_len, dim], on the device. Causal: what a sequence is filled up
  // with at its end changes nothing before.
  at::Tensor run(const at::Tensor& tokens, const Documents& documents) const;
  // [N, dim] -> [N, vocab]
  at::Tensor logits(const at::Tensor& rows) const;
  // The sum of the cross entropy of the targets that count; `targets` is [B, seq_len].
  double loss_sum(const at::Tensor& hidden, const at::Tensor& targets) const;

 private:
  LoadedModel() = default;

  std::string device_;
  std::unique_ptr<TrainSpec> train_;  // the model has a reference to it
  std::unique_ptr<Model> model_;
  std::vector<std::vector<at::Tensor>> blocks_;  // embedding, layers, head
};

}  // namespace hpctl
