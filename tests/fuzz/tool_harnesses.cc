// SPDX-License-Identifier: Apache-2.0
// What the command line and agents read besides: plans of chaos, options, files of the cluster and
// of programs.
#include <algorithm>
#include <cstdlib>

#include "agent/error_file.h"
#include "agent/holder/progress_file.h"
#include "common/authority/certificates.h"
#include "common/base/plausible.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/cluster_conf.h"
#include "hpctl/audit_file.h"
#include "hpctl/chaos_plan.h"
#include "hpctl/job_table.h"
#include "hpctl/migrate/shell_script.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/scratch.h"

namespace hpctl::fuzz {
namespace {

// ---- files of programs --------------------------------------------------------------------------

void require_sound_steps(const agent::ProgressSample& sample) {
  require(sample.step <= kMaxStep && sample.tokens <= kMaxStep, "a step that no job reaches");
  require(is_believable(sample.step_took), "a step of more than 31 years");
}

// Twice: the first half, then all of it.
void run_progress_file(std::string_view input) {
  const std::string path = put_file("progress", input.substr(0, input.size() / 2));
  agent::ProgressFile file(path);
  require_sound_steps(file.sample());
  put_file("progress", input);
  require_sound_steps(file.sample());
}

std::vector<std::string> progress_file_seeds() {
  return {"1\n2 4096\n3 4096\n", " 12\t800 \r\n", std::string(300, '7') + "\n5\n"};
}

void run_error_file(std::string_view input) {
  require_readable(agent::read_error_file(put_file("error.json", input)), "the cause of an exit");
}

std::vector<std::string> error_file_seeds() {
  return {R"({"message":{"message":"RuntimeError: a\nb","extraInfo":{"timestamp":"1"}}})",
          R"({"message":"\u001b[31mred\u0007"})"};
}

// Of a job's user, who may have written anything there.
void run_audit_log(std::string_view input) {
  const auto found = read_audit_log(put_file("audit.jsonl", input));
  require(found.ok(), "a file that is there");
  const auto lines = static_cast<size_t>(std::count(input.begin(), input.end(), '\n')) + 1;
  require(found->lines.size() + found->damaged <= lines, "more lines than there are");
  for (const AuditLine& line : found->lines) {
    require(line.wall_ms > 0 && !line.text("call").empty(), "a line that says nothing");
    require(!what_was_asked(line).empty() && !what_became_of_it(line).empty(), "nothing is said");
    (void)where_from(line);
    (void)line.who();
  }
}

std::vector<std::string> audit_log_seeds() {
  return {
      R"({"time":"2027-01-15T08:00:01.000Z","call":"QuarantineNode","uid":0,"user":"root",)"
      R"("role":"operator","from":"ipv4:10.0.0.7:4711","job":17,"arguments":"node=n1",)"
      R"("outcome":"OK"})"
      "\n"
      R"({"time":"2027-01-15T08:00:02.000Z","call":"further refused calls","from":"ipv6:[::1]:4",)"
      R"("count":80,"outcome":"REFUSED","why":"x"})"
      "\n"};
}

// /etc/hpctl/cluster.conf
void run_cluster_conf(std::string_view input) {
  ::setenv("HPCTL_SYSROOT", scratch().c_str(), 1);
  put_file("etc/hpctl/cluster.conf", input);
  const auto address = cluster_address();
  const auto ca = cluster_ca();
  ::unsetenv("HPCTL_SYSROOT");
  if (!ca.ok()) require_explained(ca.error(), "cluster.conf");
  if (!address.ok()) return require_explained(address.error(), "cluster.conf");
  const auto commas = std::count(address->begin(), address->end(), ',');
  require(commas < static_cast<ptrdiff_t>(kMaxClusterAddresses), "too many addresses");
  require_readable(*address, "addresses");
}

std::vector<std::string> cluster_conf_seeds() {
  return {"# head nodes\n\nHPCTL_CLUSTER=head-1:7717,head-2:7717\n", "HPCTL_CLUSTER=\n",
          "HPCTL_CLUSTER=head:7301\nHPCTL_CLUSTER_CA=/etc/hpctl/ca.pem\n"};
}

// A bundle of certificates, which an operator copied.
void run_certificates(std::string_view input) {
  const auto all = read_certificates(std::string(input), "ca.pem");
  if (!all.ok()) return require_explained(all.error(), "ca.pem");
  require(!all->empty() && all->size() <= kMaxCertificates, "too many certificates");
  for (const CertificateFacts& one : *all) {
    require_readable(one.name, "a name");
    require(one.fingerprint.size() == 95, "a fingerprint has 32 bytes");
  }
}

std::vector<std::string> certificates_seeds() {
  const auto made = make_authority("head", 1'700'000'000, 86'400);
  require(made.ok(), "no certificate to begin with");
  return {made->certificate, made->certificate + "\n# two\n" + made->certificate};
}

// ---- the command line ---------------------------------------------------------------------------

// Options of `hpctl ps`.
void run_list_option(std::string_view input) {
  const std::string text(input);
  if (const auto states = parse_states(text); !states.ok()) require_explained(states.error());
  if (const auto order = parse_order(text); !order.ok()) require_explained(order.error());
}

std::vector<std::string> list_option_seeds() { return {"RUNNING,FAILED", "live", "-step", "name"}; }

void run_chaos_plan(std::string_view input) {
  const auto plan = parse_chaos_plan(input, "plan.yaml");
  if (!plan.ok()) {
    require_readable(plan.error().message, "an error", true);
    require(plan.error().message.find("plan.yaml") != std::string::npos, "which file?");
    return;
  }
  require(plan->faults.size() <= static_cast<size_t>(kMaxPlannedFaults), "too many faults");
  for (const PlannedFault& fault : plan->faults) {
    require(fault.after_ms >= 0, "a fault before the job began");
  }
}

std::vector<std::string> chaos_plan_seeds() {
  return {
      "seed: 7\nfaults:\n  - {fault: kill-worker, rank: 1, after: 10s}\n"
      "  - {fault: stop-worker, every: 1m, count: 20}\n",
      "trace:\n  period: 54d\n  faster: 1000\n  count: 5\n  causes:\n"
      "    - {cause: faulty GPU, count: 148, faults: [crash-worker]}\n"};
}

// A batch script for `hpctl migrate`.
void run_shell_script(std::string_view input) {
  const auto script = migrate::read_shell_script(std::string(input));
  const auto lines = std::count(input.begin(), input.end(), '\n') + 1;
  const auto check_line = [&](int line) {
    require(line >= 1 && line <= lines, "line " + std::to_string(line) + " of a script");
  };
  for (const auto& [line, text] : script.directives) check_line(line);
  for (const auto& [line, why] : script.unreadable) check_line(line);
  for (const auto& variable : script.exports) check_line(variable.line);
  for (const auto& command : script.commands) {
    check_line(command.line);
    require(!command.words.empty(), "a command without a word");
  }
}

std::vector<std::string> shell_script_seeds() {
  return {
      "#!/bin/bash\n#SBATCH -N2\nA=(--x 1 # no\n \"$B\")\nA+=(${C:-d})\nsrun python \"${A[@]}\"\n",
      "if [ ! -z $X ] && true; then export Y=$((2*$Z)); else Y='a b'; fi\ncat <<E\nx\nE\n"};
}

}  // namespace

std::vector<Harness> tool_harnesses() {
  return {{"progress_file", run_progress_file, progress_file_seeds},
          {"error_file", run_error_file, error_file_seeds},
          {"audit_log", run_audit_log, audit_log_seeds},
          {"cluster_conf", run_cluster_conf, cluster_conf_seeds},
          {"certificates", run_certificates, certificates_seeds},
          {"list_option", run_list_option, list_option_seeds},
          {"shell_script", run_shell_script, shell_script_seeds},
          {"chaos_plan", run_chaos_plan, chaos_plan_seeds, {"examples/chaos-llama3.yaml"}}};
}

}  // namespace hpctl::fuzz
