// SPDX-License-Identifier: Apache-2.0
// The corpus: files and directories as tokens, windows, fingerprints, and errors people can act on.
#include "trainer/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <string>

#include "common/base/file.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/put.h"
#include "trainer/data/sample_order.h"
#include "trainer/data/sample_reader.h"

namespace hpctl {
namespace {

using test::put;
using testing::HasSubstr;

std::string read_all(Corpus& corpus) {
  std::string text(corpus.tokens(), '?');
  const auto read = corpus.read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  EXPECT_TRUE(read.ok()) << read.error().message;
  return text;
}

Result<SampleReader> open_windows(const std::string& path, int64_t seq_len, uint64_t seed) {
  DataSpec data;
  data.path = path;
  data.seq_len = seq_len;
  return SampleReader::open(data, seed, 256);
}

TEST(Corpus, ASingleFileIsItsBytes) {
  const TemporaryDirectory dir;
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  put(dir / "text", bytes);
  auto corpus = Corpus::open(dir / "text");
  ASSERT_TRUE(corpus.ok()) << corpus.error().message;
  EXPECT_EQ(read_all(*corpus), bytes);
}

// Bytewise: 'B' < 'a', and a.txt < a/b.txt because '.' (0x2e) < '/' (0x2f).
TEST(Corpus, ADirectoryIsItsFilesInBytewiseOrderWithSeparators) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "d/a/deep").ok());
  ASSERT_TRUE(make_directories(dir / "d/.git").ok());
  put(dir / "d/B.txt", "one");
  put(dir / "d/a.txt", "two");
  put(dir / "d/a/b.txt", "three");
  put(dir / "d/a/deep/c.txt", "four");
  put(dir / "d/empty", "");
  put(dir / "d/.git/config", "hidden");
  put(dir / "outside", "five");
  ASSERT_EQ(symlink((dir / "outside").c_str(), (dir / "d/z-link").c_str()), 0);
  ASSERT_EQ(symlink("..", (dir / "d/a/cycle").c_str()), 0);
  auto corpus = Corpus::open(dir / "d");
  ASSERT_TRUE(corpus.ok()) << corpus.error().message;
  EXPECT_EQ(corpus->files(), 5U);
  const std::string expected("one\0two\0three\0four\0five", 23);
  EXPECT_EQ(read_all(*corpus), expected);
  // Every part equals the part of the whole, also across files and separators.
  for (size_t begin = 0; begin <= expected.size(); ++begin) {
    for (size_t end = begin; end <= expected.size(); ++end) {
      std::string part(end - begin, '?');
      ASSERT_TRUE(corpus->read(begin, {reinterpret_cast<uint8_t*>(part.data()), part.size()}).ok());
      ASSERT_EQ(part, expected.substr(begin, end - begin)) << begin << " " << end;
    }
  }
}

TEST(Corpus, MoreFilesThanDescriptorsKeptOpen) {
  const TemporaryDirectory dir;
  std::string expected;
  for (int i = 1000; i < 1300; ++i) {
    put(dir / std::to_string(i), std::to_string(i));
    expected += (expected.empty() ? "" : std::string(1, '\0')) + std::to_string(i);
  }
  auto corpus = Corpus::open(dir.path());
  ASSERT_TRUE(corpus.ok());
  EXPECT_EQ(read_all(*corpus), expected);
  EXPECT_EQ(read_all(*corpus), expected);
}

TEST(Corpus, FingerprintFollowsContentNamesAndSizesButNotPlace) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "x").ok());
  ASSERT_TRUE(make_directories(dir / "y").ok());
  const auto fingerprint = [&](const std::string& name) {
    return Corpus::open(dir / name)->fingerprint();
  };
  for (const char* place : {"x", "y"}) {
    put(dir / place + "/a", std::string(10000, 'a'));
    put(dir / place + "/b", "bb");
  }
  const std::string before = fingerprint("x");
  EXPECT_EQ(before.size(), 64U);
  EXPECT_EQ(before, fingerprint("y"));
  put(dir / "y/b", "bc");
  EXPECT_NE(before, fingerprint("y")) << "content";
  put(dir / "y/b", "bb");
  put(dir / "y/a", std::string(10001, 'a'));
  EXPECT_NE(before, fingerprint("y")) << "size";
  put(dir / "y/a", std::string(10000, 'a'));
  EXPECT_EQ(before, fingerprint("y"));
  ASSERT_EQ(rename((dir / "y/b").c_str(), (dir / "y/c").c_str()), 0);
  EXPECT_NE(before, fingerprint("y")) << "names";
}

// The framing as documented, computed independently.
TEST(Corpus, FingerprintIsFrozen) {
  const TemporaryDirectory dir;
  put(dir / "f", "hello\n");
  EXPECT_EQ(Corpus::open(dir / "f")->fingerprint(),
            "c34b86316bdc8aab99a7a25839da919a97523696f7d31e604f58add505352122");
}

TEST(Corpus, ErrorsSayWhatToDo) {
  const TemporaryDirectory dir;
  const auto missing = Corpus::open(dir / "nowhere");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr(dir / "nowhere"));
  EXPECT_THAT(missing.error().message, HasSubstr("workload.train.data.path"));

  ASSERT_TRUE(make_directories(dir / "none").ok());
  put(dir / "none/empty", "");
  EXPECT_THAT(Corpus::open(dir / "none").error().message, HasSubstr("no text in"));
  EXPECT_THAT(Corpus::open(dir / "none/empty").error().message, HasSubstr("no text in"));
  EXPECT_THAT(Corpus::open("/dev/null").error().message, HasSubstr("not a regular file"));
  ASSERT_TRUE(make_directories(dir / "mixed").ok());
  std::ofstream(dir / "mixed/a.jsonl.zst") << "x";
  EXPECT_THAT(Corpus::open(dir / "mixed").error().message,
              HasSubstr("run `hpctl data prepare " + (dir / "mixed") + " --tokenizer byte"));

  ASSERT_EQ(symlink("gone", (dir / "none/dangling").c_str()), 0);
  EXPECT_THAT(Corpus::open(dir / "none").error().message, HasSubstr("dangling"));
}

TEST(Corpus, AFileCutShortWhileTrainingIsNamed) {
  const TemporaryDirectory dir;
  put(dir / "f", std::string(1000, 'x'));
  auto corpus = Corpus::open(dir / "f");
  ASSERT_TRUE(corpus.ok());
  ASSERT_EQ(truncate((dir / "f").c_str(), 500), 0);
  std::vector<uint8_t> out(100);
  EXPECT_TRUE(corpus->read(0, out).ok());
  const auto cut = corpus->read(450, out);
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, HasSubstr("became shorter"));
}

TEST(SampleReader, WindowsOverlapByOneToken) {
  const TemporaryDirectory dir;
  std::string text(101, '\0');
  std::iota(text.begin(), text.end(), '\0');
  put(dir / "f", text);
  auto reader = open_windows(dir / "f", 10, 9);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  ASSERT_EQ(reader->windows(), 10U);
  std::vector<int> predicted(101, 0);
  for (uint64_t sample = 0; sample < 10; ++sample) {
    std::vector<int64_t> tokens(11);
    ASSERT_TRUE(reader->read_sample(sample, tokens).ok());
    const auto first = static_cast<int64_t>(window_of_sample(9, 10, sample) * 10);
    for (int64_t i = 0; i <= 10; ++i) EXPECT_EQ(tokens[static_cast<size_t>(i)], first + i);
    for (int64_t i = 1; i <= 10; ++i) ++predicted[static_cast<size_t>(first + i)];
  }
  EXPECT_EQ(std::vector<int>(predicted.begin() + 1, predicted.end()), std::vector<int>(100, 1))
      << "every token but the first is predicted once per epoch";
}

TEST(SampleReader, TooShortACorpusIsRefused) {
  const TemporaryDirectory dir;
  put(dir / "f", "0123456789");
  EXPECT_TRUE(open_windows(dir / "f", 9, 1).ok());
  const auto refused = open_windows(dir / "f", 10, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("has 10 tokens"));
  EXPECT_THAT(refused.error().message, HasSubstr("seq_len"));
}

}  // namespace
}  // namespace hpctl
