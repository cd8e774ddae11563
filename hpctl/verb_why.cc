// SPDX-License-Identifier: Apache-2.0
// hpctl why: the chain of events and decisions behind a job's present state.
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "hpctl/event_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace why_parts {
namespace {

constexpr const char* kHelp = R"(
Explains the present state of a job: the events and decisions that led to it, oldest first, each
with its reason; of a finished job also the faults that it survived. Also answers after the
controller has gone.

Examples:
  hpctl why quickstart
  hpctl why 1 --json | jq -r .summary

Options:
  --json  {"job", "state", "summary", "chain": [{"seq", "time", "type", "generation", "node",
          "rank", "reason", "because"}]}

Exit codes: 0 shown, 1 no such job
)";

void print_json(const Terminal& terminal, const JobView& job, const Explanation& why) {
  using nlohmann::ordered_json;
  ordered_json chain = ordered_json::array();
  for (const EventView& e : why.chain) {
    chain.push_back({{"seq", e.seq},
                     {"time", format_wall_ms(e.wall_ms)},
                     {"type", e.type},
                     {"generation", e.generation},
                     {"node", e.node},
                     {"rank", e.rank},
                     {"reason", e.cause},
                     {"because", e.because}});
  }
  const ordered_json document = {
      {"job", job.job}, {"state", job.state}, {"summary", why.summary}, {"chain", chain}};
  terminal.out << document.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto opened = open_job(invocation.arguments[0]);
  if (!opened.ok()) return report(terminal, opened.error());
  const JobView& job = opened->view;
  const auto why = opened->source->why(opened->id);
  if (!why.ok()) return report(terminal, why.error());
  if (invocation.json()) {
    print_json(terminal, job, *why);
    return kExitOk;
  }
  terminal.out << "job " << job.job << " " << printable(job.name) << " is "
               << paint(terminal, colour_of_state(job.state), job.state) << "\n"
               << wrap(printable(with_job_paths(why->summary, job.job)), terminal.width, 0)
               << "\n\n";
  for (size_t i = 0; i < why->chain.size(); ++i) {
    EventView event = why->chain[i];
    // The present state, which the summary has told word for word.
    const bool is_last = i > 0 && i + 1 == why->chain.size();
    const bool is_told = why->summary.find(": " + event.cause) != std::string::npos;
    if (is_last && is_told && !event.cause.empty()) event.cause = "see above";
    print_event(terminal, event);
  }
  return kExitOk;
}

}  // namespace
}  // namespace why_parts

Verb why_verb() {
  return {"why",
          "JOB",
          "explain the state of a job: the chain of causes",
          why_parts::kHelp,
          1,
          1,
          {},
          why_parts::run};
}

}  // namespace hpctl
