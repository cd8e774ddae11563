// SPDX-License-Identifier: Apache-2.0
// The training job that the integration tests run: a tiny Llama on the licences that every Debian
// system carries, two virtual nodes with two workers each.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/jobfile/job_yaml.h"

namespace hpctl::testing {

struct TrainingJob {
  std::string name = "tiny";
  int steps = 200;
  int checkpoint_every = 10;
  int keep = 3;
  int max_restarts = 50;
  int standbys = 1;
  std::string hang_timeout = "auto";
  std::string heartbeat_timeout = "2s";
  std::string precision = "fp32";
  std::string strategy = "full";
  std::string stability = "{}";
  std::string snapshot = "{}";  // recovery.snapshot
  std::string straggler = "warn";
  std::string nodes = "2";
  bool ledger = true;
  std::string verify_before_delete = "sample";
  std::string more = {};  // further lines

  std::string yaml() const {
    return "name: " + name +
           "\n"
           "nodes: " +
           nodes +
           "\n"
           "workers_per_node: 2\n"
           "workload:\n"
           "  train:\n"
           "    model: {preset: tiny}\n"
           "    data: {path: /usr/share/common-licenses/GPL-3, tokenizer: byte, seq_len: 32}\n"
           "    batch: {micro: 1, global: 8}\n"
           "    steps: " +
           std::to_string(steps) +
           "\n"
           "    seed: 7\n"
           "    optimizer: {lr: 1e-3}\n"
           "    schedule: {warmup_steps: 10}\n"
           "    precision: " +
           precision +
           "\n"
           "    parallelism: {strategy: " +
           strategy +
           "}\n"
           "    stability: " +
           stability +
           "\n"
           "checkpoint: {every_steps: " +
           std::to_string(checkpoint_every) + ", keep: " + std::to_string(keep) +
           ", verify_before_delete: " + verify_before_delete +
           "}\n"
           "recovery: {max_restarts: " +
           std::to_string(max_restarts) + ", hang_timeout: " + hang_timeout +
           ", heartbeat_timeout: " + heartbeat_timeout + ", snapshot: " + snapshot +
           ", straggler: " + straggler + ", standbys: " + std::to_string(standbys) +
           "}\n"
           "debug: {ledger: " +
           (ledger ? "true" : "false") + ", chaos: true}\n" + more;
  }
  JobSpec spec() const {
    const JobYaml parsed = parse_job_yaml(yaml(), "/");
    HP_CHECK(parsed.spec.has_value());
    return *parsed.spec;
  }
};

inline pid_t worker_pid(const nlohmann::json& status, int rank) {
  for (const auto& worker : status["workers"]) {
    if (worker["rank"] == rank && worker["state"] == "running") return worker["pid"].get<pid_t>();
  }
  return 0;
}

inline pid_t node_pid(const nlohmann::json& status, size_t node, const char* which) {
  return node < status["nodes"].size() ? status["nodes"][node][which].get<pid_t>() : 0;
}

// Ends a process of the job; pid 0 (not there at this moment) is left alone.
inline bool end_process(pid_t pid) { return pid > 1 && kill(pid, SIGKILL) == 0; }

}  // namespace hpctl::testing
