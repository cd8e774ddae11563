// SPDX-License-Identifier: Apache-2.0
// The degrees of a mesh: which of them a model and a number of workers can be divided by, and which
// of those this version trains with.
#include <cstdint>
#include <string>

#include "common/base/divisors.h"
#include "common/job/spec_checks.h"
#include "common/job/train_spec.h"

namespace hpctl {

namespace {

// A rank of cp has two chunks of a sequence, and chunks are whole blocks of attention.
constexpr int64_t kContextBlock = 64;

class DegreeChecks {
 public:
  DegreeChecks(const TrainSpec& train, WorkerCounts workers, SpecChecks& checks)
      : train_(train), degrees_(train.degrees), workers_(workers), checks_(checks) {}

  void run() {
    const bool in_range = degrees_.pipeline >= 1 && degrees_.context >= 1 && degrees_.tensor >= 1 &&
                          degrees_.expert >= 1;
    // Without a preset that is known there is no model.
    if (!in_range || train_.model.layers < 1 || train_.model.heads < 1) return;
    const bool fits =
        check_tensor() && check_pipeline() && check_context() && check_expert() && check_world();
    if (!fits) return;
    check_known("pipeline", degrees_.pipeline);
    check_known("context", degrees_.context);
    if (degrees_.tensor > 1) check_tensor_engine();
  }

 private:
  static std::string key(const std::string& dimension) {
    return "workload.train.parallelism." + dimension + "_parallel_degree";
  }

  bool divides(const std::string& dimension, int64_t degree, const std::string& what,
               int64_t number) {
    if (number < 1 || number % degree == 0) return true;
    return checks_.fail(key(dimension), "expected a divisor of " + what + " (" +
                                            std::to_string(number) + "), found " +
                                            std::to_string(degree) +
                                            nearest_divisors(number, degree));
  }

  bool check_tensor() {
    const ModelSpec& model = train_.model;
    const int64_t degree = degrees_.tensor;
    if (!divides("tensor", degree, "model.heads", model.heads) ||
        !divides("tensor", degree, "model.ffn", model.ffn)) {
      return false;
    }
    // Where there are fewer key heads, neighbours share one.
    if (model.kv_heads >= 1 && degree % model.kv_heads != 0 &&
        !divides("tensor", degree, "model.kv_heads", model.kv_heads)) {
      return false;
    }
    // Parts of a vocabulary may differ, but none is empty.
    if (model.vocab < 1 || degree <= model.vocab) return true;
    return checks_.fail(key("tensor"), "expected at most model.vocab (" +
                                           std::to_string(model.vocab) + "), found " +
                                           std::to_string(degree));
  }

  // What tensor parallelism is not combined with yet.
  void check_tensor_engine() {
    const auto refuse = [&](bool found, const std::string& what) {
      if (!found) return;
      checks_.fail(key("tensor"),
                   "expected 1 with " + what +
                       ", which is not combined with tensor parallelism yet; found " +
                       std::to_string(degrees_.tensor));
    };
    refuse(train_.model.arch == Arch::gpt, "model.arch gpt");
    refuse(train_.precision != Precision::kFp32,
           std::string("precision ") + to_word(train_.precision));
    refuse(train_.lora.on(), "lora");
    refuse(train_.strategy == Strategy::kHybrid, "parallelism.strategy hybrid");
    refuse(!train_.memory.offload.empty(), "memory.offload");
    refuse(workers_.has_gpus, "GPUs (slurm.gres)");
    refuse(workers_.is_auto, "workers_per_node auto");
    // Its ranks exchange rows several times in a layer, so they are on one node.
    if (workers_.per_node > 0) {
      divides("tensor", degrees_.tensor, "workers_per_node", workers_.per_node);
    }
  }

  bool check_pipeline() {
    const int64_t layers = train_.model.layers;
    if (degrees_.pipeline <= layers) return true;
    return checks_.fail(key("pipeline"), "expected at most model.layers (" +
                                             std::to_string(layers) + "), found " +
                                             std::to_string(degrees_.pipeline));
  }

  bool check_context() {
    const int64_t block = 2 * degrees_.context * kContextBlock;
    if (degrees_.context == 1 || train_.data.seq_len % block == 0) return true;
    return checks_.fail(key("context"),
                        "expected data.seq_len (" + std::to_string(train_.data.seq_len) +
                            ") to be a multiple of 2 x 64 x this degree (" + std::to_string(block) +
                            "), found degree " + std::to_string(degrees_.context));
  }

  bool check_expert() {
    if (degrees_.expert == 1) return true;
    return checks_.fail(key("expert"), std::string("expected 1: arch ") +
                                           to_word(train_.model.arch) + " has no experts; found " +
                                           std::to_string(degrees_.expert));
  }

  bool check_world() {
    const int64_t unit = degrees_.unit();
    const int64_t world_size = workers_.world_size;
    if (world_size < 1 || world_size % unit == 0) return true;
    const char* given = "tensor";
    if (degrees_.tensor == 1) given = degrees_.pipeline > 1 ? "pipeline" : "context";
    return checks_.fail(key(given),
                        "expected pipeline x context x tensor degree (" + std::to_string(unit) +
                            ") to divide nodes x workers_per_node (" + std::to_string(world_size) +
                            ")" + nearest_divisors(world_size, unit));
  }

  void check_known(const std::string& dimension, int64_t degree) {
    if (degree == 1) return;
    checks_.fail(key(dimension), "expected 1: the built-in trainer has no " + dimension +
                                     " parallelism yet; found " + std::to_string(degree) +
                                     "; a program that has it runs as workload.command");
  }

  const TrainSpec& train_;
  const DegreesSpec& degrees_;
  WorkerCounts workers_;
  SpecChecks& checks_;
};

}  // namespace

void check_degrees(const TrainSpec& train, WorkerCounts workers, SpecChecks& checks) {
  DegreeChecks(train, workers, checks).run();
}

}  // namespace hpctl
