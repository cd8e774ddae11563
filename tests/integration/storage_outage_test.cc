// SPDX-License-Identifier: Apache-2.0
// Whole jobs whose checkpoint directory fails again and again, for less than limits.storage: an
// errno or a pause, for all programs or one of them, at random moments, also while a worker that
// was killed is replaced. Each job must end with the digest of the undisturbed one, spend no
// restart for the storage, and lose no checkpoint that `checkpoint.keep` keeps. HPCTL_OUTAGE_SEED
// replays a seed; HPCTL_OUTAGE_JOBS is the number of random jobs (default 1). With
// HPCTL_OUTAGE_PATHS=random, about half of the faults befall only a part of the directory.
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/outage.h"
#include "tests/integration/stopped_job.h"
#include "tests/integration/training_job.h"
#include "tests/support/promise.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr int kFaultsOfAJob = 8;
constexpr int kBatch = 8;
constexpr auto kLong = std::chrono::minutes(2);  // five times what a job takes

const TrainingJob kJob = {
    .name = "outage", .steps = 400, .checkpoint_every = 7, .keep = 3, .snapshot = "{replicas: 0}"};

struct Fault {
  uint64_t at_step = 0;
  int error = 0;
  std::string program;
  milliseconds lasts{0};
  int killed_rank = -1;   // -1 = none is killed while it lasts
  std::string path = {};  // below the checkpoint directory, "" = all of it

  std::string text() const {
    return "at step " + std::to_string(at_step) + " " +
           (error == STORAGE_PAUSES ? "a pause" : ::strerrorname_np(error)) + " of " +
           std::to_string(lasts.count()) + " ms for " + (program.empty() ? "all" : program) +
           (path.empty() ? "" : " at " + path) +
           (killed_rank < 0 ? "" : ", rank " + std::to_string(killed_rank) + " killed") + "\n";
  }
};

std::vector<Fault> random_faults(uint64_t seed) {
  constexpr auto kErrors = std::to_array<int>({EIO, ENOENT, ESTALE, EACCES, STORAGE_PAUSES});
  constexpr auto kPrograms =
      std::to_array<std::string_view>({"", "hptrain", "hpcontroller", "hpagent"});
  constexpr auto kPaths =
      std::to_array<std::string_view>({"", "", "", "/generations", "/ledger", "/owner.json"});
  const char* const paths = std::getenv("HPCTL_OUTAGE_PATHS");
  const bool has_paths = paths != nullptr && std::string_view(paths) == "random";
  Rng rng(seed);
  std::vector<Fault> faults(kFaultsOfAJob);
  uint64_t step = 0;
  for (Fault& fault : faults) {
    step += 1 + rng.below(static_cast<uint64_t>(kJob.steps) / (kFaultsOfAJob + 2));
    fault = {.at_step = step,
             .error = kErrors[rng.below(kErrors.size())],
             .program = std::string(kPrograms[rng.below(kPrograms.size())]),
             .lasts = milliseconds(50 + rng.below(1500)),
             .killed_rank = static_cast<int>(rng.below(8)) - 4};
    if (has_paths) fault.path = std::string(kPaths[rng.below(kPaths.size())]);
  }
  return faults;
}

// Directories of checkpoints that have a manifest.
size_t checkpoints_in(const std::string& directory) {
  size_t count = 0;
  const auto names = list_directory(directory);
  EXPECT_TRUE(names.ok()) << names.error().message << broken_promise("checkpoint");
  if (!names.ok()) return 0;
  for (const std::string& name : *names) {
    const auto committed = path_exists(directory + "/" + name + "/manifest.json");
    count += committed.ok() && *committed ? 1U : 0U;
  }
  return count;
}

struct Ended {
  std::string digest;
  uint32_t calls = 0;  // how many failed or waited
  int faults = 0;      // how many there were before the job ended
};

// Runs the job; `story` tells what befell it.
Ended run(const std::vector<Fault>& faults, std::string& story) {
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  TrainingJob spec = kJob;
  // The budget is for the kills alone.
  for (const Fault& fault : faults) spec.max_restarts += fault.killed_rank < 0 ? 0 : 1;
  const JobId job = cluster.submit(spec.yaml());
  const std::string directory = cluster.paths().default_checkpoints(job);
  const auto keep = static_cast<size_t>(kJob.keep);
  bool has_all = false;
  int begun = 0;
  for (const Fault& fault : faults) {
    story += fault.text();
    if (!cluster.wait_for_step(job, fault.at_step, seconds(60))) break;
    const size_t count = checkpoints_in(directory);
    if (has_all) {
      EXPECT_GE(count, keep) << story << broken_promise("checkpoint");
    }
    has_all = has_all || count >= keep;
    const pid_t victim =
        fault.killed_rank < 0 ? 0 : worker_pid(cluster.status(job), fault.killed_rank);
    outage.of(directory + fault.path);
    outage.begin(fault.error, fault.program);
    ++begun;
    end_process(victim);
    std::this_thread::sleep_for(fault.lasts);  // the fault itself
    outage.end();
  }
  const std::string state = cluster.wait_for_end(job, kLong);
  EXPECT_EQ(state, "FINISHED") << story << cluster.hpctl({"events", to_string(job)}).out
                               << cluster.hpctl({"logs", to_string(job)}).out;
  Ended ended{.digest = "", .calls = outage.calls(), .faults = begun};
  if (state != "FINISHED") return ended;
  // The controller deletes the last ones after the end.
  EXPECT_TRUE(wait_until(
      directory, [&] { return checkpoints_in(directory) == keep; }, seconds(30)))
      << checkpoints_in(directory) << " checkpoints\n"
      << story << broken_promise("checkpoint");
  const auto ledger = verify_ledger(directory + "/ledger", directory);
  EXPECT_TRUE(ledger.ok()) << story << ledger.error().message << broken_promise("ledger");
  if (ledger.ok()) {
    EXPECT_THAT(ledger->problems, ::testing::IsEmpty()) << story << broken_promise("ledger");
    EXPECT_EQ(ledger->cursor, static_cast<uint64_t>(kJob.steps * kBatch)) << story;
  }
  ended.digest = cluster.digest(job);
  cluster.stop_and_expect_no_leftovers(seconds(60));
  return ended;
}

const std::string& undisturbed() {
  static const std::string digest = [] {
    std::string story;
    return run({}, story).digest;
  }();
  return digest;
}

Ended expect_nothing_lost(const std::vector<Fault>& faults, const std::string& about) {
  std::string story = about;
  Ended ended = run(faults, story);
  // A job that did not end in time has no digest, and has broken no promise about it.
  if (ended.digest.empty() || undisturbed().empty()) {
    ADD_FAILURE() << story << "no two digests to compare";
  } else {
    EXPECT_EQ(ended.digest, undisturbed()) << story << broken_promise("digest");
  }
  EXPECT_GT(ended.calls, 0U) << story << "no call met the storage while it failed";
  return ended;
}

class EachError : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Storage, EachError,
                         ::testing::Values(EIO, ENOENT, ESTALE, EACCES, STORAGE_PAUSES),
                         [](const auto& tested) {
                           return std::string(tested.param == STORAGE_PAUSES
                                                  ? "Pause"
                                                  : ::strerrorname_np(tested.param));
                         });

TEST_P(EachError, OfAllCallsWhileAWorkerIsReplacedLosesNothing) {
  expect_nothing_lost({{.at_step = 20,
                        .error = GetParam(),
                        .program = "",
                        .lasts = milliseconds(2500),
                        .killed_rank = 3}},
                      "");
}

std::string digest_of_undisturbed(const TrainingJob& wanted) {
  LocalCluster cluster;
  const JobId job = cluster.submit(wanted.yaml());
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED");
  return cluster.digest(job);
}

// A file of the newest checkpoint is missing for the processes of these programs, and for no
// others.
void expect_missing_file_condemns_nothing(const std::string& programs) {
  const TrainingJob wanted = {
      .name = "claim", .steps = 900, .checkpoint_every = 300, .snapshot = "{replicas: 0}"};
  const std::string digest = digest_of_undisturbed(wanted);
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(wanted.yaml());
  outage.of(cluster.paths().default_checkpoints(job) + "/step-300.g1/shard-00003.safetensors");
  ASSERT_TRUE(cluster.wait_for_step(job, 320, seconds(60)));
  outage.begin(ENOENT, programs);
  end_process(node_pid(cluster.status(job), 1, "holder_pid"));  // its memory ends with it
  const auto has_event = [&](const std::string& type) {
    return cluster.hpctl({"events", to_string(job), "--json"}).out.find(type) != std::string::npos;
  };
  ASSERT_TRUE(wait_until(
      cluster.directory(), [&] { return has_event("DamageNotConfirmed"); }, seconds(60)))
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_TRUE(has_event("cannot use shard-00003.safetensors of step-300.g1"))
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_TRUE(has_event("ConfirmDamage")) << cluster.hpctl({"events", to_string(job)}).out;
  outage.end();
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_FALSE(has_event("CheckpointDamaged")) << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_TRUE(has_event("from step-300.g1")) << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_EQ(cluster.digest(job), digest) << broken_promise("digest");
}

// A node whose mount was missing condemned every checkpoint within 5 s, and the job started over.
TEST(StorageOutage, FileMissingForWorkersAloneCondemnsNothing) {
  expect_missing_file_condemns_nothing("hptrain");
}

// The controller runs on the node that complains, and misses the file as the worker does. Both
// reads were of one machine. Another node's agent finds it sound.
TEST(StorageOutage, FileMissingForControllerTooCondemnsNothing) {
  expect_missing_file_condemns_nothing("hptrain hpcontroller");
}

// One ENOENT for the newest manifest, which its directory still listed, made the checkpoint before
// it the newest. Here the controller's file client does not find it by name, for a while.
TEST(StorageOutage, ListedManifestThatIsNotFoundIsWaitedFor) {
  const TrainingJob wanted = {
      .name = "stale", .steps = 900, .checkpoint_every = 200, .snapshot = "{replicas: 0}"};
  const std::string digest = digest_of_undisturbed(wanted);
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(wanted.yaml());
  outage.of(cluster.paths().default_checkpoints(job) + "/step-400.g1/manifest.json");
  ASSERT_TRUE(cluster.wait_for_step(job, 420, seconds(60)));
  outage.begin(ENOENT, "hpcontroller");
  end_process(node_pid(cluster.status(job), 1, "holder_pid"));  // its memory ends with it
  const auto events = [&] { return cluster.hpctl({"events", to_string(job)}).out; };
  ASSERT_TRUE(wait_until(
      cluster.directory(),
      [&] { return cluster.status(job)["reason"].dump().find("step-400.g1") != std::string::npos; },
      seconds(60)))
      << events();
  outage.end();
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED") << events();
  EXPECT_NE(events().find("from step-400.g1"), std::string::npos) << events();
  EXPECT_EQ(cluster.digest(job), digest) << broken_promise("digest");
}

// A file system that is away leaves its mount point, an empty directory. The job started from the
// seed there, and saved into it.
TEST(StorageOutage, EmptyMountPointIsWaitedForAndStaysEmpty) {
  TrainingJob wanted = {
      .name = "away", .steps = 900, .checkpoint_every = 100, .snapshot = "{replicas: 0}"};
  const std::string digest = digest_of_undisturbed(wanted);
  LocalCluster cluster;
  const JobId job = cluster.submit(wanted.yaml());
  const std::string directory = cluster.paths().default_checkpoints(job);
  const std::string away = directory + ".away";
  ASSERT_TRUE(cluster.wait_for_step(job, 150, seconds(60)));
  ASSERT_EQ(::rename(directory.c_str(), away.c_str()), 0);
  ASSERT_EQ(::mkdir(directory.c_str(), 0777), 0);
  ASSERT_TRUE(cluster.wait_for_step(job, 310, seconds(60))) << "saves are owed";
  end_process(node_pid(cluster.status(job), 1, "holder_pid"));  // its memory ends with it
  ASSERT_TRUE(wait_until(
      cluster.directory(),
      [&] { return cluster.status(job)["reason"].dump().find("waiting for") != std::string::npos; },
      seconds(60)))
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_THAT(list_directory(directory).value(), ::testing::IsEmpty());
  ASSERT_EQ(::rmdir(directory.c_str()), 0);
  ASSERT_EQ(::rename(away.c_str(), directory.c_str()), 0);
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out
      << cluster.hpctl({"logs", to_string(job)}).out;
  EXPECT_EQ(cluster.digest(job), digest) << broken_promise("digest");
}

TEST(StorageOutage, EmptiedDirectoryEndsTheJobWithTheRemedy) {
  const TrainingJob wanted = {
      .name = "emptied", .steps = 5000, .checkpoint_every = 400, .snapshot = "{replicas: 0}"};
  LocalCluster cluster;
  const JobId job = cluster.submit(wanted.yaml());
  const std::string directory = cluster.paths().default_checkpoints(job);
  ASSERT_TRUE(wait_until(
      cluster.directory(), [&] { return cluster.status(job)["checkpoint_step"] >= 400; },
      seconds(60)));
  const auto names = list_directory(directory);
  ASSERT_TRUE(names.ok()) << names.error().message;
  for (const std::string& name : *names) {
    if (!name.starts_with("step-")) continue;
    EXPECT_TRUE(remove_tree(directory + "/" + name).ok()) << name;
  }
  end_process(node_pid(cluster.status(job), 1, "holder_pid"));  // long before the next save
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FAILED");
  const std::string reason = cluster.status(job)["reason"].dump();
  EXPECT_NE(reason.find("no checkpoint is left in " + directory), std::string::npos) << reason;
  EXPECT_NE(reason.find("--fresh"), std::string::npos) << reason;
}

// Neither error proves anything about the checkpoint: the controller reads it then, and only after
// that older ones go.
class NodesThatCannotVerify : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Storage, NodesThatCannotVerify, ::testing::Values(EIO, STORAGE_PAUSES),
                         [](const auto& tested) {
                           return std::string(tested.param == EIO ? "Fail" : "NeverAnswer");
                         });

TEST_P(NodesThatCannotVerify, AreFollowedByTheController) {
  const TrainingJob wanted = {.name = "verify",
                              .steps = 5000,
                              .checkpoint_every = 25,
                              .keep = 1,
                              .verify_before_delete = "sizes",
                              .more = "limits: {directory: 2s}\n"};
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(wanted.yaml());
  const std::string directory = cluster.paths().default_checkpoints(job);
  outage.of(directory);
  const auto events = [&] { return cluster.hpctl({"events", to_string(job)}).out; };
  const auto wait_for = [&](const std::string& words) {
    return wait_until(
        cluster.directory(), [&] { return events().find(words) != std::string::npos; },
        seconds(60));
  };
  ASSERT_TRUE(wait_for(" is verified by n")) << events();
  outage.begin(GetParam(), "hpagent");
  EXPECT_TRUE(wait_for(GetParam() == EIO ? "n1 cannot read step-" : "n1 did not read step-"))
      << events();
  EXPECT_TRUE(wait_for(" is verified; deleted: step-")) << events();
  EXPECT_NE(events().find("the controller reads step-"), std::string::npos) << events();
  EXPECT_GE(checkpoints_in(directory), 1U) << events() << broken_promise("checkpoint");
  EXPECT_EQ(events().find("JobRecovering"), std::string::npos) << events();
  outage.end();
  cluster.hpctl({"cancel", to_string(job)});
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "CANCELLED") << events();
  cluster.stop_and_expect_no_leftovers(seconds(60));
}

// What TrainingJob trains on.
constexpr const char* kData = "/usr/share/common-licenses/GPL-3";

bool reason_has(const LocalCluster& cluster, JobId job, const std::string& words) {
  return cluster.status(job)["reason"].dump().find(words) != std::string::npos;
}

// EIO of the training data ended the workers, and the job recovered again and again.
TEST(StorageOutage, DataThatFailInMidStepAreWaitedForInPlace) {
  const TrainingJob wanted = {.name = "data", .steps = 900, .checkpoint_every = 300};
  const std::string digest = digest_of_undisturbed(wanted);
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(wanted.yaml());
  outage.of(kData);
  ASSERT_TRUE(cluster.wait_for_step(job, 50, seconds(60)));
  outage.begin(EIO, "hptrain");
  EXPECT_TRUE(wait_until(
      cluster.directory(), [&] { return reason_has(cluster, job, "cannot read samples"); },
      seconds(60)))
      << cluster.hpctl({"events", to_string(job)}).out;
  outage.end();
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED");
  const std::string events = cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_NE(events.find("waits for storage after step"), std::string::npos) << events;
  EXPECT_EQ(events.find("JobRecovering"), std::string::npos) << events;
  EXPECT_EQ(cluster.digest(job), digest) << broken_promise("digest");
}

// While all ranks wait for data, one is killed: the others leave their generation at once.
TEST(StorageOutage, AbortEndsTheWaitForData) {
  const TrainingJob wanted = {.name = "data", .steps = 900, .checkpoint_every = 300};
  const std::string digest = digest_of_undisturbed(wanted);
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(wanted.yaml());
  outage.of(kData);
  ASSERT_TRUE(cluster.wait_for_step(job, 50, seconds(60)));
  outage.begin(EIO, "hptrain");
  ASSERT_TRUE(wait_until(
      cluster.directory(), [&] { return reason_has(cluster, job, "cannot read samples"); },
      seconds(60)));
  ASSERT_TRUE(end_process(worker_pid(cluster.status(job), 3)));
  EXPECT_TRUE(wait_until(
      cluster.directory(), [&] { return cluster.status(job)["generation"] >= 2; }, seconds(30)))
      << cluster.hpctl({"events", to_string(job)}).out;
  outage.end();
  EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_EQ(cluster.digest(job), digest) << broken_promise("digest");
}

// A recovery in place waited for the rename of a save, although a standby was there. The rename of
// this manifest does not return before the job has ended.
void expect_slow_save_is_not_waited_for(int slow_step) {
  const TrainingJob wanted = {
      .name = "slow", .steps = 400, .checkpoint_every = 200, .more = "limits: {abort: 10m}\n"};
  const std::string digest = digest_of_undisturbed(wanted);
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(wanted.yaml());
  outage.of(cluster.paths().default_checkpoints(job) + "/step-" + std::to_string(slow_step) +
            ".g1/manifest.json");
  outage.begin(STORAGE_PAUSES, "hptrain");
  ASSERT_TRUE(wait_until(
      cluster.directory(), [&] { return outage.calls() > 0; }, seconds(60)));
  ASSERT_TRUE(end_process(worker_pid(cluster.status(job), 3)));
  EXPECT_EQ(cluster.wait_for_end(job, seconds(30)), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out
      << cluster.hpctl({"logs", to_string(job)}).out;
  outage.end();
  EXPECT_EQ(cluster.digest(job), digest) << broken_promise("digest");
  cluster.stop_and_expect_no_leftovers(seconds(60));
}

TEST(StorageOutage, RecoveryDoesNotWaitForASlowSave) { expect_slow_save_is_not_waited_for(200); }

TEST(StorageOutage, RecoveryDoesNotWaitForASlowLastSave) {
  expect_slow_save_is_not_waited_for(400);
}

// A save takes 6 s, and the second one has just begun. SIGKILL came 11 s after the cancellation,
// before the newest step was saved as well.
TEST(StorageOutage, StopInASlowSaveSavesTheNewestStep) {
  const TrainingJob wanted = {.name = "stop",
                              .steps = 1'000'000,
                              .checkpoint_every = 5,
                              .standbys = 0,
                              .heartbeat_timeout = "10s",
                              .nodes = "1",
                              .ledger = false,
                              .more = "limits: {last_checkpoint: 11s}\n"};
  std::string text = wanted.yaml();
  const std::string model = "{preset: tiny}";  // with 20 MB for each rank to save
  text.replace(text.find(model), model.size(), "{preset: tiny, dim: 256, ffn: 768, layers: 4}");
  LocalCluster cluster;
  Outage outage(cluster.directory() + "/outage");
  const JobId job = cluster.submit(text);
  const std::string directory = cluster.paths().default_checkpoints(job);
  outage.of(directory);
  outage.slow_down(3'300, "hptrain");
  const auto saves = [&] {
    const auto names = list_directory(directory);
    if (!names.ok()) return std::ptrdiff_t{0};
    return std::count_if(names->begin(), names->end(),
                         [](const std::string& name) { return name.starts_with("step-"); });
  };
  ASSERT_TRUE(wait_until(
      directory, [&] { return saves() == 2; }, seconds(90)));
  ASSERT_EQ(cluster.hpctl({"cancel", to_string(job)}).exit_code, 0);
  ASSERT_EQ(cluster.wait_for_end(job, seconds(60)), "CANCELLED");
  outage.end();
  const std::string logs = cluster.hpctl({"logs", to_string(job)}).out;
  EXPECT_EQ(saved_step_in(directory), last_step_in(cluster.paths().job_metrics(job))) << logs;
  EXPECT_NE(logs.find("is given up for that of step"), std::string::npos) << logs;
  EXPECT_EQ(saves(), 2) << "what was written of the second one is removed";
  cluster.stop_and_expect_no_leftovers(seconds(60));
}

TEST(StorageOutage, AtAnyMomentLosesNothing) {
  const char* const given = std::getenv("HPCTL_OUTAGE_SEED");
  const char* const jobs = std::getenv("HPCTL_OUTAGE_JOBS");
  const uint64_t first = given != nullptr ? std::stoull(given) : 1;
  const uint64_t count = jobs != nullptr ? std::stoull(jobs) : 1;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::string name = "seed " + std::to_string(seed);
    const Ended ended = expect_nothing_lost(random_faults(seed), name + "\n");
    const bool is_equal = !ended.digest.empty() && ended.digest == undisturbed();
    // tests/bench/outages.sh reads this line.
    std::cout << name << ": " << ended.faults << " faults, digest "
              << (is_equal ? "equal" : "not equal") << std::endl;
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace hpctl::testing
