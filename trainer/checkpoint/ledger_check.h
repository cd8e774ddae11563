// SPDX-License-Identifier: Apache-2.0
// The proof of exactly-once: from all ledgers and the lineage, every sample number below the
// cursor of the newest valid checkpoint, minus its skip list, was trained on exactly once in the
// surviving history. Of generation g in the chain of the newest generation, the steps survive that
// lie above its start step and not above the start step of any later one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/lineage.h"

namespace hpctl {

struct LedgerReport {
  uint64_t step = 0;                  // of the checkpoint that bounds the proof
  uint64_t cursor = 0;                // samples [0, cursor) were checked
  uint64_t generations = 0;           // that contributed
  uint64_t entries = 0;               // ledger lines that survive
  uint64_t undone = 0;                // ledger lines of steps that were rolled back
  std::vector<std::string> problems;  // the first ones; empty = proven
};

// Errors: no ledger, no valid checkpoint, unreadable lineage or ledger.
Result<LedgerReport> verify_ledger(const std::string& ledger_dir,
                                   const std::string& checkpoint_dir);
// The same for this chain, which may differ from the newest generation's.
Result<LedgerReport> verify_ledger(const std::string& ledger_dir, const std::string& checkpoint_dir,
                                   const std::vector<GenerationRecord>& chain);

}  // namespace hpctl
