// SPDX-License-Identifier: Apache-2.0
// hpctl status: one job, its nodes and its workers.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "common/base/clock.h"
#include "common/job/time_account.h"
#include "common/process/user_name.h"
#include "hpctl/checkpoint_list.h"
#include "hpctl/event_text.h"
#include "hpctl/exit_codes.h"
#include "hpctl/last_evaluations.h"
#include "hpctl/node_table.h"
#include "hpctl/open_job.h"
#include "hpctl/state_words.h"
#include "hpctl/verbs.h"
#include "hpctl/watch_report.h"

namespace hpctl {
namespace status_parts {
namespace {

constexpr const char* kHelp = R"(
State, step, loss and generation of a job, then its nodes and workers. The line "now" says in words
how it goes, with the newest validation and the time left (ETA). Also answers after the controller
has gone, from its last record.

States: PENDING STARTING RUNNING RECOVERING SUSPENDED STOPPING, and at the end FINISHED FAILED
CANCELLED TIMEOUT. Each present finding of `hpctl watch` has a line ("finding").
Faults, lost time and the time since its submission cover the job's whole life. Lost is
the time from the last step completed before a fault until that step, or one beyond it, is completed
after it.

Examples:
  hpctl status 1
  hpctl status quickstart --json | jq .step

Options:
  --json  one object: {"job", "name", "state", "generation", "step", "loss", "restarts",
          "controller": {"pid", "node"}, "nodes": [...], "workers": [...], ...}; where keys of the
          job file were auto "chosen": {"basis", "values": [{"key", "value", "reason"}]}

Exit codes: 0 shown (whatever the state), 1 no such job, 3 neither its controller nor HPCTL_HOME
answers
)";

constexpr size_t kMaxRows = 64;

// "alice (uid 1000)".
std::string owner_text(const std::string& owner) {
  const std::string name = user_name(owner);
  return name.empty() ? "uid " + owner : name + " (uid " + owner + ")";
}

void print_field(const Terminal& terminal, const char* name, const std::string& text) {
  constexpr size_t kIndent = 14;
  std::string label = std::string("  ") + name;
  label.resize(kIndent, ' ');
  terminal.out << label << wrap(printable(text), terminal.width, kIndent) << "\n";
}

// "micro 4, strategy full, for 8 workers, each with 90 % of 80.0 GiB (h100 of slurm.gres)".
std::string chosen_text(const ChosenValues& chosen) {
  std::string text;
  for (const ChosenValue& value : chosen.values) {
    text += value.key.substr(value.key.rfind('.') + 1) + " " + value.value + ", ";
  }
  return text + "for " + chosen.basis;
}

void print_summary(const Terminal& terminal, const OpenJob& opened, const std::string& words) {
  const JobView& job = opened.view;
  terminal.out << "job " << job.job << " " << printable(job.name) << "  "
               << paint(terminal, colour_of_state(job.state), job.state) << "\n";
  print_field(terminal, "now", words);
  std::string step = std::to_string(job.step);
  if (job.total_steps > 0) step += " of " + std::to_string(job.total_steps);
  if (std::isfinite(job.loss)) step += ", loss " + format_loss(job.loss);
  if (job.tokens_per_second > 0) step += ", " + short_number(job.tokens_per_second) + " tokens/s";
  if (job.mfu > 0) {
    std::array<char, 32> mfu{};
    std::snprintf(mfu.data(), mfu.size(), ", MFU %.1f %%", 100 * job.mfu);
    step += mfu.data();
  }
  if (job.total_steps > 0 || job.step > 0) print_field(terminal, "step", step);
  print_field(terminal, "generation", std::to_string(job.generation));
  print_field(terminal, "faults",
              std::to_string(job.faults) + " (" + counted(job.restarts, "restart") + ", " +
                  format_duration(job.lost_ms) + " lost)");
  if (job.total_steps > 0 || job.checkpoint_step > 0) {
    const std::string newest = job.checkpoint_step == 0
                                   ? std::string("none yet")
                                   : "step " + std::to_string(job.checkpoint_step);
    print_field(terminal, "checkpoint",
                newest + " in " + with_job_paths(job.checkpoint_dir, job.job));
  }
  if (!job.mirror.dir.empty()) print_field(terminal, "mirror", mirror_text(job));
  if (job.snapshot_step > 0) {
    print_field(terminal, "memory",
                "step " + std::to_string(job.snapshot_step) +
                    " of every rank is in two nodes' memory; a lost node costs the steps since");
  }
  for (const StragglerView& straggler : job.stragglers) {
    print_field(terminal, "slow", straggler.node + ": " + straggler.evidence);
  }
  if (!job.chosen.values.empty()) print_field(terminal, "auto", chosen_text(job.chosen));
  const WallTime end = job.ended_at.is_known() ? job.ended_at : SystemClock().wall();
  if (const auto age_ms = elapsed_ms(job.submitted_at, end)) {
    print_field(terminal, "submitted",
                format_wall_seconds(job.submitted_at) + ", " +
                    (job.ended_at.is_known() ? "ended after " + format_duration(*age_ms)
                                             : format_duration(*age_ms) + " ago"));
  }
  if (!job.owner.empty()) print_field(terminal, "owner", owner_text(job.owner));
  if (!job.reason.empty()) print_field(terminal, "because", with_job_paths(job.reason, job.job));
  for (const std::string& obstacle : obstacles_of(opened)) {
    print_field(terminal, "finding", obstacle);
  }
}

std::string words_of(const OpenJob& job) {
  const auto validation =
      job.has_files() ? newest_validation(job.paths.job_metrics(job.id)) : std::nullopt;
  return state_in_words(job.view, validation, job.source->is_live(), SystemClock().wall(),
                        job.lost_directory());
}

void print_nodes(const Terminal& terminal, const JobView& job) {
  if (job.nodes.empty()) return;
  terminal.out << "\n";
  make_node_table({job}, {}, false, kMaxRows).print(terminal);
}

void print_workers(const Terminal& terminal, const JobView& job) {
  if (job.workers.empty()) return;
  terminal.out << "\n";
  // Of a command hpctl knows neither.
  const bool has_steps = job.total_steps > 0 || job.step > 0;
  std::vector<std::string> header = {"RANK", "NODE", "PID", "GENERATION", "STATE"};
  if (has_steps) header.insert(header.end(), {"PHASE", "STEP"});
  Table table(header);
  for (size_t i = 0; i < std::min(kMaxRows, job.workers.size()); ++i) {
    const WorkerView& w = job.workers[i];
    std::vector<std::string> row = {std::to_string(w.rank), w.node, pid_text(w.pid),
                                    std::to_string(w.generation), w.state};
    if (has_steps) row.insert(row.end(), {w.phase, std::to_string(w.step)});
    table.add(std::move(row), colour_of_state(w.state));
  }
  table.print(terminal);
  if (job.workers.size() > kMaxRows || job.nodes.size() > kMaxRows) {
    terminal.out << "the first " << kMaxRows << " of " << job.nodes.size() << " nodes and "
                 << job.workers.size() << " workers; --json gives all\n";
  }
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto job = open_job(invocation);
  if (!job.ok()) return report(terminal, job.error());
  const JobView& status = job->view;
  if (const auto notice = job->notice(); !notice.empty()) {
    terminal.err << "hpctl: " << notice << "\n";
  }
  if (invocation.json()) {
    terminal.out << to_json_text(status) << "\n";
    return kExitOk;
  }
  print_summary(terminal, *job, words_of(*job));
  if (job->has_files()) {
    for (const auto& [part, text] : last_evaluations(job->paths.job_metrics(job->id))) {
      print_field(terminal, part.c_str(), text);
    }
  }
  print_nodes(terminal, status);
  print_workers(terminal, status);
  return kExitOk;
}

}  // namespace
}  // namespace status_parts

Verb status_verb() {
  return {"status",
          "JOB",
          "show a job: state, step, loss, nodes, workers",
          status_parts::kHelp,
          1,
          1,
          {},
          status_parts::run};
}

}  // namespace hpctl
