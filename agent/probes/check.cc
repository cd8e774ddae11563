// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/check.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "agent/machine_environment.h"
#include "agent/probes/probe.h"
#include "common/base/file.h"
#include "common/base/hyperpod.h"

namespace hpctl::agent {
namespace {

constexpr char kHelp[] =
    R"(usage: hpagent check efa|net|gpu|all [--json] [--deadline SECONDS]

Looks at the machine it runs on and says what it found: each finding is pass, warn, fail or skipped,
with its reason. Nothing is changed.

  efa   EFA devices against the instance type, their ports and counters, libfabric's efa provider
        and a message through it
  net   addresses, and a message through the provider that libfabric chooses
  gpu   the NVIDIA driver, GPUs against the instance type, ECC, remapped rows, Xids (as root)

  --json  {"verdict", "remedy", "instance_type",
          "findings": [{"check", "verdict", "remedy", "reason", "evidence"}]}; the remedy of what
          fails: reboot, replace (another machine) or none (not the machine's own fault)
  --deadline  of all together, 1 to 50 (50): a probe that hangs is a finding, too

Exit codes: 0 nothing failed (pass, warn, skipped), 1 something failed, 2 wrong usage, 3 something
failed that a reboot may mend. Fit for Slurm's HealthCheckProgram, which has to set the node's state
itself.
)";

struct Probe {
  const char* name;
  std::vector<Finding> (*run)(const ProbeContext&);
};
constexpr std::array<Probe, 3> kProbes = {
    {{"efa", probe_efa}, {"net", probe_net}, {"gpu", probe_gpu}}};

constexpr unsigned kDeadlineSeconds = 50;

// For the signal handler, which may only write what is ready.
struct Farewell {
  std::array<char, 512> text{};
  size_t size = 0;
  int exit_code = kExitUnhealthy;
};
Farewell farewell;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

extern "C" void on_deadline(int) {
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, farewell.text.data(), farewell.size);
  ::_exit(farewell.exit_code);
}

int exit_code_of(const std::vector<Finding>& findings) {
  if (worst(findings) != Verdict::kFail) return kExitHealthy;
  return remedy_of(findings) == Remedy::kReboot ? kExitNeedsReboot : kExitUnhealthy;
}

std::string to_json(const std::vector<Finding>& findings, const std::string& type) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"verdict", to_string(finding.verdict)},
                    {"remedy", to_string(remedy_of({finding}))},
                    {"reason", finding.reason},
                    {"evidence", finding.evidence}});
  }
  const nlohmann::ordered_json document = {{"verdict", to_string(worst(findings))},
                                           {"remedy", to_string(remedy_of(findings))},
                                           {"instance_type", type},
                                           {"findings", std::move(list)}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// A line per finding and, last, where the agent looks for the evidence, the worst of them.
std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += std::string(to_string(finding.verdict)) + "  " + finding.check + "  " + finding.reason +
            "\n";
  }
  const Verdict verdict = worst(findings);
  for (const Finding& finding : findings) {
    if (finding.verdict != verdict || remedy_of({finding}) != remedy_of(findings)) continue;
    return text + to_string(verdict) + ": " + finding.check + ": " + finding.reason + "\n";
  }
  return text;
}

std::string in_form(const std::vector<Finding>& findings, const std::string& type, bool json) {
  return json ? to_json(findings, type) : to_text(findings);
}

struct Options {
  std::string check;  // a probe's name, or all
  bool json = false;
  unsigned deadline_s = kDeadlineSeconds;
};

std::optional<Options> parse(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--json") {
      options.json = true;
    } else if (word == "--deadline" && i + 1 < arguments.size()) {
      const long seconds = std::atol(arguments[++i].c_str());
      if (seconds < 1 || seconds > kDeadlineSeconds) return std::nullopt;
      options.deadline_s = static_cast<unsigned>(seconds);
    } else if (options.check.empty() &&
               (word == "all" || std::any_of(kProbes.begin(), kProbes.end(),
                                             [&](const Probe& p) { return word == p.name; }))) {
      options.check = word;
    } else {
      return std::nullopt;
    }
  }
  if (options.check.empty()) return std::nullopt;
  return options;
}

void expect_answer_of(const std::string& probe, const std::string& type, const Options& options) {
  const Finding late{probe + ".deadline",
                     Verdict::kFail,
                     "no answer within " + std::to_string(options.deadline_s) + " s",
                     {},
                     probe == "net" ? Remedy::kNone : Remedy::kReboot};
  const std::string text = in_form({late}, type, options.json);
  farewell.size = std::min(text.size(), farewell.text.size());
  std::copy_n(text.begin(), farewell.size, farewell.text.begin());
  farewell.exit_code = exit_code_of({late});
}

Result<HealthTable> read_table(const std::string& program_directory) {
  HP_TRY_ASSIGN(const std::string path, find_data_file(program_directory, "instances.json"));
  HP_TRY_ASSIGN(const std::string text, read_file(path, 1U << 20));
  return parse_health_table(text, path);
}

}  // namespace

int run_check(const std::vector<std::string>& arguments, const std::string& program_directory) {
  if (arguments.size() == 1 && arguments[0] == "--help") {
    return std::fputs(kHelp, stdout) < 0 ? 1 : 0;
  }
  const auto options = parse(arguments);
  if (!options) {
    std::fputs("hpagent check: wrong arguments; see hpagent check --help\n", stderr);
    return kExitUsage;
  }
  ProbeContext context;
  std::vector<Finding> findings;
  const MachineIdentity machine = identify_machine();
  context.instance_type = machine.type;
  if (!machine.trouble.empty()) {
    findings.push_back({"machine", Verdict::kWarn, machine.trouble, {}});
  }
  auto table = read_table(program_directory);
  if (table.ok()) {
    context.table = std::move(table).value();
  } else {
    findings.push_back({"machine.table", Verdict::kWarn, table.error().message, {}});
  }
  ::signal(SIGALRM, on_deadline);
  expect_answer_of(options->check, context.instance_type, *options);
  ::alarm(options->deadline_s);
  for (const Probe& probe : kProbes) {
    if (options->check != "all" && options->check != probe.name) continue;
    expect_answer_of(probe.name, context.instance_type, *options);
    const auto found = probe.run(context);
    findings.insert(findings.end(), found.begin(), found.end());
  }
  ::alarm(0);
  std::fputs(in_form(findings, context.instance_type, options->json).c_str(), stdout);
  return exit_code_of(findings);
}

}  // namespace hpctl::agent
