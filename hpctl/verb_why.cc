// SPDX-License-Identifier: Apache-2.0
// hpctl why: the chain of events and decisions behind a job's present state.
#include <set>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "hpctl/event_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/open_job.h"
#include "hpctl/recorded_hangs.h"
#include "hpctl/state_words.h"
#include "hpctl/verbs.h"
#include "hpctl/watch_report.h"

namespace hpctl {
namespace why_parts {
namespace {

constexpr const char* kHelp = R"(
Explains the present state of a job: the events and decisions that led to it, oldest first, each
with its reason; of a finished job also the faults that it survived. For a hang it also shows what
PyTorch's flight recorders dumped, where the program's environment enables them. Also answers after
the controller has gone.

Examples:
  hpctl why quickstart
  hpctl why 1 --json | jq -r .summary

Options:
  --json  {"job", "state", "summary", "chain": [{"seq", "time", "type", "generation", "node",
          "rank", "reason", "because"}], "flight_recorders": [{"generation", "files", "ranks",
          "without_dump", "unreadable", "blamed", "conclusion", "findings"}]}

Exit codes: 0 shown, 1 no such job, 3 neither its controller nor HPCTL_HOME answers
)";

constexpr size_t kShownFindings = 6;

std::vector<RecordedHang> hangs_of(const OpenJob& job, const Explanation& why) {
  if (!job.has_files()) return {};
  std::set<uint64_t> generations;
  for (const EventView& event : why.chain) {
    if (event.type == "StacksTaken") generations.insert(event.generation);
  }
  return recorded_hangs(job.paths.job_stacks(job.id), generations);
}

void print_hang(const Terminal& terminal, const RecordedHang& hang) {
  const auto print = [&](size_t indent, const std::string& text) {
    terminal.out << std::string(indent, ' ') << wrap(printable(text), terminal.width, indent)
                 << "\n";
  };
  terminal.out << "\n";
  print(0, "Flight recorders of generation " + std::to_string(hang.generation) + ", " +
               (hang.ranks.empty() ? "none" : recorder::ranks_text(hang.ranks)) + ", in " +
               hang.files + ": " + hang.verdict.conclusion);
  for (size_t i = 0; i < hang.verdict.findings.size() && i < kShownFindings; ++i) {
    print(2, hang.verdict.findings[i]);
  }
  if (hang.verdict.findings.size() > kShownFindings) {
    print(2, "and " + std::to_string(hang.verdict.findings.size() - kShownFindings) +
                 " more process groups in which ranks wait (--json)");
  }
  if (!hang.verdict.silent.empty()) {
    print(2, "no dump of " + recorder::ranks_text(hang.verdict.silent));
  }
  for (const std::string& problem : hang.unreadable) print(2, problem);
}

nlohmann::ordered_json to_json(const RecordedHang& hang) {
  return {{"generation", hang.generation},
          {"files", hang.files},
          {"ranks", hang.ranks},
          {"without_dump", hang.verdict.silent},
          {"unreadable", hang.unreadable},
          {"blamed", hang.verdict.blamed},
          {"conclusion", hang.verdict.conclusion},
          {"findings", hang.verdict.findings}};
}

void print_json(const Terminal& terminal, const JobView& job, const Explanation& why,
                const std::vector<RecordedHang>& hangs) {
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
  ordered_json recorders = ordered_json::array();
  for (const RecordedHang& hang : hangs) recorders.push_back(to_json(hang));
  const ordered_json document = {{"job", job.job},
                                 {"state", job.state},
                                 {"summary", why.summary},
                                 {"chain", chain},
                                 {"flight_recorders", recorders}};
  terminal.out << json_text(document) << "\n";
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto opened = open_job(invocation);
  if (!opened.ok()) return report(terminal, opened.error());
  const JobView& job = opened->view;
  const auto why = opened->source->why(opened->id);
  if (!why.ok()) return report(terminal, why.error());
  if (const auto notice = opened->notice(); !notice.empty()) {
    terminal.err << "hpctl: " << notice << "\n";
  }
  const std::vector<RecordedHang> hangs = hangs_of(*opened, *why);
  if (invocation.json()) {
    print_json(terminal, job, *why, hangs);
    return kExitOk;
  }
  const auto validation =
      opened->has_files() ? newest_validation(opened->paths.job_metrics(opened->id)) : std::nullopt;
  const std::string words = state_in_words(job, validation, opened->source->is_live(),
                                           SystemClock().wall(), opened->lost_directory());
  terminal.out << "job " << job.job << " " << printable(job.name) << " is "
               << paint(terminal, colour_of_state(job.state), job.state) << ": "
               << wrap(printable(words), terminal.width, 0) << "\n"
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
  for (const RecordedHang& hang : hangs) print_hang(terminal, hang);
  for (const std::string& obstacle : obstacles_of(*opened)) {
    terminal.out << "now: " << wrap(printable(obstacle), terminal.width, 5) << "\n";
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
