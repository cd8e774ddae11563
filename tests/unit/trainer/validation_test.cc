// SPDX-License-Identifier: Apache-2.0
// That what is evaluated next is read while something else is computed. What is evaluated, and that
// it leaves no trace, worker_data_test.cc tests.
#include "trainer/loop/validation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

// More than a corpus keeps open, so that a file is opened when it is read.
constexpr int kFiles = 129;

class EvaluatedFiles : public ::testing::Test {
 protected:
  EvaluatedFiles() {
    std::filesystem::create_directory(dir_ / "corpus");
    for (int i = 0; i < kFiles; ++i) std::ofstream(file(i)) << std::string(99, char('a' + i % 26));
    train_.data.path = dir_ / "corpus";
    train_.data.seq_len = 64;
    train_.data.split = {8, 2, 0};
    train_.validation = {.every_steps = 1, .sequences = 2};
  }
  std::string file(int i) const { return dir_ / ("corpus/" + std::to_string(1000 + i)); }
  Validation open_part() {
    auto trained = SampleReader::open(train_.data, 1, 256);
    HP_CHECK(trained.ok());
    auto part = Validation::open(train_, *trained, DataPart::kValidation);
    HP_CHECK(part.ok() && part->has_value());
    return std::move(**part);
  }

  TemporaryDirectory dir_;
  TrainSpec train_;
};

TEST_F(EvaluatedFiles, AreTheSameEveryTime) {
  Validation part = open_part();
  const DataRank rank;
  std::vector<MicroBatch> first;
  for (int time = 0; time < 3; ++time) {
    for (uint64_t round = 0; round < 2; ++round) {
      auto batch = part.take(round, rank);
      ASSERT_TRUE(batch.ok()) << batch.error().message;
      if (time == 0) {
        first.push_back(*batch);
      } else {
        EXPECT_TRUE(batch->tokens.equal(first[round].tokens)) << round;
      }
    }
  }
  EXPECT_FALSE(first[0].tokens.equal(first[1].tokens));
}

// In place of each file there is a pipe: whoever opens it waits until somebody writes, and then
// cannot read at an offset. Only the first round is asked for.
TEST_F(EvaluatedFiles, OfTheNextRoundAreReadBeforeItIsAskedFor) {
  Validation part = open_part();
  for (int i = 0; i < kFiles; ++i) {
    std::filesystem::remove(file(i));
    ASSERT_EQ(::mkfifo(file(i).c_str(), 0600), 0);
  }
  std::optional<Result<MicroBatch>> taken;
  std::thread asks([&] { taken.emplace(part.take(0, DataRank{})); });
  std::vector<UniqueFd> writers(kFiles);
  int opened = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (opened < 2 && std::chrono::steady_clock::now() < deadline) {
    for (int i = 0; i < kFiles; ++i) {
      UniqueFd& writer = writers[static_cast<size_t>(i)];
      if (writer.valid()) continue;
      writer = UniqueFd(::open(file(i).c_str(), O_WRONLY | O_NONBLOCK));  // ENXIO: nobody reads
      if (writer.valid()) ++opened;
    }
    std::this_thread::yield();
  }
  asks.join();
  EXPECT_EQ(opened, 2) << "nobody reads ahead";
  ASSERT_FALSE(taken->ok());
  EXPECT_THAT(taken->error().message, ::testing::HasSubstr("cannot read data "));
}

}  // namespace
}  // namespace hpctl
