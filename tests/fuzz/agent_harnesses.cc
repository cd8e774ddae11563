// SPDX-License-Identifier: Apache-2.0
// What an agent finds on its node: pages and files of workers, the kernel's log, facts about
// machines.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "agent/core/progress.h"
#include "agent/holder/progress_view.h"
#include "agent/nodecheck/core/environment_rules.h"
#include "agent/nodecheck/core/health.h"
#include "agent/nodecheck/network/messages.h"
#include "agent/nodecheck/probes/kernel_log.h"
#include "common/base/plausible.h"
#include "common/worker/arena_header.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/scratch.h"

namespace hpctl::fuzz {
namespace {

// ---- the progress page, read again and again while the worker writes ----------------------------

void require_sound(const agent::ProgressSample& sample) {
  require(std::max({sample.step, sample.checkpoint_step, sample.collective, sample.tokens,
                    sample.figures.snapshot_step}) <= kMaxStep,
          "a step that no job reaches");
  require(is_believable(sample.step_took), "a step of more than 31 years");
  require(sample.phase <= static_cast<uint32_t>(WorkerPhase::kFinished), "an unknown phase");
}

void run_progress_page(std::string_view input) {
  agent::ProgressWatch watch;
  watch.worker_started(0, 1);
  agent::Commit newest;
  uint64_t bad_steps = 0;
  constexpr size_t kMostPages = 4;
  for (size_t i = 0; i < kMostPages && (i == 0 || !input.empty()); ++i) {
    std::string page(input.substr(0, kProgressPageBytes));
    input.remove_prefix(std::min(input.size(), page.size()));
    page.resize(kProgressPageBytes);
    const MemoryFile file(page);
    const ProgressView view(file.fd());
    const agent::ProgressSample sample = view.sample();
    require_sound(sample);
    const auto findings = watch.sampled(0, 1, sample);
    if (findings.commit) {
      require(newest < *findings.commit, "a commit that falls");
      newest = *findings.commit;
    }
    for (const agent::BadStepNews& news : watch.bad_step(1, 0, view.bad_steps())) {
      require(news.mark.number > bad_steps, "a bad step is told twice");
      bad_steps = news.mark.number;
      require_readable(news.step.reason, "the reason of a bad step");
    }
    require_readable(view.message(), "last words");
  }
}

std::string some_page() {
  std::string bytes(kProgressPageBytes, '\0');
  auto& page = *reinterpret_cast<ProgressPage*>(bytes.data());
  page.magic = kProgressMagic;
  page.version = kProgressVersion;
  page.phase = static_cast<uint32_t>(WorkerPhase::kTraining);
  page.step = 12;
  page.tokens = 4096;
  page.step_ns = 1'000'000;
  page.checkpoint_step = 10;
  page.message_length = 5;
  std::memcpy(page.message, "words", 5);
  page.bad_steps = 2;
  for (uint64_t number = 1; number <= 2; ++number) {
    BadStepSlot& slot = page.bad_step[number - 1];
    slot.number = number;
    slot.finding = static_cast<uint32_t>(BadStepFinding::kLossSpike);
    slot.outcome = static_cast<uint32_t>(BadStepOutcome::kSkipped);
    slot.reason_length = 6;
    std::memcpy(slot.reason, "reason", 6);
  }
  return bytes;
}

std::vector<std::string> progress_page_seeds() {
  return {some_page(), some_page() + some_page(), some_page().substr(0, 100)};
}

// ---- the arena of a worker that has died --------------------------------------------------------

void run_arena(std::string_view input) {
  const MemoryFile file(input);
  const ArenaSeals seals = read_seals(file.fd());
  require(seals.own.size() + seals.copies.size() <= kArenaSlots, "more seals than slots");
  for (const auto* list : {&seals.own, &seals.copies}) {
    for (size_t i = 0; i < list->size(); ++i) {
      const Seal& seal = list->at(i);
      require(seal.step <= kMaxStep && seal.generation <= kMaxGeneration, "a made-up seal");
      require(i == 0 || list->at(i - 1).step >= seal.step, "seals are not in order");
    }
  }
}

std::vector<std::string> arena_seeds() {
  std::string bytes(sizeof(ArenaHeader), '\0');
  auto& header = *reinterpret_cast<ArenaHeader*>(bytes.data());
  header.magic = kArenaMagic;
  header.version = kArenaVersion;
  header.shard_count = 2;
  for (ArenaSlotHeader& slot : header.slots) slot.step = kUnsealed;
  header.slots[1].step = 41;
  header.slots[1].generation = 3;
  return {bytes};
}

// ---- the machine --------------------------------------------------------------------------------

agent::HealthTable some_table() {
  agent::HealthTable table;
  table.xids = {{79, agent::XidMeaning::kReplace}, {13, agent::XidMeaning::kApp}};
  return table;
}

void run_kernel_log(std::string_view input) {
  static const agent::HealthTable table = some_table();
  ::setenv("HPCTL_SYSROOT", scratch().c_str(), 1);
  put_file("proc/uptime", "4000.50 100.00\n");
  put_file("dev/kmsg", input);
  const auto messages = agent::recent_kernel_messages(3600);
  ::unsetenv("HPCTL_SYSROOT");
  require(messages.ok(), "a log that cannot be read");
  std::vector<agent::XidMessage> xids;
  for (const std::string& message : *messages) {
    if (auto xid = agent::parse_xid(message)) xids.push_back(std::move(*xid));
  }
  const agent::Finding finding = agent::judge_xids(xids, table);
  require_readable(finding.reason, "a finding");
  for (const auto& [text, count] : finding.evidence) require_readable(text, "evidence");
}

std::vector<std::string> kernel_log_seeds() {
  return {
      "6,1,3999000000,-;NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus.\n"
      " SUBSYSTEM=pci\n6,2,1000,-;old\n4,3,3999000001,-;NVRM: Xid (PCI:0000:53:00): 13, x\n"};
}

// How long ago, by what the kernel says it has been up.
void run_uptime(std::string_view input) {
  ::setenv("HPCTL_SYSROOT", scratch().c_str(), 1);
  put_file("proc/uptime", input);
  put_file("dev/kmsg", "6,1,3999000000,-;a\n");
  const auto messages = agent::recent_kernel_messages(3600);
  ::unsetenv("HPCTL_SYSROOT");
  if (!messages.ok()) require_explained(messages.error(), "uptime");
}

void run_instances(std::string_view input) {
  const auto table = agent::parse_health_table(input, "instances.json");
  if (!table.ok()) return require_explained(table.error(), "instances.json");
  for (const auto& [type, parts] : table->instances) {
    require(agent::parts_of(*table, type).gpus == parts.gpus, "parts of another type");
  }
}

void run_environment_rules(std::string_view input) {
  const auto rules = agent::parse_environment_rules(input, "environment.json");
  if (!rules.ok()) return require_explained(rules.error(), "environment.json");
  for (const char* type : {"", "p5.48xlarge", "c5.xlarge"}) {
    const auto chosen = agent::environment_for(*rules, type, {});
    require(*type != '\0' || chosen.empty(), "variables for a machine that is not known");
  }
}

// The file by which the nodes of a network check meet lies where others may write.
void run_meeting(std::string_view input) {
  require_round_trip(
      input, [](const std::string& text) { return agent::parse_meeting(text, "/fsx/meeting"); },
      [](const agent::Meeting& meeting) { return agent::to_text(meeting); }, "/fsx/meeting");
}

std::vector<std::string> meeting_seeds() { return {agent::to_text({"10.0.0.1:4711", "00ff00ff"})}; }

std::vector<std::string> uptime_seeds() { return {"4000.50 100.00\n", "0.01 0.00\n"}; }

}  // namespace

std::vector<Harness> agent_harnesses() {
  return {{"progress_page", run_progress_page, progress_page_seeds},
          {"arena", run_arena, arena_seeds},
          {"kernel_log", run_kernel_log, kernel_log_seeds},
          {"uptime", run_uptime, uptime_seeds},
          {"meeting", run_meeting, meeting_seeds},
          {"instances", run_instances, nullptr, {"deploy/instances.json"}},
          {"environment_rules", run_environment_rules, nullptr, {"deploy/environment.json"}}};
}

}  // namespace hpctl::fuzz
