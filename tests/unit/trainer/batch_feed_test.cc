// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/batch_feed.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

constexpr int64_t kLength = 8;

SampleReader reader_of(const std::string& path) {
  DataSpec data;
  data.path = path;
  data.seq_len = kLength;
  auto reader = SampleReader::open(data, 1, 256);
  HP_CHECK(reader.ok());
  return std::move(reader).value();
}

// Of step `step`: two micro-batches of two samples.
BatchOrder order_of(uint64_t step) {
  return {.samples = {{4 * step, 4 * step + 4}}, .micro = 2, .count = 2};
}

class Feed : public ::testing::Test {
 protected:
  Feed() {
    std::ofstream text(dir_ / "text");
    for (int i = 0; i < 400; ++i) text << i << " bottles\n";
  }
  // What reading at once gives.
  std::vector<MicroBatch> expected(const BatchOrder& order) {
    SampleReader reader = reader_of(dir_ / "text");
    auto batches =
        read_micro_batches(reader, sample_numbers(order.samples), order.micro, order.count);
    HP_CHECK(batches.ok());
    return *batches;
  }
  void expect_taken(BatchFeed& feed, const BatchOrder& order) {
    const auto taken = feed.take(order);
    ASSERT_TRUE(taken.ok()) << taken.error().message;
    const auto wanted = expected(order);
    ASSERT_EQ(taken->size(), wanted.size());
    for (size_t m = 0; m < wanted.size(); ++m) {
      EXPECT_TRUE((*taken)[m].tokens.equal(wanted[m].tokens));
      EXPECT_TRUE((*taken)[m].targets.equal(wanted[m].targets));
    }
  }
  TemporaryDirectory dir_;
};

TEST_F(Feed, GivesWhatWasAskedForWhateverWasReadAhead) {
  SampleReader reader = reader_of(dir_ / "text");
  BatchFeed feed(reader);
  for (uint64_t step = 0; step < 200; ++step) {
    expect_taken(feed, order_of(step));
    // Now and then the next step is another: one is left out, or the way goes back.
    feed.read_ahead(order_of(step % 3 == 0 ? step + 2 : step + 1));
    if (step % 5 == 0) feed.read_ahead(order_of(step + 1));
    if (step % 7 == 0) expect_taken(feed, order_of(step / 2));
  }
}

TEST_F(Feed, MayEndWhileItReads) {
  SampleReader reader = reader_of(dir_ / "text");
  for (uint64_t step = 0; step < 50; ++step) {
    BatchFeed feed(reader);
    feed.read_ahead(order_of(step));
  }
}

// A corpus of so many files that the first is opened anew, in place of which there is a pipe by
// then: whoever opens it waits until somebody writes, and then cannot read at an offset.
TEST_F(Feed, ReadsBeforeItIsAskedAndKeepsTheErrorUntilThen) {
  const std::string corpus = dir_ / "corpus";
  std::filesystem::create_directory(corpus);
  for (int i = 0; i < 129; ++i) {
    std::ofstream(corpus + "/" + std::to_string(1000 + i)) << std::string(99, 'a');
  }
  SampleReader reader = reader_of(corpus);
  const std::string first = corpus + "/1000";
  std::filesystem::remove(first);
  ASSERT_EQ(::mkfifo(first.c_str(), 0600), 0);
  // All samples, so that one of them is in that file.
  BatchFeed feed(reader);
  const BatchOrder all{.samples = {{0, reader.windows()}}, .micro = 1, .count = reader.windows()};
  feed.read_ahead(all);
  UniqueFd writer;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!writer.valid() && std::chrono::steady_clock::now() < deadline) {
    writer = UniqueFd(::open(first.c_str(), O_WRONLY | O_NONBLOCK));  // ENXIO: nobody reads
    if (!writer.valid()) std::this_thread::yield();
  }
  ASSERT_TRUE(writer.valid()) << "nobody reads ahead";
  const auto taken = feed.take(all);
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message, ::testing::HasSubstr("cannot read data " + first));
  const auto again = feed.take({.samples = {}, .micro = 1, .count = 1});
  EXPECT_TRUE(again.ok()) << "an error is of one order";
}

}  // namespace
}  // namespace hpctl
