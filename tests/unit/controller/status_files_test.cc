// SPDX-License-Identifier: Apache-2.0
// The status files: fields by the names that tools rely on, round trips, torn and repeated lines.
#include "controller/publish/status_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/base/file.h"
#include "common/base/json.h"
#include "controller/leadership/requeue_carryover.h"
#include "controller/leadership/termination_cause.h"
#include "controller/publish/job_view.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

JobView sample() {
  JobView view;
  view.job = 3;
  view.name = "t";
  view.state = "RUNNING";
  view.step = 7;
  view.nodes.push_back({"n0", "active", "up", "i-0", "b-0", 10, 11, ""});
  view.workers.push_back({0, "n0", 12, 1, "running", "training", 7});
  return view;
}

EventView event(uint64_t seq, const std::string& type) {
  EventView view;
  view.seq = seq;
  view.wall_ms = 1'795'000'000'123;
  view.type = type;
  view.job = 3;
  view.cause = "because of \"quotes\" and \xff";
  return view;
}

TEST(StatusFiles, StatusHasTheFieldsThatToolsRelyOn) {
  const auto json = nlohmann::json::parse(to_json_text(sample()));
  for (const char* key : {"job", "name", "state", "generation", "step", "loss", "restarts",
                          "controller", "nodes", "workers"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_TRUE(json["loss"].is_null()) << "no step yet";
  for (const char* key :
       {"name", "role", "state", "instance_id", "boot_id", "holder_pid", "agent_pid"}) {
    EXPECT_TRUE(json["nodes"][0].contains(key)) << key;
  }
  for (const char* key : {"rank", "node", "pid", "generation", "state", "phase", "step"}) {
    EXPECT_TRUE(json["workers"][0].contains(key)) << key;
  }
}

// Rows of workers are written by hand.
TEST(StatusFiles, StatusIsTheTextThatALibraryWouldWrite) {
  JobView view = sample();
  EXPECT_EQ(to_json_text(view), nlohmann::json::parse(to_json_text(view)).dump());
  view.workers.push_back({1, "n0", 13, 1, "running", "training", 8});
  view.workers.push_back({2, "n0", 14, 1, "exited", "finished", UINT64_MAX});
  view.workers.push_back({3, "n\"1\xff", 0, 0, "pending", "starting", 0});
  const std::string text = to_json_text(view);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(text, json.dump());
  ASSERT_EQ(json["workers"].size(), 4U);
  EXPECT_EQ(json["workers"][1]["node"], "n0");
  EXPECT_EQ(json["workers"][2]["state"], "exited");
  EXPECT_EQ(json["workers"][3]["node"], "n\"1\uFFFD");
  view.workers.clear();
  EXPECT_EQ(to_json_text(view), nlohmann::json::parse(to_json_text(view)).dump());
}

TEST(StatusFiles, StatusRoundTripsThroughItsFile) {
  const TemporaryDirectory dir;
  const HomePaths paths(dir.path());
  ASSERT_TRUE(make_directories(paths.job(JobId{3})).ok());
  ASSERT_TRUE(write_status(paths, sample()).ok());
  const auto back = read_status(paths, JobId{3});
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_json_text(*back), to_json_text(sample()));
  EXPECT_EQ(jobs_with_status_files(paths).value(), std::vector<JobId>{JobId{3}});
}

core::State one_job(const core::Job& job) {
  core::State state;
  state.now_ms = 10'000;
  state.jobs[job.id] = job;
  return state;
}

TEST(StatusFiles, AControllerThatFollowsFindsTheTotals) {
  const TemporaryDirectory dir;
  const HomePaths paths(dir.path());
  core::Job job;
  job.id = JobId{3};
  job.spec.train = TrainSpec{};
  job.state = core::JobState::kRecovering;
  job.submitted_wall_ms = 1'000'000;
  job.restarts = 4;
  job.lost_ms = 700;
  job.spent = {2'000, 100, 500, 100};
  job.recovering_since_ms = job.part_since_ms = 9'000;
  job.loss_part = core::LossPart::kRepeat;
  job.told_waits = {400, 20};
  job.furthest_step = 12;
  job.regain_step = 17;
  const core::State state = one_job(job);
  JobView view = make_job_view(state, job.id, {}, "n0", 10'250);
  EXPECT_EQ(view.lost_ms, 1'950) << "with what is not made good";
  note_totals(view, state, {}, 10'250, 2'000'250);
  ASSERT_TRUE(make_directories(paths.job(job.id)).ok());
  ASSERT_TRUE(write_status(paths, view).ok());
  const core::JobTotals totals = read_totals(paths, job.id, {});
  EXPECT_EQ(totals.submitted_wall_ms, 1'000'000);
  EXPECT_EQ(totals.restarts, 4);
  EXPECT_EQ(totals.lost_ms, 1'950);
  EXPECT_EQ(totals.spent, (TimeSpent{2'000, 100, 500, 1'350}));
  EXPECT_EQ(totals.told_waits, (StepWaits{400, 20}));
  EXPECT_EQ(totals.furthest_step, 17U);
  EXPECT_TRUE(totals.interrupted);
  EXPECT_EQ(totals.counted_wall_ms, 2'000'250);
  std::filesystem::remove(paths.job_status(job.id));
  GenerationRecord first;
  first.job = 3;
  first.created_wall_ms = 1'000'400;
  EXPECT_EQ(read_totals(paths, job.id, {first}).submitted_wall_ms, 1'000'400);
}

TEST(TerminationCause, TheTimeLimitIsNotAPerson) {
  SlurmJob job;
  job.state = "RUNNING";
  job.end_time_s = 10'000;
  EXPECT_EQ(termination_cause(job, {}, 9'940'000), TerminationCause::kTimeLimit);
  EXPECT_EQ(termination_cause(job, {}, 5'000'000), TerminationCause::kSomebody);
  job.preempt_time_s = 4'990;
  EXPECT_EQ(termination_cause(job, {}, 5'000'000), TerminationCause::kPreempted);
  job.preempt_time_s = 0;
  job.state = "CANCELLED";
  EXPECT_EQ(termination_cause(job, {}, 9'940'000), TerminationCause::kSomebody);
  JobSpec spec;
  spec.train = TrainSpec{};
  EXPECT_EQ(last_words(TerminationCause::kTimeLimit, spec, "/h/jobs/7/checkpoints"),
            "the time limit of the Slurm job has come; to go on, submit it again with "
            "checkpoint.dir: /h/jobs/7/checkpoints (where the file names none, every job has its "
            "own directory)");
  spec.slurm.requeue_at_limit = true;
  EXPECT_EQ(last_words(TerminationCause::kTimeLimit, spec, "").find("submit it again"),
            std::string::npos)
      << "Slurm does that";
  spec.slurm.requeue_at_limit = false;
  spec.checkpoint.dir = "/shared/run";
  EXPECT_EQ(
      last_words(TerminationCause::kSomebody, spec, "/h/jobs/7/checkpoints"),
      "a user or Slurm ended the Slurm job (scancel, preemption); submit it again to go on from "
      "checkpoint.dir");
}

TEST(TerminationCause, APreemptionIsOfOneStartOfTheJob) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(is_preempted(directory.path(), 0).value());
  ASSERT_TRUE(note_preemption(directory.path(), 0).ok());
  EXPECT_TRUE(is_preempted(directory.path(), 0).value());
  EXPECT_FALSE(is_preempted(directory.path(), 1).value()) << "the next start";
  ASSERT_TRUE(remove_tree(directory / "preempted").ok());
  ASSERT_TRUE(make_directories(directory / "preempted").ok());
  EXPECT_FALSE(is_preempted(directory.path(), 0).ok()) << "a note that cannot be read is no answer";
  EXPECT_NE(last_words(TerminationCause::kPreempted, {}, "").find("Slurm preempted the job"),
            std::string::npos);
}

TEST(StatusFiles, AJobThatIsToEndDoesNotRun) {
  core::Job job;
  job.id = JobId{3};
  job.spec.train = TrainSpec{};
  job.state = core::JobState::kRunning;
  JobProgress progress;
  progress.tokens_per_second = 900;
  EXPECT_EQ(make_job_view(one_job(job), job.id, progress, "n0", 10'250).state, "RUNNING");
  job.cancel_requested = true;
  const JobView stopping = make_job_view(one_job(job), job.id, progress, "n0", 10'250);
  EXPECT_EQ(stopping.state, "STOPPING");
  EXPECT_EQ(stopping.tokens_per_second, 0);
  job.state = core::JobState::kCancelled;
  EXPECT_EQ(make_job_view(one_job(job), job.id, progress, "n0", 10'250).state, "CANCELLED");
}

// 86 % became 87 % when another process of the controller read the rows.
TEST(StatusFiles, GoodputOfAJobThatHasEndedStays) {
  core::Job job;
  job.id = JobId{3};
  job.state = core::JobState::kFinished;
  job.ended_wall_ms = 60'000;
  JobProgress progress;
  progress.ended_spent = TimeSpent{};
  progress.ended_spent->waits.data_ms = 700;
  EXPECT_EQ(make_job_view(one_job(job), job.id, progress, "n0", 90'000).spent.waits.data_ms, 700);
  job.ended_wall_ms = 0;
  job.state = core::JobState::kRunning;
  EXPECT_EQ(make_job_view(one_job(job), job.id, progress, "n0", 90'000).spent.waits.data_ms, 0);
}

// Those of the node's present life, beside how many there are to be.
TEST(StatusFiles, WhoStandsByIsTold) {
  core::Job job;
  job.id = JobId{3};
  job.spec.train = TrainSpec{};
  job.spec.workers_per_node = 4;
  core::State state = one_job(job);
  for (const char* name : {"n0", "n1"}) {
    core::Node& node = state.nodes[{job.id, name}];
    node.key = {job.id, name};
    node.state = core::NodeState::kUp;
    node.boot_id = "b-1";
  }
  state.index.ranks[{job.id, "n0"}] = {Rank{0}, Rank{1}, Rank{2}, Rank{3}};
  JobProgress progress;
  progress.standbys["n0"] = {"b-1", 1, 0, 4'096};
  progress.standbys["n1"] = {"b-1", 3, 1, 9'000};
  JobView view = make_job_view(state, job.id, progress, "n0", 10'250);
  ASSERT_TRUE(view.nodes[0].standbys && view.nodes[1].standbys);
  EXPECT_EQ(view.nodes[0].standbys->wanted, 1U) << "recovery.standbys";
  EXPECT_EQ(view.nodes[1].standbys->wanted, 4U) << "a spare's: one for each rank";
  v1::JobStatus status;
  fill(view, status);
  EXPECT_EQ(status.nodes(1).standbys().ready(), 3U);
  EXPECT_EQ(status.nodes(1).standbys().wanted(), 4U);
  const auto back = job_view_from_json(to_json_text(view));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->nodes[1].standbys->loading, 1U);
  EXPECT_EQ(back->nodes[1].standbys->memory_bytes, 9'000U);

  progress.standbys["n1"].boot_id = "b-0";
  view = make_job_view(state, job.id, progress, "n0", 10'250);
  EXPECT_FALSE(view.nodes[1].standbys) << "of a former life";
  state.jobs[job.id].spec.recovery.standbys = 0;
  progress.standbys["n0"] = {"b-1", 0, 0, 0};
  view = make_job_view(state, job.id, progress, "n0", 10'250);
  EXPECT_FALSE(view.nodes[0].standbys) << "none are wanted, and none there";
  EXPECT_FALSE(nlohmann::json::parse(to_json_text(view))["nodes"][0].contains("standbys"));
}

TEST(StatusFiles, WhatThePlanChoseStaysWithTheJob) {
  core::Job job;
  job.id = JobId{3};
  job.spec.train = TrainSpec{};
  job.spec.chosen = {"2 workers", {{"workload.train.batch.micro", "4", "as fast as 2"}}};
  JobView view = make_job_view(one_job(job), job.id, {}, "n0", 0);
  v1::JobStatus status;
  fill(view, status);
  EXPECT_EQ(status.chosen_for(), "2 workers");
  ASSERT_EQ(status.chosen_size(), 1);
  EXPECT_EQ(status.chosen(0).key(), "workload.train.batch.micro");
  EXPECT_EQ(status.chosen(0).reason(), "as fast as 2");
  const auto back = job_view_from_json(to_json_text(view));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->chosen.basis, "2 workers");
  ASSERT_EQ(back->chosen.values.size(), 1U);
  EXPECT_EQ(back->chosen.values[0].value, "4");
  view.chosen = {};
  EXPECT_FALSE(nlohmann::json::parse(to_json_text(view)).contains("chosen"));
}

TEST(StatusFiles, WhatAJobHasLeft) {
  core::Job job;
  job.id = JobId{3};
  job.spec.train = TrainSpec{};
  job.spec.spares = 2;
  job.spec.recovery.max_restarts = 5;
  job.spec.recovery.window_ms = 7'200'000;
  job.state = core::JobState::kRunning;
  job.generation = Generation{2};
  job.requeue_refusal = "Requeue is 0";
  core::State state = one_job(job);
  constexpr int64_t kNow = 100'000'000;
  state.jobs[job.id].restart_times_ms = {kNow - 7'200'000, kNow - 7'100'000, kNow - 3'000};
  state.jobs[job.id].stepped_ms = kNow - 90'000;
  const auto add = [&](const char* name, core::NodeState is) -> core::Node& {
    core::Node& node = state.nodes[{job.id, name}];
    node.key = {job.id, name};
    node.state = is;
    return node;
  };
  add("n0", core::NodeState::kUp);
  state.index.ranks[{job.id, "n0"}] = {Rank{0}};
  add("n1", core::NodeState::kUp).quarantine.by = "hpctl";
  add("n2", core::NodeState::kUp);         // a spare
  add("n3", core::NodeState::kLaunching);  // is to be one
  add("n4", core::NodeState::kDown);
  JobProgress progress;
  progress.stepped_ms = kNow - 80'000;
  progress.ranks[0].still_ms = 70'000;
  progress.ranks[1].still_ms = 10;
  JobView view = make_job_view(state, job.id, progress, "n0", kNow);
  ASSERT_TRUE(view.margins);
  EXPECT_EQ(view.margins->max_restarts, 5);
  EXPECT_EQ(view.margins->recent_restarts, 2);
  EXPECT_EQ(view.margins->hour_restarts, 1);
  EXPECT_EQ(view.margins->spares_wanted, 2U);
  EXPECT_EQ(view.margins->spares_left, 2U);
  EXPECT_EQ(view.margins->quarantined, std::vector<std::string>{"n1"});
  EXPECT_EQ(view.margins->still_ms, 70'000) << "one rank has not moved for so long";
  EXPECT_EQ(view.margins->recovering_ms, 0);
  EXPECT_EQ(view.margins->requeue_refusal, "Requeue is 0");

  // What is known of machines: of those that it trains on, or may.
  const auto scored = [](const char* node, const char* instance, double score) {
    return LemonScore{node, instance, score, 1, "Xid 79"};
  };
  note_lemons(view, {scored("n0", "", 4), scored("n1", "", 4), scored("n2", "", kLemonScore),
                     scored("n4", "", 4), scored("n9", "", 4)});
  EXPECT_EQ(view.margins->lemons, (std::vector<std::string>{"n0", "n2"}));
  JobView other = make_job_view(state, job.id, progress, "n0", kNow);
  note_lemons(other, {scored("n0", "", 2.9)});
  EXPECT_TRUE(other.margins->lemons.empty());
  other.ended_at = WallTime(1);
  note_lemons(other, {scored("n0", "", 4)});
  EXPECT_TRUE(other.margins->lemons.empty()) << "it has ended";

  // On the wire, and in the file.
  v1::JobStatus status;
  fill(view, status);
  EXPECT_EQ(status.margins().quarantined(), "n1");
  const auto back = job_view_from_json(to_json_text(view));
  ASSERT_TRUE(back.ok() && back->margins) << back.error().message;
  EXPECT_EQ(back->margins->still_ms, 70'000);
  EXPECT_EQ(back->margins->quarantined, view.margins->quarantined);
  EXPECT_EQ(back->margins->lemons, view.margins->lemons);
  EXPECT_FALSE(job_view_from_json(to_json_text(sample()))->margins) << "of an older release";

  progress.ranks[0].still_ms = 500'000;
  EXPECT_EQ(make_job_view(state, job.id, progress, "n0", kNow).margins->still_ms, 80'000)
      << "a step was completed since";
  state.jobs[job.id].suspended_since_ms = kNow - 1;
  EXPECT_EQ(make_job_view(state, job.id, progress, "n0", kNow).margins->still_ms, 0);
  EXPECT_EQ(make_job_view(state, job.id, progress, "n0", kNow).state, "SUSPENDED");
  state.jobs[job.id].suspended_since_ms = 0;
  state.jobs[job.id].state = core::JobState::kRecovering;
  state.jobs[job.id].recovering_since_ms = kNow - 5'000;
  view = make_job_view(state, job.id, progress, "n0", kNow);
  EXPECT_EQ(view.margins->still_ms, 0);
  EXPECT_EQ(view.margins->recovering_ms, 5'000);
}

TEST(StatusFiles, WaitForStorageAndFailedSaves) {
  core::Job job;
  job.id = JobId{3};
  job.spec.train = TrainSpec{};
  job.state = core::JobState::kRunning;
  job.storage_waited_ms = 40'000;
  job.storage_errors_directory = 2;
  job.storage_errors_worker = 1;
  core::State state = one_job(job);
  constexpr int64_t kNow = 100'000'000;
  JobProgress progress;
  progress.ranks[0].report.figures.emplace().saves_without_room = 6;
  JobView view = make_job_view(state, job.id, progress, "n0", kNow);
  EXPECT_EQ(view.margins->failed_saves, 6U);
  EXPECT_EQ(view.margins->storage_ms, 0);
  EXPECT_EQ(view.storage.waited_ms, 40'000);

  state.jobs[job.id].state = core::JobState::kRecovering;
  state.jobs[job.id].storage_since_ms = kNow - 7'000;
  view = make_job_view(state, job.id, progress, "n0", kNow);
  EXPECT_EQ(view.margins->failed_saves, 0U) << "what rank 0 told before";
  EXPECT_EQ(view.margins->storage_ms, 7'000);
  EXPECT_EQ(view.storage.waited_ms, 47'000);
  EXPECT_EQ(view.storage.errors_directory, 2);
  EXPECT_EQ(view.storage.errors_worker, 1);
  const auto back = job_view_from_json(to_json_text(view));
  ASSERT_TRUE(back.ok() && back->margins) << back.error().message;
  EXPECT_EQ(back->margins->storage_ms, 7'000);
}

TEST(StatusFiles, ASnapshotNamesRanksOfAFormerGeneration) {
  JobView view = sample();
  view.generation = 2;
  view.workers.push_back({1, "n1", 13, 2, "running", "training", 7});
  view.workers.push_back({2, "n1", 14, 1, "exited", "training", 7});
  view.loss = 2.5;
  const JobSnapshot snapshot = snapshot_of(view, WallTime(17));
  EXPECT_EQ(snapshot.summary.taken_at.unix_ms(), 17);
  EXPECT_EQ(snapshot.loss, 2.5);
  ASSERT_EQ(snapshot.orphans.size(), 1U);
  EXPECT_EQ(snapshot.orphans[0].rank, 0);
  EXPECT_EQ(snapshot.orphans[0].node, "n0");
  EXPECT_EQ(snapshot.orphans[0].generation, 1U);
}

TEST(StatusFiles, TornAndRepeatedLinesAreLeftOut) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/events.jsonl";
  ASSERT_TRUE(append_events(path, {event(1, "A"), event(2, "B")}).ok());
  ASSERT_TRUE(append_events(path, {event(2, "B"), event(3, "C")}).ok());
  std::ofstream(path, std::ios::app) << R"({"seq":4,"type":"D)";
  const auto events = read_events(path);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->size(), 3U);
  EXPECT_EQ(events->at(2).type, "C");
  EXPECT_EQ(events->at(0).wall_ms, 1'795'000'000'123);
  EXPECT_EQ(nlohmann::json::parse(to_json_text(events->at(0)))["time"].get<std::string>().back(),
            'Z');
}

TEST(StatusFiles, AMissingHistoryIsEmptyAndADamagedStatusIsNamed) {
  const TemporaryDirectory dir;
  EXPECT_TRUE(read_events(dir.path() + "/none").value().empty());
  const HomePaths paths(dir.path());
  ASSERT_TRUE(make_directories(paths.job(JobId{3})).ok());
  ASSERT_TRUE(write_status(paths, sample()).ok());
  std::ofstream(paths.job_status(JobId{3})) << "{";
  EXPECT_NE(read_status(paths, JobId{3}).error().message.find("status.json"), std::string::npos);
  auto damaged = nlohmann::json::parse(to_json_text(sample()));
  damaged["workers"][0]["step"] = 1e30;
  const auto read = job_view_from_json(damaged.dump());
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().message,
            "not a job status: /workers/0/step: expected a whole number from 0 to "
            "18446744073709551615; found 1e+30");
}

TEST(StatusFiles, WhereTheTimeWentIsKnownUntilTheEnd) {
  JobView view;
  view.submitted_at = WallTime(1'000);
  view.spent.start_ms = 500;
  view.spent.wait_ms = 500;
  EXPECT_EQ(goodput_of(account_of(view, WallTime(3'000))), std::nullopt) << "it told no step";
  EXPECT_EQ(ettr_of(account_of(view, WallTime(3'000))), std::nullopt);
  view.furthest_step = 7;  // before a restart
  EXPECT_EQ(goodput_of(account_of(view, WallTime(3'000))), 1'000 / 1'500.0);
  EXPECT_EQ(ettr_of(account_of(view, WallTime(3'000))), 0.5);
  view.ended_at = WallTime(3'000);
  EXPECT_EQ(account_of(view, WallTime(9'000)).wall_ms, 2'000);
}

}  // namespace
}  // namespace hpctl
