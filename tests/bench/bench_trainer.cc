// SPDX-License-Identifier: Apache-2.0
// hptrain alone, without controller and agent, beside PyTorch's DistributedDataParallel: how long a
// step takes at each strategy (debugmodel, 128 tokens, one sequence per worker and step), what full
// sharding takes of memory beside what it should, what steps of many tokens cost once their memory
// is there, and where the time from exec to the first step goes.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/workload.h"
#include "tests/bench/hptrain_rank.h"
#include "trainer/arch/registry.h"
#include "trainer/parallel/block_layout.h"
#include "trainer/process/pin_environment.h"

namespace hpctl {
namespace {

constexpr int kSteps = 30;
constexpr double kTokens = 128;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Workload workload_for(const std::string& dir, int world_size, const std::string& precision) {
  Workload w;
  w.job = 1;
  w.name = "bench";
  w.generation = 1;
  w.world_size = w.workers_per_node = world_size;  // one machine
  w.rendezvous_dir = dir + "/rdzv";
  w.checkpoint_dir = dir + "/checkpoints";
  w.metrics_path = dir + "/metrics.jsonl";
  w.checkpoint.every_steps = 0;
  w.checkpoint.every_minutes = 0;
  w.train.model = *model_preset("debugmodel");
  w.train.data.path = "/usr/share/common-licenses";
  w.train.data.seq_len = static_cast<int64_t>(kTokens);
  w.train.batch.global = world_size;
  w.train.steps = kSteps;
  w.train.precision = *from_word<Precision>(precision);
  return w;
}

// Milliseconds after the start of each "timing: WHAT done X ms after start".
std::map<std::string, double> phases(const std::string& log) {
  const std::string label = "timing: ";
  std::map<std::string, double> found;
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(label);
    const size_t done = line.find(" done ");
    if (at == std::string::npos || done == std::string::npos) continue;
    const size_t begin = at + label.size();
    found[line.substr(begin, done - begin)] = std::strtod(line.c_str() + done + 6, nullptr);
  }
  return found;
}

// One run of hptrain or of the peer.
struct Run {
  bool good = true;
  double step_ms = 0;
  double comm_ms = 0;
  double peak_mib = 0;  // largest resident set of any rank
  double cpu_ms = 0;    // of all ranks from beginning to end, as are the page faults
  double faults = 0;    // that read nothing from a disk
  std::map<std::string, double> phases;

  double tokens_per_s(int world_size) const { return world_size * kTokens / step_ms * 1e3; }
};

double milliseconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
}

void wait_for(const std::vector<pid_t>& ranks, Run& run) {
  for (const pid_t pid : ranks) {
    int status = 0;
    rusage usage{};
    wait4(pid, &status, 0, &usage);
    run.good = run.good && status == 0;
    run.peak_mib = std::max(run.peak_mib, static_cast<double>(usage.ru_maxrss) / 1024);
    run.cpu_ms += milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
    run.faults += static_cast<double>(usage.ru_minflt);
  }
}

void read_metrics(const std::string& path, Run& run) {
  std::vector<double> step_ms;
  std::vector<double> comm_ms;
  std::ifstream metrics(path);
  for (std::string line; std::getline(metrics, line);) {
    const auto m = nlohmann::json::parse(line);
    if (m["step"] < 3) continue;  // the first steps touch their memory for the first time
    step_ms.push_back(m["step_ms"]);
    comm_ms.push_back(m.value("comm_ms", 0.0));
  }
  run.step_ms = median(step_ms);
  run.comm_ms = median(comm_ms);
}

// `change` adapts the workload of one sequence per worker and step.
Run run_hptrain(const std::string& program, int world_size,
                const std::function<void(Workload&)>& change) {
  std::string dir = "/tmp/hpctl-bench-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  Workload workload = workload_for(dir, world_size, "fp32");
  change(workload);
  std::vector<pid_t> ranks;
  for (workload.rank = 0; workload.rank < world_size; ++workload.rank) {
    ranks.push_back(start_rank(program, dir, workload));
  }
  Run run;
  wait_for(ranks, run);
  read_metrics(workload.metrics_path, run);
  run.phases = phases(dir + "/rank-0.log");
  static_cast<void>(remove_tree(dir));
  return run;
}

// The same model, batch, text and BLAS kernel under PyTorch's DistributedDataParallel.
Run run_ddp(const std::string& peers, int world_size) {
  std::string dir = "/tmp/hpctl-bench-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  std::string text;
  const auto names = list_directory("/usr/share/common-licenses");
  HP_CHECK(names.ok());
  for (const std::string& name : *names) {
    const auto part = read_file("/usr/share/common-licenses/" + name);
    if (part.ok()) text += *part;
  }
  std::ofstream(dir + "/text") << text;
  pin_environment();  // as hptrain does for itself
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(20'000 + getpid() % 20'000 + world_size).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(world_size).c_str(), 1);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    HP_CHECK(pid >= 0);
    ranks.push_back(pid);
    if (pid != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    const std::string script = peers + "/ddp_llama.py";
    execl("/usr/bin/python3", "/usr/bin/python3", script.c_str(), (dir + "/text").c_str(),
          dir.c_str(), std::to_string(kSteps).c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  Run run;
  wait_for(ranks, run);
  read_metrics(dir + "/metrics.jsonl", run);
  static_cast<void>(remove_tree(dir));
  return run;
}

nlohmann::ordered_json to_json(int world_size, const std::string& what, const Run& run) {
  return {{"workers", world_size},
          {"what", what},
          {"step_ms", run.step_ms},
          {"comm_ms", run.comm_ms},
          {"tokens_per_s", run.tokens_per_s(world_size)},
          {"peak_mib", run.peak_mib}};
}

// Strategies and the peer in turn, `rounds` times; medians of each and of the ratios.
bool compare(const std::string& program, const std::string& peers, int world_size,
             nlohmann::ordered_json& cases) {
  constexpr int kRounds = 3;
  const std::vector<std::string> strategies = {"full", "shard_grad_op", "no_shard"};
  std::map<std::string, std::vector<Run>> runs;
  bool good = true;
  for (int round = 0; round < kRounds; ++round) {
    for (const std::string& strategy : strategies) {
      runs[strategy].push_back(run_hptrain(program, world_size, [&](Workload& w) {
        w.train.strategy = *from_word<Strategy>(strategy);
      }));
      good = good && runs[strategy].back().good;
    }
    if (!peers.empty()) runs["ddp"].push_back(run_ddp(peers, world_size));
  }
  for (const auto& [what, all] : runs) {
    std::vector<double> step;
    std::vector<double> comm;
    std::vector<double> ratio;
    for (size_t i = 0; i < all.size(); ++i) {
      step.push_back(all[i].step_ms);
      comm.push_back(all[i].comm_ms);
      if (!peers.empty()) ratio.push_back(runs["ddp"][i].step_ms / all[i].step_ms);
    }
    Run middle = all.front();
    middle.step_ms = median(step);
    middle.comm_ms = median(comm);
    std::printf("%7d %-14s %9.1f %9.1f %9.0f %9.0f %8.2f\n", world_size, what.c_str(),
                middle.step_ms, middle.comm_ms, middle.tokens_per_s(world_size), middle.peak_mib,
                median(ratio));
    cases.push_back(to_json(world_size, what, middle));
    if (!ratio.empty()) cases.back()["times_ddp"] = median(ratio);
  }
  return good;
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
  const double save = 12 * shards;      // copy of what a checkpoint holds
  // Two gathered blocks, two whole gradients, the receive space of a reduction; one worker uses its
  // shards in place.
  const double blocks =
      world_size == 1 ? 0.0 : (8.0 + 8.0 + 4.0) * largest * world_size + 4 * largest;
  return (state + gradients + save + blocks) / (1 << 20);
}

bool measure_memory(const std::string& program, int world_size, nlohmann::ordered_json& cases) {
  const Run tiny = run_hptrain(program, world_size, [](Workload& w) {
    w.train.model = *model_preset("tiny");
    w.train.data.seq_len = 16;
    w.train.steps = 3;
  });
  ModelSpec model = *model_preset("debugmodel");
  model.dim = 768;
  model.ffn = 2048;
  model.layers = 4;
  const Run run = run_hptrain(program, world_size, [&](Workload& w) {
    w.train.model = model;
    w.train.data.seq_len = 16;
    w.train.steps = 3;
  });
  const double measured = run.peak_mib - tiny.peak_mib;
  const double planned = planned_mib(model, world_size);
  std::printf("%7d memory of full sharding: planned %.0f MiB, measured %.0f MiB, ratio %.2f\n",
              world_size, planned, measured, measured / planned);
  cases.push_back({{"workers", world_size}, {"planned_mib", planned}, {"measured_mib", measured}});
  return tiny.good && run.good;
}

// What a step of two workers costs that is not among the first: the difference between a run of
// many steps and one of few. CPU time counts less of what else the machine does than wall clock.
bool measure_steady(const std::string& program, Precision precision, int64_t tokens,
                    nlohmann::ordered_json& cases) {
  constexpr int kWorkers = 2;
  constexpr int kFew = 4;
  constexpr int kMany = 16;
  const int64_t sequences = 4096 / tokens;
  const auto run_of = [&](int steps) {
    return run_hptrain(program, kWorkers, [&](Workload& w) {
      w.train.precision = precision;
      w.train.data.seq_len = tokens;
      w.train.batch.global = sequences;
      w.train.batch.micro = sequences / kWorkers;
      w.train.steps = steps;
    });
  };
  const Run few = run_of(kFew);
  const Run many = run_of(kMany);
  const double cpu_ms = (many.cpu_ms - few.cpu_ms) / (kMany - kFew);
  const double faults = (many.faults - few.faults) / (kMany - kFew);
  const double tokens_per_s = static_cast<double>(tokens * sequences) / many.step_ms * 1e3;
  std::printf(
      "%s %4ld tokens x %2ld: step %.0f ms, %.0f tokens/s, of all workers %.0f ms CPU and %.0f "
      "page faults a step, peak %.0f MiB\n",
      to_word(precision), static_cast<long>(tokens), static_cast<long>(sequences), many.step_ms,
      tokens_per_s, cpu_ms, faults, many.peak_mib);
  std::fflush(stdout);
  cases.push_back({{"precision", to_word(precision)},
                   {"tokens", tokens},
                   {"sequences", sequences},
                   {"step_ms", many.step_ms},
                   {"tokens_per_s", tokens_per_s},
                   {"cpu_ms", cpu_ms},
                   {"page_faults", faults},
                   {"peak_mib", many.peak_mib}});
  return few.good && many.good;
}

// Shapes of 4096 tokens a step.
bool measure_steady(const std::string& program, nlohmann::ordered_json& cases) {
  bool good = true;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const int64_t tokens : {128, 512, 1024}) {
      good = measure_steady(program, precision, tokens, cases) && good;
    }
  }
  return good;
}

}  // namespace
}  // namespace hpctl

// bench_trainer [PEERS]: directory of ddp_llama.py, when PyTorch is there.
// bench_trainer --steady: only what a step of 4096 tokens costs.
int main(int argc, char** argv) {
  const char* directory = std::getenv("HPCTL_BIN");
  if (directory == nullptr) {
    std::fprintf(stderr, "bench_trainer: set HPCTL_BIN to the directory of hptrain\n");
    return 2;
  }
  const std::string program = std::string(directory) + "/hptrain";
  nlohmann::ordered_json cases;
  bool good = hpctl::measure_steady(program, cases);
  if (argc > 1 && std::strcmp(argv[1], "--steady") == 0) return good ? 0 : 1;
  for (const int world_size : {1, 2, 4}) {
    good = hpctl::measure_memory(program, world_size, cases) && good;
  }
  std::printf("%7s %-14s %9s %9s %9s %9s %8s\n", "workers", "what", "step ms", "comm ms",
              "tokens/s", "peak MiB", "x ddp");
  for (const int world_size : {1, 2, 4}) {
    good = hpctl::compare(program, argc > 1 ? argv[1] : "", world_size, cases) && good;
  }
  const hpctl::Run start = hpctl::run_hptrain(program, 4, [](hpctl::Workload&) {});
  for (const auto& [phase, ms] : start.phases) {
    std::printf("start of 4 workers: %s done after %.0f ms\n", phase.c_str(), ms);
  }
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "trainer"}, {"cases", cases}}.dump().c_str());
  return good ? 0 : 1;
}
