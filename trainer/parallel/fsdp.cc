// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/fsdp.h"

#include <algorithm>
#include <chrono>

#include "common/base/check.h"

namespace hpctl {

namespace {

constexpr size_t kEmbed = 0;

size_t largest_bytes(const std::vector<Block>& blocks, int world_size, at::ScalarType type) {
  size_t most = 0;
  for (const Block& block : blocks) {
    most = std::max(most, ShardedBlock::gather_bytes(block, world_size, type));
  }
  return most;
}

class WaitTimer {
 public:
  explicit WaitTimer(double& seconds) : seconds_(seconds) {}
  ~WaitTimer() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

FullySharded::FullySharded(const Llama& model, const std::vector<Block>& blocks, Communicator& comm,
                           at::ScalarType compute)
    : model_(model),
      head_(blocks.size() - 1),
      parameter_buffers_(largest_bytes(blocks, comm.world_size(), compute)),
      gradient_buffers_(largest_bytes(blocks, comm.world_size(), at::kFloat)) {
  HP_CHECK(blocks.size() >= 3);
  int64_t largest_shard = 0;
  for (const Block& block : blocks) {
    blocks_.push_back(std::make_unique<ShardedBlock>(block, comm, compute, parameter_buffers_,
                                                     gradient_buffers_));
    gradients_.emplace_back(blocks_.back()->shard_elements());
    largest_shard = std::max(largest_shard, blocks_.back()->shard_elements());
  }
  partial_.resize(largest_shard);
  for (size_t b = kEmbed; b <= head_; ++b) gather_order_.push_back(b);
  for (size_t b = head_ - 1; b > kEmbed; --b) gather_order_.push_back(b);
}

void FullySharded::begin_step(std::vector<const float*> shards) {
  HP_CHECK(shards.size() == blocks_.size());
  shards_ = std::move(shards);
  first_micro_ = true;
  wait_seconds_ = 0;
}

// Waits for the gather of `block`, which the previous acquire() has begun, and begins the next.
Outcome FullySharded::acquire(size_t block) {
  const WaitTimer timer(wait_seconds_);
  HP_CHECK(gather_order_[next_gather_] == block);
  if (next_gather_ == 0) HP_TRY(blocks_[block]->begin_gather(shards_[block]));
  HP_TRY(blocks_[block]->finish_gather());
  ++next_gather_;
  if (next_gather_ < gather_order_.size()) {
    const size_t next = gather_order_[next_gather_];
    HP_TRY(blocks_[next]->begin_gather(shards_[next]));
  }
  return Ok{};
}

Outcome FullySharded::begin_reduce(size_t block) {
  HP_TRY(finish_reduce());
  float* sum = first_micro_ ? gradients_[block].data() : partial_.data();
  HP_TRY(blocks_[block]->begin_reduce(sum));
  reducing_ = static_cast<ptrdiff_t>(block);
  return Ok{};
}

Outcome FullySharded::finish_reduce() {
  if (reducing_ < 0) return Ok{};
  const WaitTimer timer(wait_seconds_);
  const auto block = static_cast<size_t>(reducing_);
  HP_TRY(blocks_[block]->finish_reduce());
  reducing_ = -1;
  if (!first_micro_) {
    std::vector<float>& sum = gradients_[block];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += partial_[i];
  }
  return Ok{};
}

Result<double> FullySharded::forward_backward(const at::Tensor& tokens, const at::Tensor& targets,
                                              double scale) {
  next_gather_ = 0;
  std::vector<at::Tensor> inputs(blocks_.size());   // of each block, detached
  std::vector<at::Tensor> outputs(blocks_.size());  // of embed and layers, with their graphs

  HP_TRY(acquire(kEmbed));
  outputs[kEmbed] = model_.embed(blocks_[kEmbed]->parameters(), tokens);
  blocks_[kEmbed]->release();
  for (size_t b = kEmbed + 1; b <= head_; ++b) {
    inputs[b] = outputs[b - 1].detach().set_requires_grad(true);
    HP_TRY(acquire(b));
    if (b == head_) break;
    outputs[b] = model_.layer(blocks_[b]->parameters(), inputs[b]);
    blocks_[b]->release();
  }

  blocks_[head_]->attach_gradient();
  double loss_sum = 0;
  {
    const Llama::Loss loss =
        model_.loss(model_.logits(blocks_[head_]->parameters(), inputs[head_]), targets);
    loss_sum = loss.entropy.item<double>();
    compat::backward(loss.objective * scale, {});
  }
  blocks_[head_]->release();
  HP_TRY(begin_reduce(head_));
  at::Tensor gradient = inputs[head_].grad();
  inputs[head_] = at::Tensor();

  HP_TRY(backward_layers(inputs, outputs, gradient));

  blocks_[kEmbed]->attach_gradient();
  compat::backward(outputs[kEmbed], gradient);
  HP_TRY(begin_reduce(kEmbed));
  HP_TRY(finish_reduce());
  first_micro_ = false;
  return loss_sum;
}

// `gradient` enters as that of the last layer's output and leaves as that of the first's input.
Outcome FullySharded::backward_layers(const std::vector<at::Tensor>& inputs,
                                      std::vector<at::Tensor>& outputs, at::Tensor& gradient) {
  for (size_t b = head_ - 1; b > kEmbed; --b) {
    HP_TRY(acquire(b));
    blocks_[b]->attach_gradient();
    compat::backward(outputs[b], gradient);
    outputs[b] = at::Tensor();  // frees the block's activations
    gradient = inputs[b].grad();
    blocks_[b]->release();
    HP_TRY(begin_reduce(b));
  }
  return Ok{};
}

}  // namespace hpctl
