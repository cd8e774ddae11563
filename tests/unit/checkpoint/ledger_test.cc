// SPDX-License-Identifier: Apache-2.0
// The ledger and the proof of exactly-once: it holds for a history with faults and a change of
// world size, and planted duplicates and gaps are found and named.
#include "trainer/data/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/ledger_check.h"

namespace hpctl {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kGlobal = 8;  // synthetic_manifest: sample_cursor = step * 8

class Ledger : public testing::Test {
 protected:
  // Generation `generation` trains steps (start, end] with `world` ranks, leaving out `skip`.
  void train(uint64_t generation, uint64_t start, uint64_t end, int32_t world,
             uint64_t leave_out_step = 0) {
    GenerationRecord record;
    record.generation = generation;
    record.parent = generation - 1;
    record.start_step = start;
    ASSERT_TRUE(create_generation(checkpoints_, record).ok());
    for (int32_t rank = 0; rank < world; ++rank) {
      auto writer = LedgerWriter::create(ledger_, generation, rank);
      ASSERT_TRUE(writer.ok()) << writer.error().message;
      for (uint64_t step = start + 1; step <= end; ++step) {
        const auto samples = take_samples((step - 1) * kGlobal, kGlobal, {});
        if (step == leave_out_step && rank == 0) continue;
        ASSERT_TRUE(writer->append(step, data_part(samples.ranges, rank, world), 0).ok());
      }
    }
  }
  void checkpoint(uint64_t step, uint64_t generation) {
    ASSERT_TRUE(save_synthetic({checkpoints_, {step, generation}, 1, 1, 0, {}}).ok());
  }
  void append_line(const std::string& file, const std::string& line) {
    std::ofstream(ledger_ + "/" + file, std::ios::app) << line;
  }
  std::vector<std::string> problems() {
    const auto report = verify_ledger(ledger_, checkpoints_);
    if (!report.ok()) return {report.error().message};
    return report->problems;
  }

  TemporaryDirectory dir_;
  std::string ledger_ = dir_ / "ledger";
  std::string checkpoints_ = dir_ / "checkpoints";
};

TEST_F(Ledger, AHistoryWithFaultsAndAnotherWorldSizeIsProven) {
  train(1, 0, 25, 4);   // killed after step 25, last checkpoint at 20
  train(2, 20, 33, 2);  // killed after 33, last checkpoint at 30
  train(3, 30, 31, 8);  // died before any checkpoint
  train(4, 30, 50, 4);
  append_line("g1.r0.jsonl", R"({"generation":1,"step":26,"ra)");  // torn by the kill
  checkpoint(50, 4);
  const auto report = verify_ledger(ledger_, checkpoints_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_THAT(report->problems, IsEmpty());
  EXPECT_EQ(report->cursor, 400U);
  EXPECT_EQ(report->generations, 3U);
  EXPECT_EQ(report->entries, 20U * 4 + 10 * 2 + 20 * 4);
  EXPECT_EQ(report->undone, 5U * 4 + 3 * 2 + 8);
}

// Step 9 was applied, as others know, and the line of one rank was not written.
TEST_F(Ledger, ALineThatARankDidNotComeToWriteIsWrittenForIt) {
  for (const char* torn : {"", R"({"generation":1,"step":9,"ra)"}) {
    TemporaryDirectory fresh;
    ledger_ = fresh / "ledger";
    checkpoints_ = fresh / "checkpoints";
    train(1, 0, 8, 2);
    append_line("g1.r0.jsonl", "{\"generation\":1,\"step\":9,\"rank\":0,\"samples\":[[64,68]]}\n");
    append_line("g1.r1.jsonl", torn);
    checkpoint(9, 1);
    EXPECT_FALSE(problems().empty());
    for (int i = 0; i < 2; ++i) {  // it is there once
      ASSERT_TRUE(complete_ledger(ledger_, 1, 1, 9, {{68, 72}}).ok());
      EXPECT_THAT(problems(), IsEmpty());
    }
    append_line("g1.r1.jsonl", "{\"generation\":1,\"step\":10,\"rank\":1,\"samples\":[[76,80]]}\n");
    ASSERT_TRUE(complete_ledger(ledger_, 1, 1, 9, {{68, 72}}).ok());
    EXPECT_THAT(problems(), IsEmpty()) << "it had gone further than the others";
  }
}

TEST_F(Ledger, FallingBackBehindTheParentIsProven) {
  train(1, 0, 20, 2);
  train(2, 20, 30, 2);  // its start checkpoint turned out damaged afterwards
  train(3, 10, 40, 2);
  checkpoint(40, 3);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(Ledger, ADuplicateIsFoundAndNamed) {
  train(1, 0, 10, 2);
  checkpoint(10, 1);
  append_line("g1.r1.jsonl", "{\"generation\":1,\"step\":10,\"rank\":3,\"samples\":[[17,18]]}\n");
  ASSERT_FALSE(problems().empty());
  EXPECT_THAT(problems()[0], HasSubstr("sample 17 counted twice: in step 3 of generation 1 (rank "
                                       "0) and in step 10 of generation 1 (rank 3)"));
}

TEST_F(Ledger, AStepTrainedTwiceIsFound) {
  train(1, 0, 10, 1);
  checkpoint(10, 1);
  append_line("g1.r0.jsonl", "{\"generation\":1,\"step\":4,\"rank\":0,\"samples\":[[24,32]]}\n");
  ASSERT_FALSE(problems().empty());
  EXPECT_THAT(problems()[0], HasSubstr("rank 0 completed step 4 twice"));
}

TEST_F(Ledger, AGapIsFoundAndNamed) {
  train(1, 0, 10, 2, 5);
  checkpoint(10, 1);
  ASSERT_EQ(problems().size(), 1U);
  EXPECT_THAT(problems()[0], HasSubstr("samples [32, 36) never counted, after step 4"));
}

TEST_F(Ledger, AMissingEndIsFound) {
  train(1, 0, 9, 1);
  checkpoint(10, 1);
  ASSERT_EQ(problems().size(), 1U);
  EXPECT_THAT(problems()[0], HasSubstr("samples [72, 80) never counted"));
}

TEST_F(Ledger, SamplesBeyondTheCursorAreFound) {
  train(1, 0, 10, 1);
  checkpoint(10, 1);
  append_line("g1.r0.jsonl", "{\"generation\":1,\"step\":10,\"rank\":1,\"samples\":[[80,81]]}\n");
  ASSERT_EQ(problems().size(), 1U);
  EXPECT_THAT(problems()[0], HasSubstr("beyond the cursor"));
}

TEST_F(Ledger, SkippedSamplesCountOnceAsSkipped) {
  GenerationRecord record;
  record.generation = 1;
  ASSERT_TRUE(create_generation(checkpoints_, record).ok());
  const std::vector<SampleRange> skipped = {{8, 16}};
  auto writer = LedgerWriter::create(ledger_, 1, 0);
  ASSERT_TRUE(writer.ok());
  uint64_t cursor = 0;
  for (uint64_t step = 1; step <= 9; ++step) {
    const auto samples = take_samples(cursor, kGlobal, skipped);
    ASSERT_TRUE(writer->append(step, samples.ranges, 0).ok());
    cursor = samples.next_cursor;
  }
  ASSERT_EQ(cursor, 80U);
  ASSERT_TRUE(save_synthetic({checkpoints_, {10, 1}, 1, 1, 0, skipped}).ok());
  EXPECT_THAT(problems(), IsEmpty());
}

// The file may not grow beyond the middle of the second line, as a disk that fills.
TEST_F(Ledger, LineThatStorageRefusedIsAppendedAgainWhole) {
  GenerationRecord record;
  record.generation = 1;
  ASSERT_TRUE(create_generation(checkpoints_, record).ok());
  auto writer = LedgerWriter::create(ledger_, 1, 0);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const auto append = [&](uint64_t step) {
    return writer->append(step, take_samples((step - 1) * kGlobal, kGlobal, {}).ranges, 0);
  };
  ASSERT_TRUE(append(1).ok());
  const std::string path = ledger_ + "/g1.r0.jsonl";
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit narrow = before;
  narrow.rlim_cur = read_file(path)->size() + 10;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &narrow), 0);
  const Outcome refused = append(2);
  const Outcome refused_again = append(2);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(refused.ok());
  ASSERT_FALSE(refused_again.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kStorage);
  EXPECT_EQ(refused.error().os_error, EFBIG);
  ASSERT_TRUE(append(2).ok());
  ASSERT_TRUE(append(3).ok());
  checkpoint(3, 1);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(Ledger, UnreadableLinesAndMissingLedgersAreErrors) {
  train(1, 0, 10, 1);
  EXPECT_THAT(problems()[0], HasSubstr("no valid checkpoint"));
  checkpoint(10, 1);
  append_line("g1.r0.jsonl", "garbage\n");
  EXPECT_THAT(problems()[0], HasSubstr("g1.r0.jsonl:11: not a ledger line"));
  EXPECT_EQ(LedgerWriter::create(ledger_, 1, 0).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(verify_ledger(dir_ / "gone", checkpoints_).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace hpctl
