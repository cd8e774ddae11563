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
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "tests/support/temporary_directory.h"
#include "trainer/data/indexed_dataset.h"

namespace hpctl {
namespace {

constexpr int64_t kLength = 8;

SampleReader reader_of(const std::string& path, DocumentMask mask = DocumentMask::kNone) {
  DataSpec data;
  data.path = path;
  data.mask = mask;
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

// It would be taken for damage of the memory or the checkpoint that the generation started from.
TEST_F(Feed, DamagedDataAreNotDamageOfTheState) {
  const std::string prefix = dir_ / "prepared";
  std::ofstream(prefix + ".bin", std::ios::binary) << std::string(200, '\0');
  ASSERT_TRUE(write_index(prefix + ".idx", TokenType::kUint16, std::vector<int32_t>(10, 10)).ok());
  SampleReader reader = reader_of(prefix, DocumentMask::kBorders);
  std::filesystem::resize_file(prefix + ".idx", 40);
  BatchFeed feed(reader);
  const auto taken = feed.take(order_of(0));
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kInternal) << taken.error().message;
  EXPECT_THAT(taken.error().message, ::testing::HasSubstr("too early"));
}

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

// What a staging was given and gave, and by which thread.
struct Staged {
  at::Tensor from;
  at::Tensor to;
  std::thread::id by;
};
std::mutex staged_mutex;
std::vector<Staged> staged;

at::Tensor remember_staged(const at::Tensor& tensor) {
  const std::lock_guard lock(staged_mutex);
  staged.push_back({tensor, tensor.clone(), std::this_thread::get_id()});
  return staged.back().to;
}

// The step loop finds what it copies to a GPU in its place, and puts nothing there itself.
TEST_F(Feed, StagesEachTensorOnceAndNotInTheStepLoop) {
  for (const DocumentMask mask : {DocumentMask::kNone, DocumentMask::kDocuments}) {
    staged.clear();
    SampleReader reader = reader_of(dir_ / "text", mask);
    SampleReader same = reader_of(dir_ / "text", mask);
    BatchFeed feed(reader, remember_staged);
    feed.read_ahead(order_of(0));
    std::vector<at::Tensor> taken;
    for (uint64_t step = 0; step < 20; ++step) {
      const auto batches = feed.take(order_of(step)).value();
      feed.read_ahead(order_of(step + 1));
      const auto wanted =
          read_micro_batches(same, sample_numbers(order_of(step).samples), 2, 2).value();
      ASSERT_EQ(batches.size(), 2U);
      for (size_t m = 0; m < batches.size(); ++m) {
        EXPECT_TRUE(batches[m].tokens.equal(wanted[m].tokens));
        EXPECT_TRUE(batches[m].targets.equal(wanted[m].targets));
        taken.insert(taken.end(), {batches[m].tokens, batches[m].targets});
        if (mask == DocumentMask::kNone) continue;
        EXPECT_EQ(batches[m].documents.lengths, wanted[m].documents.lengths);
        EXPECT_TRUE(batches[m].documents.positions.equal(wanted[m].documents.positions));
        EXPECT_TRUE(batches[m].documents.borders.equal(wanted[m].documents.borders));
        taken.insert(taken.end(), {batches[m].documents.positions, batches[m].documents.borders});
      }
    }
    const auto last = feed.take(order_of(20)).value();  // of which only the number is looked at
    const size_t tensors = mask == DocumentMask::kNone ? 2 : 4;
    ASSERT_EQ(staged.size(), 21 * 2 * tensors) << "each once";
    for (size_t i = 0; i < staged.size(); ++i) {
      EXPECT_NE(staged[i].by, std::this_thread::get_id());
    }
    for (size_t i = 0; i < taken.size(); ++i) EXPECT_TRUE(staged[i].to.is_same(taken[i])) << i;
  }
}

TEST_F(Feed, StagesWhatTheStepLoopAsksForUnexpectedly) {
  staged.clear();
  SampleReader reader = reader_of(dir_ / "text");
  BatchFeed feed(reader, remember_staged);
  const auto batches = feed.take(order_of(3)).value();
  ASSERT_EQ(staged.size(), 4U);
  EXPECT_TRUE(batches[1].targets.is_same(staged[3].to));
}

TEST_F(Feed, WithoutMemoryToStageInItSaysSoWhereTheBatchIsAskedFor) {
  SampleReader reader = reader_of(dir_ / "text");
  BatchFeed feed(reader, [](const at::Tensor&) -> at::Tensor {
    TORCH_CHECK(false, "CUDA error: out of memory");
  });
  feed.read_ahead(order_of(0));
  const auto taken = feed.take(order_of(0));
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.error().message,
              ::testing::HasSubstr("no page-locked host memory for a step's batches: CUDA error: "
                                   "out of memory; a node with more memory"));
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
