// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/fsdp.h"

#include <algorithm>
#include <chrono>

#include "common/base/check.h"
#include "common/layout/memory_savings.h"
#include "common/layout/sharding.h"
#include "trainer/arch/lora.h"
#include "trainer/arch/registry.h"
#include "trainer/arch/wide_matmul.h"

namespace hpctl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kEmbed = 0;

std::vector<int64_t> elements_of(const std::vector<Block>& blocks) {
  std::vector<int64_t> elements;
  for (const Block& block : blocks) elements.push_back(block.numel);
  return elements;
}

class WaitTimer {
 public:
  explicit WaitTimer(double& seconds) : seconds_(seconds) {}
  ~WaitTimer() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;

 private:
  double& seconds_;
  Clock::time_point begin_ = Clock::now();
};

// Records from construction to destruction.
class Traced {
 public:
  Traced(ScheduleTrace* trace, ScheduleEvent event, size_t block)
      : trace_(trace), event_(event), block_(block) {
    if (trace_ != nullptr) begin_ = Clock::now();
  }
  ~Traced() {
    if (trace_ != nullptr) trace_->push_back({event_, block_, begin_, Clock::now()});
  }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

 private:
  ScheduleTrace* trace_;
  ScheduleEvent event_;
  size_t block_;
  Clock::time_point begin_;
};

void note(ScheduleTrace* trace, ScheduleEvent event, size_t block) {
  const Traced now(trace, event, block);
}

std::vector<bool> recomputed_blocks(const TrainSpec& train, size_t blocks) {
  std::vector<bool> recomputed(blocks, false);
  for (size_t b = kEmbed + 1; b + 1 < blocks; ++b) {
    recomputed[b] = is_recomputed(train, static_cast<int64_t>(b) - 1);
  }
  return recomputed;
}

std::vector<Keep> kept_by_blocks(const TrainSpec& train, size_t blocks) {
  const bool operations = train.memory.activation_checkpointing == Checkpointing::kOperations;
  std::vector<Keep> keep(blocks, operations ? Keep::kProducts : Keep::kGraph);
  const std::vector<bool> recomputed = recomputed_blocks(train, blocks);
  for (size_t b = 0; b < blocks; ++b) {
    if (recomputed[b]) keep[b] = Keep::kInput;
  }
  return keep;
}

std::vector<bool> leaving_inputs(const TrainSpec& train, size_t blocks, const Device& device) {
  if (device.is_host() || !offloads_activations(train)) return std::vector<bool>(blocks, false);
  std::vector<bool> leaves = recomputed_blocks(train, blocks);
  leaves[blocks - 2] = false;
  return leaves;
}

}  // namespace

std::vector<bool> weights_of_products(const Block& block, const ModelSpec& model, bool tied) {
  const Architecture& architecture = architecture_of(model);
  std::vector<bool> found;
  for (const TensorSlot& tensor : block.tensors) {
    const bool is_heads = tied && found.empty();
    found.push_back(tensor.shape.size() == 2 &&
                    (is_heads || !architecture.is_embedding(tensor.name)));
  }
  return found;
}

FullySharded::FullySharded(const Model& model, const std::vector<Block>& blocks,
                           MeshCommunicators& comms, const TrainSpec& train,
                           const Sharding& sharding, at::ScalarType compute, Device& device,
                           const FrozenModel* frozen)
    : model_(model),
      comms_(comms),
      device_(device),
      sharding_(sharding),
      first_replica_(comms.replicate().rank() == 0),
      shard_rank_(comms.shard().rank()),
      chunk_tokens_(train.loss.chunk_tokens),
      tied_(train.model.tied_embeddings),
      head_((frozen == nullptr ? blocks : frozen->blocks).size() - 1),
      frozen_(frozen),
      gathers_from_peers_(comms.shard().world_size() > 1),
      reducer_(elements_of(blocks), comms, sharding.whole_gradients, device, under_way_),
      keep_(kept_by_blocks(train, head_ + 1)),
      vocabulary_(train.model.vocab),
      offloaded_inputs_(leaving_inputs(train, head_ + 1, device), device),
      sums_(device, sizeof(Sums) / sizeof(double)),
      loss_sum_(compat::tensor_over(sums_.data(), 1, at::kDouble, device.name())),
      marks_(device, static_cast<size_t>(comms.world().world_size())) {
  HP_CHECK(head_ >= 2 && (frozen == nullptr || blocks.size() == head_ - 1));
  if (sharding.mesh.degree(MeshDim::kTp) > 1) {
    HP_CHECK(frozen == nullptr);
    rows_.emplace(comms.along(MeshDim::kTp), &under_way_);
    local_ = local_layout(trained_cuts(train), sharding.mesh, comms.world().rank());
  }
  add_blocks(blocks, compute);
  const bool writes =
      compute == at::kBFloat16 && wide_product_of(at::Device(device.name())) != nullptr;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const bool tied = tied_ && frozen == nullptr && b == kEmbed;
    products_.push_back(writes ? weights_of_products(blocks[b], train.model, tied)
                               : std::vector<bool>());
  }
  for (size_t b = kEmbed; b <= head_; ++b) uses_.push_back(b);
  if (tied_) uses_.push_back(kEmbed);
  for (size_t b = head_ - 1; b > kEmbed; --b) uses_.push_back(b);
  layers_.resize(head_);
}

// Buffers of one size serve all blocks of a list, unless parameters are kept.
void FullySharded::add_blocks(const std::vector<Block>& trained_blocks, at::ScalarType compute) {
  const int shards = comms_.shard().world_size();
  const auto add = [&](const std::vector<Block>& blocks, bool frozen, auto& to) {
    size_t largest = 0;
    for (const Block& block : blocks) {
      largest = std::max(largest, ShardedBlock::gather_bytes(block, shards, compute));
    }
    for (const Block& block : blocks) {
      if (sharding_.keep_parameters || to.empty()) {
        const size_t own = ShardedBlock::gather_bytes(block, shards, compute);
        parameter_buffers_.push_back(std::make_unique<BufferPool>(
            sharding_.keep_parameters ? own : largest, comms_.shard(), device_));
      }
      to.push_back(std::make_unique<ShardedBlock>(block, comms_.shard(), compute,
                                                  *parameter_buffers_.back(), device_, frozen));
    }
  };
  if (frozen_ != nullptr) add(frozen_->blocks, true, blocks_);
  add(trained_blocks, false, frozen_ != nullptr ? adapters_ : blocks_);
}

std::optional<size_t> FullySharded::trained(size_t block) const {
  if (frozen_ == nullptr) return block;
  if (block == kEmbed || block == head_) return std::nullopt;
  return block - 1;
}

std::vector<at::Tensor> FullySharded::parameters(size_t block) const {
  std::vector<at::Tensor> all = blocks_[block]->parameters();
  if (frozen_ == nullptr || !trained(block)) return all;
  const std::vector<at::Tensor>& own = adapters_[*trained(block)]->parameters();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

Outcome FullySharded::attach_gradient(size_t block) {
  const auto index = trained(block);
  if (!index) return Ok{};
  HP_TRY_ASSIGN(const WholeGradient whole, reducer_.whole(*index));
  trained_block(block).attach_gradient(whole, products_[*index]);
  return Ok{};
}

void FullySharded::begin_step(WeightShards shards, int micro_batches) {
  HP_CHECK(micro_batches_left_ == 0);
  HP_CHECK(shards.size() == (frozen_ == nullptr ? blocks_ : adapters_).size());
  release_written();
  shards_ = std::move(shards);
  micro_batches_left_ = micro_batches;
  reducer_.begin_step(micro_batches);
  clear_sums();
  wait_seconds_ = 0;
  if (rows_) rows_waited_ = rows_->wait_seconds();
  streams_.reset();
  under_way_.reset();
}

Result<FullySharded::Sums> FullySharded::finish_step() {
  HP_CHECK(micro_batches_left_ == 0);
  HP_TRY(sum_gradients_of_copies());
  if (first_replica_) device_.sum_of_squares(counted_gradients(), sums_.data() + 1);
  HP_TRY(settle());
  Sums sums;
  device_.download(sums_.data(), &sums, sizeof sums);
  return sums;
}

double FullySharded::wait_seconds() const {
  if (streams_) return streams_->waiting;
  return wait_seconds_ + (rows_ ? rows_->wait_seconds() - rows_waited_ : 0);
}

Outcome FullySharded::begin_gather(size_t block) {
  note(trace_, ScheduleEvent::kGatherBegun, block);
  if (gathers_from_peers_) under_way_.begun();
  if (!blocks_[block]->gathered()) {
    peak_gathered_ = std::max(peak_gathered_, ++gathered_);
    HP_TRY(blocks_[block]->begin_gather((frozen_ == nullptr ? shards_ : frozen_->shards)[block]));
  }
  if (!has_adapters(block)) return Ok{};
  return trained_block(block).begin_gather(shards_[*trained(block)]);
}

Outcome FullySharded::finish_gather(size_t block) {
  if (blocks_[block]->gathering()) HP_TRY(blocks_[block]->finish_gather());
  if (has_adapters(block)) HP_TRY(trained_block(block).finish_gather());
  if (gathers_from_peers_) under_way_.waited_for();
  return Ok{};
}

void FullySharded::release(size_t block) {
  release_adapters(block);
  blocks_[block]->release();
  --gathered_;
  note(trace_, ScheduleEvent::kReleased, block);
}

void FullySharded::release_adapters(size_t block) {
  if (has_adapters(block) && trained_block(block).gathered()) trained_block(block).release();
}

// Between steps, what the optimizer writes.
void FullySharded::release_written() {
  for (size_t b = kEmbed; b <= head_; ++b) {
    release_adapters(b);
    if (frozen_ == nullptr && blocks_[b]->gathered()) release(b);
  }
}

void FullySharded::gather_anew() {
  HP_CHECK(micro_batches_left_ == 0);
  for (size_t b = kEmbed; b <= head_; ++b) {
    if (blocks_[b]->gathered()) release(b);
  }
}

// Waits for the block of the next use, whose gather the acquire() before has begun, and begins the
// gather of the one after that.
Outcome FullySharded::acquire() {
  const WaitTimer timer(wait_seconds_);
  const size_t block = uses_[next_use_];
  if (!last_part(block).gathered()) {
    if (!last_part(block).gathering()) HP_TRY(begin_gather(block));
    HP_TRY(finish_gather(block));
    note(trace_, ScheduleEvent::kGathered, block);
  }
  next_use_ = (next_use_ + 1) % uses_.size();
  if (next_use_ == 0 && micro_batches_left_ == 1) return Ok{};
  const size_t next = uses_[next_use_];
  if (!last_part(next).gathered()) HP_TRY(begin_gather(next));
  return Ok{};
}

Outcome FullySharded::reduce(size_t block) {
  const auto index = trained(block);
  if (!index) return Ok{};
  const WaitTimer timer(wait_seconds_);
  const Traced span(trace_, ScheduleEvent::kReduce, block);
  trained_block(block).detach_gradient();
  return reducer_.reduce(*index);
}

Outcome FullySharded::forward_backward(const at::Tensor& tokens, const at::Tensor& targets,
                                       double scale, const Documents& documents) {
  HP_CHECK(micro_batches_left_ > 0);
  documents_ = documents.on(device_.name());
  sequences_ = tokens.size(0);
  tokens_ = tokens.size(1);
  HP_TRY_ASSIGN(at::Tensor x, forward(compat::to_device(tokens, device_.name())));
  at::Tensor loss_sum;
  at::Tensor gradient;
  HP_TRY(backward_head(std::move(x), compat::to_device(targets, device_.name()), scale, loss_sum,
                       gradient));
  HP_TRY(backward_layers(gradient));
  if (trained(kEmbed)) {
    const Traced span(trace_, ScheduleEvent::kBackward, kEmbed);
    if (!tied_) HP_TRY(attach_gradient(kEmbed));
    HP_TRY(backward_embed(gradient));
  }
  embedded_ = at::Tensor();
  HP_TRY(reduce(kEmbed));
  {
    const WaitTimer timer(wait_seconds_);
    HP_TRY(reducer_.finish_micro_batch());
  }
  loss_sum_.add_(loss_sum);
  --micro_batches_left_;
  return Ok{};
}

void FullySharded::clear_sums() {
  device_.zero(reinterpret_cast<float*>(sums_.data()), sizeof(Sums) / sizeof(float));
}

Outcome FullySharded::settle() {
  std::vector<Communicator*> groups = {&comms_.shard(), &comms_.replicate(), &comms_.world()};
  if (rows_) groups.push_back(&comms_.along(MeshDim::kTp));
  for (Communicator* comm : groups) {
    HP_TRY(comm->settle());
    const std::optional<StreamTimes> times = comm->take_stream_times();
    if (!times) continue;
    if (!streams_) streams_.emplace();
    streams_->waiting += times->waiting;
    streams_->under_way += times->under_way;
  }
  return Ok{};
}

Result<at::Tensor> FullySharded::embed(const at::Tensor& tokens) {
  if (rows_) {
    EmbeddingTape& tape = embedding_.emplace(model_, *rows_, vocabulary_);
    HP_TRY_ASSIGN(const at::Tensor own, tape.forward(parameters(kEmbed), tokens, documents_));
    return own.set_requires_grad(true);
  }
  embedded_ = model_.embed(parameters(kEmbed), tokens, documents_);
  // The gradient of a frozen embedding's output is not needed.
  return embedded_.detach().set_requires_grad(trained(kEmbed).has_value());
}

Outcome FullySharded::backward_embed(const at::Tensor& gradient) {
  if (rows_) return embedding_->backward(gradient);
  compat::backward(embedded_, gradient);
  return Ok{};
}

Result<at::Tensor> FullySharded::forward_layer(size_t block, const at::Tensor& x) {
  if (offloaded_inputs_.leaves(block)) offloaded_inputs_.begin_leave(block, x);
  LayerTape& layer =
      layers_[block].emplace(model_, exchange(), sequences_, tokens_, documents_, keep_[block]);
  HP_TRY_ASSIGN(const at::Tensor y, layer.forward(parameters(block), x));
  if (offloaded_inputs_.leaves(block)) offloaded_inputs_.leave(x);
  return y.set_requires_grad(true);
}

// Returns the head's input, a leaf, and leaves gathered what the head needs.
Result<at::Tensor> FullySharded::forward(const at::Tensor& tokens) {
  at::Tensor x;
  for (size_t b = kEmbed; b < head_; ++b) {
    HP_TRY(acquire());
    {
      const Traced span(trace_, ScheduleEvent::kForward, b);
      if (b == kEmbed) {
        HP_TRY_ASSIGN(x, embed(tokens));
      } else {
        HP_TRY_ASSIGN(x, forward_layer(b, x));
      }
    }
    // The last layer is needed again as soon as the head is done.
    if (!sharding_.keep_parameters && b + 1 < head_) release(b);
  }
  if (tied_) HP_TRY(acquire());
  HP_TRY(acquire());
  return x;
}

Outcome FullySharded::backward_head(at::Tensor x, const at::Tensor& targets, double scale,
                                    at::Tensor& loss_sum, at::Tensor& gradient) {
  {
    const Traced span(trace_, ScheduleEvent::kBackward, head_);
    HP_TRY(attach_gradient(head_));
    if (tied_) HP_TRY(attach_gradient(kEmbed));
    if (rows_) {
      const std::vector<at::Tensor> all = head_parameters();
      const at::Tensor labels = targets.reshape({-1});
      const HeadCall call = {model_, *rows_, all, labels, vocabulary_, chunk_tokens_};
      HP_TRY_ASSIGN(const HeadResult result, hpctl::backward_head(call, x, scale));
      loss_sum = result.entropy;
      gradient = result.gradient;
    } else {
      loss_sum = backward_loss(x, targets, scale);
      gradient = x.grad();
    }
    x = at::Tensor();
  }
  if (!sharding_.keep_parameters) release(head_);
  if (!sharding_.keep_parameters && tied_) release(kEmbed);
  return reduce(head_);
}

std::vector<at::Tensor> FullySharded::head_parameters() const {
  std::vector<at::Tensor> all = blocks_[head_]->parameters();
  if (tied_) all.push_back(blocks_[kEmbed]->parameters().front());
  return all;
}

// Sum of the loss, in fp64, and gradient of the head, `chunk_tokens` rows of logits at a time.
at::Tensor FullySharded::backward_loss(const at::Tensor& x, const at::Tensor& targets,
                                       double scale) {
  const std::vector<at::Tensor> parameters = head_parameters();
  if (chunk_tokens_ == 0 || chunk_tokens_ >= targets.numel()) {
    const Model::Loss loss = model_.loss(model_.logits(parameters, x), targets);
    compat::backward(loss.objective * scale, {});
    return loss.entropy.detach().to(at::kDouble);
  }
  const at::Tensor rows = x.detach().view({-1, x.size(-1)});
  const at::Tensor labels = targets.reshape({-1});
  at::Tensor gradient = at::empty_like(rows);
  at::Tensor loss_sum = at::zeros({}, x.options().dtype(at::kDouble));
  for (int64_t first = 0; first < labels.numel(); first += chunk_tokens_) {
    const int64_t count = std::min(chunk_tokens_, labels.numel() - first);
    at::Tensor chunk = rows.narrow(0, first, count).detach().set_requires_grad(true);
    const Model::Loss loss =
        model_.loss(model_.logits(parameters, chunk), labels.narrow(0, first, count));
    compat::backward(loss.objective * scale, {});
    loss_sum.add_(loss.entropy.detach().to(at::kDouble));
    gradient.narrow(0, first, count).copy_(chunk.grad());
  }
  x.mutable_grad() = gradient.view(x.sizes());
  return loss_sum;
}

Result<at::Tensor> FullySharded::backward_layer(size_t block, const at::Tensor& gradient) {
  LayerTape& layer = *layers_[block];
  const at::Tensor input = layer.input();
  if (offloaded_inputs_.leaves(block)) offloaded_inputs_.finish_return(block, input);
  if (offloaded_inputs_.leaves(block - 1)) offloaded_inputs_.begin_return(block - 1);
  HP_TRY(layer.compute_again(parameters(block)));
  HP_TRY(attach_gradient(block));
  HP_TRY_ASSIGN(at::Tensor of_input, layer.backward(gradient));
  if (offloaded_inputs_.leaves(block)) offloaded_inputs_.forget(input);
  layers_[block].reset();
  return of_input;
}

// `gradient` enters as the gradient of the last layer's output and leaves as that for the first's
// input.
Outcome FullySharded::backward_layers(at::Tensor& gradient) {
  for (size_t b = head_ - 1; b > kEmbed; --b) {
    HP_TRY(acquire());
    {
      const Traced span(trace_, ScheduleEvent::kBackward, b);
      HP_TRY_ASSIGN(gradient, backward_layer(b, gradient));
    }
    if (!sharding_.keep_parameters) release(b);
    HP_TRY(reduce(b));
  }
  return Ok{};
}

}  // namespace hpctl
