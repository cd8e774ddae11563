// SPDX-License-Identifier: Apache-2.0
// Tokenizers in other forms than byte-level tokenizer.json: BPE on characters, tiktoken's files,
// vocab.json with merges.txt; and patterns that PCRE2 would read otherwise than Oniguruma.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/tokenizer_helpers.h"
#include "trainer/data/tokenize/tiktoken.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::encode;
using test::encode_small;
using test::Ids;
using test::pieces;
using test::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

// Patterns that PCRE2 reads otherwise, with the pieces that Oniguruma makes.
TEST(Oniguruma, PatternsMeanWhatTheyMeanThere) {
  EXPECT_THAT(pieces(R"(\h+)", "x12aFg \t"), ElementsAre("x", "12aF", "g \t"));
  EXPECT_THAT(pieces(R"([\h_]+)", "x1_g"), ElementsAre("x", "1_", "g"));
  EXPECT_THAT(pieces(R"(\v+)", "a\v\n\vb"), ElementsAre("a", "\v", "\n", "\v", "b"));
  EXPECT_THAT(pieces(R"(\p{N}{,3}x)", "12345x{,3}"), ElementsAre("12", "345x", "{,3}"));
  EXPECT_THAT(pieces(R"(\s+$)", "a \nb  \nc "), ElementsAre("a", " ", "\nb", "  ", "\nc", " "));
  EXPECT_THAT(pieces(R"(^\s+)", " a\n b"), ElementsAre(" ", "a\n", " ", "b"));
  EXPECT_THAT(pieces(R"((?m:b.+))", "ab\nc"), ElementsAre("a", "b\nc"));
  EXPECT_THAT(pieces(R"([^[abc]]+|[abc])", "xyabz"), ElementsAre("xy", "a", "b", "z"));
  EXPECT_THAT(pieces(R"([x[yz]1]+)", "axz1["), ElementsAre("a", "xz1", "["));
  EXPECT_THAT(pieces(R"([\p{L}&&[^a]]+)", "bcab1"), ElementsAre("bc", "a", "b", "1"));
  EXPECT_THAT(pieces(R"(\w+)", "a_\xcc\x81\xc2\xbd"), ElementsAre("a_\xcc\x81\xc2\xbd"))
      << "marks, and the fractions of Latin-1";
  EXPECT_THAT(pieces(R"(\w+)", "a\xe2\x85\x93"), ElementsAre("a", "\xe2\x85\x93")) << "not 1/3";
  // U+3001 is used with Han, and is not of that script.
  EXPECT_THAT(pieces(R"(\p{Han}+)", "中、文"), ElementsAre("中", "、", "文"));
  EXPECT_THAT(pieces(R"([\u4e00-\u9fa5]+)", "a中"), ElementsAre("a", "中"));
  EXPECT_THAT(pieces(R"((?i)ab|c)", "ABxC"), ElementsAre("AB", "x", "C"));
  EXPECT_THAT(pieces(R"([]a]+)", "a]b"), ElementsAre("a]", "b"));
  // Kimi's: capital letters and small ones, none of Han.
  EXPECT_THAT(
      pieces(R"([\p{Han}]+|[\p{Lu}\p{Lo}&&[^\p{Han}]]*[\p{Ll}\p{Lo}&&[^\p{Han}]]+)", "Ab中文cd"),
      ElementsAre("Ab", "中文", "cd"));
}

TEST(Oniguruma, WhatHasNoFormIsRefused) {
  for (const std::string pattern :
       {R"(\Qa.b\E)", R"((?i)straße)", R"((?i:fi))", R"(a(?i)b|c)", R"((?s:.))", R"(\bx)",
        R"([\W])", R"([a&&b])", R"([^a&&[^b]])", R"([a[^b]])", R"([[:punct:]])", R"(a{2}+)",
        R"(a{2}?)", R"((?~ab))", R"((*FAIL))", R"(\xC3)", R"(\pL)", R"([a-[b]])", R"([a)"}) {
    const auto compiled = SplitPattern::compile(pattern);
    ASSERT_FALSE(compiled.ok()) << pattern;
    EXPECT_THAT(compiled.error().message, HasSubstr("which Oniguruma reads in its own way"))
        << pattern;
  }
}

// Llama 2's in small: <unk>, <s>, </s>, a token for each byte, and what "ab" needs.
json character_tokenizer() {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int b = 0; b < 256; ++b) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", b);
    vocabulary[name.data()] = 3 + b;
  }
  int id = 259;
  for (const char* text : {"▁", "a", "b", "▁a", "ab", "▁ab"}) vocabulary[text] = id++;
  json document = json::parse(R"({
    "added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": false},
                     {"id": 2, "content": "</s>", "special": true, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
              "merges": ["a b", "▁ a", "▁ ab"]}})");
  document["model"]["vocab"] = vocabulary;
  return document;
}

TEST(CharacterBpe, LlamasFormAndBytesOfUnknownCharacters) {
  const json document = character_tokenizer();
  EXPECT_EQ(encode_small(document, "ab ab"), (Ids{264, 264}));
  EXPECT_EQ(encode_small(document, "\xc3\xa9"), (Ids{259, 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(encode_small(document, "a\n"), (Ids{262, 3 + '\n'}));
  EXPECT_EQ(encode_small(document, "ab</s>ab"), (Ids{264, 2, 264}));
  EXPECT_EQ(encode_small(document, ""), Ids());
  const auto tokenizer = parse_tokenizer_json(document.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocabulary(), 265U);
  EXPECT_EQ((*tokenizer)->end_of_document(), 2);
  EXPECT_EQ((*tokenizer)->decode(Ids{264, 198, 172, 2}).value(), " ab\xc3\xa9</s>");
}

TEST(CharacterBpe, MetaspacePutsItsMarkWhereItIsTold) {
  json document = character_tokenizer();
  document["normalizer"] = nullptr;
  json& pre = document["pre_tokenizer"];
  pre = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_EQ(encode_small(document, "ab ab"), (Ids{264, 264}));
  EXPECT_EQ(encode_small(document, " ab"), (Ids{264}));
  EXPECT_EQ(encode_small(document, "</s>ab"), (Ids{2, 263})) << "not at the beginning";
  pre["prepend_scheme"] = "always";
  pre["split"] = true;
  EXPECT_EQ(encode_small(document, "</s>ab ab"), (Ids{2, 264, 264}));
  pre["prepend_scheme"] = "never";
  EXPECT_EQ(encode_small(document, "ab ab"), (Ids{263, 264}));
}

TEST(CharacterBpe, GemmasFormReplacesSpacesAlone) {
  json document = character_tokenizer();
  document["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  document["pre_tokenizer"] = {{"type", "Split"},
                               {"pattern", {{"String", " "}}},
                               {"behavior", "MergedWithPrevious"},
                               {"invert", false}};
  // Gemma's runs of spaces are added tokens too, and still come about by merges.
  document["model"]["vocab"]["▁▁"] = 265;
  document["model"]["merges"].push_back({"▁", "▁"});
  document["added_tokens"].push_back({{"id", 265}, {"content", "▁▁"}, {"normalized", false}});
  EXPECT_EQ(encode_small(document, "ab ab"), (Ids{263, 264}));
  EXPECT_EQ(encode_small(document, "b  b"), (Ids{261, 265, 261}));
}

TEST(CharacterBpe, WhatIsNotUnderstoodIsRefused) {
  json document = character_tokenizer();
  document["model"]["vocab"].erase("<0x41>");
  EXPECT_THAT(refusal(document), HasSubstr("byte_fallback without the token <0x41>"));
  document = character_tokenizer();
  document["model"]["merges"].push_back("b b");
  EXPECT_THAT(refusal(document), HasSubstr("\"b b\" needs a token"));
  document = character_tokenizer();
  document["model"]["unk_token"] = "[UNK]";
  EXPECT_EQ(encode_small(document, "ab"), Ids{264}) << "each byte is a token";
  document["model"]["byte_fallback"] = false;
  EXPECT_THAT(refusal(document), HasSubstr("unk_token is \"[UNK]\", which vocab lacks"));
}

// As the library's tutorial makes one: Whitespace, and a token for what is unknown.
TEST(CharacterBpe, SpacesThatAreLostStandBetweenTokensAgain) {
  json document = character_tokenizer();
  document["normalizer"] = nullptr;
  document["pre_tokenizer"] = {{"type", "Whitespace"}};
  document["model"]["byte_fallback"] = false;
  const auto tokenizer = parse_tokenizer_json(document.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "ab  aXX"), (Ids{263, 260, 0}));
  EXPECT_EQ((*tokenizer)->decode(Ids{263, 260, 0}).value(), "ab a <unk>");
}

// The library drops such a character; a training set must not lose text in silence.
TEST(CharacterBpe, ACharacterWithoutTokenIsAnError) {
  json document = character_tokenizer();
  document["model"]["byte_fallback"] = false;
  document["model"]["unk_token"] = nullptr;
  const auto tokenizer = parse_tokenizer_json(document.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  Ids ids = {7};
  const Outcome done = (*tokenizer)->make_encoder()->encode("ab X", ids);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "the tokenizer has no token for \"X\", and no unk_token");
  EXPECT_EQ(ids, Ids{7});
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

// The bytes, `words`, and others up to that number.
std::string tiktoken_text(size_t tokens, const std::vector<std::string>& words) {
  std::string text;
  for (size_t rank = 0; rank < tokens; ++rank) {
    std::string bytes = "~~" + std::to_string(rank);
    if (rank < 256) bytes = std::string(1, static_cast<char>(rank));
    if (rank >= 256 && rank < 256 + words.size()) bytes = words[rank - 256];
    text += base64(bytes) + " " + std::to_string(rank) + "\n";
  }
  return text;
}

// The rank is that of the token that two make, whatever the two are.
TEST(Tiktoken, MergesByTheRankOfTheResult) {
  const TemporaryDirectory dir;
  std::ofstream(dir / "tokenizer.model")
      << tiktoken_text(50'256, {"bc", "ab", "abc", "cd", "xx", "xxx", " ab", "whole"});
  const auto tokenizer = load_tokenizer(dir / "tokenizer.model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "abcd"), (Ids{258, 'd'}));
  EXPECT_EQ(encode(**tokenizer, "xxxxx"), (Ids{260, 261}));
  EXPECT_EQ(encode(**tokenizer, "ab ab whole<|endoftext|>"),
            (Ids{257, 262, ' ', 'w', 'h', 'o', 'l', 'e', 50'256}));
  EXPECT_EQ(encode(**tokenizer, "whole"), (Ids{263})) << "a piece that is a token";
  EXPECT_EQ((*tokenizer)->vocabulary(), 50'257U);
  EXPECT_EQ((*tokenizer)->end_of_document(), 50'256);
  EXPECT_EQ((*tokenizer)->decode(Ids{257, 262, 50'256}).value(), "ab ab<|endoftext|>");
}

TEST(Tiktoken, TheNumberOfTokensTellsTheModel) {
  const auto llama3 = parse_tiktoken(tiktoken_text(128'000, {"ab"}), "tokenizer.model");
  ASSERT_TRUE(llama3.ok()) << llama3.error().message;
  EXPECT_EQ((*llama3)->vocabulary(), 128'256U);
  EXPECT_EQ((*llama3)->end_of_document(), 128'001);
  EXPECT_EQ((*llama3)->added_token("<|eot_id|>"), 128'009);
  EXPECT_EQ(encode(**llama3, "ab<|eot_id|>"), (Ids{256, 128'009}));
  const auto qwen = parse_tiktoken(tiktoken_text(151'643, {"\xc3\xa9"}), "qwen.tiktoken");
  ASSERT_TRUE(qwen.ok()) << qwen.error().message;
  EXPECT_EQ(encode(**qwen, "e\xcc\x81<|im_end|>"), (Ids{256, 151'645})) << "in NFC";
  const auto kimi = parse_tiktoken(tiktoken_text(163'584, {"文b", "Ab", "文"}), "tiktoken.model");
  ASSERT_TRUE(kimi.ok()) << kimi.error().message;
  EXPECT_EQ(encode(**kimi, "文b[EOS]Ab"), (Ids{258, 'b', 163'585, 257})) << "Han is by itself";
  EXPECT_EQ((*kimi)->end_of_document(), 163'585);
  EXPECT_THAT(parse_tiktoken(tiktoken_text(300, {}), "x.model").error().message,
              HasSubstr("of 300 tokens that is not known; known are r50k_base (50256), "));
}

TEST(Tiktoken, WhatIsWrongIsNamedByLine) {
  const auto refused = [](const std::string& text) {
    return parse_tiktoken(text, "t.model").error().message;
  };
  EXPECT_THAT(refused("YQ== 0\nYg==\n"), HasSubstr("line 2: expected a token in base64"));
  EXPECT_THAT(refused("YQ== 0\n???? 1\n"), HasSubstr("line 2: expected a token in base64"));
  EXPECT_THAT(refused("YQ== 0\nYg== -1\n"), HasSubstr("line 2: expected a token in base64"));
  EXPECT_THAT(refused("YQ== 0\nYg== 0\n"),
              HasSubstr("line 2: the token or its rank is there twice"));
  EXPECT_THAT(refused("YQ== 0\nYQ== 1\n"),
              HasSubstr("line 2: the token or its rank is there twice"));
  EXPECT_THAT(refused("YQ== 0\nYg== 9\n"), HasSubstr("the highest is 9 of 2 tokens"));
  EXPECT_THAT(refused("YQ== 0\nYg== 2000000000\n"), HasSubstr("line 2: a rank"));
  EXPECT_TRUE(is_tiktoken("YQ== 0\r\n"));
  EXPECT_FALSE(is_tiktoken("\n\x0e\n\x05<unk>"));
  EXPECT_FALSE(is_tiktoken("some words"));
}

TEST(Splitter, O200kPattern) {
  EXPECT_THAT(pieces(std::string(kO200kPattern), "HelloWorld I'VE 12345 a/b//\n"),
              ElementsAre("Hello", "World", " I'VE", " ", "123", "45", " a", "/b", "//\n"));
}

class VocabAndMerges : public ::testing::Test {
 protected:
  VocabAndMerges() {
    put("vocab.json", R"({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġa": 4, "bb": 5, "Ġab": 6,
                         "<|endoftext|>": 7, "1": 8, "11": 9, "Ã": 10, "©": 11})");
    put("merges.txt", "#version: 0.2\na b\nĠ a\r\nb b\nĠ ab\n1 1\n");
  }
  void put(const std::string& name, const std::string& text) { std::ofstream(dir_ / name) << text; }
  std::string hash_of(const std::string& name) {
    std::string hash;
    EXPECT_TRUE(load_tokenizer(dir_ / name, &hash).ok());
    return hash;
  }

  TemporaryDirectory dir_;
};

TEST_F(VocabAndMerges, AreGpt2sTokenizer) {
  const auto tokenizer = load_tokenizer(dir_ / "vocab.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "ab ab abb 11<|endoftext|>"), (Ids{3, 6, 6, 1, 2, 9, 7}));
  EXPECT_EQ((*tokenizer)->end_of_document(), 7);
  // Either file stands for both, and the hash depends on both.
  const std::string hash = hash_of("vocab.json");
  EXPECT_EQ(hash_of("merges.txt"), hash);
  put("merges.txt", "#version: 0.2\na b\n");
  EXPECT_NE(hash_of("vocab.json"), hash);
  put("gpt2-vocab.json", read_file(dir_ / "vocab.json").value());
  EXPECT_THAT(load_tokenizer(dir_ / "gpt2-vocab.json").error().message,
              HasSubstr("gpt2-merges.txt"));
  put("gpt2-merges.txt", "a b\n");
  EXPECT_TRUE(load_tokenizer(dir_ / "gpt2-vocab.json").ok());
}

TEST_F(VocabAndMerges, TheClassSaysHowTextIsCut) {
  put("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {
      "12": {"content": "<|im_end|>", "lstrip": false, "special": true}}})");
  put("added_tokens.json", R"({"<|im_end|>": 12, "<|extra|>": 13})");
  const auto tokenizer = load_tokenizer(dir_ / "vocab.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(encode(**tokenizer, "11<|im_end|><|extra|>e\xcc\x81"), (Ids{8, 8, 12, 13, 10, 11}));
  EXPECT_EQ((*tokenizer)->vocabulary(), 14U);
  put("tokenizer_config.json", R"({"tokenizer_class": "BartTokenizer"})");
  EXPECT_THAT(load_tokenizer(dir_ / "vocab.json").error().message,
              HasSubstr("names the class \"BartTokenizer\", and how that cuts text is not known"));
  put("tokenizer_config.json", "{\"tokenizer_class\":");
  EXPECT_THAT(load_tokenizer(dir_ / "vocab.json").error().message,
              HasSubstr("tokenizer_config.json beside "));
}

}  // namespace
}  // namespace hpctl
