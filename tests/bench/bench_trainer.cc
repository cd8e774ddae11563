// SPDX-License-Identifier: Apache-2.0
// hptrain alone, without controller and agent: how long a step takes and where the time from exec
// to the first step goes. Model debugmodel, 128 tokens, 4 sequences per step.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/workload.h"

namespace hpctl {
namespace {

constexpr int kSteps = 20;

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
  w.world_size = world_size;
  w.rendezvous_dir = dir + "/rdzv";
  w.checkpoint_dir = dir + "/checkpoints";
  w.metrics_path = dir + "/metrics.jsonl";
  w.checkpoint.every_steps = 0;
  w.checkpoint.every_minutes = 0;
  w.train.model = *model_preset("debugmodel");
  w.train.data.path = "/usr/share/common-licenses";
  w.train.data.seq_len = 128;
  w.train.batch.global = 4;
  w.train.steps = kSteps;
  w.train.precision = precision;
  return w;
}

pid_t start_rank(const std::string& program, const std::string& dir, const Workload& workload) {
  const std::string base = dir + "/rank-" + std::to_string(workload.rank);
  const std::string document = base + ".json";
  const std::string log = base + ".log";
  std::ofstream(document) << to_json_text(workload);
  const pid_t pid = fork();
  HP_CHECK(pid >= 0);
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  dup2(fd, STDERR_FILENO);
  execl(program.c_str(), "hptrain", "--workload", document.c_str(), static_cast<char*>(nullptr));
  _exit(127);
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

bool run_case(const std::string& program, int world_size, const std::string& precision,
              nlohmann::ordered_json& cases) {
  std::string dir = "/tmp/hpctl-bench-XXXXXX";
  HP_CHECK(mkdtemp(dir.data()) != nullptr);
  Workload workload = workload_for(dir, world_size, precision);
  std::vector<pid_t> ranks;
  for (workload.rank = 0; workload.rank < world_size; ++workload.rank) {
    ranks.push_back(start_rank(program, dir, workload));
  }
  bool good = true;
  for (const pid_t pid : ranks) {
    int status = 0;
    waitpid(pid, &status, 0);
    good = good && status == 0;
  }
  std::vector<double> step_ms;
  std::vector<double> comm_ms;
  std::ifstream metrics(workload.metrics_path);
  for (std::string line; std::getline(metrics, line);) {
    const auto m = nlohmann::json::parse(line);
    if (m["step"] < 3) continue;  // the first steps touch their memory for the first time
    step_ms.push_back(m["step_ms"]);
    comm_ms.push_back(m["comm_ms"]);
  }
  auto at = phases(dir + "/rank-0.log");
  const double step = median(step_ms);
  std::printf("%7d %9s %9.1f %9.1f %9.0f | %7.0f %6.0f %6.0f %6.0f %8.0f\n", world_size,
              precision.c_str(), step, median(comm_ms), 4 * 128 / step * 1e3, at["data"],
              at["rendezvous"] - at["data"], at["load"] - at["rendezvous"],
              at["first step"] - at["load"], at["first step"]);
  cases.push_back({{"workers", world_size},
                   {"precision", precision},
                   {"step_ms", step},
                   {"comm_ms", median(comm_ms)},
                   {"start_to_data_ms", at["data"]},
                   {"start_to_first_step_ms", at["first step"]}});
  static_cast<void>(remove_tree(dir));
  return good;
}

}  // namespace
}  // namespace hpctl

int main() {
  const char* directory = std::getenv("HPCTL_BIN");
  if (directory == nullptr) {
    std::fprintf(stderr, "bench_trainer: set HPCTL_BIN to the directory of hptrain\n");
    return 2;
  }
  const std::string program = std::string(directory) + "/hptrain";
  std::printf("%7s %9s %9s %9s %9s | %7s %6s %6s %6s %8s   (milliseconds)\n", "workers",
              "precision", "step", "comm", "tokens/s", "libs", "meet", "load", "step 1", "total");
  bool good = true;
  nlohmann::ordered_json cases;
  for (const int world_size : {1, 2, 4}) {
    for (const char* precision : {"fp32", "bf16"}) {
      good = hpctl::run_case(program, world_size, precision, cases) && good;
    }
  }
  std::printf("%s\n",
              nlohmann::ordered_json{{"bench", "trainer"}, {"cases", cases}}.dump().c_str());
  return good ? 0 : 1;
}
