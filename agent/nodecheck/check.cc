// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/check.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "agent/nodecheck/machine_environment.h"
#include "agent/nodecheck/network/check_network.h"
#include "agent/nodecheck/probes/exit_codes.h"
#include "agent/nodecheck/probes/probe.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/slurm/hyperpod.h"

namespace hpctl::agent {
namespace {

constexpr char kHelp[] =
    R"(usage: hpagent check efa|net|gpu|host|fs|all [--light|--deep] [--dir DIR] [--json]
                     [--deadline SECONDS]
       srun --ntasks-per-node=1 hpagent check network: the ways between nodes; see its --help

Looks at the machine it runs on and says what it found: each finding is pass, warn, fail or skipped,
with its reason. Nothing is changed.

  efa   EFA devices against the instance type, their ports, counters and their growth, libfabric's
        efa provider and a message through it; whether messages would go over TCP instead
  net   addresses, interfaces and their errors, and a message through the provider that libfabric
        chooses
  gpu   the NVIDIA driver, GPUs against the instance type, ECC, remapped rows, clocks that are held
        down, NVLinks, Xids (as root)
  host  processors and memory against the instance type, NUMA nodes, errors of memory, complaints of
        the kernel (as root), how far off the clock may be
  fs    network file systems that are mounted: whether they answer, and how soon

  --light     what takes less than a second: no transfers, and no counter is watched
  --deep      besides, half a minute of all processors and half of the free memory at full load,
              with results that are known; for a node without work
  --dir DIR   of fs: 1 MiB is written there as well, into a file without a name; may be repeated
  --json      {"verdict", "remedy", "instance_type", "instance_id",
              "findings": [{"check", "verdict", "remedy", "reason", "evidence"}]}; the remedy of
              what fails: reboot, replace (another machine) or none (not the machine's own fault)
  --deadline  of all together, 1 to 50 (50), with --deep to 300 (150): a probe that hangs is a
              finding, too

Exit codes: 0 nothing failed (pass, warn, skipped), 1 something failed, 2 wrong usage, 3 something
failed that a reboot may repair. Fit for Slurm's HealthCheckProgram, which has to set the node's
state itself.
)";

struct Probe {
  const char* name;
  std::vector<Finding> (*run)(const ProbeContext&);
};
// First those that make processes, before any library has threads.
constexpr std::array<Probe, 5> kProbes = {{{"fs", probe_fs},
                                           {"host", probe_host},
                                           {"efa", probe_efa},
                                           {"net", probe_net},
                                           {"gpu", probe_gpu}}};

constexpr unsigned kDeadlineSeconds = 50;
constexpr unsigned kDeepDeadlineSeconds = 150;
constexpr unsigned kMostDeepDeadlineSeconds = 300;

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

std::string to_json(const std::vector<Finding>& findings, const MachineIdentity& machine) {
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
                                           {"instance_type", machine.type},
                                           {"instance_id", machine.instance_id},
                                           {"findings", std::move(list)}};
  return json_text(document) + "\n";
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

std::string in_form(const std::vector<Finding>& findings, const MachineIdentity& machine,
                    bool json) {
  return json ? to_json(findings, machine) : to_text(findings);
}

struct Options {
  std::string check;  // a probe's name, or all
  bool json = false;
  CheckDepth depth = CheckDepth::kFull;
  std::vector<std::string> directories;
  unsigned deadline_s = 0;  // 0 = the usual one
};

std::optional<Options> parse(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--json") {
      options.json = true;
    } else if ((word == "--light" || word == "--deep") && options.depth == CheckDepth::kFull) {
      options.depth = word == "--light" ? CheckDepth::kLight : CheckDepth::kDeep;
    } else if (word == "--dir" && i + 1 < arguments.size()) {
      options.directories.push_back(arguments[++i]);
    } else if (word == "--deadline" && i + 1 < arguments.size()) {
      const long seconds = std::atol(arguments[++i].c_str());
      if (seconds < 1 || seconds > kMostDeepDeadlineSeconds) return std::nullopt;
      options.deadline_s = static_cast<unsigned>(seconds);
    } else if (options.check.empty() &&
               (word == "all" || std::any_of(kProbes.begin(), kProbes.end(),
                                             [&](const Probe& p) { return word == p.name; }))) {
      options.check = word;
    } else {
      return std::nullopt;
    }
  }
  const bool is_deep = options.depth == CheckDepth::kDeep;
  if (options.deadline_s == 0)
    options.deadline_s = is_deep ? kDeepDeadlineSeconds : kDeadlineSeconds;
  const bool fits = !options.check.empty() && (is_deep || options.deadline_s <= kDeadlineSeconds);
  return fits ? std::optional(options) : std::nullopt;
}

// Not the machine's own fault alone, where it hangs.
Remedy remedy_of_silence(const std::string& probe) {
  return probe == "net" || probe == "fs" ? Remedy::kNone : Remedy::kReboot;
}

void expect_answer_of(const std::string& probe, const MachineIdentity& machine,
                      const Options& options) {
  const Finding late{probe + ".deadline",
                     Verdict::kFail,
                     "no answer within " + std::to_string(options.deadline_s) + " s",
                     {},
                     remedy_of_silence(probe)};
  const std::string text = in_form({late}, machine, options.json);
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
  if (!arguments.empty() && arguments[0] == "network") {
    // As the ranks of a job there have it, so that NCCL does what it would do for them.
    for (const auto& [name, value] : machine_environment(program_directory).variables) {
      ::setenv(name.c_str(), value.c_str(), 0);
    }
    return run_check_network({arguments.begin() + 1, arguments.end()},
                             {program_directory + "/hpagent", count_efa_devices()});
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
  context.depth = options->depth;
  context.directories = options->directories;
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
  expect_answer_of(options->check, machine, *options);
  ::alarm(options->deadline_s);
  for (const Probe& probe : kProbes) {
    if (options->check != "all" && options->check != probe.name) continue;
    expect_answer_of(probe.name, machine, *options);
    const auto found = probe.run(context);
    findings.insert(findings.end(), found.begin(), found.end());
  }
  ::alarm(0);
  std::fputs(in_form(findings, machine, options->json).c_str(), stdout);
  return exit_code_of(findings);
}

}  // namespace hpctl::agent
