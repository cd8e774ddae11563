// SPDX-License-Identifier: Apache-2.0
// Rows, events and actions survive the codec; damage and age are handled.
#include "controller/core/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <variant>

#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::HasSubstr;

const ActionId kId{Seq{7}, 2};
const JobId kJob{3};

const QuarantinedNode kQuarantined{"n1", "i-1", "uid 7", "reason", true, 5, 6, 7, true, 8};

JobAdopted adoption() {
  return {kJob,
          small_job("codec"),
          1000,
          "key",
          {"n0", "n1"},
          {true, true, 3},
          "cause",
          Generation{4},
          10,
          "step-10.g2",
          {{Rank{0}, "n0"}, {Rank{1}, "n1"}},
          {"step-12.g2"},
          2,
          {100, 50},
          1,
          17,
          20,
          {{"n2"}, 1, {kQuarantined}},
          {5678, 2, 900, 21, true, 5600},
          Generation{2}};
}

std::vector<EventBody> every_event() {
  const LiveWorker worker{Rank{1}, Generation{4}, 99, WorkerOrigin::kStandby};
  return {
      JobSubmitted{small_job("codec"), 1000, "key"},
      CancelRequested{kJob, 1000},
      NodeLaunched{kId, kJob, "n1", 55},
      AgentRegistered{kJob,
                      "n1",
                      "i-1",
                      "boot",
                      55,
                      56,
                      Generation{4},
                      {worker},
                      "10.0.0.7",
                      true,
                      true,
                      true,
                      true},
      AgentDisconnected{kJob, "n1", "boot"},
      NodeLost{kJob, "n1", "boot", "why", true, true, true, true},
      NodeEnded{kJob, "n1", "boot"},
      NodeDeparts{kJob, "n1", "boot", "signal 15"},
      CheckpointChosen{kId, kJob, "step-4.g1", 4, Generation{1}},
      CheckpointChosen{kId, kJob, "", 0, Generation{1}, "", {}, "", {{Generation{2}, "5.0", true}}},
      GenerationRecorded{kId, kJob, Generation{4}},
      GenerationTaken{kId, kJob, Generation{4}, "5.0"},
      WorkersStarted{kId, kJob, "n1", Generation{4}, {worker}},
      WorkersStopped{kId, kJob, "n1", Generation{4}, "stacks"},
      WorkerExited{kJob,
                   "n1",
                   "boot",
                   Rank{1},
                   Generation{4},
                   99,
                   1,
                   9,
                   17,
                   "words",
                   true,
                   true,
                   {{{7, 8, 9}}, {{4, 8, 9}}},
                   {"shard-00001.safetensors", 4, 8, 5}},
      GenerationProgressed{kJob, Generation{4}, 17, 0, {3, 4}},
      CheckpointCommitted{kJob, Generation{4}, 17},
      SuspensionChanged{kJob, true},
      HangDetected{kJob, Generation{4}, "n1", Rank{1}, "evidence"},
      ActionFailed{kId, kJob, "n1", "why", true, true, true, true, true},
      ControllerResumed{true},
      Tick{},
      adoption(),
      JobRequeued{kId, kJob},
      NodeReplacementRequested{kId, kJob, "n1", "what", true},
      SchedulerObserved{kJob, "n1", "what", true},
      NodeReturned{kJob, "n1", "cause"},
      QuarantineRequested{kJob, "n1", 1000, "reason", 5000, true},
      ReleaseRequested{kJob, "n1", 1000},
      HardwareFaultFound{kJob, "n1", "boot", "reason", "evidence", true},
      BadStepFound{kJob, "n1", Generation{4}, 3, 18, 10, 24, BadStepFinding::kGradientSpike,
                   BadStepVerdict::kSameResult, BadStepOutcome::kRolledBack, 1, "reason", 2},
      RecoveryRequested{kJob, "n1", 1000, "reason", true, true},
      ControllerNoted{kJob, "what"},
      TrainingSeen{kJob, {4}, 5000},
      FaultInjected{kJob, 1000, InjectedFault::kStopWorker, "n1", Rank{3}},
      FaultNotInjected{kJob, "n1", Seq{7}, "reason"},
      StragglerFound{kJob, {"n1", 3, 2.9, "evidence", Generation{4}}},
      StragglerOver{kJob, Generation{4}, "n1"},
      SpareFoundUnfit{kJob, "n1", "boot", "reason", true, true},
      SpareReady{kJob, "n1", "boot"},
      CheckpointRoomNeeded{kJob, Generation{4}},
      CheckpointsPruned{kId, kJob, "step-4.g1", {"step-2.g1"}, "why", "step-6.g1"},
      CheckpointMirrored{kId, kJob, "step-4.g1", 4, 4096, {"step-2.g1"}, "why"},
      CheckpointMirrored{
          kId, kJob, "step-4.g1", 4, 0, {}, "full", "/m/step-4.g1", "/m/step-4.g1", true},
      DamageAnswered{kId, kJob, "n1", DamageVerdict::kDamaged, "what"},
      JobRemoved{kJob, 1000},
      WorkersExited{
          kJob, "n1", "boot", {{kJob, "n1", "boot", Rank{1}, Generation{4}, 99, 95, 0, 17, ""}}},
  };
}

std::vector<ActionBody> every_action() {
  return {
      LaunchNode{kJob, "n1"},
      FindCheckpoint{kJob,
                     {"step-4.g1"},
                     {"step-8.g1", "n1", "gone", {"shard-00001.safetensors", 4, 8, 5}},
                     Generation{4},
                     true,
                     {true, "step-2.g1", 2, Generation{4}, "step-9.g3"},
                     {Generation{3}, 7},
                     {{Generation{5}, "5.0", false}},
                     "key"},
      RecordGeneration{kJob,
                       Generation{4},
                       Generation{2},
                       10,
                       "step-10.g2",
                       "why",
                       3,
                       {"step-12.g2"},
                       {{Rank{0}, "n0"}, {Rank{1}, "n1"}},
                       {kQuarantined},
                       Generation{2},
                       {},
                       0,
                       "step-10.g2",
                       true,
                       {Generation{3}}},
      StartWorkers{
          kJob, "n1", Generation{4}, {Rank{1}}, "step-10.g2", 10, Generation{2}, {}, 0, true, true},
      StopWorkers{kJob, "n1", Generation{4}, true, true},
      EndNode{kJob, "n1", true},
      RequeueJob{kJob, {"n1"}, 2, {kQuarantined}},
      ReplaceNode{kJob, "n1", "i-1", "why", false, true, 5678},
      PruneCheckpoints{kJob, Generation{4}, true, true, true, "step-4.g1", "n1"},
      MirrorCheckpoint{
          kJob, Generation{4}, {"step-8.g1"}, {Generation{4}, 7}, true, true, "/m/step-4.g1", "n1"},
      ConfirmDamage{kJob,
                    "n1",
                    {"step-8.g1", "n0", "words", {"shard-00001.safetensors", 4, 8, 5}, {"n2"}},
                    Generation{4},
                    true},
  };
}

// It is written by hand.
TEST(Codec, ASlotIsReadLikeTheOtherRows) {
  Slot slot;
  slot.key = {kJob, Rank{8}};
  slot.node = "n\"1";
  slot.state = SlotState::kExited;
  slot.generation = {4};
  slot.pid = 99;
  slot.exit_code = -1;
  slot.signal = 9;
  slot.unaccounted = true;
  slot.seals = {{{12, UINT64_MAX, 4}, {11, 5, 4}}, {{10, 6, 4}}, 8, 16, 0};
  slot.arena_boot_id = "b1";
  const std::string text = encode(slot);
  EXPECT_EQ(text, R"({"key":{"job":3,"rank":8},"arena_boot_id":"b1",)"
                  R"("exit_code":-1,"generation":4,"node":"n\"1","pid":99,)"
                  R"("seals":{"copied_part":0,"copies":[{"digest":6,"generation":4,"step":10}],)"
                  R"("own":[{"digest":18446744073709551615,"generation":4,"step":12},)"
                  R"({"digest":5,"generation":4,"step":11}],"part":8,"parts":16},)"
                  R"("signal":9,"state":2,"unaccounted":true})");
  const auto read = decode_slot(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->node, slot.node);
  EXPECT_EQ(read->seals.own, slot.seals.own);
  EXPECT_EQ(read->seals.copies, slot.seals.copies);
  EXPECT_EQ(read->seals.parts, slot.seals.parts);
  EXPECT_EQ(encode(*read), text);
  EXPECT_EQ(encode(Slot{}), R"({"key":{"job":0,"rank":0}})") << "the rest is what is assumed";
  EXPECT_EQ(encode(*decode_slot(encode(Slot{}))), encode(Slot{}));
  const auto both = decode_slots(encode(std::vector<const Slot*>{&slot, &slot}));
  ASSERT_TRUE(both.ok());
  ASSERT_EQ(both->size(), 2U);
  EXPECT_EQ(encode(both->back()), text);
}

TEST(Codec, EveryEventSurvives) {
  const auto events = every_event();
  std::set<size_t> kinds;
  for (const EventBody& body : events) kinds.insert(body.index());
  ASSERT_EQ(kinds.size(), std::variant_size_v<EventBody>);
  for (const EventBody& body : events) {
    const Event event{Seq{8}, 1234, 5678, body};
    const std::string text = encode(event);
    const auto decoded = decode_event(text);
    ASSERT_TRUE(decoded.ok()) << text << decoded.error().message;
    EXPECT_EQ(decoded->body.index(), body.index());
    EXPECT_EQ(decoded->now_ms, 1234);
    EXPECT_EQ(encode(*decoded), text);
    EXPECT_THAT(text, HasSubstr(type_name(body)));
  }
}

TEST(Codec, EveryActionSurvives) {
  const auto actions = every_action();
  ASSERT_EQ(actions.size(), std::variant_size_v<ActionBody>);
  for (const ActionBody& body : actions) {
    const Action action{kId, "the reason", body};
    const std::string text = encode(action);
    const auto decoded = decode_action(text);
    ASSERT_TRUE(decoded.ok()) << text << decoded.error().message;
    EXPECT_EQ(decoded->id, kId);
    EXPECT_EQ(decoded->body.index(), body.index());
    EXPECT_EQ(encode(*decoded), text);
  }
}

TEST(Codec, JobRowKeepsEveryField) {
  Job job;
  job.id = kJob;
  job.spec = small_job("codec");
  job.damaged = {"step-1.g1"};
  job.restart_times_ms = {5, 6};
  job.recent_faults = {{"cause", "n1", 3, 17, Seq{9}}};
  job.state = JobState::kRecovering;
  job.stage = PlanStage::kRecordGeneration;
  job.not_before_ms = 77;
  job.storage_since_ms = 2;
  job.cancel_requested = true;
  job.ending = {JobState::kTimeout, "the time limit has come", true, true, 9'000, Seq{8}};
  job.lost_ms = 123;
  job.spent = {4, 23, 60, 40, 5, 6, 9, {10, 11}};
  job.part_since_ms = 9;
  job.loss_part = LossPart::kWait;
  job.told_waits = {7, 8};
  job.regain_step = 31;
  job.stepped_ms = 7;
  const auto decoded = decode_job(encode(job));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(decoded->spec.name, "codec");
  EXPECT_EQ(decoded->damaged, job.damaged);
  EXPECT_EQ(decoded->restart_times_ms, job.restart_times_ms);
  EXPECT_EQ(decoded->recent_faults.at(0).cause, "cause");
  EXPECT_EQ(decoded->recent_faults.at(0).seq, Seq{9});
  EXPECT_EQ(decoded->stage, PlanStage::kRecordGeneration);
  EXPECT_EQ(decoded->not_before_ms, 77);
  EXPECT_TRUE(decoded->cancel_requested);
  EXPECT_EQ(decoded->ending.state, JobState::kTimeout);
  EXPECT_EQ(decoded->ending.reason, "the time limit has come");
  EXPECT_TRUE(decoded->ending.awaits_cause);
  EXPECT_TRUE(decoded->ending.requeues);
  EXPECT_EQ(decoded->spent, job.spent);
  EXPECT_EQ(decoded->loss_part, job.loss_part);
  EXPECT_EQ(decoded->told_waits, job.told_waits);
  EXPECT_EQ(encode(*decoded), encode(job));
}

TEST(Codec, OlderRowsTakeDefaultsAndNewerFieldsAreIgnored) {
  const auto node = decode_node(R"({"key":{"job":3,"name":"n1"},"state":1,"of_a_later_build":7})");
  ASSERT_TRUE(node.ok()) << node.error().message;
  EXPECT_EQ(node->key.name, "n1");
  EXPECT_EQ(node->state, NodeState::kUp);
  EXPECT_EQ(node->launched_for, -1);
}

TEST(Codec, DamageIsAnErrorThatNamesTheKind) {
  EXPECT_THAT(decode_slot("{").error().message, HasSubstr("not a stored slot"));
  EXPECT_FALSE(decode_event(R"({"seq":1,"now_ms":1,"type":"Nonsense","body":{}})").ok());
  EXPECT_FALSE(decode_action("[]").ok());
}

TEST(Codec, LastWordsNeedNotBeUtf8) {
  WorkerExited exited;
  exited.message = "broken \xff\xfe bytes";
  const auto decoded = decode_event(encode(Event{Seq{1}, 1, 1, exited}));
  ASSERT_TRUE(decoded.ok());
  EXPECT_THAT(std::get<WorkerExited>(decoded->body).message, HasSubstr("broken"));
}

}  // namespace
}  // namespace hpctl::core
