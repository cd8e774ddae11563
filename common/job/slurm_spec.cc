// SPDX-License-Identifier: Apache-2.0
// The Slurm keys of job.yaml. Options beyond hpctl's own keys are sbatch's; options that would
// override hpctl's own settings are refused by name.
#include <algorithm>
#include <array>
#include <string_view>

#include "common/job/job_spec.h"
#include "common/job/spec_checks.h"

namespace hpctl {
namespace {

constexpr int64_t kMaxTimeMinutes = int64_t{365} * 24 * 60;
constexpr size_t kMaxText = 4096;

// Ends up in command lines and in Slurm's request: one line without control characters.
bool is_one_line(const std::string& text) {
  return text.find_first_of("\n\r\t") == std::string::npos;
}

struct OwnOption {
  std::string_view name;
  std::string_view reason;
};

constexpr std::string_view kOfHpctl = "hpctl sets it itself";
constexpr std::string_view kNotASubmission = "it would not submit the job";

// clang-format off
constexpr OwnOption kOwnOptions[] = {
    {"account", "use slurm.account"},
    {"array", "hpctl recovers one job by its id; submit a job for each index"},
    {"begin", "use slurm.begin"},
    {"chdir", kOfHpctl},
    {"cluster", "the job runs on the cluster that SLURM_CONF names"},
    {"clusters", "the job runs on the cluster that SLURM_CONF names"},
    {"comment", "use slurm.comment"},
    {"constraint", "use slurm.constraint"},
    {"container", "use slurm.container"},
    {"container-image", "use slurm.container"},
    {"container-mounts", "use slurm.container"},
    {"cpus-per-task", "use slurm.cpus_per_task"},
    {"dependency", "use slurm.dependency"},
    {"error", kOfHpctl},
    {"exclude", "use slurm.exclude"},
    {"exclusive", "use slurm.exclusive"},
    {"export", "the job gets the environment of hpctl submit; use env.set"},
    {"export-file", "the job gets the environment of hpctl submit; use env.set"},
    {"gid", kOfHpctl},
    {"gres", "use slurm.gres"},
    {"help", kNotASubmission},
    {"input", kOfHpctl},
    {"job-name", "use name"},
    {"licenses", "use slurm.licenses"},
    {"mail-type", "use slurm.mail_type"},
    {"mail-user", "use slurm.mail_user"},
    {"mem", "use slurm.mem"},
    {"mem-per-cpu", "use slurm.mem, which is of a node"},
    {"mem-per-gpu", "use slurm.mem, which is of a node"},
    {"nice", "use slurm.nice"},
    {"no-kill", "hpctl sets it itself: without it a lost node ends the job"},
    {"no-requeue", "hpctl sets --requeue itself; recovery.on_node_loss says when it is used"},
    {"nodefile", "use slurm.nodelist"},
    {"nodelist", "use slurm.nodelist"},
    {"nodes", "use nodes"},
    {"ntasks", "hpctl starts one agent on each node; use workers_per_node"},
    {"ntasks-per-node", "hpctl starts one agent on each node; use workers_per_node"},
    {"open-mode", kOfHpctl},
    {"output", kOfHpctl},
    {"oversubscribe", "use slurm.exclusive: false"},
    {"parsable", kOfHpctl},
    {"partition", "use slurm.partition"},
    {"qos", "use slurm.qos"},
    {"quiet", kOfHpctl},
    {"requeue", "hpctl sets it itself, --requeue=expedite where Slurm allows that"},
    {"reservation", "use slurm.reservation"},
    {"share", "use slurm.exclusive: false"},
    {"signal", "use slurm.signal"},
    {"tasks-per-node", "hpctl starts one agent on each node; use workers_per_node"},
    {"test-only", kNotASubmission},
    {"time", "use slurm.time"},
    {"uid", kOfHpctl},
    {"usage", kNotASubmission},
    {"verbose", kOfHpctl},
    {"version", kNotASubmission},
    {"wait", "use hpctl submit --wait"},
    {"workdir", kOfHpctl},
    {"wrap", "hpctl writes the batch script; use workload.command"},
};
// clang-format on

// sbatch takes any unique beginning of an option for the option, so a beginning counts here too.
const OwnOption* find_own(std::string_view name) {
  const auto* exact = std::find_if(std::begin(kOwnOptions), std::end(kOwnOptions),
                                   [&](const OwnOption& own) { return own.name == name; });
  if (exact != std::end(kOwnOptions)) return exact;
  const auto* begun =
      std::find_if(std::begin(kOwnOptions), std::end(kOwnOptions),
                   [&](const OwnOption& own) { return own.name.starts_with(name); });
  return begun != std::end(kOwnOptions) ? begun : nullptr;
}

// "" when it may be given.
std::string problem_of_extra(const std::string& option) {
  if (!option.starts_with("--") || option.size() < 3 || option[2] == '=' || !is_one_line(option) ||
      option.size() > kMaxText) {
    return "expected long options of sbatch, --NAME or --NAME=VALUE; found \"" + option + "\"";
  }
  const std::string name = option.substr(2, option.find('=') - 2);
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") != std::string::npos) {
    return "expected --NAME=VALUE, with = between name and value; found \"" + option + "\"";
  }
  const OwnOption* own = find_own(name);
  if (own == nullptr) return "";
  const std::string full =
      own->name == name ? "" : ", which sbatch may take for --" + std::string(own->name);
  return "--" + name + full + " cannot be given here: " + std::string(own->reason);
}

void check_container(const ContainerSpec& container, SpecChecks& checks) {
  if (!is_one_line(container.image)) {
    checks.fail("slurm.container.image", "expected a path or an image name on one line");
  }
  for (const std::string& mount : container.mounts) {
    const bool good = !mount.empty() && mount[0] == '/' && is_one_line(mount) &&
                      mount.find(',') == std::string::npos;
    if (good) continue;
    checks.fail("slurm.container.mounts",
                "expected absolute paths /SOURCE[:/TARGET[:FLAGS]] without commas; found \"" +
                    mount + "\"");
    break;
  }
  if (container.image.empty() && !container.mounts.empty()) {
    checks.fail("slurm.container.image", "expected an image, since mounts are given");
  }
}

void check_extra(const std::vector<std::string>& options, SpecChecks& checks) {
  constexpr size_t kMostOptions = 64;
  if (options.size() > kMostOptions) {
    checks.fail("slurm.extra", "expected at most " + std::to_string(kMostOptions) +
                                   " options, found " + std::to_string(options.size()));
    return;
  }
  for (const std::string& option : options) {
    const std::string problem = problem_of_extra(option);
    if (problem.empty()) continue;
    checks.fail("slurm.extra", problem);
    return;
  }
}

}  // namespace

void check_slurm(const SlurmSpec& s, SpecChecks& checks) {
  const auto word = [&](const char* key, const std::string& text) {
    if (is_one_line(text) && text.find(' ') == std::string::npos && text.size() <= kMaxText) return;
    checks.fail(std::string("slurm.") + key, "expected one word; found \"" + text + "\"");
  };
  word("partition", s.partition);
  word("account", s.account);
  word("qos", s.qos);
  checks.range("slurm.time", s.time_minutes, 0, kMaxTimeMinutes);
  word("gres", s.gres);
  checks.range("slurm.cpus_per_task", s.cpus_per_task, 0, 65'535);
  word("constraint", s.constraint);
  word("reservation", s.reservation);
  word("nodelist", s.nodelist);
  word("exclude", s.exclude);
  checks.range("slurm.mem", s.mem_mb, -1, int64_t{1} << 40);
  word("dependency", s.dependency);
  word("begin", s.begin);
  word("mail_user", s.mail_user);
  word("mail_type", s.mail_type);
  checks.range("slurm.nice", s.nice, -2'147'483'645, 2'147'483'645);
  word("licenses", s.licenses);
  if (!is_one_line(s.comment) || s.comment.size() > kMaxText) {
    checks.fail("slurm.comment", "expected a text on one line");
  }
  checks.range("slurm.signal", s.warning_seconds, 30, 65'535);
  check_extra(s.extra, checks);
  check_container(s.container, checks);
}

std::vector<std::string> sbatch_options(const SlurmSpec& s) {
  std::vector<std::string> options;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) options.push_back(std::string("--") + name + "=" + value);
  };
  add("dependency", s.dependency);
  add("begin", s.begin);
  add("mail-user", s.mail_user);
  add("mail-type", s.mail_type);
  if (s.nice != 0) add("nice", std::to_string(s.nice));
  add("licenses", s.licenses);
  options.insert(options.end(), s.extra.begin(), s.extra.end());
  return options;
}

}  // namespace hpctl
