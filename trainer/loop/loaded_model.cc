// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/loaded_model.h"

#include <algorithm>
#include <span>
#include <utility>

#include "trainer/checkpoint/loader.h"

namespace hpctl {
namespace {

// Logits are as long as the vocabulary: so many rows of them at a time.
constexpr int64_t kRowsAtOnce = 512;

Error unusable(const std::string& message) { return Error{ErrorCode::kInvalidArgument, message}; }

// A copy of each tensor of the block, where the model computes.
std::vector<at::Tensor> tensors_of(const Block& block, std::vector<float>& values,
                                   const std::string& device) {
  std::vector<at::Tensor> tensors;
  for (const TensorSlot& slot : block.tensors) {
    const at::Tensor view = at::from_blob(values.data() + slot.offset, slot.shape,
                                          at::TensorOptions().dtype(at::kFloat));
    tensors.push_back(compat::to_device(view.clone(), device));
  }
  return tensors;
}

}  // namespace

Result<LoadedModel> LoadedModel::load(const std::string& step_dir, const Manifest& manifest,
                                      int64_t seq_len, Device& device) {
  if (manifest.lora.on()) {
    return unusable(step_dir +
                    " has adapters without their model; make one model of both: hpctl checkpoint "
                    "export " +
                    step_dir + " OUT --merge, then hpctl checkpoint import OUT DIR");
  }
  if (seq_len > manifest.data.seq_len) {
    return unusable("sequences of " + std::to_string(seq_len) + " tokens are longer than the " +
                    std::to_string(manifest.data.seq_len) + " of the checkpoint");
  }
  auto loader = CheckpointLoader::open(step_dir);
  if (!loader.ok()) return loader.error();
  LoadedModel loaded;
  loaded.device_ = device.name();
  loaded.train_ = std::make_unique<TrainSpec>();
  loaded.train_->model = manifest.model;
  loaded.train_->data.seq_len = seq_len;
  loaded.train_->precision = Precision::kFp32;
  loaded.model_ = make_model(*loaded.train_, at::kFloat, at::Device(loaded.device_));
  std::vector<float> values;
  for (size_t b = 0; b < manifest.blocks.size(); ++b) {
    const Block& block = manifest.blocks[b];
    values.assign(static_cast<size_t>(block.numel), 0.0F);
    HP_TRY(loader->load_range(static_cast<int32_t>(b), StateKind::kParam, {0, block.numel},
                              std::span(values)));
    loaded.blocks_.push_back(tensors_of(block, values, loaded.device_));
  }
  return loaded;
}

at::Tensor LoadedModel::run(const at::Tensor& tokens, const Documents& documents) const {
  const c10::AutoGradMode no_gradients(false);
  const Documents here = documents.on(device_);
  at::Tensor x = model_->embed(blocks_.front(), compat::to_device(tokens, device_), here);
  for (size_t b = 1; b + 1 < blocks_.size(); ++b) x = model_->layer(blocks_[b], x, here);
  return x;
}

at::Tensor LoadedModel::logits(const at::Tensor& rows) const {
  const c10::AutoGradMode no_gradients(false);
  std::vector<at::Tensor> parameters = blocks_.back();
  if (train_->model.tied_embeddings) parameters.push_back(blocks_.front().front());
  return model_->logits(parameters, rows);
}

double LoadedModel::loss_sum(const at::Tensor& hidden, const at::Tensor& targets) const {
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});
  const at::Tensor labels = compat::to_device(targets, device_).reshape({-1});
  double sum = 0;
  for (int64_t first = 0; first < labels.numel(); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, labels.numel() - first);
    const Model::Loss loss =
        model_->loss(logits(rows.narrow(0, first, count)), labels.narrow(0, first, count));
    sum += loss.entropy.to(at::kDouble).item<double>();
  }
  return sum;
}

}  // namespace hpctl
