// SPDX-License-Identifier: Apache-2.0
#include "hpctl/watch_report.h"

#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/watch/finding_json.h"

namespace hpctl {
namespace {

using nlohmann::ordered_json;

std::string json_line(const ordered_json& document) { return json_text(document); }

std::string job_text(const Finding& finding) {
  return "job " + to_string(finding.job) + " " + finding.name +
         (finding.user.empty() ? "" : " of " + finding.user);
}

// "critical  job 3 tiny of alice: it failed: ...  [do; runbook]"
void print_finding(const Terminal& terminal, const Finding& finding) {
  const bool critical = finding.severity == Severity::kCritical;
  terminal.out << paint(terminal, critical ? Colour::kRed : Colour::kYellow,
                        critical ? "critical" : "warn    ")
               << "  " << printable(job_text(finding) + ": " + finding.what) << " [since "
               << format_wall(finding.since) << "; " << printable(finding.action) << "; "
               << runbook_of(finding.kind) << "]\n";
}

ordered_json worst_of(const FleetWatch& watch) {
  const auto worst = watch.worst();
  return worst ? ordered_json(to_word(*worst)) : ordered_json(nullptr);
}

}  // namespace

std::vector<std::string> obstacles_of(const OpenJob& job) {
  const WallTime now = SystemClock().wall();
  JobSnapshot snapshot = snapshot_of(job.view, now);
  snapshot.lost_directory = job.lost_directory();
  snapshot.saves_problem = job.saves_problem();
  std::vector<std::string> texts;
  for (const Finding& finding : JobWatch(true).look(snapshot, now)) {
    if (finding.kind == FindingKind::kFailed) continue;  // its reason is shown
    texts.push_back(finding.what + "; " + finding.action);
  }
  return texts;
}

int watch_status(std::optional<Severity> worst) {
  if (!worst) return kWatchNothing;
  return *worst == Severity::kCritical ? kWatchCritical : kWatchWarn;
}

void print_changes(const Terminal& terminal, const WatchChanges& changes, WallTime now,
                   bool as_json) {
  const auto line = [&](const char* change, const Finding& finding) {
    terminal.out << json_line({{"time", format_wall(now)},
                               {"change", change},
                               {"finding", finding_json(finding)}})
                 << "\n";
  };
  for (const Finding& finding : changes.ended) {
    if (as_json) {
      line("ends", finding);
      continue;
    }
    terminal.out << format_wall(now) << "  " << paint(terminal, Colour::kGreen, "over    ") << "  "
                 << printable(job_text(finding)) << ": " << to_word(finding.kind)
                 << printable(finding.node.empty() ? "" : " " + finding.node) << "\n";
  }
  for (const Finding& finding : changes.begun) {
    if (as_json) {
      line("begins", finding);
      continue;
    }
    terminal.out << format_wall(now) << "  ";
    print_finding(terminal, finding);
  }
  terminal.out.flush();
}

void print_present(const Terminal& terminal, const FleetWatch& watch, size_t jobs,
                   const std::vector<std::string>& notes, bool as_json) {
  const std::vector<Finding> present = watch.present();
  if (as_json) {
    ordered_json findings = ordered_json::array();
    for (const Finding& finding : present) findings.push_back(finding_json(finding));
    terminal.out << json_line({{"worst", worst_of(watch)},
                               {"jobs", jobs},
                               {"findings", std::move(findings)},
                               {"notes", notes}})
                 << "\n";
    return;
  }
  for (const Finding& finding : present) print_finding(terminal, finding);
  if (present.empty()) {
    terminal.out << "nothing found (" << counted(static_cast<int64_t>(jobs), "job") << ")\n";
  }
}

std::string heartbeat_json(const FleetWatch& watch, size_t jobs, WallTime now) {
  return json_line({{"time", format_wall(now)},
                    {"pid", ::getpid()},
                    {"jobs", jobs},
                    {"findings", watch.present().size()},
                    {"worst", worst_of(watch)}}) +
         "\n";
}

}  // namespace hpctl
