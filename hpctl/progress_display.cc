// SPDX-License-Identifier: Apache-2.0
#include "hpctl/progress_display.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/job/time_account.h"
#include "hpctl/event_text.h"
#include "hpctl/last_evaluations.h"

namespace hpctl {
namespace {

constexpr int64_t kPlainIntervalMs = 5000;
constexpr size_t kBarColumns = 20;

std::string bar(uint64_t step, uint64_t total) {
  const size_t full = std::min<uint64_t>(kBarColumns, step * kBarColumns / total);
  std::string text(full, '=');
  if (full < kBarColumns) text += '>';
  text.resize(kBarColumns, ' ');
  return "[" + text + "]";
}

}  // namespace

std::string progress_line(const Terminal& terminal, const JobView& job) {
  std::string line;
  const auto add = [&line](const std::string& part) { line += (line.empty() ? "" : "  ") + part; };
  // A command may report no steps, and has none yet in a new generation.
  if (job.total_steps > 0 || job.step > 0) add("step " + std::to_string(job.step));
  if (job.total_steps > 0) {
    line += "/" + std::to_string(job.total_steps);
    if (terminal.live && terminal.width >= 90) line += " " + bar(job.step, job.total_steps);
  }
  if (std::isfinite(job.loss)) add("loss " + format_loss(job.loss));
  if (job.tokens_per_second > 0) add(short_number(job.tokens_per_second) + " tokens/s");
  add("gen " + std::to_string(job.generation) + "  " + job.state);
  if (job.checkpoint_step > 0) line += "  checkpoint " + std::to_string(job.checkpoint_step);
  // One column is left free: writing the last one makes some terminals wrap.
  return terminal.live ? shorten(printable(line), terminal.width - 1) : printable(line);
}

bool is_worth_telling(const EventView& event) {
  static constexpr std::array<std::string_view, 21> kTypes = {
      "NodeLost",          "HangDetected",       "JobRecovering",  "JobRunning",
      "JobFinished",       "JobFailed",          "JobCancelled",   "JobTimeout",
      "CheckpointDamaged", "CauseFound",         "BackOff",        "ControllerResumed",
      "DeadlinePassed",    "JobGrows",           "StragglerFound", "StragglerOver",
      "SpareFoundUnfit",   "DamageNotConfirmed", "CheckpointGone", "NodeDeparts",
      "WouldRecover"};
  return std::find(kTypes.begin(), kTypes.end(), event.type) != kTypes.end();
}

void ProgressDisplay::clear_line() {
  if (shown_.empty()) return;
  terminal_.out << "\r\x1b[K";
  shown_.clear();
}

void ProgressDisplay::tell(const EventView& event) {
  clear_line();
  print_event(terminal_, event);
  terminal_.out.flush();
}

void ProgressDisplay::tell(const std::string& text) {
  clear_line();
  terminal_.out << wrap(printable(text), terminal_.width, 0) << "\n";
  terminal_.out.flush();
}

void ProgressDisplay::update(const JobView& job, int64_t now_ms) {
  const std::string line = progress_line(terminal_, job);
  if (terminal_.live) {
    if (line == shown_) return;
    terminal_.out << "\r\x1b[K" << line;
    terminal_.out.flush();
    shown_ = line;
    return;
  }
  const bool due = last_plain_ms_ < 0 || now_ms - last_plain_ms_ >= kPlainIntervalMs;
  if (!due || line == last_plain_) return;
  terminal_.out << line << "\n";
  terminal_.out.flush();
  last_plain_ms_ = now_ms;
  last_plain_ = line;
}

void ProgressDisplay::finish() {
  clear_line();
  terminal_.out.flush();
}

void print_end(const Terminal& terminal, const JobView& job, const std::string& logs_dir,
               const std::string& metrics_path) {
  const std::string id = std::to_string(job.job);
  std::ostream& out = terminal.out;
  out << "job " << id << " " << printable(job.name) << " "
      << paint(terminal, colour_of_state(job.state), job.state);
  if (const auto age_ms = elapsed_ms(job.submitted_at, job.ended_at)) {
    out << " after " << format_duration(*age_ms);
  }
  if (job.total_steps > 0 && job.state == "FINISHED") {
    out << ": " << counted(static_cast<int64_t>(job.step), "step");
  } else if (job.total_steps > 0) {
    // Not a number of steps: another job may have made some, and this one began with its
    // checkpoint.
    out << " at step " << job.step << " of " << job.total_steps;
  }
  if (std::isfinite(job.loss)) out << ", loss " << format_loss(job.loss);
  out << ", " << counted(job.faults, "fault") << " survived, " << format_duration(job.lost_ms)
      << " lost\n";
  if (job.state != "FINISHED" && !job.reason.empty()) {
    out << "  because      "
        << wrap(printable(with_job_paths(job.reason, job.job)), terminal.width, 15) << "\n";
  }
  std::vector<std::pair<std::string, std::string>> evaluations;
  if (!metrics_path.empty()) evaluations = last_evaluations(metrics_path);
  for (const auto& [part, text] : evaluations) {
    out << "  " << part << std::string(13 - part.size(), ' ') << text << "\n";
  }
  if (job.checkpoint_step > 0) {
    out << "  checkpoint   step " << job.checkpoint_step << " in "
        << printable(with_job_paths(job.checkpoint_dir, job.job)) << "\n";
  }
  out << "  logs         " << printable(logs_dir) << "\n"
      << "  more         hpctl why " << id << " | hpctl events " << id << " | hpctl logs " << id
      << "\n";
}

}  // namespace hpctl
