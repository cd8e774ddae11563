// SPDX-License-Identifier: Apache-2.0
// hpctl chaos: breaks parts of a running job on purpose and reports what became of it.
#include "common/base/quantity.h"
#include "hpctl/chaos_run.h"
#include "hpctl/exit_codes.h"
#include "hpctl/verbs.h"

namespace hpctl {
namespace chaos_parts {
namespace {

constexpr const char* kHelp = R"(
Injects faults into a running job, one at a time. For each it reports whether hpctl found it, what
hpctl blamed, the time to detect and to recover, and how many completed steps were done again. The
next fault waits until the job trains again. The end shows recall (faults found), precision (right
blame among all blame) and the run's ETTR. Each fault is an event in the job's history
(FaultInjected), also in hpctl why; no decision depends on that event.

The job needs debug: {chaos: true} in its job.yaml. The faults:

  kill-worker      SIGKILL to a worker and what it started
  stop-worker      SIGSTOP: it is there and does nothing
  crash-worker     SIGSEGV
  hang-worker      built-in trainer: an endless loop inside a step
  exit-worker      built-in trainer: it ends inside a step with an exit code other than 0
  nan-gradient     built-in trainer: a worker's gradients of one step are NaN; found when hpctl
                   reports a bad step. workload.train.stability decides what follows
  oom-worker       built-in trainer: it takes memory inside a step until the kernel kills it, if a
                   cgroup limits its memory; otherwise it kills itself with SIGKILL
  full-disk        built-in trainer: a worker's part of the next checkpoint finds the disk full, and
                   again for 5 s; training goes on without
  slow-disk        built-in trainer: a worker's part of the next checkpoint takes 5 s longer; found
                   when the checkpoint is durable all the same
  storage-error    built-in trainer: a worker's part of the next checkpoint gets I/O errors, and
                   again for 5 s; training goes on without, and nothing is deleted
  storage-pause    built-in trainer: a worker's part of the next checkpoint waits 20 s for storage;
                   found when the checkpoint is durable all the same
  storage-away     kill-worker, and for 5 s the controller cannot read the checkpoint directory; the
                   job waits for it, and blames no node for that
  flip-parameter   built-in trainer: a bit of a parameter is inverted. Nothing finds that: the job
                   goes on with another result, and the report says so
  slow-worker      built-in trainer: for 40 steps, and 5 s, its passes take three times as long;
                   found when hpctl names it as a straggler
  delay-collectives
                   built-in trainer: for 5 s each message of a rank to its peers goes on its way
                   0.1 s late. Nothing finds that unless a limit of the job is passed
  lose-collectives built-in trainer: no message of a rank to its peers arrives any more, and no
                   connection breaks; found as a hang
  cut-peers        built-in trainer: a rank's connections to its peers break
  kill-agent       SIGKILL to a node's agent; training goes on, its holder starts another
  stop-agent       SIGSTOP to it; its holder replaces it
  cut-agent        agent and controller do not reach each other for 3 s; training goes on
  delay-messages   for 5 s the messages between agent and controller are 2 s late. Nothing finds
                   that unless a limit of the job is passed, and the report says so
  lose-messages    for 3 s these messages are lost while the connection looks whole; then it breaks
  kill-holder      SIGKILL to a node's holder: all of the node's processes end
  stop-holder      SIGSTOP to it; the agent ends it, and the node with it
  kill-controller  SIGKILL to the job's controller; training goes on, another one is started
  corrupt-checkpoint
                   built-in trainer: kill-holder, and a byte of the newest checkpoint is inverted
                   before it is read. That checkpoint is lost; the one before it takes its place

A plan lists faults, targets and times in order. Without rank and node the seed chooses. Without a
time the fault comes at once:

  seed: 7
  recover_within: 2m     # else the fault counts as not survived, and the run ends; 2m
  faults:
    - {fault: kill-worker, rank: 3, at_step: 20}
    - {fault: kill-holder, node: n1, after: 10s}    # after the job trains again
    - {fault: stop-worker, every: 1m, count: 5}     # after random pauses, 1m in the mean

hpctl checks the plan against the job before the first fault. Instead of faults, a plan can list
causes with their counts in a real run. hpctl then draws `count` faults at random with these shares,
at the real rate times `faster` (without `count`: as many as there were):

  seed: 7
  trace:
    period: 54d
    faster: 2000
    count: 30
    causes:
      - {cause: faulty GPU, count: 148, faults: [crash-worker, exit-worker]}
      - {cause: host maintenance, count: 32, faults: [kill-holder]}

examples/chaos-llama3.yaml has the table of the Llama 3 report. hpctl submit FILE --chaos PLAN
starts a job and its plan together.

Ctrl-C ends the run with the report so far, and leaves the job running.

Examples:
  hpctl chaos quickstart --plan faults.yaml
  hpctl chaos 3 --faults kill-worker,kill-holder --every 1m --count 20 --seed 7 --json

Options:
  --plan FILE    the plan
  --faults LIST  without a plan: draw each fault from this list
  --every TIME   with --faults: the mean of the random pauses (default 30s)
  --count N      with --faults: the number of faults (default 1)
  --seed S       seed of the random choices (default 1)
  --json         one object: {"job", "name", "state", "seed", "planned", "interrupted", "faults":
                 [{"time", "seq", "injected", "fault", "rank", "node", "at_step", "found", "blame",
                 "blamed", "noticed_ms", "back_ms", "lost_steps", "problem"}], "totals":
                 {"injected", "found", "recall", "blamed_right", "blamed_wrong", "blamed_nobody",
                 "precision", "lost_steps", "wall_ms", "lost_ms", "ettr"}}

Exit codes: 0 every fault was injected, found and survived, 1 one was not, or no such job, or chaos
is not allowed for it, 2 wrong arguments or a bad plan, 3 no controller answers, 130 interrupted
)";

Result<ChaosPlan> plan_of(const Invocation& invocation) {
  const auto wrong = [](const std::string& message) {
    return Error{ErrorCode::kInvalidArgument, message + "\n"};
  };
  if (invocation.has("--plan") == invocation.has("--faults")) {
    return wrong("one of --plan and --faults is required");
  }
  HP_TRY_ASSIGN(const auto count, number_option(invocation, "--count", 1, kMaxPlannedFaults));
  HP_TRY_ASSIGN(const auto seed, number_option(invocation, "--seed", 0, INT64_MAX));
  if (invocation.has("--plan")) {
    if (count || seed || invocation.has("--every")) {
      return wrong("--every, --count and --seed go with --faults; a plan has its own");
    }
    HP_TRY_ASSIGN(ChaosPlan plan, load_chaos_plan(invocation.options.at("--plan")));
    return plan;
  }
  int64_t every_ms = 30'000;
  if (invocation.has("--every")) {
    const auto parsed = parse_duration_ms(invocation.options.at("--every"));
    if (!parsed.ok()) return wrong("--every: " + parsed.error().message);
    every_ms = *parsed;
  }
  return make_chaos_plan(invocation.options.at("--faults"), every_ms, count.value_or(1),
                         static_cast<uint64_t>(seed.value_or(1)));
}

int run(Invocation& invocation) {
  const Terminal& terminal = invocation.terminal;
  const auto plan = plan_of(invocation);
  if (!plan.ok()) {
    terminal.err << plan.error().message;
    return kExitUsage;
  }
  const auto job = open_job(invocation);
  if (!job.ok()) return report(terminal, job.error());
  return run_chaos_and_report(invocation, *job, *plan, ChaosStart::kRunning);
}

}  // namespace
}  // namespace chaos_parts

Verb chaos_verb() {
  return {"chaos",
          "JOB --plan FILE | --faults LIST [--every TIME] [--count N] [--seed S]",
          "break parts of a job on purpose, report what became of it",
          chaos_parts::kHelp,
          1,
          1,
          {{"--plan", nullptr, "FILE"},
           {"--faults", nullptr, "LIST"},
           {"--every", nullptr, "TIME"},
           {"--count", nullptr, "N"},
           {"--seed", nullptr, "S"}},
          chaos_parts::run};
}

}  // namespace hpctl
