// SPDX-License-Identifier: Apache-2.0
// Weeks of training on a fleet, in simulated time: every decision is the real core's, with all its
// nodes and ranks; the fleet around it answers after the times of `Costs`, and fails as often, and
// of what, as the 16,384 GPUs of Llama 3 did in 54 days (arXiv:2407.21783, table 5). Printed is the
// ETTR: the time of the steps that count, of the time since training began.
//
//   bench_ettr [--gpus N] [--days D] [--join-s J] [--faults-per-day F] [--seed S]
//
// Where a job has replicas of each part of its state (hybrid, groups of 512 here) no completed step
// is lost with a node, as decision 1508 has it. What the seconds of Costs would be on such a fleet
// is an assumption of this program; docs/benchmarks/scale.md says where each comes from.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/plausible.h"
#include "common/base/rng.h"
#include "common/worker/worker_abi.h"
#include "controller/core/hang.h"
#include "tests/unit/core/fake_shell.h"

namespace {

using namespace hpctl;
using namespace hpctl::core;

constexpr int32_t kWorkersPerNode = 8;
constexpr int32_t kShardGroup = 512;
constexpr int32_t kNodesPerSpare = 128;
constexpr int32_t kFewestSpares = 4;
constexpr double kTraceDays = 54;
constexpr double kTraceGpus = 16'384;
constexpr int64_t kDayMs = 86'400'000;
constexpr int64_t kMostSteps = 100'000'000;  // it does not finish

// Milliseconds.
struct Costs {
  int64_t step = 6'000;
  int64_t stall = 10;           // of each step, for what is kept of it
  int64_t node_silent = 1'500;  // a node is gone -> it is known
  int64_t stop = 300;           // StopWorkers -> the survivors have left
  int64_t save = 10'000;        // likewise, where they save first
  int64_t directory = 100;      // each look at it, and each record
  int64_t start = 300;          // StartWorkers -> they run
  int64_t join = 20'000;        // they run -> the first step begins: communicators, warming up
  int64_t load = 60'000;        // besides, from a checkpoint on disk
  int64_t boot = 300'000;       // of a machine
  int64_t repair = 14'400'000;  // of a machine with broken hardware
  int64_t disk_every = 600'000;
};

enum class Kind {
  kWorker,      // a process ends with an error
  kGpu,         // likewise, and the node's hardware is found to be broken
  kNode,        // the machine is gone
  kPlainHang,   // a rank computes for ever, the others wait for it
  kSharedHang,  // all ranks wait: the network
  kPlanned,     // an operator takes a node away
};
constexpr size_t kKinds = 6;
constexpr std::array<const char*, kKinds> kKindNames = {"worker ends", "broken GPU",  "node gone",
                                                        "plain hang",  "shared hang", "planned"};

struct Cause {
  const char* name;
  double count;  // in the trace
  Kind kind;
};
constexpr std::array kCauses = {
    Cause{"faulty GPU", 148, Kind::kGpu},
    Cause{"HBM3", 72, Kind::kGpu},
    Cause{"SRAM", 19, Kind::kGpu},
    Cause{"GPU system processor", 17, Kind::kGpu},
    Cause{"silent data corruption", 6, Kind::kGpu},
    Cause{"software", 54, Kind::kWorker},
    Cause{"others", 20, Kind::kWorker},
    Cause{"unplanned host maintenance", 32, Kind::kNode},
    Cause{"NIC", 7, Kind::kNode},
    Cause{"CPU", 2, Kind::kNode},
    Cause{"NCCL watchdog", 7, Kind::kPlainHang},
    Cause{"switch, cable", 35, Kind::kSharedHang},
    Cause{"planned", 47, Kind::kPlanned},
};

struct Options {
  double gpus = kTraceGpus;
  double days = kTraceDays;
  double faults_per_day = 0;  // 0 = those of the trace, by the number of GPUs
  uint64_t seed = 1;
  Costs costs;
};

double seconds_in_core = 0;

StepResult timed_step(State& state, const Event& event) {
  const auto begin = std::chrono::steady_clock::now();
  StepResult result = step(state, event);
  seconds_in_core +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

class Fleet {
 public:
  explicit Fleet(const Options& options)
      : options_(options), costs_(options.costs), rng_(options.seed) {
    shell_.stepper = &timed_step;
    shell_.checks_table = false;
  }

  void run();
  void print() const;

 private:
  int64_t now() const { return shell_.now_ms; }
  void after(int64_t ms, std::function<void()> task) {
    agenda_.emplace(now() + ms, std::move(task));
  }
  void feed(EventBody body);
  void answer(const Action& action);
  void launch(const Action& action, const LaunchNode& order);
  void stop(const Action& action, const StopWorkers& order);
  void leave(const StopWorkers& order);
  void exit_worker(const Slot& slot, int32_t code, bool by_request, bool keeps_memory);
  void begin_generation();
  void tell_step(uint64_t step);
  void fail();
  void strike(Kind kind, Rank victim);
  void notice(Kind kind, Rank victim);
  void lose(const std::string& node);
  void stop_training(Kind kind);
  uint64_t completed() const;
  bool trains() const { return begun_ms_ >= 0 && now() >= begun_ms_ && broken_ms_ < 0; }

  const Options options_;
  const Costs costs_;
  Rng rng_;
  FakeShell shell_;
  JobId job_;
  std::multimap<int64_t, std::function<void()>> agenda_;
  uint64_t events_ = 0;
  uint64_t faults_ = 0;
  std::map<std::string, int> instances_;  // how many a node has been
  std::map<std::string, bool> broken_;    // its hardware is to be repaired

  Generation generation_;   // whose workers run or have run last
  int64_t begun_ms_ = -1;   // its first step begins; -1 = not known yet
  int64_t broken_ms_ = -1;  // it was struck; -1 = it was not
  int64_t first_begun_ms_ = 0;
  Kind struck_by_ = Kind::kWorker;
  Seal sealed_;  // the newest state in the ranks' memory; step 0 = none
  uint64_t on_disk_ = 0;
  uint64_t disk_generation_ = 0;
  uint64_t recorded_ = 0;
  int64_t from_disk_ = 0;  // generations that began from a checkpoint
  std::array<int64_t, kKinds> counts_{};
  std::array<int64_t, kKinds> cost_ms_{};  // from the fault to the beginning of the next steps
};

void Fleet::feed(EventBody body) {
  ++events_;
  const StepResult result = shell_.feed(std::move(body));
  shell_.log.clear();
  for (const Action& action : result.actions) answer(action);
  const Job& job = shell_.job(result.submitted ? *result.submitted : job_);
  if (has_ended(job.state)) {
    std::fprintf(stderr, "the job has ended as %s: %s\n", to_string(job.state), job.reason.c_str());
    std::exit(1);
  }
  if (job.stage == PlanStage::kNone && job.generation != generation_) {
    job_ = job.id;
    begin_generation();
  }
}

void Fleet::answer(const Action& action) {
  if (const auto* order = std::get_if<LaunchNode>(&action.body)) {
    launch(action, *order);
  } else if (std::holds_alternative<FindCheckpoint>(action.body)) {
    after(costs_.directory, [this, id = action.id] {
      const std::string name = on_disk_ == 0 ? ""
                                             : "step-" + std::to_string(on_disk_) + ".g" +
                                                   std::to_string(disk_generation_);
      feed(CheckpointChosen{id, job_, name, on_disk_, {recorded_}});
    });
  } else if (const auto* record = std::get_if<RecordGeneration>(&action.body)) {
    after(costs_.directory, [this, id = action.id, generation = record->generation] {
      recorded_ = generation.value;
      feed(GenerationRecorded{id, job_, generation});
    });
  } else if (const auto* start = std::get_if<StartWorkers>(&action.body)) {
    after(costs_.start, [this, id = action.id, order = *start] {
      WorkersStarted started{id, job_, order.node, order.generation, {}};
      for (const Rank rank : order.ranks) {
        started.workers.push_back({rank, order.generation, shell_.next_pid++});
      }
      feed(std::move(started));
    });
  } else if (const auto* stop_order = std::get_if<StopWorkers>(&action.body)) {
    stop(action, *stop_order);
  } else if (std::holds_alternative<PruneCheckpoints>(action.body)) {
    after(costs_.directory, [this, id = action.id] { feed(CheckpointsPruned{id, job_}); });
  }
}

void Fleet::launch(const Action& action, const LaunchNode& order) {
  const bool is_first = !instances_.contains(order.node);
  const bool is_broken = std::exchange(broken_[order.node], false);
  if (is_first || is_broken) instances_[order.node] += 1;
  const int64_t boot_ms = is_first ? 1'000 : is_broken ? costs_.repair : costs_.boot;
  after(0, [this, id = action.id, node = order.node] { feed(NodeLaunched{id, job_, node, 7}); });
  after(boot_ms, [this, node = order.node] {
    AgentRegistered registered;
    registered.job = job_;
    registered.node = node;
    registered.instance_id = "i-" + node + "-" + std::to_string(instances_[node]);
    registered.boot_id = "boot-" + std::to_string(shell_.next_boot++);
    feed(std::move(registered));
  });
}

void Fleet::stop(const Action& action, const StopWorkers& order) {
  const int64_t wait_ms = order.graceful ? costs_.save : costs_.stop;
  after(wait_ms, [this, id = action.id, order] {
    if (!shell_.state.outbox.contains(id)) return;
    leave(order);
    feed(WorkersStopped{id, job_, order.node, order.generation, ""});
  });
}

// The node's workers have left their generation; where they saved first, the processes have ended.
void Fleet::leave(const StopWorkers& order) {
  const auto bound = shell_.state.index.ranks.find({job_, order.node});
  if (bound == shell_.state.index.ranks.end()) return;
  for (const Rank rank : std::vector<Rank>(bound->second)) {
    const Slot& slot = shell_.slot(job_, rank.value);
    if (slot.state != SlotState::kRunning) continue;
    exit_worker(slot, order.graceful ? 0 : kExitPeerLost, true, !order.graceful);
  }
  if (!order.graceful || sealed_.step <= on_disk_) return;
  on_disk_ = sealed_.step;
  disk_generation_ = generation_.value;
  feed(CheckpointCommitted{job_, generation_, on_disk_});
}

void Fleet::exit_worker(const Slot& slot, int32_t code, bool by_request, bool keeps_memory) {
  WorkerExited exited;
  exited.job = job_;
  exited.node = slot.node;
  exited.boot_id = shell_.node(job_, slot.node).boot_id;
  exited.rank = slot.key.rank;
  exited.generation = slot.generation;
  exited.pid = slot.pid;
  exited.exit_code = code;
  exited.by_request = by_request;
  exited.last_step = sealed_.step;
  if (keeps_memory && sealed_.step > 0) {
    shell_.seals.own = {sealed_};
    exited.seals = shell_.arena_of(job_, slot.key.rank.value);
  }
  feed(std::move(exited));
}

void Fleet::begin_generation() {
  const Job& job = shell_.job(job_);
  generation_ = job.generation;
  const bool from_disk = job.memory_of == Generation{} && job.start_step > 0;
  from_disk_ += from_disk ? 1 : 0;
  begun_ms_ = now() + costs_.join + (from_disk ? costs_.load : 0);
  if (job.memory_of == Generation{}) sealed_ = {};
  if (broken_ms_ >= 0) cost_ms_.at(static_cast<size_t>(struck_by_)) += begun_ms_ - broken_ms_;
  broken_ms_ = -1;
  if (first_begun_ms_ == 0) first_begun_ms_ = begun_ms_;
  tell_step(job.start_step + 1);
  if (job.furthest_step > job.start_step + 1) tell_step(job.furthest_step);  // it is made good
}

void Fleet::tell_step(uint64_t step) {
  const auto steps = static_cast<int64_t>(step - shell_.job(job_).start_step);
  after(begun_ms_ - now() + steps * (costs_.step + costs_.stall),
        [this, generation = generation_, step] {
          if (generation != generation_ || broken_ms_ >= 0) return;
          feed(GenerationProgressed{job_, generation, step, now()});
        });
}

uint64_t Fleet::completed() const {
  const uint64_t start = shell_.job(job_).start_step;
  return start + static_cast<uint64_t>((now() - begun_ms_) / (costs_.step + costs_.stall));
}

// The next fault of the trace comes, whatever the job does.
void Fleet::fail() {
  double total = 0;
  for (const Cause& cause : kCauses) total += cause.count;
  const double per_day = options_.faults_per_day > 0
                             ? options_.faults_per_day
                             : total / kTraceDays * options_.gpus / kTraceGpus;
  const double wait_days = -std::log1p(-rng_.uniform()) / per_day;
  after(static_cast<int64_t>(wait_days * static_cast<double>(kDayMs)), [this] { fail(); });
  if (first_begun_ms_ == 0) return;  // training has not begun
  double drawn = rng_.uniform() * total;
  const auto cause = std::find_if(kCauses.begin(), kCauses.end(), [&](const Cause& candidate) {
    return (drawn -= candidate.count) < 0;
  });
  const auto world = static_cast<uint64_t>(shell_.job(job_).world_size());
  strike(cause == kCauses.end() ? Kind::kWorker : cause->kind,
         Rank{static_cast<int32_t>(rng_.below(world))});
}

// While nothing trains only a machine can be lost; the rest happens to the next generation.
void Fleet::strike(Kind kind, Rank victim) {
  if (!trains()) {
    if (kind == Kind::kNode) {
      ++faults_;
      lose(shell_.slot(job_, victim.value).node);
    } else {
      after(1'000, [this, kind, victim] { strike(kind, victim); });
    }
    return;
  }
  ++faults_;
  stop_training(kind);
  const int64_t rest_of_step = static_cast<int64_t>(rng_.below(static_cast<uint64_t>(costs_.step)));
  int64_t notice_ms = rest_of_step;  // an error is met where the step uses what is broken
  if (kind == Kind::kNode) notice_ms = costs_.node_silent;
  if (kind == Kind::kPlanned) notice_ms = 0;
  if (kind == Kind::kPlainHang) notice_ms = std::max(kPlainHangFloorMs, 3 * costs_.step);
  if (kind == Kind::kSharedHang) notice_ms = std::max(kHangFloorMs, 3 * costs_.step);
  after(notice_ms, [this, kind, victim] { notice(kind, victim); });
}

// What is completed by now stays.
void Fleet::stop_training(Kind kind) {
  const uint64_t step = completed();
  struck_by_ = kind;
  counts_.at(static_cast<size_t>(kind)) += 1;
  if (step > shell_.job(job_).start_step) sealed_ = {step, step, generation_.value};
  const uint64_t every = static_cast<uint64_t>(costs_.disk_every / (costs_.step + costs_.stall));
  const uint64_t saved = step / every * every;
  if (saved > std::max(on_disk_, shell_.job(job_).start_step)) {
    on_disk_ = saved;
    disk_generation_ = generation_.value;
    feed(CheckpointCommitted{job_, generation_, saved});
  }
  const int64_t took_ms =
      static_cast<int64_t>(step - shell_.job(job_).start_step) * (costs_.step + costs_.stall);
  if (step > shell_.job(job_).start_step) {
    feed(GenerationProgressed{job_, generation_, step, begun_ms_ + took_ms});
  }
  broken_ms_ = now();
}

void Fleet::notice(Kind kind, Rank victim) {
  const Slot slot = shell_.slot(job_, victim.value);
  switch (kind) {
    case Kind::kWorker:
      return exit_worker(slot, 1, false, true);
    case Kind::kGpu: {
      exit_worker(slot, 1, false, true);
      const std::string boot_id = shell_.node(job_, slot.node).boot_id;
      feed(HardwareFaultFound{job_, slot.node, boot_id, "the GPU reports an error", "", false});
      after(60'000, [this, node = slot.node] { lose(node); });
      broken_[slot.node] = true;
      return;
    }
    case Kind::kNode:
      return lose(slot.node);
    case Kind::kPlainHang:
      return feed(HangDetected{job_, generation_, slot.node, victim, "it computes for ever"});
    case Kind::kSharedHang:
      return feed(HangDetected{job_, generation_, "", Rank{-1}, "all ranks wait"});
    case Kind::kPlanned:
      feed(QuarantineRequested{job_, slot.node, 0, "maintenance", kDayMs / 4});
      after(60'000, [this, node = slot.node] { lose(node); });
      broken_[slot.node] = true;
      return;
  }
}

void Fleet::lose(const std::string& node) {
  const std::string boot_id = shell_.node(job_, node).boot_id;
  if (!boot_id.empty()) feed(NodeLost{job_, node, boot_id, "it does not answer"});
}

void Fleet::run() {
  JobSpec spec = small_job("ettr");
  spec.nodes = static_cast<int32_t>(options_.gpus) / kWorkersPerNode;
  spec.spares = std::max(kFewestSpares, spec.nodes / kNodesPerSpare);
  spec.workers_per_node = kWorkersPerNode;
  spec.train->batch.global = spec.world_size();
  spec.train->steps = kMostSteps;
  spec.train->strategy = Strategy::kHybrid;
  spec.train->shard_group = kShardGroup;
  spec.recovery.max_restarts = 1'000;
  spec.limits.launch_ms = kDayMs;
  job_ = next_local_id(shell_.state);
  feed(JobSubmitted{spec, 0, ""});
  fail();
  const int64_t end_ms = now() + static_cast<int64_t>(options_.days * static_cast<double>(kDayMs));
  while (now() < end_ms) {
    const auto due = next_deadline(shell_.state);
    const auto next = agenda_.begin();
    if (due && *due <= next->first) {
      shell_.now_ms = std::max(now(), *due);
      feed(Tick{});
      continue;
    }
    const std::function<void()> task = std::move(next->second);
    shell_.now_ms = next->first;
    agenda_.erase(next);
    task();
  }
}

void Fleet::print() const {
  const Job& job = shell_.job(job_);
  const uint64_t steps = trains() ? completed() : std::max(sealed_.step, job.start_step);
  const auto wall_ms = static_cast<double>(now() - first_begun_ms_);
  const double ettr = static_cast<double>(steps) * static_cast<double>(costs_.step) / wall_ms;
  const double lost = static_cast<double>(job.spent.lost_ms()) / wall_ms;
  std::printf(
      "{\"bench\":\"ettr\",\"gpus\":%.0f,\"nodes\":%d,\"days\":%.1f,\"join_s\":%.0f,\"faults\":%lu,"
      "\"faults_per_day\":%.1f,\"restarts\":%ld,\"from_disk\":%ld,\"repeat_percent\":%.2f,\"ettr_"
      "percent\":%.2f,\"lost_by_core_percent\":%."
      "2f,"
      "\"stall_percent\":%.2f,\"events\":%lu,\"core_s\":%.1f,\"core_us_per_event\":%.1f}\n",
      options_.gpus, job.spec.nodes, wall_ms / static_cast<double>(kDayMs),
      static_cast<double>(costs_.join) / 1e3, faults_,
      static_cast<double>(faults_) * static_cast<double>(kDayMs) / wall_ms,
      static_cast<long>(job.restarts), static_cast<long>(from_disk_),
      100 * static_cast<double>(job.spent.repeat_ms) / wall_ms, 100 * ettr, 100 * lost,
      100.0 * static_cast<double>(costs_.stall) / static_cast<double>(costs_.step + costs_.stall),
      events_, seconds_in_core, seconds_in_core * 1e6 / static_cast<double>(events_));
  for (size_t i = 0; i < kKinds; ++i) {
    if (counts_.at(i) == 0) continue;
    std::printf("{\"bench\":\"ettr_fault\",\"kind\":\"%s\",\"count\":%ld,\"mean_s\":%.1f}\n",
                kKindNames.at(i), static_cast<long>(counts_.at(i)),
                static_cast<double>(cost_ms_.at(i)) / 1e3 / static_cast<double>(counts_.at(i)));
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const double value = std::atof(argv[i + 1]);
    if (name == "--gpus") options.gpus = value;
    if (name == "--days") options.days = value;
    if (name == "--join-s") options.costs.join = static_cast<int64_t>(value * 1e3);
    if (name == "--faults-per-day") options.faults_per_day = value;
    if (name == "--seed") options.seed = static_cast<uint64_t>(value);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Fleet fleet(parse(argc, argv));
  fleet.run();
  fleet.print();
  return 0;
}
