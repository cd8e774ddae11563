// SPDX-License-Identifier: Apache-2.0
// Real jobs with a mirror of their checkpoints. What the first place loses is taken from the
// mirror, bit for bit; a mirror that is full or away, and a controller that dies while it copies,
// disturb no training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <optional>
#include <string>

#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/mirror.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kLong{120};
constexpr int kAttempts = 6;

// No copies at peers: a lost node takes its part of the state with it. No ledger: it lies in the
// first place, and a job that has one waits for it.
TrainingJob job_of(const std::string& more) {
  return {.steps = 120,
          .checkpoint_every = 10,
          .keep = 3,
          .hang_timeout = "5m",  // a stopped worker is no fault
          .heartbeat_timeout = "10s",
          .snapshot = "{replicas: 0}",
          .ledger = false,
          .more = more};
}

const std::string& undisturbed() {
  static const std::string digest = [] {
    LocalCluster cluster;
    const JobId job = cluster.submit(job_of("").yaml());
    EXPECT_EQ(cluster.wait_for_end(job, kLong), "FINISHED");
    return cluster.digest(job);
  }();
  return digest;
}

class MirroredJob : public ::testing::Test {
 protected:
  void submit(const std::string& after = "1s") {
    std::string yaml = job_of("").yaml();
    const std::string keep = "keep: 3";
    yaml.insert(yaml.find(keep) + keep.size(),
                ", dir: " + first() + ", mirror: {dir: " + mirror() + ", after: " + after + "}");
    job_ = cluster_.submit(yaml);
  }
  std::string first() const { return cluster_.directory() + "/first"; }
  std::string mirror() const { return cluster_.directory() + "/mirror"; }
  static std::optional<CheckpointRef> newest(const std::string& place) {
    const auto all = list_checkpoints(place);
    return all.ok() && !all->empty() ? std::optional(all->back()) : std::nullopt;
  }
  std::string told(const std::string& type) const {
    std::string causes;
    for (const json& event : cluster_.events(job_)) {
      if (event["type"] == type) causes += event["cause"].get<std::string>() + "\n";
    }
    return causes;
  }
  // Stops training at some step, and returns the newest checkpoint when both places have it. A
  // worker that stops in a commit keeps the controller from learning of it: then again, later.
  CheckpointRef stop_when_mirrored() {
    EXPECT_TRUE(cluster_.wait_for_step(job_, 25, kLong));
    const pid_t worker = worker_pid(cluster_.status(job_), 0);
    const auto is_mirrored = [&] {
      const auto there = newest(mirror());
      return there && there == newest(first()) &&
             cluster_.status(job_)["mirror"]["step"] == there->step;
    };
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      EXPECT_EQ(::kill(worker, SIGSTOP), 0);
      if (wait_until(mirror(), is_mirrored, seconds(4))) return newest(mirror()).value();
      const auto before = newest(first());
      EXPECT_EQ(::kill(worker, SIGCONT), 0);
      EXPECT_TRUE(wait_until(
          first(), [&] { return newest(first()) != before; }, kLong));
    }
    ADD_FAILURE() << "the mirror did not catch up";
    return {};
  }
  // With both goes all that is in memory.
  void lose_nodes() {
    const json status = cluster_.status(job_);
    for (const size_t node : {0U, 1U}) {
      EXPECT_TRUE(end_process(node_pid(status, node, "holder_pid")));
    }
  }
  void expect_the_same_bits() {
    ASSERT_EQ(cluster_.wait_for_end(job_, kLong), "FINISHED") << told("JobFailed");
    const auto digest = cluster_.hpctl({"checkpoint", "digest", first()});
    EXPECT_EQ(digest.out, undisturbed()) << digest.err << broken_promise("digest");
  }
  void expect_start_from(const CheckpointRef& ref) {
    EXPECT_THAT(told("RecordGeneration"), HasSubstr("from " + mirror() + "/" + ref.name()));
  }

  LocalCluster cluster_;
  JobId job_;
};

TEST_F(MirroredJob, EndsWithItsNewestCheckpointInBothPlaces) {
  submit();
  expect_the_same_bits();
  ASSERT_TRUE(wait_until(
      mirror(), [&] { return newest(mirror()) && newest(mirror())->step == 120; }, kLong));
  const auto sound = confirm_checkpoint(mirror() + "/" + newest(mirror())->name(),
                                        VerifyDepth::kFull, [] { return true; });
  EXPECT_TRUE(sound.ok());
  const auto listed = cluster_.hpctl({"checkpoint", "ls", mirror()});
  EXPECT_THAT(listed.out, HasSubstr("step-120.g1"));
  EXPECT_THAT(cluster_.hpctl({"checkpoint", "ls", "tiny"}).out, HasSubstr("mirror: step 120 in "));
}

// A flipped byte on the disk, found by a worker and by the controller.
TEST_F(MirroredJob, DamagedNewestCheckpointIsTakenFromTheMirror) {
  submit();
  const CheckpointRef lost = stop_when_mirrored();
  const std::string shard = first() + "/" + lost.name() + "/shard-00002.safetensors";
  std::string bytes = read_file(shard).value();
  bytes[bytes.size() / 2] = static_cast<char>(~bytes[bytes.size() / 2]);
  ASSERT_TRUE(write_file_atomic(shard, bytes).ok());
  lose_nodes();
  expect_the_same_bits();
  expect_start_from(lost);
  EXPECT_THAT(told("CheckpointDamaged"), HasSubstr(lost.name() + " is damaged"));
}

TEST_F(MirroredJob, EmptiedFirstPlaceIsFilledAgain) {
  submit();
  const CheckpointRef lost = stop_when_mirrored();
  const auto names = list_directory(first());
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) ASSERT_TRUE(remove_tree(first() + "/" + name).ok());
  lose_nodes();
  expect_the_same_bits();
  expect_start_from(lost);
  EXPECT_EQ(newest(first())->step, 120U) << "saves go on there";
  EXPECT_GE(read_lineage(first()).value().size(), 2U);
}

// The directory is away, and comes back while the job trains.
TEST_F(MirroredJob, FirstPlaceThatIsAwayIsReplacedAndGetsTheNextSaves) {
  submit();
  const CheckpointRef newest_there = stop_when_mirrored();
  const std::string hidden = cluster_.directory() + "/hidden";
  ASSERT_EQ(::rename(first().c_str(), hidden.c_str()), 0);
  lose_nodes();
  ASSERT_TRUE(wait_until(
      mirror(),
      [&] {
        const json status = cluster_.status(job_);
        return status["generation"] >= 2 && status["state"] == "RUNNING";
      },
      kLong))
      << told("Retry") << told("JobFailed");
  expect_start_from(newest_there);
  EXPECT_FALSE(is_accessible(first())) << "nothing is made in its place";
  ASSERT_EQ(::rename(hidden.c_str(), first().c_str()), 0);
  expect_the_same_bits();
  EXPECT_EQ(newest(first())->step, 120U);
  ASSERT_TRUE(wait_until(
      first(), [&] { return read_lineage(first()).value().size() >= 2; }, kLong))
      << "the record of the generation that began meanwhile";
}

// A file where the mirror is to be: nothing can be written there.
TEST_F(MirroredJob, MirrorThatIsAwayDisturbsNothing) {
  ASSERT_TRUE(write_file_atomic(mirror(), "no directory").ok());
  submit();
  expect_the_same_bits();
  EXPECT_EQ(cluster_.status(job_)["generation"], 1);
  EXPECT_THAT(told("MirrorBehind"), HasSubstr(mirror()));
  EXPECT_THAT(cluster_.hpctl({"status", "tiny"}).out, HasSubstr("a copy has been due for"));
}

// The controller dies again and again, whatever it copies; the next one finishes the copy or
// removes it. crash_test has every boundary of a copy.
TEST_F(MirroredJob, ControllersThatDieWhileTheyCopyLeaveOnlySoundCopies) {
  submit();
  for (int deaths = 0; deaths < 4; ++deaths) {
    const auto before = newest(first());
    ASSERT_TRUE(wait_until(
        first(), [&] { return newest(first()) != before; }, kLong));
    const auto end_controller = [&] {
      return end_process(cluster_.status(job_)["controller"]["pid"].get<pid_t>());
    };
    ASSERT_TRUE(wait_until(cluster_.paths().home(), end_controller, kLong));
  }
  expect_the_same_bits();
  ASSERT_TRUE(wait_until(
      mirror(), [&] { return newest(mirror()) && newest(mirror())->step == 120; }, kLong));
  EXPECT_EQ(cluster_.status(job_)["generation"], 1) << "training was disturbed";
  for (const CheckpointRef& ref : list_checkpoints(mirror()).value()) {
    const auto sound =
        confirm_checkpoint(mirror() + "/" + ref.name(), VerifyDepth::kFull, [] { return true; });
    EXPECT_TRUE(sound.ok()) << ref.name();
  }
}

}  // namespace
}  // namespace hpctl::testing
