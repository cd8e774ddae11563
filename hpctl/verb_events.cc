// SPDX-License-Identifier: Apache-2.0
// hpctl events: the history of a job.
#include <algorithm>
#include <chrono>
#include <thread>

#include "hpctl/event_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace {

constexpr const char* kHelp = R"(
The history of a job: what happened (WorkerExited, NodeLost, ...), what was decided (StartWorkers,
RecordGeneration, ...) and every change of state (JobRunning, JobRecovering, ...). Times are UTC.
On Slurm with what was before a requeue. Also answers after the controller has gone.

Examples:
  hpctl events quickstart
  hpctl events 1 --follow
  hpctl events 1 --json | jq -c 'select(.type == "WorkerExited")'

Options:
  -f, --follow  stay and print new events until the job has ended
  --json        a line each: {"seq", "time", "type", "job", "generation", "node", "rank", "cause",
                "because"}; because is the seq of the event that led to this one

Exit codes: 0 shown, 1 no such job
)";

constexpr std::chrono::milliseconds kPollInterval{300};

void print(const Invocation& invocation, const std::vector<EventView>& events) {
  for (const EventView& event : events) {
    if (invocation.json()) {
      invocation.terminal.out << to_json_text(event) << "\n";
    } else {
      print_event(invocation.terminal, event);
    }
  }
  invocation.terminal.out.flush();
}

// Until the job has ended or nobody reads any more. A controller that dies meanwhile is replaced by
// its records, and those by the next controller.
int follow(const Invocation& invocation, OpenJob& job) {
  uint64_t seen = 0;
  auto& source = job.source;
  while (invocation.terminal.out.good()) {
    // The state first: events that precede the end are then surely in the answer.
    const auto status = source->get_job(job.id);
    const auto events = source->events(job.id, seen);
    if (status.ok() && events.ok()) {
      print(invocation, *events);
      for (const EventView& event : *events) seen = std::max(seen, event.seq);
      if (has_ended(status->state)) return kExitOk;
    } else if (!source->is_live()) {
      return report(invocation.terminal, status.ok() ? events.error() : status.error());
    }
    std::this_thread::sleep_for(kPollInterval);
    if (!source->is_live() || !status.ok() || !events.ok()) {
      source = open_source(job.paths, job.id);
    }
  }
  return kExitOk;
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  auto job = open_job(invocation.arguments[0]);
  if (!job.ok()) return report(terminal, job.error());
  if (invocation.has("--follow")) return follow(invocation, *job);
  const auto events = job->source->events(job->id, 0);
  if (!events.ok()) return report(terminal, events.error());
  print(invocation, *events);
  return kExitOk;
}

}  // namespace

Verb events_verb() {
  return {"events",
          "JOB [--follow]",
          "show what happened to a job and what was decided",
          kHelp,
          1,
          1,
          {{"--follow", "-f"}},
          run};
}

}  // namespace hpctl
