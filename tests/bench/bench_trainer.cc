// SPDX-License-Identifier: Apache-2.0
// hptrain alone, without controller and agent, beside PyTorch's DistributedDataParallel: how long a
// step takes at each strategy (debugmodel, 128 tokens, one sequence per worker and step), what full
// sharding takes of memory beside what it should, what steps of many tokens cost once their memory
// is there, what bf16 gains where the processor multiplies it, and where the time from exec to the
// first step goes.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/layout/block_layout.h"
#include "tests/bench/trainer_comparison.h"
#include "tests/bench/trainer_runs.h"
#include "trainer/arch/registry.h"
#include "trainer/kernels/level.h"
#include "trainer/process/pin_environment.h"

namespace hpctl {
namespace {

// PyTorch's side.
struct Peer {
  std::string scripts;  // the directory of ddp_llama.py; "" = there is none
  std::string python = "/usr/bin/python3";
};

// Each strategy beside the same model, batch, text and BLAS kernel under PyTorch's
// DistributedDataParallel.
bool compare_strategies(const std::string& program, const Peer& peer,
                        nlohmann::ordered_json& cases) {
  std::vector<Comparison> comparisons;
  for (const int workers : {1, 2, 4}) {
    Comparison comparison = {workers, kBenchTokens, 1, {}};
    const auto run_ddp = [peer, workers] {
      pin_environment();  // as hptrain does for itself
      return run_python(peer.python, peer.scripts + "/ddp_llama.py", workers,
                        {std::to_string(kBenchSteps)});
    };
    if (!peer.scripts.empty()) comparison.contestants.push_back({"ddp", run_ddp});
    for (const Strategy strategy : {Strategy::kFull, Strategy::kShardGradOp, Strategy::kNoShard}) {
      const auto run = [=] {
        return run_hptrain(program, workers, [&](Workload& w) { w.train.strategy = strategy; });
      };
      comparison.contestants.push_back({to_word(strategy), run});
    }
    comparisons.push_back(std::move(comparison));
  }
  return compare_in_turn(comparisons, cases);
}

// What full sharding should take of a rank's memory, in MiB, beyond a process with a tiny model and
// without activations: docs/benchmarks/trainer-cpu.md.
double planned_mib(const ModelSpec& model, int world_size) {
  double shards = 0;
  double largest = 0;
  for (const Block& block : model_layout(model)) {
    const auto capacity = static_cast<double>(shard_capacity(block.numel, world_size));
    shards += capacity;
    largest = std::max(largest, capacity);
  }
  const double state = 24 * shards;     // parameters and moments, two slots
  const double gradients = 4 * shards;  // and below, the shard of a later micro-batch
  const double save = 12 * shards;  // the slot beside the one from which a checkpoint is written
  // Two gathered blocks, two whole gradients, the receive space of a reduction; one worker uses its
  // shards in place.
  const double blocks =
      world_size == 1 ? 0.0 : (8.0 + 8.0 + 4.0) * largest * world_size + 4 * largest;
  return (state + gradients + save + blocks) / (1 << 20);
}

bool measure_memory(const std::string& program, int world_size, nlohmann::ordered_json& cases) {
  const auto shorten = [](Workload& w) {
    w.train.data.seq_len = 16;
    w.train.steps = 3;
    w.checkpoint.every_steps = 2;  // its slot is there from then on
  };
  const Run tiny = run_hptrain(program, world_size, [&](Workload& w) {
    shorten(w);
    w.train.model = *model_preset("tiny");
  });
  ModelSpec model = *model_preset("debugmodel");
  model.dim = 768;
  model.ffn = 2048;
  model.layers = 4;
  const Run run = run_hptrain(program, world_size, [&](Workload& w) {
    shorten(w);
    w.train.model = model;
  });
  const double measured = run.peak_mib - tiny.peak_mib;
  const double planned = planned_mib(model, world_size);
  std::printf("%7d memory of full sharding: planned %.0f MiB, measured %.0f MiB, ratio %.2f\n",
              world_size, planned, measured, measured / planned);
  cases.push_back({{"workers", world_size}, {"planned_mib", planned}, {"measured_mib", measured}});
  return tiny.good && run.good;
}

constexpr int64_t kManyTokens = 4096;

// Steps of so many sequences of `tokens` for each worker, in one pass.
std::function<void(Workload&)> many_tokens(Precision precision, int64_t tokens, int64_t sequences,
                                           int steps) {
  return [=](Workload& w) {
    w.train.precision = precision;
    w.train.data.seq_len = tokens;
    w.train.batch.global = sequences * w.world_size;
    w.train.batch.micro = sequences;
    w.train.steps = steps;
  };
}

// What a step of kManyTokens by two workers costs that is not among the first: the difference
// between a run of many steps and one of few. CPU time counts less of what else the machine does
// than wall clock.
bool measure_steady(const std::string& program, Precision precision, int64_t tokens,
                    nlohmann::ordered_json& cases) {
  constexpr int kWorkers = 2;
  constexpr int kFew = 4;
  constexpr int kMany = 16;
  const int64_t sequences = kManyTokens / tokens;
  const auto run_of = [&](int steps) {
    return run_hptrain(program, kWorkers,
                       many_tokens(precision, tokens, sequences / kWorkers, steps));
  };
  const Run few = run_of(kFew);
  const Run many = run_of(kMany);
  const double cpu_ms = (many.cpu_ms - few.cpu_ms) / (kMany - kFew);
  const double faults = (many.faults - few.faults) / (kMany - kFew);
  const double tokens_per_s = kManyTokens / many.step_ms * 1e3;
  std::printf(
      "%s %4ld tokens x %2ld: step %.0f ms, at most %.2f of it for data, %.0f tokens/s, of all "
      "workers %.0f ms CPU and %.0f page faults a step, peak %.0f MiB\n",
      to_word(precision), static_cast<long>(tokens), static_cast<long>(sequences), many.step_ms,
      many.data_ms, tokens_per_s, cpu_ms, faults, many.peak_mib);
  std::fflush(stdout);
  cases.push_back({{"precision", to_word(precision)},
                   {"tokens", tokens},
                   {"sequences", sequences},
                   {"step_ms", many.step_ms},
                   {"data_ms", many.data_ms},
                   {"tokens_per_s", tokens_per_s},
                   {"cpu_ms", cpu_ms},
                   {"page_faults", faults},
                   {"peak_mib", many.peak_mib}});
  return few.good && many.good;
}

constexpr std::array<int64_t, 3> kLengths = {128, 512, 1024};  // tokens of a sequence

bool measure_steady(const std::string& program, nlohmann::ordered_json& cases) {
  bool good = true;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int64_t tokens : kLengths) {
      good = measure_steady(program, precision, tokens, cases) && good;
    }
  }
  return good;
}

// What the long steps of a comparison have in common.
constexpr int kComparedWorkers = 2;
constexpr int kComparedSteps = 8;

// With kManyTokens for each worker.
Comparison steps_of(int64_t tokens) { return {kComparedWorkers, tokens, kManyTokens / tokens, {}}; }

Contestant trainer(const std::string& name, const std::string& program, Precision precision,
                   const Comparison& of) {
  const auto change = many_tokens(precision, of.tokens, of.sequences, kComparedSteps);
  return {name, [=] { return run_hptrain(program, kComparedWorkers, change); }};
}

bool compare_precisions(const std::string& program, nlohmann::ordered_json& cases) {
  if (bf16_products() != Bf16Products::kMatrixUnits) {
    std::printf("bf16 beside fp32: left out, as this process has no matrix units for bf16\n");
    return true;
  }
  std::vector<Comparison> comparisons;
  for (const int64_t tokens : kLengths) {
    Comparison comparison = steps_of(tokens);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      comparison.contestants.push_back(trainer(to_word(precision), program, precision, comparison));
    }
    comparisons.push_back(std::move(comparison));
  }
  return compare_in_turn(comparisons, cases);
}

// Each program beside PyTorch's FSDP2 as `python` has it. In fp32, as PyTorch's Gloo gathers no
// bf16 ("Invalid scalar type" in 2.14).
bool compare_fsdp2(const std::string& peers, const std::string& python,
                   const std::vector<std::string>& programs) {
  std::vector<Comparison> comparisons;
  for (const int64_t tokens : kLengths) {
    Comparison comparison = steps_of(tokens);
    const std::vector<std::string> words = {std::to_string(kComparedSteps), std::to_string(tokens),
                                            std::to_string(comparison.sequences)};
    const auto run_peer = [=] {
      return run_python(python, peers + "/fsdp2_llama.py", kComparedWorkers, words);
    };
    comparison.contestants.push_back({"fsdp2", run_peer});
    for (const std::string& program : programs) {
      comparison.contestants.push_back(
          trainer(program.substr(program.rfind('/') + 1), program, Precision::kFp32, comparison));
    }
    comparisons.push_back(std::move(comparison));
  }
  nlohmann::ordered_json cases;
  const bool good = compare_in_turn(comparisons, cases);
  std::printf("%s\n", nlohmann::ordered_json{{"bench", "fsdp2"}, {"cases", cases}}.dump().c_str());
  return good;
}

}  // namespace
}  // namespace hpctl

// bench_trainer [PEERS]: directory of ddp_llama.py, when PyTorch is there.
// bench_trainer --once TOKENS SEQUENCES STEPS [PRECISION]: one run of two workers, in fp32 where it
// is not given, for tests/bench/share.sh.
// bench_trainer --ddp PEERS [PYTHON HPTRAIN]: only steps of 128 tokens beside PyTorch's.
// bench_trainer --steady: only what a step of 4096 tokens costs.
// bench_trainer --precisions: only bf16 beside fp32.
// bench_trainer --fsdp2 PEERS PYTHON HPTRAIN...: these steps beside FSDP2 (tests/bench/fsdp2.sh).
int main(int argc, char** argv) {
  if (argc > 4 && std::strcmp(argv[1], "--fsdp2") == 0) {
    return hpctl::compare_fsdp2(argv[2], argv[3], {argv + 4, argv + argc}) ? 0 : 1;
  }
  nlohmann::ordered_json cases;
  if (argc == 5 && std::strcmp(argv[1], "--ddp") == 0) {
    const hpctl::Peer peer = {.scripts = argv[2], .python = argv[3]};
    return hpctl::compare_strategies(argv[4], peer, cases) ? 0 : 1;
  }
  const char* directory = std::getenv("HPCTL_BIN");
  if (directory == nullptr) {
    std::fprintf(stderr, "bench_trainer: set HPCTL_BIN to the directory of hptrain\n");
    return 2;
  }
  const std::string program = std::string(directory) + "/hptrain";
  if (argc > 4 && std::strcmp(argv[1], "--once") == 0) {
    const auto number = [&](int at) {
      return static_cast<int>(std::strtol(argv[at], nullptr, 10));
    };
    const auto precision = hpctl::from_word<hpctl::Precision>(argc > 5 ? argv[5] : "fp32");
    if (!precision) return 2;
    const auto change = hpctl::many_tokens(*precision, number(2), number(3), number(4));
    const hpctl::Run run = hpctl::run_hptrain(program, 2, change);
    std::printf("%s %d tokens x %d of each: step %.0f ms, %.0f tokens/s, peak %.0f MiB\n",
                to_word(*precision), number(2), number(3), run.step_ms,
                2e3 * number(2) * number(3) / run.step_ms, run.peak_mib);
    return run.good ? 0 : 1;
  }
  if (argc > 2 && std::strcmp(argv[1], "--ddp") == 0) {
    return hpctl::compare_strategies(program, {.scripts = argv[2]}, cases) ? 0 : 1;
  }
  if (argc > 1 && std::strcmp(argv[1], "--precisions") == 0) {
    return hpctl::compare_precisions(program, cases) ? 0 : 1;
  }
  bool good = hpctl::measure_steady(program, cases);
  if (argc > 1 && std::strcmp(argv[1], "--steady") == 0) return good ? 0 : 1;
  good = hpctl::compare_precisions(program, cases) && good;
  for (const int world_size : {1, 2, 4}) {
    good = hpctl::measure_memory(program, world_size, cases) && good;
  }
  good = hpctl::compare_strategies(program, {.scripts = argc > 1 ? argv[1] : ""}, cases) && good;
  const hpctl::Run start = hpctl::run_hptrain(program, 4, [](hpctl::Workload&) {});
  for (const auto& [phase, ms] : start.phases) {
    std::printf("start of 4 workers: %s done after %.0f ms\n", phase.c_str(), ms);
  }
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "trainer"}, {"cases", cases}}.dump().c_str());
  return good ? 0 : 1;
}
