// SPDX-License-Identifier: Apache-2.0
#include "common/worker/workload.h"

#include <algorithm>

#include "common/base/bounded_json.h"
#include "common/base/json_text.h"
#include "common/job/job_spec_json.h"

namespace hpctl {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Workload, job, name, generation, parent_generation, rank,
                                   local_rank, world_size, node, rendezvous_dir, bind_address,
                                   resume_checkpoint, start_step, checkpoint_dir, ledger_dir,
                                   metrics_path, checkpoint, train)

bool is_refilled(const Workload& workload, int32_t rank) {
  return std::binary_search(workload.refilled.begin(), workload.refilled.end(), rank);
}

std::string to_json_text(const Workload& workload) {
  nlohmann::json document = workload;
  document["workers_per_node"] = workload.workers_per_node;
  document["snapshot"] = workload.snapshot;
  document["storage_limit_ms"] = workload.storage_limit_ms;
  document["last_checkpoint_ms"] = workload.last_checkpoint_ms;
  document["claimed"] = workload.claimed;
  if (!workload.owner.empty()) document["owner"] = workload.owner;
  if (workload.from_memory) {
    document["from_memory"] = true;
    document["refilled"] = workload.refilled;
    document["former_parts"] = workload.former_parts;
    document["durable_step"] = workload.durable_step;
    document["is_last"] = workload.is_last;
  }
  return json_text(document);
}

Result<Workload> workload_from_json(const std::string& text) {
  nlohmann::json document;
  try {
    document = parse_json(text);
    auto workload = document.get<Workload>();
    // If another program writes it, as under srun --auto-resume: all ranks count as one node's.
    workload.workers_per_node = document.value("workers_per_node", workload.world_size);
    workload.snapshot = document.value("snapshot", SnapshotSpec{});
    workload.storage_limit_ms = document.value("storage_limit_ms", workload.storage_limit_ms);
    workload.last_checkpoint_ms = document.value("last_checkpoint_ms", workload.last_checkpoint_ms);
    workload.claimed = document.value("claimed", false);
    workload.owner = document.value("owner", "");
    workload.from_memory = document.value("from_memory", false);
    workload.refilled = document.value("refilled", std::vector<int32_t>{});
    workload.former_parts = document.value("former_parts", 0);
    workload.durable_step = document.value("durable_step", uint64_t{0});
    workload.is_last = document.value("is_last", false);
    return workload;
  } catch (const nlohmann::json::exception& e) {
    return Error{ErrorCode::kInvalidArgument,
                 "not a workload document: " + problem_in(document, e)};
  }
}

}  // namespace hpctl
