// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's indexed datasets: exchanged with an independent program both ways, damaged in every
// way, and trained on.
#include "trainer/data/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/put.h"
#include "trainer/data/sample_reader.h"

namespace hpctl {
namespace {

using test::put;
using testing::HasSubstr;
using Documents = std::vector<std::vector<int64_t>>;

constexpr const char* kScript = HPCTL_SOURCE "/tests/unit/data/megatron_index.py";

std::string get(const std::string& path) { return read_file(path, 1 << 26).value(); }

bool has_python() { return std::system("python3 -c pass >/dev/null 2>&1") == 0; }

// The script's documents: lines of numbers.
std::string as_text(const Documents& documents) {
  std::string text;
  for (const auto& document : documents) {
    for (size_t i = 0; i < document.size(); ++i) {
      text += (i > 0 ? " " : "") + std::to_string(document[i]);
    }
    text += "\n";
  }
  return text;
}

void write_with_script(const std::string& prefix, int code, const std::string& text) {
  put(prefix + ".txt", text);
  const std::string command = "python3 " + std::string(kScript) + " write " + prefix + " " +
                              std::to_string(code) + " < " + prefix + ".txt";
  ASSERT_EQ(std::system(command.c_str()), 0);
}

template <typename T>
void append(std::string& bytes, int64_t token) {
  const auto value = static_cast<T>(token);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void write_here(const std::string& prefix, TokenType type, const Documents& documents) {
  std::string bytes;
  std::vector<int32_t> lengths;
  for (const auto& document : documents) {
    lengths.push_back(static_cast<int32_t>(document.size()));
    for (const int64_t token : document) {
      if (type == TokenType::kUint16) {
        append<uint16_t>(bytes, token);
      } else {
        append<int32_t>(bytes, token);
      }
    }
  }
  put(prefix + ".bin", bytes);
  const Outcome written = write_index(prefix + ".idx", type, lengths);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

Documents random_documents(uint64_t seed, int64_t largest) {
  Rng rng(seed);
  Documents documents(1 + rng.below(40));
  for (auto& document : documents) {
    document.resize(1 + rng.below(30));
    for (int64_t& token : document) {
      token = static_cast<int64_t>(rng.below(static_cast<uint64_t>(largest) + 1));
    }
  }
  return documents;
}

Documents read_documents(IndexedDataset& data) {
  Documents documents;
  for (uint64_t k = 0; k < data.documents(); ++k) {
    const uint64_t begin = data.document_begin(k).value();
    documents.emplace_back(data.document_begin(k + 1).value() - begin);
    const Outcome read = data.read(begin, documents.back());
    EXPECT_TRUE(read.ok()) << read.error().message;
  }
  return documents;
}

TEST(IndexedDataset, ReadsWhatTheOtherSideWrote) {
  if (!has_python()) GTEST_SKIP() << "python3 is not installed";
  const TemporaryDirectory dir;
  for (const auto& [code, largest] : std::vector<std::pair<int, int64_t>>{
           {1, 255}, {2, 127}, {3, 32767}, {4, 2147483647}, {5, 1LL << 40}, {8, 65535}}) {
    const Documents documents = random_documents(static_cast<uint64_t>(code), largest);
    write_with_script(dir / "d", code, as_text(documents));
    auto data = IndexedDataset::open(dir / "d");
    ASSERT_TRUE(data.ok()) << data.error().message;
    EXPECT_EQ(static_cast<int>(data->type()), code);
    EXPECT_EQ(read_documents(*data), documents) << "type " << code;
  }
}

TEST(IndexedDataset, DocumentsOfSeveralSequencesAndNone) {
  if (!has_python()) GTEST_SKIP() << "python3 is not installed";
  const TemporaryDirectory dir;
  write_with_script(dir / "d", 4, "1 2 | 3 4 5\n6\n");
  auto data = IndexedDataset::open(dir / "d");
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data->sequences(), 3U);
  EXPECT_EQ(read_documents(*data), (Documents{{1, 2, 3, 4, 5}, {6}}));
}

TEST(IndexedDataset, TheOtherSideReadsWhatWasWrittenHere) {
  if (!has_python()) GTEST_SKIP() << "python3 is not installed";
  const TemporaryDirectory dir;
  for (const auto& [type, largest] : std::vector<std::pair<TokenType, int64_t>>{
           {TokenType::kUint16, 65535}, {TokenType::kInt32, 200000}}) {
    const Documents documents = random_documents(77, largest);
    write_here(dir / "here", type, documents);
    const std::string command =
        "python3 " + std::string(kScript) + " read " + (dir / "here") + " > " + (dir / "read.txt");
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(get(dir / "read.txt"), as_text(documents));
    write_with_script(dir / "there", static_cast<int>(type), as_text(documents));
    EXPECT_EQ(get(dir / "here.idx"), get(dir / "there.idx")) << "byte for byte";
    EXPECT_EQ(get(dir / "here.bin"), get(dir / "there.bin"));
  }
}

// The bytes as the format has them, written down by hand.
TEST(IndexedDataset, TheIndexIsFrozen) {
  const TemporaryDirectory dir;
  write_here(dir / "d", TokenType::kUint16, {{7, 8, 9}, {10}});
  const std::string zeros(7, '\0');
  const auto word = [&](char low) { return std::string(1, low) + zeros; };
  const std::string expected = std::string("MMIDIDX\0\0", 9) + word(1) + '\x08' + word(2) +
                               word(3) + std::string("\3\0\0\0\1\0\0\0", 8) + word(0) + word(6) +
                               word(0) + word(1) + word(2);
  EXPECT_EQ(get(dir / "d.idx"), expected);
}

std::string error_of(const std::string& prefix) {
  const auto data = IndexedDataset::open(prefix);
  return data.ok() ? "opened" : data.error().message;
}

TEST(IndexedDataset, DamageIsNamed) {
  const TemporaryDirectory dir;
  write_here(dir / "d", TokenType::kUint16, {{7, 8, 9}, {10}});
  const std::string index = get(dir / "d.idx");
  const auto with = [&](size_t at, char byte) {
    std::string changed = index;
    changed[at] = byte;
    put(dir / "d.idx", changed);
    return error_of(dir / "d");
  };
  EXPECT_THAT(with(0, 'X'), HasSubstr("does not begin as an indexed dataset"));
  EXPECT_THAT(with(9, 2), HasSubstr("version 2, expected 1"));
  EXPECT_THAT(with(17, 6), HasSubstr("type code 6"));
  EXPECT_THAT(with(17, 4), HasSubstr("begins at byte 6, not at 12"));
  EXPECT_THAT(with(18, 3), HasSubstr("announces 3 sequences"));
  EXPECT_THAT(with(25, '\xff'), HasSubstr("announces"));
  EXPECT_THAT(with(34, 2), HasSubstr("sequence 1 begins at byte 6, not at 4"));
  EXPECT_THAT(with(37, '\xff'), HasSubstr("negative length"));
  EXPECT_THAT(with(38, 2), HasSubstr("describes 5 tokens of uint16"));
  EXPECT_THAT(with(66, 5), HasSubstr("document boundary 1 is at sequence 5 of 2"));
  EXPECT_THAT(with(74, 1), HasSubstr("end at sequence 1 of 2"));
  put(dir / "d.idx", index.substr(0, 20));
  EXPECT_THAT(error_of(dir / "d"), HasSubstr("ends at byte 20"));
  put(dir / "d.idx", index + std::string(2, '\0'));
  EXPECT_THAT(error_of(dir / "d"), HasSubstr("multimodal"));
  put(dir / "d.idx", index);
  put(dir / "d.bin", std::string(7, '\1'));
  EXPECT_THAT(error_of(dir / "d"), HasSubstr("d.bin has 7 bytes"));
  ASSERT_EQ(std::remove((dir / "d.bin").c_str()), 0);
  EXPECT_THAT(error_of(dir / "d"), HasSubstr("cannot open data"));
}

// Whatever the bytes of an index, opening and reading stay inside both files.
TEST(IndexedDataset, AnyIndexIsRefusedOrReadable) {
  const TemporaryDirectory dir;
  write_here(dir / "d", TokenType::kUint16, random_documents(3, 65535));
  const std::string index = get(dir / "d.idx");
  int opened = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed);
    std::string changed = index;
    for (uint64_t flips = 1 + rng.below(4); flips > 0; --flips) {
      const uint64_t at = rng.below(rng.chance(0.5) ? 40 : changed.size());
      changed[at] = rng.chance(0.3) ? '\xff' : static_cast<char>(rng.next());
    }
    if (rng.chance(0.2)) changed.resize(rng.below(changed.size() + 40));
    put(dir / "d.idx", changed);
    auto data = IndexedDataset::open(dir / "d");
    if (!data.ok()) continue;
    ++opened;
    std::vector<int64_t> all(data->tokens());
    (void)data->read(0, all);  // may refuse a negative token
    uint64_t last = 0;
    for (uint64_t k = 0; k <= data->documents(); ++k) {
      const auto begin = data->document_begin(k);
      ASSERT_TRUE(begin.ok());
      ASSERT_GE(*begin, last);
      ASSERT_LE(*begin, data->tokens());
      last = *begin;
    }
  }
  EXPECT_GT(opened, 0) << "a boundary moved to a neighbour is still an index";
}

DataSpec spec_of(const std::string& path, int64_t seq_len) {
  DataSpec spec;
  spec.path = path;
  spec.seq_len = seq_len;
  return spec;
}

std::vector<int64_t> sample(SampleReader& reader, uint64_t number) {
  std::vector<int64_t> tokens(static_cast<size_t>(reader.seq_len()) + 1);
  const Outcome read = reader.read_sample(number, tokens);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return tokens;
}

TEST(SampleReader, TokensOfAPreparedPrefixAreThoseOfTheTextTheyCameFrom) {
  const TemporaryDirectory dir;
  std::string text(500, '\0');
  Rng rng(1);
  for (char& c : text) c = static_cast<char>(rng.next());
  put(dir / "text", text);
  Documents documents(1);
  for (const char c : text) documents[0].push_back(static_cast<uint8_t>(c));
  write_here(dir / "prefix", TokenType::kUint16, documents);
  auto from_text = SampleReader::open(spec_of(dir / "text", 16), 5, 256);
  auto from_prefix = SampleReader::open(spec_of(dir / "prefix", 16), 5, 256);
  ASSERT_TRUE(from_prefix.ok()) << from_prefix.error().message;
  ASSERT_EQ(from_text->windows(), from_prefix->windows());
  for (uint64_t i = 0; i < 70; ++i) EXPECT_EQ(sample(*from_text, i), sample(*from_prefix, i));
}

TEST(SampleReader, AnIdBeyondTheModelIsNamed) {
  const TemporaryDirectory dir;
  write_here(dir / "d", TokenType::kInt32, {{1, 2, 3, 999, 5}});
  auto reader = SampleReader::open(spec_of(dir / "d", 4), 1, 500);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::vector<int64_t> tokens(5);
  const Outcome read = reader->read_sample(0, tokens);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("token 3 has the id 999"));
  EXPECT_THAT(read.error().message, HasSubstr("vocabulary of 500"));
}

// No restart makes it another one.
TEST(SampleReader, ANegativeIdIsRefusedAsOneBeyondTheModel) {
  const TemporaryDirectory dir;
  write_here(dir / "d", TokenType::kInt32, {{1, 2, 3, -7, 5}});
  auto reader = SampleReader::open(spec_of(dir / "d", 4), 1, 500);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::vector<int64_t> tokens(5);
  const Outcome read = reader->read_sample(0, tokens);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(read.error().message, HasSubstr("token 3 is -7"));
}

TEST(SampleReader, HalfADatasetIsNotText) {
  const TemporaryDirectory dir;
  write_here(dir / "d", TokenType::kInt32, {{1, 2, 3, 4, 5}});
  for (const char* half : {"d.bin", "d.idx"}) {
    const auto refused = SampleReader::open(spec_of(dir / half, 4), 1, 500);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("set data.path to " + (dir / "d")));
  }
}

}  // namespace
}  // namespace hpctl
