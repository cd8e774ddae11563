// SPDX-License-Identifier: Apache-2.0
// Who is blamed, of hangs that are made up call by call.
#include "common/recorder/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hpctl::recorder {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The dumps of a job of so many ranks, which are all in group 0, the world.
class Job {
 public:
  explicit Job(int32_t ranks) {
    std::vector<int32_t> all;
    for (int32_t rank = 0; rank < ranks; ++rank) all.push_back(rank);
    for (const int32_t rank : all) dumps_[rank].groups = {{"0", "default_pg", all}};
  }
  // Returns the place of the group, which is the same in the dumps of all members that are in no
  // other group beside the world.
  size_t add_group(const std::string& name, const std::vector<int32_t>& ranks) {
    size_t place = 0;
    for (const int32_t rank : ranks) {
      place = dumps_[rank].groups.size();
      dumps_[rank].groups.push_back({name, "tensor parallel", ranks});
    }
    return place;
  }
  Operation& call(int32_t rank, int64_t sequence, bool completed, size_t group = 0,
                  const std::string& name = "all_reduce", int64_t elements = 1024) {
    dumps_[rank].operations.push_back({.group = group,
                                       .sequence = sequence,
                                       .completed = completed,
                                       .name = name,
                                       .input_elements = {elements},
                                       .output_elements = {elements},
                                       .types = {"Float", "Float"},
                                       .inputs = "[" + std::to_string(elements) + "] Float",
                                       .caller = "train.py:44 in step"});
    return dumps_[rank].operations.back();
  }
  void call_all(int64_t sequence, bool completed, size_t group = 0) {
    for (auto& [rank, dump] : dumps_) call(rank, sequence, completed, group);
  }
  void lose(int32_t rank) { dumps_.erase(rank); }
  Verdict judge() const { return recorder::judge(dumps_); }

 private:
  std::map<int32_t, RankDump> dumps_;
};

TEST(Verdict, TheRankThatHasNotBegunIsBlamed) {
  Job job(4);
  job.call_all(1, true);
  for (const int32_t rank : {0, 1, 3}) job.call(rank, 2, false);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, ElementsAre(2));
  EXPECT_THAT(verdict.findings,
              ElementsAre("process group 0 (default_pg): ranks 0, 1, 3 wait in collective 2, "
                          "all_reduce of [1024] Float, called at train.py:44 in step; rank 2 has "
                          "not begun it, the last was 1, all_reduce of [1024] Float, called at "
                          "train.py:44 in step"));
  EXPECT_EQ(verdict.conclusion,
            "rank 2 is to blame: it keeps the others waiting and waits for nobody");
}

// Calls return before the device has done them: the others are several ahead.
TEST(Verdict, TheFirstThatIsNotCompletedCounts) {
  Job job(3);
  job.call_all(7, true);
  for (const int32_t rank : {0, 1}) {
    for (int64_t sequence = 8; sequence < 12; ++sequence) job.call(rank, sequence, false);
  }
  EXPECT_THAT(job.judge().findings, ElementsAre(HasSubstr("wait in collective 8,")));
  EXPECT_THAT(job.judge().blamed, ElementsAre(2));
}

TEST(Verdict, WhoIsKeptWaitingElsewhereIsNotBlamed) {
  Job job(4);
  const size_t left = job.add_group("1", {0, 1});
  const size_t right = job.add_group("2", {2, 3});
  job.call_all(1, true);
  // 3 does nothing, so 2 waits for it and does not come to the world's.
  job.call(2, 5, false, right);
  job.call(0, 5, true, left);
  job.call(1, 5, true, left);
  job.call(0, 2, false);
  job.call(1, 2, false);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, ElementsAre(3)) << verdict.conclusion;
  EXPECT_EQ(verdict.findings.size(), 2U);
}

TEST(Verdict, RanksThatWaitForEachOtherAreNamedAndNotBlamed) {
  Job job(4);
  const size_t group = job.add_group("1", {0, 1, 2, 3});
  job.call_all(1, true);
  for (const int32_t rank : {0, 1}) job.call(rank, 2, false);
  for (const int32_t rank : {2, 3}) job.call(rank, 1, false, group);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, IsEmpty());
  EXPECT_EQ(verdict.conclusion, "nobody is blamed: ranks 0-3 wait for each other");
}

TEST(Verdict, ACallThatDiffersFromMostIsBlamedWhereItHappened) {
  Job job(3);
  job.call_all(1, true);
  // Rank 0 calls one more, so that its next calls meet those that the others call later.
  job.call(0, 2, true, 0, "all_reduce", 20);
  for (const int32_t rank : {1, 2}) job.call(rank, 2, true);
  job.call(0, 3, false);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, ElementsAre(0)) << verdict.conclusion;
  EXPECT_EQ(verdict.findings[0],
            "process group 0 (default_pg): collective 2 is not the same everywhere: ranks 1, 2 "
            "call all_reduce of [1024] Float, called at train.py:44 in step; rank 0 calls "
            "all_reduce of [20] Float, called at train.py:44 in step");
  EXPECT_EQ(verdict.conclusion, "rank 0 is to blame: it calls something else than most");
}

TEST(Verdict, ADifferentCollectiveOrTypeIsSeen) {
  Job name(3);
  name.call(0, 1, false, 0, "broadcast");
  for (const int32_t rank : {1, 2}) name.call(rank, 1, false);
  EXPECT_THAT(name.judge().blamed, ElementsAre(0));
  Job type(3);
  for (const int32_t rank : {0, 1}) type.call(rank, 1, false);
  type.call(2, 1, false).types = {"BFloat16", "BFloat16"};
  EXPECT_THAT(type.judge().blamed, ElementsAre(2));
}

TEST(Verdict, OfTwoThatDifferNobodyKnowsWhichIsRight) {
  Job job(2);
  job.call(0, 1, false, 0, "all_reduce", 10);
  job.call(1, 1, false, 0, "all_reduce", 20);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, IsEmpty());
  EXPECT_EQ(verdict.conclusion,
            "nobody is blamed: which of the different calls is wrong is not known");
}

TEST(Verdict, PartsOfDifferentSizeAreNoMistakeWhereTheyMayBe) {
  Job job(3);
  for (int32_t rank = 0; rank < 3; ++rank) job.call(rank, 1, false, 0, "all_to_all", 10 + rank);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, IsEmpty());
  EXPECT_EQ(verdict.conclusion,
            "nobody is blamed: all have begun the same, and none has completed it");
}

TEST(Verdict, WhoHasNotCompletedWhatOthersHaveIsBlamed) {
  Job job(4);
  for (const int32_t rank : {0, 1, 3}) job.call(rank, 1, true);
  job.call(2, 1, false);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, ElementsAre(2));
  EXPECT_EQ(verdict.conclusion,
            "rank 2 is to blame: it has not completed what others have; look at the device and its "
            "links");
}

// With TORCH_INCLUDE_ONLY_ACTIVE there is no record of what was completed.
TEST(Verdict, WhoIsFurtherHasCompletedWhatIsNotRecordedAnyMore) {
  Job job(4);
  for (const int32_t rank : {0, 1, 3}) job.call(rank, 3, false);
  job.call(2, 1, false);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.findings, ElementsAre(HasSubstr("ranks 0, 1, 3 have completed it")));
  EXPECT_THAT(verdict.blamed, ElementsAre(2));
}

TEST(Verdict, WhoWaitsAloneMayHaveCalledOneMore) {
  Job job(4);
  job.call_all(1, true);
  job.call(1, 2, false);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, IsEmpty());
  EXPECT_EQ(verdict.conclusion,
            "nobody is blamed: most ranks are absent in process group 0 (default_pg): rank 1 may "
            "have called one more than the others");
}

TEST(Verdict, ARankWithoutADumpIsNamedAndNeverBlamed) {
  Job job(3);
  job.call_all(1, false);
  job.lose(2);
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, IsEmpty());
  EXPECT_THAT(verdict.silent, ElementsAre(2));
  EXPECT_THAT(verdict.findings, ElementsAre(HasSubstr("; of rank 2 it is not known")));
  EXPECT_EQ(verdict.conclusion, "nobody is blamed: rank 2 has left no dump");
}

// What is in a coalesced call is recorded without an end (PyTorch's test_c10d_nccl.py,
// test_coalescing_manager_collective).
TEST(Verdict, TheEndOfACoalescedCallIsThatOfItsParts) {
  Job job(2);
  for (const int32_t rank : {0, 1}) {
    job.call(rank, 1, false, 0, "_reduce_scatter_base");
    job.call(rank, 1, false, 0, "_reduce_scatter_base");
    job.call(rank, 1, true, 0, "coalesced");
  }
  EXPECT_THAT(job.judge().findings, IsEmpty());
  job.call(0, 2, false, 0, "_reduce_scatter_base");
  EXPECT_THAT(job.judge().findings, ElementsAre(HasSubstr("rank 0 waits in collective 2")));
}

TEST(Verdict, PointToPointIsNoCollective) {
  Job job(2);
  job.call_all(1, true);
  job.call(0, 1, false, 0, "recv 0<-1").is_p2p = true;
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_EQ(verdict.conclusion, "nobody is blamed: no rank waits in a collective");
}

// As in a pipeline: whom it waits for is not known.
TEST(Verdict, WhoWaitsInACallOfTwoIsNotBlamedForItsAbsence) {
  Job job(3);
  job.call_all(1, true);
  for (const int32_t rank : {0, 1}) job.call(rank, 2, false);
  job.call(2, 1, false, 0, "recv 2<-1").is_p2p = true;
  const Verdict verdict = job.judge();
  EXPECT_THAT(verdict.blamed, IsEmpty());
  EXPECT_EQ(verdict.conclusion,
            "nobody is blamed: rank 2 waits in point-to-point calls, which are not judged");
}

TEST(Verdict, RanksAreToldShortly) {
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0, 1");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8, 9}), "ranks 0-2, 5, 7-9");
}

}  // namespace
}  // namespace hpctl::recorder
