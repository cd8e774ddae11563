// SPDX-License-Identifier: Apache-2.0
// Sharded data parallelism with an explicit schedule, for every strategy of mesh.h. Each
// transformer block is one bucket of communication.
//
//   forward   embed, layers 0..L-1, head: gather, compute, release
//   backward  head and layer L-1 (still gathered), then layers L-2..0: gather, compute, release;
//             each block's gradient goes to the reducer; the embedding's needs no weights
//
// A tied embedding is gathered once more for the head. The head's part of its gradient waits in the
// whole gradient of the embedding for the embedding's own part.
//
// Strategies that keep parameters gather each block once a step, in the first forward pass, and
// release it when the next step begins.
//
// The autograd graph is cut between blocks (detached inputs, one backward call per block), and the
// caller's thread makes all collectives between those calls: a failed one unwinds through plain
// returns. The next gather is begun before a block computes, and a reduction goes on while the next
// block computes, so both overlap computation. The order of collectives is the same on all ranks.
//
// Each layer of a micro-batch runs on a tape (layer_tape.h), which keeps what its backward pass
// needs. A layer whose activations are not kept (memory.activation_checkpointing) runs forward
// without a graph, and once more with one when its backward turn comes: the same operations on the
// same bytes, so the same bits. Its input may wait in host memory (offloaded_inputs.h). With
// `operations` every layer keeps its graph, but not what cheap operations put into it
// (arch/recomputed.h).
//
// With tensor parallelism a rank's blocks have parts of the model's tensors, and tapes make the
// exchanges between tp ranks (layer_tape.h, vocabulary_tape.h). Tensors of which several ranks have
// a copy get the sum of their gradients once a step, after the reduction over data
// (copied_gradients.h).
//
// With a frozen model the trained blocks are the adapters of its layers (arch/lora.h). Using a
// layer gathers both its blocks, gradients are computed and reduced only for adapters, and the
// backward pass ends at the first layer's adapters. A frozen block is never written, so if
// parameters are kept, it stays gathered from step to step and through evaluations, in the buffers
// that a step needs for it anyway: only its first use gathers it, and the first one after
// gather_anew().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/layout/block_layout.h"
#include "common/layout/local_layout.h"
#include "common/layout/sharding.h"
#include "trainer/arch/model.h"
#include "trainer/comm/mesh_communicators.h"
#include "trainer/parallel/buffer_pool.h"
#include "trainer/parallel/comm_timer.h"
#include "trainer/parallel/communicator_rows.h"
#include "trainer/parallel/gradient_reducer.h"
#include "trainer/parallel/layer_tape.h"
#include "trainer/parallel/offloaded_inputs.h"
#include "trainer/parallel/schedule_trace.h"
#include "trainer/parallel/sharded_block.h"
#include "trainer/parallel/vocabulary_tape.h"

namespace hpctl {

// The frozen parameters: a model's blocks, and this rank's shard of each. The values never change.
struct FrozenModel {
  std::vector<Block> blocks;
  WeightShards shards;
};

// For ShardedBlock::attach_gradient(): the weights of a block, which are matrices that are not
// looked up. With `tied` the block's first tensor is a tied embedding, which is the head's weight
// before its own gradient comes.
std::vector<bool> weights_of_products(const Block& block, const ModelSpec& model, bool tied);

class FullySharded {
 public:
  // `blocks` is what is trained: the layout of the model, or this rank's part of it, or with
  // `frozen`, one block of adapters for each of its layers. `blocks`, the communicators, the
  // device, on which the model computes, and `frozen` outlive it. A mesh with tp has no frozen
  // model.
  FullySharded(const Model& model, const std::vector<Block>& blocks, MeshCommunicators& comms,
               const TrainSpec& train, const Sharding& sharding, at::ScalarType compute,
               Device& device = host_device(), const FrozenModel* frozen = nullptr);

  // Begins a step of `micro_batches` calls of forward_backward; `shards[b]` is this rank's shard of
  // the weights of trained block b, which does not change until the next begin_step.
  void begin_step(WeightShards shards, int micro_batches);

  // One micro-batch: tokens and targets [B, T] int64. Adds the gradient of the objective * scale.
  // On a GPU it returns before that is done.
  Outcome forward_backward(const at::Tensor& tokens, const at::Tensor& targets, double scale,
                           const Documents& documents = {});

  // The sums of this rank and step.
  struct Sums {
    // The cross entropy, over all micro-batches; the same number on all ranks of tp.
    double loss = 0;
    // Its part of the squared norm of the whole gradient: the sum over ranks is the square of the
    // global norm. Replicas hold the same gradients, so the first one's count.
    double gradient_squares = 0;
  };
  // After the step's last micro-batch. The one place of a step where the host waits for a GPU: for
  // the collectives first, which may never end.
  Result<Sums> finish_step();

  // Between two steps: of what was gathered so far nothing is used any more, frozen blocks
  // included. For who has reason to doubt it: on every rank alike, since it changes the
  // collectives.
  void gather_anew();

  // Between two steps: what evaluate() works with, until the next begin_step.
  void begin_evaluation(WeightShards shards);
  // The cross entropy of one micro-batch, without gradients, which is added up where it `counts`.
  // On a GPU it returns before that is done. All ranks meet in it, whatever the strategy:
  // collectives are their sign of life.
  Outcome evaluate(const at::Tensor& tokens, const at::Tensor& targets, const Documents& documents,
                   bool counts);
  // This rank's sum since begin_evaluation(). Here an evaluation makes the host wait for a GPU, and
  // otherwise only once every kUnsettledEvaluations micro-batches.
  Result<double> finish_evaluation();
  // Work queued on a GPU has events, and nothing bounds a part's length.
  static constexpr int kUnsettledEvaluations = 256;

  // After the step's last micro-batch: this rank's shard of trained block b's gradient, summed over
  // micro-batches and all ranks.
  const float* gradient(size_t block) const { return reducer_.shard(block); }
  int64_t gradient_elements(size_t block) const { return reducer_.shard_elements(block); }

  // Blocks of the model whose gathered parameters were in memory at the same time, at most, so far.
  size_t peak_gathered_blocks() const { return peak_gathered_; }

  // After finish_step(): seconds this rank has waited for collectives since begin_step: this
  // thread, or, where streams wait, computation on the device.
  double wait_seconds() const;
  // Seconds since begin_step in which at least one collective was in flight; 0 with one rank. If
  // streams wait, collectives of several groups count each.
  double communication_seconds() const {
    return streams_ ? streams_->under_way : under_way_.seconds();
  }

  // What it returns is computed, and not only queued on a device.
  bool computes_on_host() const { return device_.is_host(); }

  // Records what happens from now on, null = nothing; not owned.
  void set_trace(ScheduleTrace* trace) { trace_ = trace; }

 private:
  // For a block of the model: its trained block, or the block of its adapters; nullopt if it is
  // frozen.
  std::optional<size_t> trained(size_t block) const;
  ShardedBlock& trained_block(size_t block) {
    return frozen_ == nullptr ? *blocks_[block] : *adapters_[block - 1];
  }
  // Those of the model's block and its adapters.
  std::vector<at::Tensor> parameters(size_t block) const;
  void add_blocks(const std::vector<Block>& blocks, at::ScalarType compute);
  Outcome attach_gradient(size_t block);
  bool has_adapters(size_t block) const { return frozen_ != nullptr && trained(block).has_value(); }
  // The last-gathered part of a block of the model: its adapters, or itself.
  const ShardedBlock& last_part(size_t block) const {
    return has_adapters(block) ? *adapters_[block - 1] : *blocks_[block];
  }
  Outcome acquire();
  Outcome gather(size_t block);
  Outcome begin_gather(size_t block);
  Outcome finish_gather(size_t block);
  void release(size_t block);
  void release_adapters(size_t block);
  void release_written();
  RowExchange* exchange() { return rows_ ? &*rows_ : nullptr; }
  std::vector<at::Tensor> head_parameters() const;
  Result<at::Tensor> embed(const at::Tensor& tokens);
  Result<at::Tensor> forward_layer(size_t block, const at::Tensor& x);
  Result<at::Tensor> forward(const at::Tensor& tokens);
  Outcome backward_head(at::Tensor x, const at::Tensor& targets, double scale, at::Tensor& loss_sum,
                        at::Tensor& gradient);
  Outcome backward_embed(const at::Tensor& gradient);
  at::Tensor backward_loss(const at::Tensor& x, const at::Tensor& targets, double scale);
  Result<at::Tensor> evaluate_block(size_t block, const at::Tensor& x);
  Result<at::Tensor> evaluate_loss(const at::Tensor& x, const at::Tensor& labels);
  Result<at::Tensor> backward_layer(size_t block, const at::Tensor& gradient);
  Outcome backward_layers(at::Tensor& gradient);
  Outcome reduce(size_t block);
  ElementRange shard_of(size_t block) const;
  Outcome sum_gradients_of_copies();
  std::vector<std::span<const float>> counted_gradients() const;
  Outcome meet();
  void clear_sums();
  Outcome settle();

  const Model& model_;
  MeshCommunicators& comms_;
  Device& device_;
  Sharding sharding_;
  bool first_replica_;
  int64_t shard_rank_;
  int64_t chunk_tokens_;
  bool tied_;                  // the head uses the embedding's weight
  size_t head_;                // index of the last block
  const FrozenModel* frozen_;  // null: the model is trained
  std::vector<std::unique_ptr<BufferPool>> parameter_buffers_;  // one, or one per kept block
  std::vector<std::unique_ptr<ShardedBlock>> blocks_;           // of the model
  std::vector<std::unique_ptr<ShardedBlock>> adapters_;         // of layer i; with frozen_
  bool gathers_from_peers_;
  std::vector<std::vector<bool>> products_;  // by trained block, as ShardedBlock::attach_gradient()
  CommTimer under_way_;
  GradientReducer reducer_;
  std::vector<Keep> keep_;                // per block of the model
  std::optional<CommunicatorRows> rows_;  // none with one rank of tp
  std::vector<LocalBlock> local_;         // with rows_: of `blocks`
  int64_t vocabulary_;                    // of the whole model
  OffloadedInputs offloaded_inputs_;
  WeightShards shards_;
  DeviceArray<double> sums_;                      // Sums, on the device
  at::Tensor loss_sum_;                           // its first number
  DeviceArray<float> marks_;                      // a number of each rank: what meet() gathers
  Documents documents_;                           // of the micro-batch under way
  int64_t sequences_ = 0;                         // likewise
  int64_t tokens_ = 0;                            // of each of them
  at::Tensor embedded_;                           // with its graph; without rows_
  std::optional<EmbeddingTape> embedding_;        // with them
  std::vector<std::optional<LayerTape>> layers_;  // by block
  std::vector<size_t> uses_;  // blocks in the order in which a micro-batch needs them
  size_t next_use_ = 0;       // index in uses_ of the next acquire()
  int micro_batches_left_ = 0;
  int unsettled_evaluations_ = 0;
  size_t gathered_ = 0;
  size_t peak_gathered_ = 0;
  double wait_seconds_ = 0;
  double rows_waited_ = 0;              // by rows_ before begin_step
  std::optional<StreamTimes> streams_;  // since begin_step; where streams wait
  ScheduleTrace* trace_ = nullptr;
};

}  // namespace hpctl
