// SPDX-License-Identifier: Apache-2.0
// hpctl events: the history of a job.
#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "hpctl/event_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace events_parts {
namespace {

constexpr const char* kHelp = R"(
The history of a job: what happened (WorkerExited, NodeLost, ...), what was decided (StartWorkers,
RecordGeneration, ...) and every change of state (JobRunning, JobRecovering, ...). Times are UTC.
On Slurm with what was before a requeue. Also answers after the controller has gone.

Examples:
  hpctl events quickstart
  hpctl events 1 --follow
  hpctl events 1 --since 30m --type NodeLost,JobRecovering
  hpctl events 1 --json | jq -c 'select(.type == "WorkerExited")'

Options:
  -f, --follow  stay and print new events until the job has ended
  --since TIME  from the last 30m, 2h, 1d, or since 2026-11-21T09:30:00Z, or 2026-11-21
  --type TYPE   only of these types, with commas between them
  --tail N      the last N of them
  --json        a line each: {"seq", "time", "type", "job", "generation", "node", "rank", "cause",
                "because", "step"}; because is the seq of the event that led to this one

Exit codes: 0 shown, 1 no such job, 2 wrong arguments, 3 neither its controller nor HPCTL_HOME
answers
)";

constexpr std::chrono::milliseconds kPollInterval{300};

// What was asked for of the history.
struct Choice {
  int64_t since_wall_ms = 0;
  std::set<std::string> types;  // empty = all
  std::optional<int64_t> tail;

  bool has(const EventView& event) const {
    return event.wall_ms >= since_wall_ms && (types.empty() || types.contains(event.type));
  }
};

Result<Choice> make_choice(const Invocation& invocation) {
  Choice choice;
  HP_TRY_ASSIGN(choice.tail, number_option(invocation, "--tail", 0, 1'000'000'000));
  HP_TRY_ASSIGN(const auto since_ms, since_option(invocation));
  choice.since_wall_ms = since_ms.value_or(0);
  if (invocation.has("--type")) {
    std::istringstream types(invocation.options.at("--type"));
    for (std::string type; std::getline(types, type, ',');) choice.types.insert(type);
  }
  return choice;
}

// Those that were asked for.
std::vector<EventView> choose(std::vector<EventView> events, const Choice& choice) {
  std::erase_if(events, [&](const EventView& event) { return !choice.has(event); });
  if (choice.tail && events.size() > static_cast<size_t>(*choice.tail)) {
    events.erase(events.begin(), events.end() - static_cast<std::ptrdiff_t>(*choice.tail));
  }
  return events;
}

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
int follow(const Invocation& invocation, OpenJob& job, Choice choice) {
  uint64_t seen = 0;
  auto& source = job.source;
  while (invocation.terminal.out.good()) {
    // The state first: events that precede the end are then surely in the answer.
    const auto status = source->get_job(job.id);
    const auto events = source->events(job.id, seen);
    if (status.ok() && events.ok()) {
      print(invocation, choose(*events, choice));
      choice.tail.reset();  // of what was there
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
  const auto choice = make_choice(invocation);
  if (!choice.ok()) return report_usage(terminal, "events", choice.error().message);
  auto job = open_job(invocation);
  if (!job.ok()) return report(terminal, job.error());
  if (invocation.has("--follow")) return follow(invocation, *job, *choice);
  const auto events = job->source->events(job->id, 0);
  if (!events.ok()) return report(terminal, events.error());
  print(invocation, choose(*events, *choice));
  return kExitOk;
}

}  // namespace
}  // namespace events_parts

Verb events_verb() {
  return {"events",
          "JOB [--follow] [--since TIME] [--type TYPE] [--tail N]",
          "show what happened to a job and what was decided",
          events_parts::kHelp,
          1,
          1,
          {{"--follow", "-f"},
           {"--since", nullptr, "TIME"},
           {"--type", nullptr, "TYPE"},
           {"--tail", nullptr, "N"}},
          events_parts::run};
}

}  // namespace hpctl
