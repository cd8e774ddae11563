// SPDX-License-Identifier: Apache-2.0
// A record whose order was withdrawn has no generation. The job takes the next number and goes on
// from the memory of its workers, as if the record did not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/worker/worker_abi.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Step 17 is in the memory of every rank, and the record of generation 2 is ordered.
class WithdrawnRecords : public ::testing::Test {
 protected:
  void SetUp() override {
    id_ = shell_.submit(small_job("demo"), 1000, "uuid");
    shell_.settle();
    shell_.progress(id_, 1);
    shell_.seals.own = {{17, 7, job().generation.value}};
    for (const int32_t rank : {3, 2, 1, 0}) {
      shell_.exit_worker(id_, rank, rank == 3 ? 1 : kExitPeerLost, 0, 17);
    }
    shell_.settle_kind("StopWorkers");
    shell_.settle_kind("FindCheckpoint");
    ASSERT_EQ(record().generation, Generation{2});
    ASSERT_EQ(record().memory_of, Generation{1});
    first_ = {Generation{2}, to_string(open(ActionKind::kRecordGeneration).id)};
  }
  const Job& job() const { return shell_.job(id_); }
  const Action& open(ActionKind kind) const { return *shell_.open(kind).at(0); }
  const RecordGeneration& record() const {
    return std::get<RecordGeneration>(open(ActionKind::kRecordGeneration).body);
  }
  const FindCheckpoint& search() const {
    return std::get<FindCheckpoint>(open(ActionKind::kFindCheckpoint).body);
  }
  void wait_for_search() {
    for (int i = 0; i < 60 && shell_.open(ActionKind::kFindCheckpoint).empty(); ++i) {
      shell_.pass(1'000);
    }
    ASSERT_FALSE(shell_.open(ActionKind::kFindCheckpoint).empty());
  }
  // The directory does not answer in time; the record is created all the same.
  void withdraw() {
    shell_.pass(job().limits.directory_ms);
    ASSERT_NO_FATAL_FAILURE(wait_for_search());
  }
  void expect_memory_after_first() const {
    EXPECT_EQ(record().generation, Generation{3});
    EXPECT_EQ(record().parent, Generation{1});
    EXPECT_EQ(record().memory_of, Generation{1});
    EXPECT_EQ(record().start_step, 17U);
    EXPECT_THAT(record().withdrawn, ElementsAre(Generation{2}));
  }

  FakeShell shell_;
  JobId id_;
  WithdrawnRecord first_;
};

TEST_F(WithdrawnRecords, AreLeftOutAndNamedByTheNext) {
  ASSERT_NO_FATAL_FAILURE(withdraw());
  EXPECT_THAT(search().withdrawn, ElementsAre(first_));
  EXPECT_EQ(search().job_uuid, "uuid");
  shell_.created_late = {first_};
  shell_.settle_kind("FindCheckpoint");
  expect_memory_after_first();
  shell_.settle_kind("RecordGeneration");
  EXPECT_THAT(job().withdrawn, IsEmpty());
  EXPECT_EQ(job().generation, Generation{3});
}

TEST_F(WithdrawnRecords, AreKnownToALaterControllerWithTheRows) {
  ASSERT_NO_FATAL_FAILURE(withdraw());
  shell_.restart();
  EXPECT_THAT(job().withdrawn, ElementsAre(first_));
  EXPECT_THAT(search().withdrawn, ElementsAre(first_));
  shell_.created_late = {first_};
  shell_.settle_kind("FindCheckpoint");
  expect_memory_after_first();
}

// The link was made, and the directory could not be made durable.
TEST_F(WithdrawnRecords, OfAnOrderThatFailedTooAreLeftOut) {
  shell_.feed(ActionFailed{open(ActionKind::kRecordGeneration).id, id_, "", "Input/output error"});
  ASSERT_NO_FATAL_FAILURE(wait_for_search());
  shell_.created_late = {first_};
  shell_.settle_kind("FindCheckpoint");
  expect_memory_after_first();
}

TEST_F(WithdrawnRecords, ThatAppearAfterTheSearchAreNoRivalsEither) {
  ASSERT_NO_FATAL_FAILURE(withdraw());
  shell_.settle_kind("FindCheckpoint");
  ASSERT_EQ(record().generation, Generation{2}) << "it was not there yet";
  EXPECT_THAT(record().withdrawn, IsEmpty());
  shell_.log.clear();
  shell_.feed(
      GenerationTaken{open(ActionKind::kRecordGeneration).id, id_, Generation{2}, first_.order});
  const bool is_told = std::any_of(shell_.log.begin(), shell_.log.end(), [](const LogEntry& e) {
    return e.cause.find("belongs to an order that was withdrawn") != std::string::npos;
  });
  EXPECT_TRUE(is_told);
  shell_.created_late = {first_};
  shell_.settle_kind("FindCheckpoint");
  expect_memory_after_first();
}

// Of a release that did not write whose order it was, or of another controller.
TEST_F(WithdrawnRecords, WithoutTheOrdersNameCountAsBefore) {
  ASSERT_NO_FATAL_FAILURE(withdraw());
  shell_.created_late = {{Generation{2}, ""}};
  shell_.settle_kind("FindCheckpoint");
  EXPECT_EQ(record().generation, Generation{3});
  EXPECT_EQ(record().parent, Generation{2});
  EXPECT_EQ(record().memory_of, Generation{});
  EXPECT_THAT(record().withdrawn, IsEmpty());
}

TEST_F(WithdrawnRecords, AreBoundedInNumber) {
  for (int i = 0; i < 12; ++i) {
    shell_.feed(ActionFailed{open(ActionKind::kRecordGeneration).id, id_, "", "EIO"});
    ASSERT_NO_FATAL_FAILURE(wait_for_search());
    shell_.settle_kind("FindCheckpoint");
  }
  EXPECT_EQ(job().withdrawn.size(), 8U);
}

TEST_F(WithdrawnRecords, OfAnotherJobAreNotLeftOut) {
  FindCheckpoint order{id_, {}};
  order.withdrawn = {first_};
  order.job_uuid = "uuid";
  GenerationRecord record;
  record.generation = 2;
  record.order = first_.order;
  record.job_uuid = "another";
  std::vector<GenerationRecord> records = {record};
  EXPECT_THAT(drop_withdrawn(records, order), IsEmpty());
  EXPECT_EQ(records.size(), 1U);
  records.front().job_uuid = "uuid";
  EXPECT_THAT(drop_withdrawn(records, order), ElementsAre(first_));
  EXPECT_THAT(records, IsEmpty());
}

}  // namespace
}  // namespace hpctl::core
