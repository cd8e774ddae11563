// SPDX-License-Identifier: Apache-2.0
// Small trainings as Generation does them, without files: the ranks are threads, the numbers of
// steps and tokens small enough for every strategy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "trainer/compat/torch_compat.h"
#include "trainer/parallel/fsdp.h"

namespace hpctl::test {

inline constexpr int64_t kSequences = 8;  // per step, over all ranks
inline constexpr int64_t kTokens = 16;
inline constexpr double kScale = 1.0 / (kSequences * kTokens);
inline constexpr double kClip = 0.5;  // below every gradient norm of these tests

// What a test varies; the defaults are plain full sharding.
struct Setting {
  int world_size = 1;
  int micros = 1;
  const char* strategy = "full";
  int64_t shard_group = 0;
  const char* checkpointing = "none";
  int64_t every = 2;
  int64_t chunk_tokens = 0;
  const char* reshard = "auto";
  at::ScalarType compute = at::kFloat;
  bool tied = false;
  bool documents = false;  // attention and positions end with some_positions()
  bool masked = false;     // targets are masked_targets()
  const char* preset = "tiny";
  double loss_scale = 1;
  int64_t tensor = 1;         // ranks that share each layer
  int64_t vocab = 0;          // 0 = the preset's
  int64_t lora_rank = 0;      // of adapters beside a frozen model; 0 = the model is trained
  bool evaluates = false;     // behind each step, its own sequences
  bool gathers_anew = false;  // nothing stays gathered from step to step
};

std::string name_of(const Setting& setting);
ModelSpec model_of(const Setting& setting);

// Tokens of a step's global batch, [kSequences, kTokens].
at::Tensor some_tokens(int64_t salt);
// The same as targets of which every third and all of one sequence are not counted.
at::Tensor masked_targets(int64_t salt);
// Documents of 1 to 9 tokens, other ones in every sequence.
at::Tensor some_positions();

// Whole blocks of floats, without padding.
using Blocks = std::vector<std::vector<float>>;

struct Training {
  std::vector<double> losses;  // mean over the global batch, per step
  std::vector<double> norms;
  std::vector<double> evaluations;    // loss of its own sequences behind each step, where asked for
  std::vector<uint64_t> collectives;  // of all ranks, that each step has begun, with its evaluation
  Blocks gradients;                   // of the last step
  Blocks parameters;                  // after it
  size_t peak_gathered_blocks = 0;
  std::vector<ScheduleTrace> traces;  // per rank, of the last step
};

Training train(const Setting& setting, int steps = 2);
// Of the defaults.
const Training& one_rank();

// Largest difference of any element, in units of the largest element of its tensor; the blocks are
// those that `setting` trains.
double worst_difference(const Blocks& a, const Blocks& b, const Setting& setting = {});
void expect_same_bits(const Training& a, const Training& b, const std::string& what);
// `a` is what came of `s`.
void expect_agreement(const Training& a, const Training& b, const Setting& s);

}  // namespace hpctl::test
