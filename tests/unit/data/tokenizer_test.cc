// SPDX-License-Identifier: Apache-2.0
// Tokenizers: known vectors of GPT-2, a slow and obvious BPE beside the real one, the pieces of
// both pre-tokenizer patterns, and files that are wrong in every way.
//
// gpt2_subset.json holds those tokens and merges of GPT-2's vocabulary (MIT licence) that can occur
// in the texts of gpt2_vectors.json, so it encodes them as the whole does; the ids there were
// published with llama.cpp (models/ggml-vocab-gpt-2.gguf.inp and .out), made by Hugging Face's
// library.
#include "trainer/data/tokenize/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/tokenizer_helpers.h"
#include "trainer/data/tokenize/bpe.h"
#include "trainer/data/tokenize/splitter.h"

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

constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string fixture(const std::string& name) {
  return read_file(HPCTL_SOURCE "/tests/unit/data/" + name, 1 << 26).value();
}

void expect_vectors(const std::string& tokenizer_text, const std::string& vectors) {
  const auto tokenizer = parse_tokenizer_json(tokenizer_text, "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto encoder = (*tokenizer)->make_encoder();
  for (int round = 0; round < 2; ++round) {  // the second finds short pieces in the cache
    for (const json& vector : json::parse(vectors)) {
      Ids ids;
      const Outcome done = encoder->encode(vector[0].get<std::string>(), ids);
      ASSERT_TRUE(done.ok()) << done.error().message;
      EXPECT_EQ(ids, vector[1].get<Ids>()) << vector[0];
    }
  }
}

TEST(Gpt2, GivesThePublishedIds) {
  expect_vectors(fixture("gpt2_subset.json"), fixture("gpt2_vectors.json"));
}

TEST(Gpt2, EndOfTextIsOneTokenAlsoInsideText) {
  const auto tokenizer = parse_tokenizer_json(fixture("gpt2_subset.json"), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocabulary(), 50257U);
  EXPECT_EQ((*tokenizer)->end_of_document(), 50256);
  EXPECT_EQ(encode(**tokenizer, "Hello<|endoftext|><|endoftext|> world"),
            (Ids{15496, 50256, 50256, 995}));
}

// For a person who has the files: TOKENIZER_JSON and TOKENIZER_VECTORS ([[text, [id, ...]], ...]).
TEST(TokenizerJson, AnyFileAgainstAnyVectors) {
  const char* file = std::getenv("TOKENIZER_JSON");
  const char* vectors = std::getenv("TOKENIZER_VECTORS");
  if (file == nullptr || vectors == nullptr) {
    GTEST_SKIP() << "TOKENIZER_JSON and TOKENIZER_VECTORS name no files";
  }
  expect_vectors(read_file(file, 1 << 28).value(), read_file(vectors, 1 << 28).value());
}

TEST(Splitter, Gpt2Pattern) {
  const std::string p(kGpt2Pattern);
  EXPECT_THAT(pieces(p, "I've  12345 x!!\n\n y"),
              ElementsAre("I", "'ve", " ", " 12345", " x", "!!", "\n\n", " y"));
  EXPECT_THAT(pieces(p,
                     "'RE\xc2\xa0"
                     "a"),
              ElementsAre("'", "RE", "\xc2\xa0", "a"));
  // U+180E is no space for the libraries that this pattern was written for.
  EXPECT_THAT(pieces(p, "\xe1\xa0\x8e!"), ElementsAre("\xe1\xa0\x8e!"));
}

TEST(Splitter, Llama3Pattern) {
  EXPECT_THAT(pieces(kLlama3Pattern, "I'VE 12345.67 $x!!\r\n\n  y  \n z "),
              ElementsAre("I", "'VE", " ", "123", "45", ".", "67", " $", "x", "!!\r\n\n", " ", " y",
                          "  \n", " z", " "));
  EXPECT_THAT(pieces(kLlama3Pattern, "(abc) \tdef"), ElementsAre("(abc", ")", " ", "\tdef"));
}

TEST(Splitter, WhatLiesBetweenMatchesIsAPieceToo) {
  EXPECT_THAT(pieces("b+", "abbacb"), ElementsAre("a", "bb", "ac", "b"));
  EXPECT_THAT(pieces("x*", "aäb"), ElementsAre("a", "ä", "b")) << "empty matches cut";
  EXPECT_THAT(pieces("x*", "axxb"), ElementsAre("a", "xx", "b"));
}

TEST(Splitter, AWrongPatternIsNamed) {
  EXPECT_THAT(SplitPattern::compile("(").error().message, HasSubstr("\"(\" is not understood"));
}

TEST(Splitter, APatternThatExplodesEndsInAnError) {
  const auto compiled = SplitPattern::compile("(a|a)+$");
  ASSERT_TRUE(compiled.ok());
  std::vector<std::string_view> found;
  EXPECT_FALSE(Splitter(*compiled).split(std::string(60, 'a') + "b", found).ok());
}

// BPE as its definition reads, on strings.
Ids slow_bpe(const std::vector<std::string>& tokens, const std::vector<BpeMerge>& merges,
             const std::string& piece) {
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.emplace_back(1, c);
  for (;;) {
    size_t best = merges.size();
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (tokens[static_cast<size_t>(merges[rank].left)] == symbols[i] &&
            tokens[static_cast<size_t>(merges[rank].right)] == symbols[i + 1]) {
          best = rank;
          at = i;
        }
      }
    }
    if (best == merges.size()) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    const auto found = std::find(tokens.begin(), tokens.end(), symbol);
    ids.push_back(static_cast<int32_t>(found - tokens.begin()));
  }
  return ids;
}

TEST(Bpe, AgreesWithTheDefinition) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    std::vector<std::string> tokens = {"a", "b", "c", "d"};
    std::vector<BpeMerge> merges;
    for (size_t tries = 5 + rng.below(60); tries > 0; --tries) {
      const auto left = static_cast<int32_t>(rng.below(tokens.size()));
      const auto right = static_cast<int32_t>(rng.below(tokens.size()));
      const std::string both =
          tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
      if (std::find(tokens.begin(), tokens.end(), both) != tokens.end()) continue;
      merges.push_back({left, right, static_cast<int32_t>(tokens.size())});
      tokens.push_back(both);
    }
    for (size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[rng.below(i)]);
    std::array<int32_t, 256> bytes{};
    bytes.fill(-1);
    for (int32_t i = 0; i < 4; ++i) bytes[static_cast<size_t>('a' + i)] = i;
    const BpeModel model(bytes, merges, {});
    BpeEncoder encoder(model);
    for (int round = 0; round < 60; ++round) {
      std::string piece(1 + rng.below(round % 4 == 0 ? 120 : 20), 'a');
      for (char& c : piece) c = static_cast<char>('a' + rng.below(4));
      Ids ids;
      ASSERT_TRUE(encoder.encode(piece, ids).ok());
      ASSERT_EQ(ids, slow_bpe(tokens, merges, piece)) << "seed " << seed << " " << piece;
    }
    Ids ids = {7};
    EXPECT_FALSE(encoder.encode("axb", ids).ok());
    EXPECT_EQ(ids, Ids{7}) << "an error leaves nothing behind";
  }
}

TEST(Bpe, ALongRunIsNoTrap) {
  std::array<int32_t, 256> bytes{};
  bytes.fill(0);
  std::vector<BpeMerge> merges;
  for (int32_t i = 0; i < 10; ++i) merges.push_back({i, i, i + 1});
  const BpeModel model(bytes, merges, {});
  BpeEncoder encoder(model);
  Ids ids;
  ASSERT_TRUE(encoder.encode(std::string(1 << 20, 'a'), ids).ok());
  EXPECT_EQ(ids, Ids(1 << 10, 10));
}

// A tokenizer.json small enough to be read: bytes a, b, space, and what the test adds.
json small_tokenizer() {
  return json::parse(R"({
    "added_tokens": [{"id": 9, "content": "<x>", "special": true, "lstrip": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġa": 4, "bb": 5, "Ġab": 6},
              "merges": ["a b", "Ġ a", ["b", "b"], "Ġ ab"]}})");
}

TEST(TokenizerJson, MergesByRankAndAddedTokensFirst) {
  const json document = small_tokenizer();
  EXPECT_EQ(encode_small(document, "ab ab abb"), (Ids{3, 6, 6, 1}));
  EXPECT_EQ(encode_small(document, "a<x>b<x><x>"), (Ids{0, 9, 1, 9, 9}));
}

TEST(TokenizerJson, ADeepDocumentIsRefusedAndNotFollowed) {
  const std::string text = "{\"normalizer\": " + std::string(80'000, '[') +
                           std::string(80'000, ']') + ", \"model\": {}}";
  const auto tokenizer = parse_tokenizer_json(text, "t.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.error().message.find("t.json"), std::string::npos);
  EXPECT_NE(tokenizer.error().message.find("nested deeper than 64 levels"), std::string::npos);
}

TEST(TokenizerJson, TheLongestAddedTokenWins) {
  json document = small_tokenizer();
  document["added_tokens"].push_back({{"id", 10}, {"content", "<x>a"}});
  EXPECT_EQ(encode_small(document, "a<x>ab<x>b"), (Ids{0, 10, 1, 9, 1}));
}

// Phi's end takes the spaces on both sides, as mask tokens take those before them.
TEST(TokenizerJson, AddedTokensTakeSpacesAndStandAlone) {
  json document = small_tokenizer();
  json& token = document["added_tokens"][0];
  EXPECT_EQ(encode_small(document, "a <x> b"), (Ids{0, 2, 9, 2, 1}));
  token["lstrip"] = true;
  EXPECT_EQ(encode_small(document, "a  <x> b"), (Ids{0, 9, 2, 1}));
  token["rstrip"] = true;
  EXPECT_EQ(encode_small(document, "a\xe3\x80\x80<x> \t b"), (Ids{0, 9, 1}));
  EXPECT_EQ(encode_small(document, " <x> <x> "), (Ids{9, 9}));
  token["single_word"] = true;
  document["added_tokens"].push_back({{"id", 10}, {"content", "ba"}, {"single_word", true}});
  EXPECT_EQ(encode_small(document, "ba"), (Ids{10}));
  EXPECT_EQ(encode_small(document, "aba"), (Ids{3, 0})) << "beside a letter";
  EXPECT_EQ(encode_small(document, "bab"), (Ids{1, 3}));
  EXPECT_EQ(encode_small(document, "b ba b"), (Ids{1, 2, 10, 2, 1}));
}

TEST(TokenizerJson, IgnoreMergesTakesAWholePieceAtOnce) {
  json document = small_tokenizer();
  document["model"]["vocab"]["aabb"] = 7;  // that no merge leads to
  EXPECT_EQ(encode_small(document, "aabb"), (Ids{0, 3, 1}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode_small(document, "aabb ab ba"), (Ids{7, 6, 2, 1, 0}));
}

// Qwen's files ask for NFC: an e and an accent are the letter é.
TEST(TokenizerJson, TextIsBroughtIntoItsNormalForm) {
  json document = small_tokenizer();
  document["model"]["vocab"]["Ã"] = 7;  // é is the bytes c3 a9, which are written Ã and ©
  document["model"]["vocab"]["©"] = 8;
  const std::string composed = "\xc3\xa9";
  const std::string apart = "e\xcc\x81";
  EXPECT_EQ(encode_small(document, composed), (Ids{7, 8}));
  document["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(encode_small(document, "a" + apart + "b"), (Ids{0, 7, 8, 1}));
  EXPECT_EQ(encode_small(document, "ab ab"), (Ids{3, 6}));
  document["normalizer"] = {{"type", "Sequence"},
                            {"normalizers", {{{"type", "NFD"}}, {{"type", "NFC"}}}}};
  EXPECT_EQ(encode_small(document, composed), (Ids{7, 8}));
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array()}};
  EXPECT_EQ(encode_small(document, composed), (Ids{7, 8}));
}

TEST(TokenizerJson, ANormalizedAddedTokenIsFoundInTheNormalForm) {
  json document = small_tokenizer();
  document["normalizer"] = {{"type", "NFC"}};
  document["added_tokens"] = {
      {{"id", 9}, {"content", "e\xcc\x81"}, {"special", false}, {"normalized", true}},
      {{"id", 10}, {"content", "<x>"}, {"special", true}, {"normalized", false}}};
  EXPECT_EQ(encode_small(document,
                         "a\xc3\xa9"
                         "b<x>"),
            (Ids{0, 9, 1, 10}));
  document["added_tokens"][0]["normalized"] = false;
  EXPECT_EQ(encode_small(document,
                         "ae\xcc\x81"
                         "b"),
            (Ids{0, 9, 1}));
}

TEST(TokenizerJson, DigitsAndStringsCutTheText) {
  json document = small_tokenizer();
  const json byte_level = document["pre_tokenizer"];
  document["model"]["vocab"]["1"] = 7;
  document["model"]["vocab"]["11"] = 8;
  document["model"]["merges"].push_back("1 1");
  EXPECT_EQ(encode_small(document, "a11"), (Ids{0, 8}));
  const auto behind = [&](const json& step) {
    json changed = document;
    changed["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {step, byte_level}}};
    return changed;
  };
  EXPECT_EQ(encode_small(behind({{"type", "Digits"}, {"individual_digits", true}}), "a11"),
            (Ids{0, 7, 7}));
  EXPECT_EQ(encode_small(behind({{"type", "Digits"}, {"individual_digits", false}}), "a11"),
            (Ids{0, 8}));
  const json split = {{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", "Isolated"}};
  EXPECT_EQ(encode_small(behind(split), "abb"), (Ids{0, 1, 1}));
}

TEST(TokenizerJson, APrefixSpaceIsAddedWhereThereIsNone) {
  json document = small_tokenizer();
  document["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(encode_small(document, "ab"), (Ids{6}));
  EXPECT_EQ(encode_small(document, " ab"), (Ids{6}));
}

TEST(TokenizerJson, WhatIsNotUnderstoodIsRefused) {
  const auto changed = [](const std::string& pointer, const json& value) {
    json document = small_tokenizer();
    document[json::json_pointer(pointer)] = value;
    return refusal(document);
  };
  EXPECT_THAT(changed("/normalizer", {{"type", "Nmt"}}), HasSubstr("t.json cannot be used"));
  EXPECT_THAT(changed("/normalizer", {{"type", "Nmt"}}), HasSubstr("normalizer \"Nmt\" is not"));
  EXPECT_THAT(changed("/pre_tokenizer/type", "UnicodeScripts"), HasSubstr("UnicodeScripts"));
  EXPECT_THAT(changed("/pre_tokenizer", {{"type", "Punctuation"}, {"behavior", "Merged"}}),
              HasSubstr("the behavior \"Merged\" is not known; Isolated, Removed"));
  EXPECT_THAT(changed("/model/type", "Unigram"), HasSubstr("Unigram"));
  EXPECT_THAT(changed("/model/byte_fallback", true),
              HasSubstr("byte_fallback with ByteLevel is known only where"));
  EXPECT_THAT(changed("/model/unk_token", "a"), HasSubstr("unk_token with ByteLevel is known"));
  EXPECT_THAT(changed("/model/dropout", 0.1), HasSubstr("model: dropout is not known"));
  EXPECT_THAT(changed("/model/merges", nullptr), HasSubstr("merges is null; a list is needed"));
  EXPECT_THAT(changed("/model/vocab/b", 0), HasSubstr("\"a\" and \"b\" have one id, 0"));
  EXPECT_THAT(changed("/model/vocab/<x>", 8),
              HasSubstr("\"<x>\" is 8 in vocab, and an added token with the id 9"));
  EXPECT_THAT(changed("/added_tokens/1", {{"id", 8}, {"content", "<x>"}}),
              HasSubstr("\"<x>\" has two ids, 9 and 8"));
  EXPECT_THAT(changed("/model/merges/0", "a c"), HasSubstr("\"a c\" needs a token"));
  EXPECT_THAT(changed("/model/merges/0", "a  b"), HasSubstr("is not two tokens"));
  EXPECT_EQ(changed("/model/merges/0", 5),
            "t.json cannot be used as a tokenizer: model: type must be string, but is number; take "
            "the tokenizer.json that the model was published with");
  EXPECT_THAT(changed("/added_tokens/0", json::object()),
              HasSubstr("added_tokens: key 'content' not found; take the tokenizer.json that"));
  EXPECT_THAT(changed("/model/vocab/a", -1), HasSubstr("the id -1"));
  EXPECT_THAT(changed("/model/vocab/a", 1.5), HasSubstr("the id 1.5"));
  EXPECT_THAT(changed("/model/vocab", json::object()), HasSubstr("empty vocabulary"));
  EXPECT_THAT(changed("/model/vocab/中", 8), HasSubstr("does not spell bytes"));
  EXPECT_THAT(changed("/added_tokens/0/lstrip", 3), HasSubstr("added_tokens: "));
  EXPECT_THAT(changed("/added_tokens/0/content", ""), HasSubstr("empty"));
  const auto torn = parse_tokenizer_json(small_tokenizer().dump(1).substr(0, 100), "t.json");
  EXPECT_THAT(torn.error().message, HasSubstr(": the file ends inside the document, after 100"));
  EXPECT_THAT(torn.error().message, testing::StartsWith("t.json:"));
  EXPECT_THAT(parse_tokenizer_json("[]", "t.json").error().message, HasSubstr("not an object"));
}

// Whatever the file: an error, or a tokenizer whose ids are in its vocabulary.
TEST(TokenizerJson, AnyFileIsRefusedOrUsable) {
  const std::string text = small_tokenizer().dump();
  const std::vector<std::string> words = {"null", "{}",   "[]",   "-1",
                                          "1e99", "\"\"", "true", "\"a b\""};
  int accepted = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Rng rng(seed);
    std::string changed = text;
    for (uint64_t edits = 1 + rng.below(3); edits > 0; --edits) {
      const size_t at = rng.below(changed.size());
      if (rng.chance(0.3)) {
        changed.replace(at, rng.below(6), words[rng.below(words.size())]);
      } else if (rng.chance(0.5)) {
        changed[at] = static_cast<char>(rng.next());
      } else {
        changed.erase(at, rng.below(4));
      }
    }
    const auto tokenizer = parse_tokenizer_json(changed, "t.json");
    if (!tokenizer.ok()) continue;
    ++accepted;
    Ids ids;
    (void)(*tokenizer)->make_encoder()->encode("ab abb<x>a", ids);
    for (const int32_t id : ids) {
      ASSERT_GE(id, 0);
      ASSERT_LT(static_cast<uint64_t>(id), (*tokenizer)->vocabulary());
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(Utf8, FollowsTheStandard) {
  const auto valid = [](const std::string& text) { return valid_utf8_prefix(text) == text.size(); };
  EXPECT_TRUE(valid("aä中🦙\xf4\x8f\xbf\xbf"));
  for (const char* text : {"\x80", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe4\xb8", "\xff"}) {
    EXPECT_FALSE(valid(text)) << testing::PrintToString(std::string(text));
    EXPECT_EQ(valid_utf8_prefix(std::string("ok") + text), 2U);
  }
  EXPECT_TRUE(valid(std::string(1, '\0')));
}

TEST(ByteTokenizer, IsTheBytes) {
  EXPECT_EQ(encode(*make_byte_tokenizer(), "a\xff"), (Ids{97, 255}));
  EXPECT_EQ(make_byte_tokenizer()->vocabulary(), 256U);
}

TEST(Decode, GivesTheTextBack) {
  const auto gpt2 = parse_tokenizer_json(fixture("gpt2_subset.json"), "tokenizer.json");
  ASSERT_TRUE(gpt2.ok()) << gpt2.error().message;
  for (const json& vector : json::parse(fixture("gpt2_vectors.json"))) {
    const auto text = (*gpt2)->decode(vector[1].get<Ids>());
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, vector[0].get<std::string>());
  }
  EXPECT_THAT((*gpt2)->decode(Ids{-1}).error().message, HasSubstr("has no token -1"));
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(bytes->decode(Ids{104, 105, 255}).value(), "hi\xff");
  EXPECT_THAT(bytes->decode(Ids{256}).error().message, HasSubstr("has no token 256"));
}

TEST(LoadTokenizer, SaysWhatATokenizerIs) {
  EXPECT_THAT(load_tokenizer("/nowhere/x.model").error().message,
              HasSubstr("a tokenizer is \"byte\", or a model's file tokenizer.json"));
  EXPECT_THAT(load_tokenizer("Qwen/Qwen2.5-0.5B").error().message,
              HasSubstr("run `hf download Qwen/Qwen2.5-0.5B tokenizer.json --local-dir DIR`"));
  const TemporaryDirectory dir;
  std::ofstream(dir / "x.model") << "not a model";
  EXPECT_THAT(load_tokenizer(dir / "x.model").error().message,
              HasSubstr("is not a SentencePiece model"));
}

// Against SentencePiece's own programs.
TEST(SentencePiece, AgreesWithSpmEncode) {
  if (std::system("command -v spm_train spm_encode >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "the package sentencepiece (spm_train, spm_encode) is not installed";
  }
  const TemporaryDirectory dir;
  const json vectors = json::parse(fixture("gpt2_vectors.json"));
  std::ofstream text(dir / "text");
  std::vector<std::string> lines;
  for (const json& vector : vectors) {
    const auto line = vector[0].get<std::string>();
    if (line.empty() || line.find_first_of("\n\t") != std::string::npos) continue;
    lines.push_back(line);
    text << line << "\n";
  }
  text.close();
  const std::string train = "cd " + dir.path() +
                            " && spm_train --input=text --model_prefix=m --vocab_size=400"
                            " --model_type=bpe --byte_fallback --character_coverage=0.98"
                            " --minloglevel=2 >/dev/null 2>&1 && spm_encode --model=m.model"
                            " --output_format=id < text > ids 2>/dev/null";
  ASSERT_EQ(std::system(train.c_str()), 0);
  std::string hash;
  const auto tokenizer = load_tokenizer(dir / "m.model", &hash);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(hash.size(), 64U);
  EXPECT_EQ((*tokenizer)->vocabulary(), 400U);
  EXPECT_EQ((*tokenizer)->end_of_document(), 2);
  std::ifstream ids(dir / "ids");
  for (const std::string& line : lines) {
    std::string expected;
    ASSERT_TRUE(std::getline(ids, expected));
    std::istringstream words(expected);
    EXPECT_EQ(encode(**tokenizer, line),
              Ids(std::istream_iterator<int32_t>(words), std::istream_iterator<int32_t>()))
        << line;
  }
}

}  // namespace
}  // namespace hpctl
