// SPDX-License-Identifier: Apache-2.0
#include "hpctl/node_check.h"

#include <algorithm>
#include <filesystem>

#include "common/base/bounded_json.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/host.h"
#include "hpctl/captured_program.h"
#include "hpctl/directory_answer.h"
#include "hpctl/exit_codes.h"
#include "hpctl/fleet_lemons.h"
#include "hpctl/interrupt_flag.h"
#include "hpctl/lemons.h"
#include "hpctl/program_path.h"

namespace hpctl {
namespace {

// By srun, unless this is the node or there is no Slurm.
Result<std::vector<std::string>> command_for(const NodeCheckOrder& order) {
  HP_TRY_ASSIGN(const std::string directory, program_directory());
  std::vector<std::string> command = {directory + "/hpagent", "check", "all", "--deep", "--json"};
  const std::string srun = find_program("srun", inherited_path());
  if (order.job.empty() && (srun.empty() || order.node == host_name())) return command;
  if (srun.empty()) {
    return Error{ErrorCode::kFailedPrecondition,
                 "there is no srun on PATH to check " + order.node + " with"};
  }
  std::vector<std::string> step = {srun, "--nodes=1", "--ntasks=1", "--nodelist=" + order.node};
  if (!order.job.empty()) {
    step.push_back("--jobid=" + order.job);
    step.emplace_back("--overlap");
  }
  command.insert(command.begin(), step.begin(), step.end());
  return command;
}

// What hpagent says; "" of `trouble`: it is whole.
struct DeepCheck {
  std::string verdict;
  std::string instance;
  std::string worst;
  std::vector<std::string> lines;
};

Result<DeepCheck> parse(const Captured& said, const std::string& node) {
  const auto document = parse_json_or_discard(said.out, {1U << 20, 8, 20'000});
  DeepCheck answer;
  try {
    answer.verdict = document.at("verdict").get<std::string>();
    answer.instance = document.value("instance_id", "");
    for (const auto& finding : document.at("findings")) {
      const auto verdict = finding.at("verdict").get<std::string>();
      const std::string line = finding.at("check").get<std::string>() + ": " +
                               printable(finding.at("reason").get<std::string>());
      answer.lines.push_back(verdict + "  " + line);
      if (verdict == "fail" && answer.worst.empty()) answer.worst = line;
    }
  } catch (const nlohmann::json::exception&) {
    return Error{ErrorCode::kUnavailable, "the check of " + node + " did not run (exit code " +
                                              std::to_string(said.exit_code) +
                                              "); nothing is recorded"};
  }
  return answer;
}

Outcome record(const HomePaths& paths, const std::string& node, const DeepCheck& answer,
               bool passed) {
  HP_TRY(check_directory_answers(paths.jobs()));
  const int64_t now = SystemClock().wall_ms();
  std::string instance = answer.instance;
  if (instance.empty()) {
    const auto scores = read_lemon_scores(paths);
    const LemonScore* known = find_lemon_score(scores, node, "");
    if (known != nullptr) instance = known->instance;
  }
  const NodeRecord entry{now,
                         0,
                         node,
                         instance,
                         passed ? NodeRecordKind::kCheckPassed : NodeRecordKind::kCheckFailed,
                         "",
                         passed ? "a deep check passed" : answer.worst};
  const std::string month = format_wall_ms(now).substr(0, 7);
  return append_node_records(node_records_directory(paths), "checks-" + month + ".jsonl", {entry});
}

}  // namespace

int check_node(const HomePaths& paths, const Invocation& invocation, const NodeCheckOrder& order) {
  const Terminal& terminal = invocation.terminal;
  const auto command = command_for(order);
  if (!command.ok()) return report(terminal, command.error());
  const InterruptFlag flag;
  const auto said = run_captured(*command);
  if (InterruptFlag::raised()) return kExitInterrupted;
  if (!said.ok()) return report(terminal, said.error());
  const auto answer = parse(*said, order.node);
  if (!answer.ok()) return report(terminal, answer.error());
  const bool failed = answer->verdict == "fail";
  const bool passed = answer->verdict == "pass" || answer->verdict == "warn";
  Outcome recorded = passed || failed ? record(paths, order.node, *answer, passed) : Outcome(Ok{});
  if (recorded.ok() && order.for_all && (passed || failed)) {
    recorded = tell_cluster({order.node, answer->instance, passed, answer->worst});
  }
  if (invocation.json()) {
    terminal.out << said->out;
  } else {
    for (const std::string& line : answer->lines) terminal.out << line << "\n";
    terminal.out << order.node
                 << (passed
                         ? " passed a deep check: earlier evidence against it does not count now\n"
                     : failed ? " failed a deep check, which its lemon score shows\n"
                              : ": nothing could be checked\n");
  }
  if (!recorded.ok()) return report(terminal, recorded.error());
  return passed ? kExitOk : kExitFailed;
}

}  // namespace hpctl
