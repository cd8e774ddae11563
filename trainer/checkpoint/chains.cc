// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/chains.h"

#include <algorithm>

namespace hpctl {

std::string job_of(const GenerationRecord& record) {
  return "job " + std::to_string(record.job) + " \"" + record.job_name + "\"";
}

std::vector<CheckpointChain> find_chains(const std::vector<GenerationRecord>& records) {
  std::vector<CheckpointChain> chains;
  std::set<uint64_t> known = find_withdrawn(records);  // no checkpoint is of these
  for (auto it = records.rbegin(); it != records.rend(); ++it) {
    if (known.contains(it->generation)) continue;
    CheckpointChain chain{chain_of(records, it->generation), {}};
    for (const GenerationRecord& record : chain.records) {
      if (known.insert(record.generation).second) chain.generations.insert(record.generation);
    }
    chains.push_back(std::move(chain));
  }
  return chains;
}

const CheckpointChain* find_chain_of(const std::vector<CheckpointChain>& chains,
                                     uint64_t generation) {
  const auto found = std::find_if(chains.begin(), chains.end(), [&](const CheckpointChain& chain) {
    return chain.generations.contains(generation);
  });
  return found == chains.end() ? nullptr : &*found;
}

Result<const CheckpointChain*> find_chain(const std::vector<CheckpointChain>& chains,
                                          uint64_t number) {
  std::string there;
  for (const CheckpointChain& chain : chains) {
    if (chain.number() == number) return &chain;
    there += (there.empty() ? "" : ", ") + std::to_string(chain.number());
  }
  return Error{ErrorCode::kNotFound,
               "there is no chain " + std::to_string(number) +
                   (there.empty() ? "; no generation is recorded there" : "; chains: " + there)};
}

Result<GenerationRecord> adopt_chain(const std::string& checkpoint_dir, uint64_t number,
                                     const std::string& reason, int64_t wall_ms) {
  HP_TRY_ASSIGN(const auto records, read_lineage(checkpoint_dir));
  const auto chains = find_chains(records);
  HP_TRY_ASSIGN(const CheckpointChain* const chain, find_chain(chains, number));
  if (chain == &chains.front()) {
    return Error{ErrorCode::kFailedPrecondition,
                 "chain " + std::to_string(number) +
                     " is the newest one; jobs with "
                     "checkpoint.resume: latest continue it already"};
  }
  HP_TRY_ASSIGN(const auto latest, latest_on_chain(checkpoint_dir, chain->records, {}));
  if (!latest) {
    return Error{ErrorCode::kNotFound, "chain " + std::to_string(number) + " in " + checkpoint_dir +
                                           " has no valid checkpoint to resume from"};
  }
  GenerationRecord record = chain->newest();
  record.generation = records.back().generation + 1;
  record.parent = number;
  record.start_step = latest->step;
  record.checkpoint = latest->name();
  record.from_memory = false;
  record.reason = reason;
  record.order.clear();
  record.withdrawn.clear();
  record.created_wall_ms = wall_ms;
  HP_TRY(create_generation(checkpoint_dir, record));
  return record;
}

}  // namespace hpctl
