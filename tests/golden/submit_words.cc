// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/submit_words.h"

#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {

namespace {

void set_limit(Limits& limits, const std::string& name, int64_t ms) {
  for (const LimitKey& key : kLimitKeys) {
    if (key.name == name) limits.*key.ms = ms;
  }
}

}  // namespace

JobSubmitted read_submit(const Words& words) {
  JobSpec spec = small_job("demo");
  Backend backend;
  int64_t uid = 1000;
  int64_t global = 0;
  int64_t group = 0;
  bool no_shard = false;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& key = words[i];
    if (key == "command") spec = small_job("demo", true);
    if (key == "nodes") spec.nodes = static_cast<int32_t>(number(words, ++i));
    if (key == "workers") spec.workers_per_node = static_cast<int32_t>(number(words, ++i));
    if (key == "resume") spec.checkpoint.resume = words.at(++i);
    if (key == "max-restarts") spec.recovery.max_restarts = number(words, ++i);
    if (key == "hang-s") spec.recovery.hang_timeout_ms = number(words, ++i) * 1000;
    if (key == "window-s") spec.recovery.window_ms = number(words, ++i) * 1000;
    if (key == "uid") uid = number(words, ++i);
    if (key == "spares") spec.spares = static_cast<int32_t>(number(words, ++i));
    if (key == "min") spec.min_nodes = static_cast<int32_t>(number(words, ++i));
    if (key == "global") global = number(words, ++i);
    if (key == "group") group = number(words, ++i);
    if (key == "on-loss") spec.recovery.on_node_loss = split_at_commas(words.at(++i));
    if (key == "limit") set_limit(spec.limits, words.at(i + 1), number(words, i + 2));
    if (key == "limit") i += 2;
    if (key == "cluster") backend.limits = cluster_limits(false);
    if (key == "container") backend.limits = cluster_limits(true);
    if (key == "requeues") backend.requeues = true;
    if (key == "requeue-at-limit") spec.slurm.requeue_at_limit = true;
    if (key == "replaces") backend.replaces = true;
    if (key == "chaos") {
      spec.chaos = true;
      spec.recovery.snapshot.replicas = 0;  // so that a checkpoint is of use
    }
    if (key == "no-shard") no_shard = true;
    if (key == "mirror") spec.checkpoint.mirror.dir = "/mirror";
    if (key == "straggler") spec.recovery.straggler = *from_word<StragglerPolicy>(words.at(++i));
  }
  if (spec.train) spec.train->batch.global = global == 0 ? spec.world_size() : global;
  if (spec.train && group > 0) spec.train->strategy = Strategy::kHybrid;
  if (spec.train && no_shard) spec.train->strategy = Strategy::kNoShard;
  if (spec.train) spec.train->shard_group = group;
  return {spec, static_cast<uint32_t>(uid), "", {}, {}, backend};
}

}  // namespace hpctl::core
