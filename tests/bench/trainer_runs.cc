// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/trainer_runs.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/bench/figures.h"
#include "tests/bench/hptrain_rank.h"
#include "trainer/arch/registry.h"

namespace hpctl {

namespace {

constexpr const char* kTexts = "/usr/share/common-licenses";

// Deleted at the end of a run.
class Directory {
 public:
  Directory() { HP_CHECK(mkdtemp(path_.data()) != nullptr); }
  ~Directory() { static_cast<void>(remove_tree(path_)); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/hpctl-bench-XXXXXX";
};

Workload workload_for(const std::string& dir, int world_size) {
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
  w.train.data.path = kTexts;
  w.train.data.seq_len = kBenchTokens;
  w.train.batch.global = world_size;
  w.train.steps = kBenchSteps;
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
    run.data_ms = std::max(run.data_ms, m.value("data_ms", 0.0));
  }
  if (step_ms.empty()) return;  // it failed
  run.step_ms = testing::median(step_ms);
  run.comm_ms = testing::median(comm_ms);
}

void start_python(const std::string& python, const std::vector<std::string>& words) {
  std::vector<const char*> argv = {python.c_str()};
  for (const std::string& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execv(python.c_str(), const_cast<char**>(argv.data()));
  _exit(127);
}

void write_text(const std::string& path) {
  const auto names = list_directory(kTexts);
  HP_CHECK(names.ok());
  std::ofstream text(path);
  for (const std::string& name : *names) {
    const auto part = read_file(std::string(kTexts) + "/" + name);
    if (part.ok()) text << *part;
  }
}

}  // namespace

Run run_hptrain(const std::string& program, int world_size,
                const std::function<void(Workload&)>& change) {
  const Directory directory;
  Workload workload = workload_for(directory.path(), world_size);
  change(workload);
  std::vector<pid_t> ranks;
  for (workload.rank = 0; workload.rank < world_size; ++workload.rank) {
    ranks.push_back(start_rank(program, directory.path(), workload));
  }
  Run run;
  wait_for(ranks, run);
  read_metrics(workload.metrics_path, run);
  run.phases = phases(directory.path() + "/rank-0.log");
  return run;
}

Run run_python(const std::string& python, const std::string& script, int world_size,
               const std::vector<std::string>& arguments) {
  const Directory directory;
  std::vector<std::string> words = {script, directory.path() + "/text", directory.path()};
  write_text(words[1]);
  words.insert(words.end(), arguments.begin(), arguments.end());
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(20'000 + getpid() % 20'000 + world_size).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(world_size).c_str(), 1);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    HP_CHECK(pid >= 0);
    ranks.push_back(pid);
    if (pid != 0) continue;
    setenv("RANK", std::to_string(rank).c_str(), 1);
    start_python(python, words);
  }
  Run run;
  wait_for(ranks, run);
  read_metrics(directory.path() + "/metrics.jsonl", run);
  return run;
}

}  // namespace hpctl
