// SPDX-License-Identifier: Apache-2.0
#include "hpctl/chaos_report.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "controller/core/save_notes.h"

namespace hpctl {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kTimeColumns = 26;
constexpr size_t kFaultColumns = 20;
constexpr size_t kTargetColumns = 16;
constexpr size_t kFoundColumns = 7;
constexpr size_t kBlamedColumns = 22;
constexpr size_t kDurationColumns = 10;

bool is_exit(const EventView& event) {
  return event.type == "WorkerExited" || event.type == "WorkersExited";
}

// A recovery that follows from the fault.
class RecoveryStory {
 public:
  explicit RecoveryStory(const std::vector<EventView>& after) {
    for (const EventView& event : after) take(event, after);
  }

  std::optional<int64_t> began_wall_ms;
  std::optional<int64_t> back_wall_ms;  // of the newest; none while it lasts
  int32_t blamed_rank = -1;
  std::string blamed_node;
  uint64_t lost_steps = 0;

 private:
  void take(const EventView& event, const std::vector<EventView>& after) {
    if (is_exit(event)) reached_ = std::max(reached_, event.step);
    if (event.type == "JobRecovering") {
      reached_ = std::max(reached_, event.step);
      back_wall_ms.reset();
      is_over_ = began_wall_ms.has_value();
      if (!began_wall_ms) {
        began_wall_ms = event.wall_ms;
        if (!is_consequence(event, after)) blame(event);
      }
    } else if (event.type == "CauseFound" && !is_over_) {
      blame(event);
    } else if (event.type == "RecordGeneration") {
      start_ = event.step;
    } else if (event.type == "JobRunning" && began_wall_ms && !back_wall_ms) {
      is_over_ = true;
      back_wall_ms = event.wall_ms;
      if (start_ && reached_ > *start_) lost_steps += reached_ - *start_;
      reached_ = 0;
    }
  }

  // Of a worker that ended because a peer did; the cause may follow.
  static bool is_consequence(const EventView& recovering, const std::vector<EventView>& after) {
    return recovering.rank < 0 && std::any_of(after.begin(), after.end(), [&](const EventView& e) {
             return e.seq == recovering.seq && is_exit(e);
           });
  }

  void blame(const EventView& event) {
    blamed_rank = event.rank;
    blamed_node = event.node;
  }

  bool is_over_ = false;  // the first, whose blame counts
  uint64_t reached_ = 0;
  std::optional<uint64_t> start_;
};

Blame judge_blame(const FaultResult& result, const RecoveryStory& story) {
  const bool named = story.blamed_rank >= 0 || !story.blamed_node.empty();
  const FaultBlame blame = traits_of(result.fault).blame;
  if (!named) return blame == FaultBlame::kDue ? Blame::kNobody : Blame::kNotDue;
  if (blame == FaultBlame::kNobody) return Blame::kWrong;
  // What follows from the network of a rank may be seen of its node only.
  const bool of_node = blame == FaultBlame::kAllowed && story.blamed_rank < 0;
  const bool of_rank = target_of(result.fault) == FaultTarget::kRank && !of_node;
  const bool right = of_rank ? story.blamed_rank == result.rank : story.blamed_node == result.node;
  return right ? Blame::kRight : Blame::kWrong;
}

// When agents came to a controller, the first time since the fault.
std::vector<int64_t> registrations(const std::vector<EventView>& after,
                                   const std::set<std::string>& nodes) {
  std::set<std::string> seen;
  std::vector<int64_t> wall_ms;
  for (const EventView& event : after) {
    const bool first = event.type == "AgentRegistered" && nodes.contains(event.node) &&
                       seen.insert(event.node).second;
    if (first) wall_ms.push_back(event.wall_ms);
  }
  return wall_ms;
}

std::optional<int64_t> first_sign(const FaultResult& result, const std::vector<EventView>& after) {
  for (const EventView& event : after) {
    const bool of_agent =
        event.node == result.node && (event.type == "AgentDisconnected" ||
                                      event.type == "NodeLost" || event.type == "AgentRegistered");
    const bool of_controller = event.type == "AgentRegistered" || event.type == "JobAdopted";
    if (is_to_agent(result.fault) ? of_agent : of_controller) return event.wall_ms;
  }
  return std::nullopt;
}

// Agent or controller: training goes on meanwhile.
void judge_supervisor(FaultResult& result, const std::vector<EventView>& after,
                      const std::vector<NodeView>& nodes) {
  std::set<std::string> awaited;
  for (const NodeView& node : nodes) {
    const bool concerned =
        is_to_agent(result.fault) ? node.name == result.node : node.state == "up";
    if (concerned) awaited.insert(node.name);
  }
  if (const auto sign = first_sign(result, after)) {
    result.found = true;
    result.noticed_ms = *sign - result.wall_ms;
  }
  const std::vector<int64_t> back = registrations(after, awaited);
  if (!back.empty() && back.size() == awaited.size()) result.back_ms = back.back() - result.wall_ms;
}

std::optional<int64_t> wall_ms_of(const std::string& type, const std::vector<EventView>& after) {
  const auto first = std::find_if(after.begin(), after.end(),
                                  [&](const EventView& event) { return event.type == type; });
  return first == after.end() ? std::nullopt : std::optional(first->wall_ms);
}

// An unfit step: left out, after going back or not, or the end of the workers and a recovery.
void judge_unfit_step(FaultResult& result, const std::vector<EventView>& after,
                      const RecoveryStory& story) {
  const auto unfit = std::find_if(after.begin(), after.end(), [](const EventView& event) {
    return event.type == "NonFiniteFound";
  });
  if (unfit == after.end()) return;
  result.found = true;
  result.noticed_ms = unfit->wall_ms - result.wall_ms;
  if (story.back_wall_ms) result.back_ms = *story.back_wall_ms - result.wall_ms;
  for (const EventView& event : after) {
    const bool goes_on = event.type == "BatchSkipped" || event.type == "TrainingRolledBack";
    if (!goes_on || event.seq != unfit->seq) continue;
    result.back_ms = event.wall_ms - result.wall_ms;
    result.lost_steps = unfit->step - std::min(unfit->step, event.step);
  }
}

// The first one that begins with these words.
std::optional<int64_t> noted_wall_ms(const std::string& words,
                                     const std::vector<EventView>& after) {
  const auto first = std::find_if(after.begin(), after.end(), [&](const EventView& event) {
    return event.type == "ControllerNoted" && event.cause.starts_with(words);
  });
  return first == after.end() ? std::nullopt : std::optional(first->wall_ms);
}

// Training goes on. What is slow nobody finds: there a checkpoint that is durable nevertheless is
// what counts, and it was not when the disk was still slow.
void judge_disk(FaultResult& result, const std::vector<EventView>& after) {
  const bool fails = traits_of(result.fault).sign == FaultSign::kDiskFull;
  const auto found = noted_wall_ms(core::kSavesFail, after);
  auto back = noted_wall_ms(core::kSavesWork, after);
  for (const EventView& event : after) {
    const bool durable = event.type == "CheckpointCommitted" &&
                         event.wall_ms >= result.wall_ms + traits_of(result.fault).lasts_ms;
    if (!fails && durable && !back) back = event.wall_ms;
  }
  result.found = fails ? found.has_value() : back.has_value();
  if (fails && found) result.noticed_ms = *found - result.wall_ms;
  if (back) result.back_ms = *back - result.wall_ms;
}

// Training goes on, and the one that is slow is named until it is no more.
void judge_slow_worker(FaultResult& result, const std::vector<EventView>& after) {
  for (const EventView& event : after) {
    if (event.type == "StragglerFound") {
      const bool right = event.rank == result.rank && event.node == result.node;
      if (result.blame == Blame::kWrong) continue;
      result.blame = right ? Blame::kRight : Blame::kWrong;
      result.blamed_rank = event.rank;
      result.blamed_node = event.node;
      if (!right) continue;
      result.found = true;
      result.noticed_ms = event.wall_ms - result.wall_ms;
    } else if (event.type == "StragglerOver" && event.node == result.node) {
      result.back_ms = event.wall_ms - result.wall_ms;
    }
  }
}

// What there is besides a recovery.
void judge_sign(FaultResult& result, FaultSign sign, const std::vector<EventView>& after,
                const std::vector<NodeView>& nodes, const RecoveryStory& story) {
  switch (sign) {
    case FaultSign::kUnfitStep:
      return judge_unfit_step(result, after, story);
    case FaultSign::kStraggler:
      if (!story.began_wall_ms) judge_slow_worker(result, after);
      return;
    case FaultSign::kDiskFull:
    case FaultSign::kDiskSlow:
      return judge_disk(result, after);
    case FaultSign::kReconnection:
      return judge_supervisor(result, after, nodes);
    case FaultSign::kRecovery:
    case FaultSign::kDamagedCheckpoint:
    case FaultSign::kLimit:
    case FaultSign::kNothing:
      return;
  }
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size() + 2), ' ');
  return text;
}

std::string seconds_text(const std::optional<int64_t>& ms) {
  if (!ms) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f s", static_cast<double>(*ms) / 1000);
  return text;
}

std::string target_text(const FaultResult& result) {
  if (target_of(result.fault) == FaultTarget::kController) return "controller";
  if (result.rank < 0) return result.node.empty() ? "-" : printable(result.node);
  return "rank " + std::to_string(result.rank) +
         (result.node.empty() ? "" : " on " + printable(result.node));
}

std::string blamed_text(const FaultResult& result) {
  if (!result.found || result.blame == Blame::kNotDue) return "-";
  if (result.blame == Blame::kNobody) return "nobody";
  return (result.blamed_rank >= 0 ? "rank " + std::to_string(result.blamed_rank)
                                  : printable(result.blamed_node)) +
         ", " + to_word(result.blame);
}

struct Totals {
  int64_t injected = 0;
  int64_t found = 0;
  int64_t right = 0;
  int64_t wrong = 0;
  int64_t nobody = 0;
  uint64_t lost_steps = 0;
};

Totals totals_of(const ChaosReport& report) {
  Totals totals;
  for (const FaultResult& result : report.faults) {
    totals.injected += result.injected ? 1 : 0;
    totals.found += result.found ? 1 : 0;
    totals.right += result.blame == Blame::kRight ? 1 : 0;
    totals.wrong += result.blame == Blame::kWrong ? 1 : 0;
    totals.nobody += result.found && result.blame == Blame::kNobody ? 1 : 0;
    totals.lost_steps += result.lost_steps.value_or(0);
  }
  return totals;
}

json ratio(int64_t part, int64_t whole) {
  if (whole == 0) return nullptr;
  return static_cast<double>(part) / static_cast<double>(whole);
}

template <typename T>
json optional_json(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json to_json(const FaultResult& result) {
  json blamed = nullptr;
  if (result.blamed_rank >= 0 || !result.blamed_node.empty()) {
    blamed = {{"rank", result.blamed_rank}, {"node", result.blamed_node}};
  }
  return {{"time", result.seq == 0 ? "" : format_wall_ms(result.wall_ms)},
          {"seq", result.seq},
          {"injected", result.injected},
          {"fault", to_word(result.fault)},
          {"rank", result.rank},
          {"node", result.node},
          {"at_step", result.at_step},
          {"found", result.found},
          {"blame", to_word(result.blame)},
          {"blamed", blamed},
          {"noticed_ms", optional_json(result.noticed_ms)},
          {"back_ms", optional_json(result.back_ms)},
          {"lost_steps", optional_json(result.lost_steps)},
          {"problem", result.problem}};
}

}  // namespace

void judge(FaultResult& result, const std::vector<EventView>& after,
           const std::vector<NodeView>& nodes) {
  const RecoveryStory story(after);
  result.blame = judge_blame(result, story);
  result.blamed_rank = story.blamed_rank;
  result.blamed_node = story.blamed_node;
  result.lost_steps = story.lost_steps;
  for (const EventView& event : after) {
    if (event.type == "FaultNotInjected" && event.because == result.seq) {
      result.injected = false;
      result.problem = event.cause;
    }
  }
  const FaultSign sign = traits_of(result.fault).sign;
  judge_sign(result, sign, after, nodes, story);
  if (!story.began_wall_ms) return;
  // A rank or messages may be so late that a limit is passed.
  const bool may_be_late = sign == FaultSign::kStraggler || sign == FaultSign::kLimit;
  if (stops_training(result.fault) || may_be_late) {
    const auto found_wall_ms = sign == FaultSign::kDamagedCheckpoint
                                   ? wall_ms_of("CheckpointDamaged", after)
                                   : story.began_wall_ms;
    result.found = found_wall_ms.has_value();
    if (found_wall_ms) result.noticed_ms = *found_wall_ms - result.wall_ms;
    result.back_ms.reset();
    if (story.back_wall_ms) result.back_ms = *story.back_wall_ms - result.wall_ms;
  } else if (!story.back_wall_ms) {
    result.back_ms.reset();  // it disturbed training after all
  } else if (result.back_ms) {
    result.back_ms = std::max(*result.back_ms, *story.back_wall_ms - result.wall_ms);
  }
}

bool is_good(const ChaosReport& report) {
  return report.faults.size() == report.planned &&
         std::all_of(report.faults.begin(), report.faults.end(), [](const FaultResult& result) {
           return result.found && result.problem.empty();
         });
}

void print_chaos_header(const Terminal& terminal) {
  terminal.out << padded("TIME", kTimeColumns) << padded("FAULT", kFaultColumns)
               << padded("TARGET", kTargetColumns) << padded("FOUND", kFoundColumns)
               << padded("BLAMED", kBlamedColumns) << padded("NOTICED", kDurationColumns)
               << padded("BACK", kDurationColumns) << "STEPS LOST\n";
  terminal.out.flush();
}

void print_chaos_row(const Terminal& terminal, const FaultResult& result) {
  const Colour colour = result.found && result.problem.empty() ? Colour::kGreen : Colour::kRed;
  terminal.out << padded(result.seq == 0 ? "-" : format_wall_ms(result.wall_ms), kTimeColumns)
               << padded(to_word(result.fault), kFaultColumns)
               << padded(target_text(result), kTargetColumns)
               << paint(terminal, colour, padded(result.found ? "yes" : "no", kFoundColumns))
               << padded(blamed_text(result), kBlamedColumns)
               << padded(seconds_text(result.noticed_ms), kDurationColumns)
               << padded(seconds_text(result.back_ms), kDurationColumns)
               << (result.lost_steps ? std::to_string(*result.lost_steps) : "-") << "\n";
  if (!result.problem.empty()) terminal.out << "  " << printable(result.problem) << "\n";
  terminal.out.flush();
}

void print_chaos_totals(const Terminal& terminal, const ChaosReport& report) {
  const Totals totals = totals_of(report);
  const int64_t blamed = totals.right + totals.wrong;
  terminal.out << "\n"
               << counted(totals.injected, "fault") << " of " << report.planned
               << " injected, seed " << report.seed << (report.interrupted ? "; interrupted" : "")
               << "\n  recall      " << format_percent(totals.found, totals.injected) << ": "
               << totals.found << " of " << totals.injected << " found\n  precision   "
               << format_percent(totals.right, blamed) << ": " << totals.right << " of " << blamed
               << " blamed rightly, " << totals.nobody << " blamed on nobody\n  ETTR        "
               << format_percent(report.wall_ms - report.lost_ms, report.wall_ms) << " of "
               << format_duration(report.wall_ms) << "; "
               << counted(static_cast<int64_t>(totals.lost_steps), "step") << " lost\n  job "
               << report.job << "       " << printable(report.state)
               << (report.reason.empty() ? "" : ": " + printable(report.reason)) << "\n";
}

std::string to_json_text(const ChaosReport& report) {
  const Totals totals = totals_of(report);
  json faults = json::array();
  for (const FaultResult& result : report.faults) faults.push_back(to_json(result));
  const json document = {{"job", report.job},
                         {"name", report.name},
                         {"state", report.state},
                         {"seed", report.seed},
                         {"planned", report.planned},
                         {"interrupted", report.interrupted},
                         {"faults", faults},
                         {"totals",
                          {{"injected", totals.injected},
                           {"found", totals.found},
                           {"recall", ratio(totals.found, totals.injected)},
                           {"blamed_right", totals.right},
                           {"blamed_wrong", totals.wrong},
                           {"blamed_nobody", totals.nobody},
                           {"precision", ratio(totals.right, totals.right + totals.wrong)},
                           {"lost_steps", totals.lost_steps},
                           {"wall_ms", report.wall_ms},
                           {"lost_ms", report.lost_ms},
                           {"ettr", ratio(report.wall_ms - report.lost_ms, report.wall_ms)}}}};
  return json_text(document);
}

}  // namespace hpctl
