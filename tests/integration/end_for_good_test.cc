// SPDX-License-Identifier: Apache-2.0
// Jobs that fail for good, each for another cause. The last completed step is on disk, and a job
// that resumes from it ends with the bits of an undisturbed one. If the state itself is accused, it
// lies apart in `suspect`. If nothing can save it, the reason says so.
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <ostream>
#include <string>
#include <utility>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/job/lineage.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/outage.h"
#include "tests/integration/stopped_job.h"
#include "tests/integration/training_job.h"
#include "tests/support/promise.h"

namespace hpctl::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr seconds kLong{90};
constexpr int kSteps = 200;
constexpr int kNoEnd = 1'000'000;
// A thousand windows of 32 tokens, and a few bytes in none of them.
constexpr size_t kDataBytes = 32'020;

// A job with one restart too few, and its data.
class Doomed {
 public:
  explicit Doomed(TrainingJob job) : job_(std::move(job)) {
    text_ = read_file("/usr/share/common-licenses/GPL-3").value().substr(0, kDataBytes);
    restore_data();
    std::string yaml = job_.yaml();
    const std::string path = "/usr/share/common-licenses/GPL-3";
    yaml.replace(yaml.find(path), path.size(), data());
    yaml_ = yaml;
  }

  void submit() { id_ = cluster_.submit(yaml_); }
  bool reaches(uint64_t step) const { return cluster_.wait_for_step(id_, step, kLong); }
  // One of `hpctl chaos`, after some steps.
  void inject(const std::string& fault) {
    const std::string file = cluster_.directory() + "/plan.yaml";
    ASSERT_TRUE(write_file_atomic(
                    file, "recover_within: 30s\nfaults: [{fault: " + fault + ", at_step: 20}]\n")
                    .ok());
    cluster_.hpctl({"chaos", to_string(id_), "--plan", file, "--json"}, kLong);
  }
  void kill_worker(int rank) const { end_process(worker_pid(cluster_.status(id_), rank)); }
  void cut_data() const { ASSERT_EQ(::truncate(data().c_str(), 40), 0); }
  // Where no sample is.
  void change_data() const {
    const UniqueFd fd(::open(data().c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_EQ(::pwrite(fd.get(), "#", 1, kDataBytes - 1), 1);
  }
  void restore_data() const { ASSERT_TRUE(write_file_atomic(data(), text_).ok()); }

  // How it failed.
  std::string reason() const {
    EXPECT_EQ(cluster_.wait_for_end(id_, kLong), "FAILED")
        << cluster_.hpctl({"events", to_string(id_)}).out;
    return cluster_.status(id_)["reason"];
  }
  std::string history() const { return cluster_.hpctl({"events", to_string(id_)}).out; }
  uint64_t last_step() const { return last_step_in(cluster_.paths().job_metrics(id_)); }
  std::string checkpoints() const { return cluster_.paths().default_checkpoints(id_); }

  // As another job, to its end.
  std::string digest_of_resumed() {
    restore_data();
    const CommandResult resumed = cluster_.hpctl(
        {"resume", job_.name, "--set", "recovery.max_restarts=5", "--wait", "--json"}, kLong);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.out << resumed.err;
    return cluster_.digest(id_);
  }
  std::string digest_of_finished() {
    submit();
    EXPECT_EQ(cluster_.wait_for_end(id_, kLong), "FINISHED");
    return cluster_.digest(id_);
  }

  LocalCluster& cluster() { return cluster_; }

 private:
  std::string data() const { return cluster_.directory() + "/text"; }

  LocalCluster cluster_;
  const TrainingJob job_;
  std::string text_;
  std::string yaml_;
  JobId id_;
};

// It saves only at its end.
TrainingJob doomed(int steps) {
  return {.name = "doomed",
          .steps = steps,
          .checkpoint_every = 0,
          .max_restarts = 0,
          .hang_timeout = "4s",
          .heartbeat_timeout = "10s",
          .nodes = "1"};
}

struct Cause {
  const char* name;
  TrainingJob job;
  void (*strike)(Doomed& job);
  const char* words;  // of the reason
};

void PrintTo(const Cause& cause, std::ostream* out) { *out << cause.name; }

std::string name_of(const ::testing::TestParamInfo<Cause>& cause) { return cause.param.name; }

TrainingJob with_restarts(TrainingJob job) {
  job.max_restarts = 5;
  return job;
}

TrainingJob with_stability(TrainingJob job, const std::string& stability) {
  job.stability = stability;
  return job;
}

const Cause kSaved[] = {
    {"BudgetSpent", doomed(kSteps), [](Doomed& job) { job.inject("kill-worker, rank: 1"); },
     "the restart budget is spent"},
    {"Crash", doomed(kSteps), [](Doomed& job) { job.inject("crash-worker, rank: 1"); },
     "worker 1 on n0 died of SIG"},
    {"ProgramError", doomed(kSteps), [](Doomed& job) { job.inject("exit-worker, rank: 0"); },
     "this rank fails inside a step"},
    {"MemoryLimit", doomed(kSteps), [](Doomed& job) { job.inject("oom-worker, rank: 1"); },
     "worker 1 on n0 died of SIGKILL"},
    {"Hang", doomed(kSteps), [](Doomed& job) { job.inject("hang-worker, rank: 1"); }, "hang"},
    {"DataCut", doomed(kSteps),
     [](Doomed& job) {
       ASSERT_TRUE(job.reaches(20));
       job.cut_data();
     },
     "became shorter while training; restore it and resume"},
    {"DataChanged", with_restarts(doomed(kSteps)),
     [](Doomed& job) {
       ASSERT_TRUE(job.reaches(20));
       job.change_data();
       job.kill_worker(1);
     },
     "it was changed while the job ran; restore it and resume"},
};

class SavedAtItsEnd : public ::testing::TestWithParam<Cause> {};
INSTANTIATE_TEST_SUITE_P(EndForGood, SavedAtItsEnd, ::testing::ValuesIn(kSaved), name_of);

TEST_P(SavedAtItsEnd, ResumesWithTheSameBits) {
  Doomed job(GetParam().job);
  job.submit();
  ASSERT_NO_FATAL_FAILURE(GetParam().strike(job));
  const std::string reason = job.reason();
  EXPECT_THAT(reason, HasSubstr(GetParam().words));
  const uint64_t saved = saved_step_in(job.checkpoints());
  // The rank that ended may not have applied the step that rank 0 wrote down.
  ASSERT_GE(saved + 1, job.last_step()) << reason << job.history() << broken_promise("checkpoint");
  EXPECT_THAT(reason, HasSubstr("the last step is saved as step-" + std::to_string(saved) + ".g"));
  const std::string digest = job.digest_of_resumed();
  job.cluster().stop_and_expect_no_leftovers(seconds(60));
  EXPECT_EQ(digest, Doomed(doomed(kSteps)).digest_of_finished()) << broken_promise("digest");
}

// The gradients of one rank are not finite, once.
const Cause kAccused[] = {
    {"NotFinite", doomed(kNoEnd), [](Doomed& job) { job.inject("nan-gradient, rank: 1"); },
     "which is suspect"},
    {"RanksDiffer", with_stability(doomed(kNoEnd), "{reexecute: true}"),
     [](Doomed& job) { job.inject("nan-gradient, rank: 1"); }, "which is suspect"},
};

class AccusedState : public ::testing::TestWithParam<Cause> {};
INSTANTIATE_TEST_SUITE_P(EndForGood, AccusedState, ::testing::ValuesIn(kAccused), name_of);

TEST_P(AccusedState, LiesApart) {
  Doomed job(GetParam().job);
  job.submit();
  ASSERT_NO_FATAL_FAILURE(GetParam().strike(job));
  const std::string reason = job.reason();
  EXPECT_THAT(reason, HasSubstr(GetParam().words));
  EXPECT_EQ(saved_step_in(job.checkpoints()), 0U) << "a job would resume from it";
  const auto apart = list_checkpoints(job.checkpoints() + "/suspect");
  ASSERT_TRUE(apart.ok() && apart->size() == 1) << reason << broken_promise("checkpoint");
  EXPECT_GE(apart->front().step + 1, job.last_step()) << broken_promise("checkpoint");
  EXPECT_THAT(reason, HasSubstr("/suspect/" + apart->front().name()));
  job.cluster().stop_and_expect_no_leftovers(seconds(60));
}

// The memory ends with the only node.
TEST(EndForGood, NoNodeLeftTellsWhatIsLost) {
  Doomed job(doomed(kNoEnd));
  job.submit();
  ASSERT_NO_FATAL_FAILURE(job.inject("kill-holder, node: n0"));
  EXPECT_THAT(job.reason(), HasSubstr("no checkpoint is known to have the steps after step 0"));
  job.cluster().stop_and_expect_no_leftovers(seconds(60));
}

TEST(EndForGood, StorageLimitTellsWhatIsLost) {
  TrainingJob wanted = doomed(kNoEnd);
  wanted.checkpoint_every = 15;
  wanted.ledger = false;
  wanted.more = "limits: {storage: 2s}\n";
  Doomed job(wanted);
  Outage outage(job.cluster().directory() + "/outage");
  job.submit();
  outage.of(job.checkpoints());
  ASSERT_TRUE(job.reaches(40));
  outage.begin(EIO, "hptrain");
  const std::string reason = job.reason();
  EXPECT_THAT(reason, HasSubstr("limits.storage is over"));
  EXPECT_THAT(reason, HasSubstr("could not be saved"));
  outage.end();
  EXPECT_GT(saved_step_in(job.checkpoints()), 0U) << "of before" << broken_promise("checkpoint");
  job.cluster().stop_and_expect_no_leftovers(seconds(60));
}

}  // namespace
}  // namespace hpctl::testing
