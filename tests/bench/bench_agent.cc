// SPDX-License-Identifier: Apache-2.0
// What the agent adds to a start and to a fault, seen from the controller's end of the stream.
//
//   bench_agent [RUNS]
//
// At rest, with no worker: the share of a core that the processes of a node take, and their memory.
// Then how long `hpagent check all` takes on this machine, and with --light: five times each.
// Per run, with one worker: StartWorkers sent -> worker's main() runs; StartWorkers sent ->
// ActionDone received; SIGKILL of the worker -> WorkerExited received; StopWorkers sent ->
// ActionDone received. Prints a table of medians and worst cases, then one line of JSON. Nothing is
// asserted: figures are for people.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "controller/core/failure_detector.h"
#include "tests/bench/process_usage.h"
#include "tests/support/program_output.h"
#include "tests/unit/agent/node_under_test.h"

namespace hpctl::test {
namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

using Samples = std::map<std::string, std::vector<double>>;

constexpr int kRestSeconds = 20;

// Holder, reaper and agent proper.
std::vector<pid_t> processes_of(const NodeUnderTest& node) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code unreadable;  // it has ended, or is no process
    const auto program = std::filesystem::read_symlink(entry.path() / "exe", unreadable);
    if (!unreadable && program == node.program("hpagent")) {
      pids.push_back(static_cast<pid_t>(std::stol(entry.path().filename())));
    }
  }
  return pids;
}

void rest(const NodeUnderTest& node) {
  const std::vector<pid_t> pids = processes_of(node);
  double cpu_s = 0;
  for (const pid_t pid : pids) cpu_s -= bench::usage_of(pid).cpu_s;
  const double from = now_ms();
  ::sleep(kRestSeconds);
  double rss_mib = 0;
  double pss_mib = 0;
  for (const pid_t pid : pids) {
    cpu_s += bench::usage_of(pid).cpu_s;
    rss_mib += bench::usage_of(pid).rss_mib;
    pss_mib += bench::pss_mib(pid);
  }
  std::printf(
      "at rest: %zu processes, %.2f %% of a core, %.1f MiB (resident, each by itself %.1f)\n",
      pids.size(), 100'000 * cpu_s / (now_ms() - from), pss_mib, rss_mib);
}

// What the checks find is not looked at: a machine without GPUs has none to find.
void check(const std::string& option, const std::string& name, Samples& samples) {
  constexpr int kChecks = 5;
  for (int i = 0; i < kChecks; ++i) {
    const double from = now_ms();
    run_program(product_program("hpagent") + " check all " + option + " 2>&1");
    samples[name].push_back(now_ms() - from);
  }
}

void measure(NodeUnderTest& node, uint64_t generation, Samples& samples) {
  const uint64_t seq = 2 * generation;
  double from = now_ms();
  const v1::ActionDone done = node.start(seq, generation, {0}, {"map", "step", "1", "hang"});
  samples["start_to_done_ms"].push_back(now_ms() - from);
  const AgentMessage heartbeat = node.controller_.take([&](const AgentMessage& message) {
    return message.has_heartbeat() && message.heartbeat().workers_size() == 1 &&
           message.heartbeat().workers(0).generation() == generation &&
           message.heartbeat().workers(0).first_step_unix_ns() != 0;
  });
  const double main_ms =
      static_cast<double>(heartbeat.heartbeat().workers(0).start_unix_ns()) / 1e6;
  samples["start_to_main_ms"].push_back(main_ms - from);
  if (generation % 2 == 0) {
    from = now_ms();
    ::kill(static_cast<pid_t>(done.workers(0).pid()), SIGKILL);
    node.exited();
    samples["sigkill_to_report_ms"].push_back(now_ms() - from);
  } else {
    from = now_ms();
    node.controller_.send(node.stop_workers(seq + 1, generation, 0));
    node.done(seq + 1);
    samples["stop_to_done_ms"].push_back(now_ms() - from);
    node.exited();
  }
}

void print(Samples& samples) {
  std::printf("%-24s %10s %10s\n", "", "median ms", "worst ms");
  std::string json;
  for (auto& [name, values] : samples) {
    std::sort(values.begin(), values.end());
    const double median = values[values.size() / 2];
    std::printf("%-24s %10.2f %10.2f\n", name.c_str(), median, values.back());
    json += (json.empty() ? "{\"" : ", \"") + name + "\": " + std::to_string(median);
  }
  std::printf("%s}\n", json.c_str());
}

}  // namespace
}  // namespace hpctl::test

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 100;
  hpctl::test::Samples samples;
  {
    hpctl::test::NodeUnderTest node;
    node.controller_.behaviour.heartbeat_ms = hpctl::core::kBeatMs;
    node.connect();
    hpctl::test::rest(node);
    hpctl::test::check("", "check_all_ms", samples);
    hpctl::test::check("--light", "check_all_light_ms", samples);
    for (int run = 1; run <= runs; ++run) {
      hpctl::test::measure(node, static_cast<uint64_t>(run), samples);
    }
  }
  hpctl::test::print(samples);
  return 0;
}
