// SPDX-License-Identifier: Apache-2.0
// Blends, splits and positions: what they take is a pure function of the sample's number, every
// window of a part once per epoch, and none of another part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/temporary_directory.h"
#include "trainer/data/blend_order.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/sample_reader.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

TEST(BlendOrder, EachSourceGetsItsSamplesInOrderAndItsShare) {
  const std::vector<double> weights = {0.5, 3, 1.2, 0.01};
  const BlendOrder order(weights);
  std::vector<uint64_t> next(4, 0);
  for (uint64_t sample = 0; sample < 3 * BlendOrder::kPeriod; ++sample) {
    const BlendOrder::Place at = order(sample);
    ASSERT_EQ(at.index, next[at.source]++) << sample;
    // Close to the weights in any stretch: never more than two samples away.
    for (size_t d = 0; d < 4; ++d) {
      const double ideal = weights[d] / 4.71 * static_cast<double>(sample + 1);
      ASSERT_LE(std::abs(static_cast<double>(next[d]) - ideal), 4.0) << sample << " " << d;
    }
  }
}

TEST(BlendOrder, OneSourceTakesEverySample) {
  const BlendOrder order(std::vector<double>{0.3});
  EXPECT_EQ(order(123456789).source, 0U);
  EXPECT_EQ(order(123456789).index, 123456789U);
}

// If this fails, jobs that resume would repeat and miss samples: restore the order.
TEST(BlendOrder, IsFrozen) {
  const BlendOrder order(std::vector<double>{2, 1, 1});
  std::string sources;
  for (uint64_t i = 0; i < 12; ++i) sources += std::to_string(order(i).source);
  EXPECT_EQ(sources, "012001200120");
}

// Documents whose every token names its document: value = base + document.
void write_documents(const std::string& prefix, const std::vector<int32_t>& lengths, int32_t base) {
  std::ofstream out(prefix + ".bin", std::ios::binary);
  for (size_t d = 0; d < lengths.size(); ++d) {
    const int32_t token = base + static_cast<int32_t>(d);
    for (int32_t i = 0; i < lengths[d]; ++i) {
      out.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
  out.close();
  ASSERT_TRUE(write_index(prefix + ".idx", TokenType::kInt32, lengths).ok());
}

DataSpec spec_of(int64_t seq_len, std::vector<double> split = {1, 0, 0}) {
  DataSpec spec;
  spec.seq_len = seq_len;
  spec.split = std::move(split);
  return spec;
}

std::vector<int64_t> read(SampleReader& reader, uint64_t sample) {
  std::vector<int64_t> tokens(static_cast<size_t>(reader.seq_len()) + 1);
  const Outcome done = reader.read_sample(sample, tokens);
  EXPECT_TRUE(done.ok()) << done.error().message;
  return tokens;
}

TEST(SampleReader, PartsOfASplitShareNoDocument) {
  const TemporaryDirectory dir;
  write_documents(dir / "d", std::vector<int32_t>(101, 10), 0);
  DataSpec spec = spec_of(4, {80, 15, 5});
  spec.path = dir / "d";
  std::map<DataPart, std::set<int64_t>> seen;
  for (const DataPart part : {DataPart::kTrain, DataPart::kValidation, DataPart::kTest}) {
    auto reader = SampleReader::open(spec, 3, 1000, part);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (uint64_t i = 0; i < reader->windows(); ++i) {
      for (const int64_t token : read(*reader, i)) seen[part].insert(token);
    }
  }
  // round(101 * 0.8) = 81, round(101 * 0.95) = 96
  EXPECT_EQ(*seen[DataPart::kTrain].begin(), 0);
  EXPECT_EQ(*seen[DataPart::kTrain].rbegin(), 80);
  EXPECT_EQ(*seen[DataPart::kValidation].begin(), 81);
  EXPECT_EQ(*seen[DataPart::kValidation].rbegin(), 95);
  EXPECT_EQ(*seen[DataPart::kTest].begin(), 96);
  EXPECT_EQ(*seen[DataPart::kTest].rbegin(), 100);
}

// Both threads read files of text, of which each keeps some open, or both files of a dataset.
TEST(SampleReader, PartsShareTheirFilesAndAreReadAtOnce) {
  const TemporaryDirectory dir;
  write_documents(dir / "d", std::vector<int32_t>(400, 10), 0);
  ASSERT_TRUE(std::filesystem::create_directory(dir / "text"));
  for (int i = 0; i < 300; ++i) {
    std::ofstream(dir / ("text/" + std::to_string(i) + ".txt")) << "text number " << i;
  }
  for (const char* path : {"d", "text"}) {
    DataSpec spec = spec_of(4, {1, 1, 0});
    spec.path = dir / path;
    auto alone = SampleReader::open(spec, 3, 1000, DataPart::kValidation);
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    std::vector<std::vector<int64_t>> expected;
    for (uint64_t i = 0; i < alone->windows(); ++i) expected.push_back(read(*alone, i));

    auto trained = SampleReader::open(spec, 3, 1000);
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    // Only what is open already can be read from here on.
    std::filesystem::remove(dir / "d.idx");
    auto evaluated = trained->open_part(spec, DataPart::kValidation);
    ASSERT_TRUE(evaluated.ok()) << evaluated.error().message;
    EXPECT_EQ(evaluated->fingerprint(), alone->fingerprint());
    std::jthread training([&] {
      for (uint64_t i = 0; i < trained->windows(); ++i) read(*trained, i);
    });
    for (uint64_t i = 0; i < alone->windows(); ++i) EXPECT_EQ(read(*evaluated, i), expected[i]);
  }
}

TEST(SampleReader, APartWithoutEnoughDocumentsSaysWhichAndWhy) {
  const TemporaryDirectory dir;
  write_documents(dir / "d", {50, 50, 50}, 0);
  DataSpec spec = spec_of(4, {0.99, 0.01, 0});
  spec.path = dir / "d";
  EXPECT_TRUE(SampleReader::open(spec, 1, 1000).ok());
  const auto refused = SampleReader::open(spec, 1, 1000, DataPart::kValidation);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("in the 0 of its 3 documents that data.split gives to validation"));
}

TEST(SampleReader, ABlendTakesEveryWindowOfASourceOncePerItsEpoch) {
  const TemporaryDirectory dir;
  write_documents(dir / "a", std::vector<int32_t>(41, 4), 0);     // 40 windows, a document each
  write_documents(dir / "b", std::vector<int32_t>(11, 4), 1000);  // 10 windows
  DataSpec spec = spec_of(4);
  spec.blend = {{dir / "a", 2}, {dir / "b", 1}};
  auto reader = SampleReader::open(spec, 3, 2000);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::map<int64_t, int> count;
  for (uint64_t i = 0; i < 60; ++i) ++count[read(*reader, i)[0]];
  for (int64_t d = 0; d < 40; ++d) EXPECT_EQ(count[d], 1) << d;
  for (int64_t d = 1000; d < 1010; ++d) EXPECT_EQ(count[d], 2) << d;

  DataSpec other = spec;
  other.blend[0].weight = 1;
  EXPECT_NE(SampleReader::open(other, 3, 2000)->fingerprint(), reader->fingerprint());
  // Weights count in proportion only.
  other.blend = {{dir / "a", 20}, {dir / "b", 10}};
  EXPECT_EQ(SampleReader::open(other, 3, 2000)->fingerprint(), reader->fingerprint());
}

TEST(SampleReader, ValidationOfABlendTakesEveryWindowOnce) {
  const TemporaryDirectory dir;
  write_documents(dir / "a", std::vector<int32_t>(40, 4), 0);
  write_documents(dir / "b", std::vector<int32_t>(20, 4), 1000);
  DataSpec spec = spec_of(4, {0.5, 0.5, 0});
  spec.blend = {{dir / "a", 9}, {dir / "b", 1}};
  auto reader = SampleReader::open(spec, 3, 2000, DataPart::kValidation);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  ASSERT_EQ(reader->windows(), 19U + 9U);
  std::set<int64_t> firsts;
  for (uint64_t i = 0; i < 28; ++i) firsts.insert(read(*reader, i)[0]);
  EXPECT_EQ(firsts.size(), 28U);
  EXPECT_EQ(*firsts.begin(), 20);
}

TEST(SampleReader, AWeightTooSmallToMatterIsRefused) {
  const TemporaryDirectory dir;
  write_documents(dir / "a", {100}, 0);
  DataSpec spec = spec_of(4);
  spec.blend = {{dir / "a", 1}, {dir / "a", 1e-9}};
  const auto refused = SampleReader::open(spec, 3, 2000);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("65536th"));
}

TEST(SampleReader, TextForAnotherTokenizerIsRefusedWithTheCommandToRun) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "text") << "enough text for one sample";
  DataSpec spec = spec_of(4);
  spec.path = dir / "text";
  spec.tokenizer = "/models/t.json";
  const auto refused = SampleReader::open(spec, 3, 2000);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("`hpctl data prepare " + spec.path + " --tokenizer /models/t.json"));
}

TEST(SampleReader, PositionsBeginAgainAtEveryDocument) {
  const TemporaryDirectory dir;
  const std::vector<int32_t> lengths = {3, 1, 0, 9, 2, 2, 30, 5};
  write_documents(dir / "d", lengths, 0);
  DataSpec spec = spec_of(7);
  spec.path = dir / "d";
  auto reader = SampleReader::open(spec, 3, 2000);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (uint64_t i = 0; i < reader->windows(); ++i) {
    std::vector<int64_t> tokens(8);
    std::vector<int64_t> positions(8);
    ASSERT_TRUE(reader->read_sample(i, tokens, positions).ok());
    for (size_t t = 0; t < 8; ++t) {
      const bool first = t == 0 || tokens[t] != tokens[t - 1];
      EXPECT_EQ(positions[t], first ? 0 : positions[t - 1] + 1) << i << " " << t;
    }
  }
}

}  // namespace
}  // namespace hpctl
