// SPDX-License-Identifier: Apache-2.0
// The results of injected faults, from the job's history after each: no clock, no calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/worker/injected_fault.h"
#include "controller/publish/status_files.h"
#include "hpctl/terminal.h"

namespace hpctl {

enum class Blame {
  kNotDue,  // nobody need be blamed, and nobody was: training went on
  kRight,
  kWrong,
  kNobody,  // though somebody was to blame
};
constexpr auto words_of(Blame) {
  return std::to_array<const char*>({"not due", "right", "wrong", "nobody"});
}

struct FaultResult {
  InjectedFault fault = {};
  int32_t rank = -1;  // attacked, with its node; -1 = none
  std::string node;   // "" = none
  bool injected = false;
  uint64_t seq = 0;      // of the event FaultInjected; 0 = there is none
  int64_t wall_ms = 0;   // of that event
  uint64_t at_step = 0;  // newest step then
  std::string problem;   // why it was not injected, not found or not survived; "" = all went well
  bool found = false;
  Blame blame = Blame::kNotDue;
  int32_t blamed_rank = -1;
  std::string blamed_node;
  // From its injection until it was known, and until the job was as before: a step was completed,
  // or agents were connected again.
  std::optional<int64_t> noticed_ms;
  std::optional<int64_t> back_ms;
  std::optional<uint64_t> lost_steps;  // completed before and done again; nullopt = not known
};

// Fills in what `after`, the history after the fault's own event, says about it by now. `nodes`:
// those that have an agent each.
void judge(FaultResult& result, const std::vector<EventView>& after,
           const std::vector<NodeView>& nodes);

struct ChaosReport {
  uint64_t job = 0;
  std::string name;
  uint64_t seed = 0;
  size_t planned = 0;
  std::vector<FaultResult> faults = {};
  int64_t wall_ms = 0;     // of the run
  int64_t lost_ms = 0;     // of that, to faults
  std::string state = {};  // of the job, at the end, and why
  std::string reason = {};
  bool interrupted = false;
};

// Returns whether all planned faults were injected, found and survived.
bool is_good(const ChaosReport& report);

void print_chaos_header(const Terminal& terminal);
void print_chaos_row(const Terminal& terminal, const FaultResult& result);
void print_chaos_totals(const Terminal& terminal, const ChaosReport& report);
std::string to_json_text(const ChaosReport& report);

}  // namespace hpctl
