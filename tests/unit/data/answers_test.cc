// SPDX-License-Identifier: Apache-2.0
// data.format sft and chat: from JSON lines to what a sample counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/answer_data.h"
#include "tests/unit/data/put.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/prepare/cached.h"
#include "trainer/data/prepare/prepare.h"
#include "trainer/data/sample_reader.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

using test::put;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// GPT-2's letters, and the special tokens of both templates from 50257 on.
std::string tokenizer_text() {
  const std::string path = HPCTL_SOURCE "/tests/unit/data/gpt2_subset.json";
  nlohmann::json document = nlohmann::json::parse(*read_file(path, 1U << 28));
  int id = 50257;
  for (const char* name : {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
                           "<|end_header_id|>", "<|eot_id|>"}) {
    document["added_tokens"].push_back({{"id", id++}, {"content", name}});
  }
  return document.dump();
}

class Answers : public ::testing::Test {
 protected:
  Answers() { put(dir_ / "t.json", tokenizer_text()); }

  PrepareOptions options(DataFormat format, ChatTemplate chat_template = ChatTemplate::kNone) {
    PrepareOptions options;
    options.inputs = {dir_ / "in.jsonl"};
    options.tokenizer = format == DataFormat::kChat ? dir_ / "t.json" : "byte";
    options.format = format;
    options.chat_template = chat_template;
    options.out = dir_ / "out";
    return options;
  }

  static Result<PrepareResult> prepare(const PrepareOptions& options) {
    return prepare_data(options, [](const PrepareProgress&) {});
  }

  std::string refusal(const std::string& lines, DataFormat format,
                      ChatTemplate chat_template = ChatTemplate::kNone) {
    put(dir_ / "in.jsonl", lines);
    PrepareOptions with = options(format, chat_template);
    with.out = dir_ / "refused" + std::to_string(refused_++);
    const auto done = prepare(with);
    return done.ok() ? "it is prepared" : done.error().message;
  }

  // The ids of document k, those to be learnt with a star behind them.
  static std::vector<std::string> marked(IndexedDataset& data, uint64_t k) {
    const uint64_t begin = data.document_begin(k).value();
    std::vector<int64_t> ids(data.document_begin(k + 1).value() - begin);
    EXPECT_TRUE(data.read(begin, ids).ok());
    std::vector<std::string> texts;
    bool learnt = false;
    for (const uint64_t span : data.sequence_lengths(k).value()) {
      for (uint64_t i = 0; i < span; ++i) {
        texts.push_back(std::to_string(ids.at(texts.size())) + (learnt ? "*" : ""));
      }
      learnt = !learnt;
    }
    EXPECT_EQ(texts.size(), ids.size());
    return texts;
  }

  // The same of a text by the tokenizer alone.
  std::vector<std::string> plain(const std::string& text, const std::string& star = "") {
    const auto tokenizer = load_tokenizer(dir_ / "t.json").value();
    std::vector<int32_t> ids;
    EXPECT_TRUE(tokenizer->make_encoder()->encode(text, ids).ok());
    std::vector<std::string> texts;
    for (const int32_t id : ids) texts.push_back(std::to_string(id) + star);
    return texts;
  }

  TemporaryDirectory dir_;
  int refused_ = 0;
};

std::vector<std::string> joined(std::initializer_list<std::vector<std::string>> parts) {
  std::vector<std::string> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST_F(Answers, OfPairsTheCompletionAndItsEndAreLearnt) {
  put(dir_ / "in.jsonl",
      "{\"prompt\": \"ab\", \"completion\": \"cd\", \"id\": [1]}\n\n"
      "{\"prompt\": \"no answer\", \"completion\": \"\"}\n"
      "{\"completion\": \"e\", \"prompt\": \"\"}\n");
  const auto done = prepare(options(DataFormat::kSft));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->empty, 1U);
  EXPECT_EQ(done->note.documents, 2U);
  EXPECT_EQ(done->note.tokens, 7U);
  EXPECT_EQ(done->note.answer_tokens, 5U);
  auto data = IndexedDataset::open(dir_ / "out");
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data->format(), DataFormat::kSft);
  EXPECT_THAT(marked(*data, 0), ElementsAre("97", "98", "99*", "100*", "0*"));
  EXPECT_THAT(marked(*data, 1), ElementsAre("101*", "0*"));
  EXPECT_THAT(data->sequence_lengths(1).value(), ElementsAre(0, 2));
  EXPECT_THAT(data->document_begins(0, 2).value(), ElementsAre(0, 5, 7));
}

// GPT-2 has " the" as one token: where the border lies within one, that token is learnt.
TEST_F(Answers, ATokenAcrossTheBorderIsLearnt) {
  put(dir_ / "in.jsonl",
      "{\"prompt\": \"in\", \"completion\": \" the\"}\n"
      "{\"prompt\": \"in \", \"completion\": \"the\"}\n");
  PrepareOptions with = options(DataFormat::kSft);
  with.tokenizer = dir_ / "t.json";
  ASSERT_TRUE(prepare(with).ok());
  auto data = IndexedDataset::open(dir_ / "out");
  ASSERT_TRUE(data.ok());
  ASSERT_EQ(plain(" the").size(), 1U);
  const auto expected = joined({plain("in"), plain(" the", "*"), {"50256*"}});
  EXPECT_EQ(marked(*data, 0), expected);
  EXPECT_EQ(marked(*data, 1), expected);
}

constexpr const char* kConversation =
    R"({"messages": [{"role": "system", "content": "be in time"},)"
    R"( {"role": "user", "content": " one "}, {"role": "assistant", "content": "two\n"},)"
    R"( {"role": "user", "content": "on"}, {"role": "assistant", "content": "the end"}]})"
    "\n";

TEST_F(Answers, ChatmlMarksWhatTheAssistantSays) {
  put(dir_ / "in.jsonl", kConversation);
  const auto done = prepare(options(DataFormat::kChat, ChatTemplate::kChatml));
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto data = IndexedDataset::open(dir_ / "out");
  ASSERT_TRUE(data.ok());
  const std::vector<std::string> start = {"50257"};
  const std::vector<std::string> end = {"50258"};
  const std::vector<std::string> learnt_end = {"50258*"};
  EXPECT_EQ(marked(*data, 0), joined({start,
                                      plain("system\nbe in time"),
                                      end,
                                      plain("\n"),  //
                                      start,
                                      plain("user\n one "),
                                      end,
                                      plain("\n"),  //
                                      start,
                                      plain("assistant\n"),
                                      plain("two\n", "*"),
                                      learnt_end,
                                      plain("\n"),
                                      start,
                                      plain("user\non"),
                                      end,
                                      plain("\n"),  //
                                      start,
                                      plain("assistant\n"),
                                      plain("the end", "*"),
                                      learnt_end,
                                      plain("\n")}));
  EXPECT_EQ(done->note.chat_template, ChatTemplate::kChatml);
}

TEST_F(Answers, Llama3TrimsAndBeginsOnce) {
  put(dir_ / "in.jsonl", kConversation);
  ASSERT_TRUE(prepare(options(DataFormat::kChat, ChatTemplate::kLlama3)).ok());
  auto data = IndexedDataset::open(dir_ / "out");
  ASSERT_TRUE(data.ok());
  const auto head = [&](const std::string& role) {
    return joined({{"50260"}, plain(role), {"50261"}});
  };
  EXPECT_EQ(marked(*data, 0), joined({{"50259"},
                                      head("system"),
                                      plain("\n\nbe in time"),
                                      {"50262"},
                                      head("user"),
                                      plain("\n\none"),
                                      {"50262"},
                                      head("assistant"),
                                      plain("\n\n"),
                                      plain("two", "*"),
                                      {"50262*"},
                                      head("user"),
                                      plain("\n\non"),
                                      {"50262"},
                                      head("assistant"),
                                      plain("\n\n"),
                                      plain("the end", "*"),
                                      {"50262*"}}));
}

TEST_F(Answers, MistakesNameFileLineAndRemedy) {
  const std::string in = dir_ / "in.jsonl";
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n",
                      DataFormat::kSft),
              HasSubstr(in + ":2: no key \"completion\"; expected {\"prompt\": TEXT"));
  EXPECT_THAT(refusal("{\"prompt\": 1, \"completion\": \"b\"}\n", DataFormat::kSft),
              HasSubstr(in + ":1: no text under \"prompt\""));
  EXPECT_THAT(refusal("[]\n", DataFormat::kSft), HasSubstr(in + ":1: not a JSON object"));
  EXPECT_THAT(refusal("{\"prompt\n", DataFormat::kSft), HasSubstr(in + ":1: not JSON: column"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"completion\": \"\"}\n", DataFormat::kSft),
              HasSubstr("nothing to learn in " + in));
  const auto chat = [&](const std::string& lines) {
    return refusal(lines, DataFormat::kChat, ChatTemplate::kChatml);
  };
  EXPECT_THAT(chat("{\"text\": \"a\"}\n"), HasSubstr(in + ":1: no list \"messages\"; expected"));
  EXPECT_THAT(chat("{\"messages\": [{\"role\": \"user\"}]}\n"),
              HasSubstr(in + ":1: no key \"content\""));
  EXPECT_THAT(chat("{\"messages\": [7]}\n"), HasSubstr(in + ":1: no key \"role\""));
  EXPECT_THAT(chat("{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}\n"),
              HasSubstr("nothing to learn"))
      << "what tools answer is not learnt";
  EXPECT_THAT(chat("{\"messages\": [{\"role\": \"bot\", \"content\": \"a\"}]}\n"),
              HasSubstr(in + ":1: role \"bot\"; expected system, user, assistant or tool"));
  EXPECT_THAT(refusal("{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}\n",
                      DataFormat::kChat, ChatTemplate::kLlama3),
              HasSubstr(in + ":1: role \"tool\"; expected system, user or assistant"));
  EXPECT_THAT(chat("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"),
              HasSubstr("nothing to learn"));
  PrepareOptions with = options(DataFormat::kChat, ChatTemplate::kChatml);
  with.tokenizer = "byte";
  EXPECT_THAT(prepare(with).error().message,
              HasSubstr("byte has no added token <|im_start|>, which chat template chatml needs"));
  put(dir_ / "in.txt", "text");
  with = options(DataFormat::kSft);
  with.inputs = {dir_ / "in.txt"};
  EXPECT_THAT(prepare(with).error().message,
              HasSubstr("in.txt: format sft is JSON lines; give files whose names end in .jsonl"));
}

// What a message says beside its text would be lost, and the model would learn another answer.
TEST_F(Answers, KeysThatChangeWhatIsSaidAreRefused) {
  const auto with = [&](const std::string& key, const std::string& of_line = "") {
    return refusal("{" + of_line +
                       "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                       "{\"role\": \"assistant\", \"content\": \"b\"" +
                       key + "}]}\n",
                   DataFormat::kChat, ChatTemplate::kChatml);
  };
  for (const std::string key :
       {"tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "refusal"}) {
    EXPECT_THAT(with(", \"" + key + "\": [{\"name\": \"f\"}]"),
                HasSubstr(":1: \"" + key + "\" cannot be learnt"));
    EXPECT_EQ(with(", \"" + key + "\": null"), "it is prepared") << "it says nothing";
    EXPECT_EQ(with(", \"" + key + "\": []"), "it is prepared");
    EXPECT_EQ(with(", \"" + key + "\": \"\""), "it is prepared");
  }
  EXPECT_THAT(with(", \"train\": false"), HasSubstr("\"train\" cannot be learnt"));
  EXPECT_THAT(with("", "\"tools\": [{}], "), HasSubstr("\"tools\" cannot be learnt"));
  EXPECT_EQ(with("", "\"tools\": [], "), "it is prepared");
  // Others are not read, whatever they are.
  EXPECT_EQ(with(", \"score\": NaN, \"id\": \"\\ud83d\""), "it is prepared");
  EXPECT_THAT(with(", \"weight\": NaN"), HasSubstr("not JSON"));
  EXPECT_THAT(with(", \"weight\": 0.5"), HasSubstr("\"weight\" is 0 or 1"));
}

TEST_F(Answers, OfWeightZeroNothingIsLearnt) {
  put(dir_ / "in.jsonl",
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"one\", \"weight\": 0}, "
      "{\"role\": \"user\", \"content\": \"on\", \"weight\": 0}, "
      "{\"role\": \"assistant\", \"content\": \"two\", \"weight\": 1}]}\n");
  const auto done = prepare(options(DataFormat::kChat, ChatTemplate::kChatml));
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto data = IndexedDataset::open(dir_ / "out");
  ASSERT_TRUE(data.ok());
  const std::vector<std::string> start = {"50257"};
  const std::vector<std::string> end = {"50258"};
  EXPECT_EQ(marked(*data, 0), joined({start,
                                      plain("assistant\n"),
                                      plain("one"),
                                      end,
                                      plain("\n"),
                                      start,
                                      plain("user\non"),
                                      end,
                                      plain("\n"),
                                      start,
                                      plain("assistant\n"),
                                      plain("two", "*"),
                                      {"50258*"},
                                      plain("\n")}));
  EXPECT_THAT(refusal("{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 1}]}\n",
                      DataFormat::kChat, ChatTemplate::kChatml),
              HasSubstr("only messages of the assistant are learnt"));
}

// As Qwen's templates have it: answers in a row are one turn of the user.
TEST_F(Answers, WhatToolsAnswerIsAUsersTurnInChatml) {
  put(dir_ / "in.jsonl",
      "{\"messages\": [{\"role\": \"tool\", \"content\": \"on\", \"tool_call_id\": \"1\"}, "
      "{\"role\": \"tool\", \"content\": \"in\"}, "
      "{\"role\": \"assistant\", \"content\": \"the\"}]}\n");
  const auto done = prepare(options(DataFormat::kChat, ChatTemplate::kChatml));
  ASSERT_TRUE(done.ok()) << done.error().message;
  auto data = IndexedDataset::open(dir_ / "out");
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(marked(*data, 0), joined({{"50257"},
                                      plain("user\n<tool_response>\non\n</tool_response>"
                                            "\n<tool_response>\nin\n</tool_response>"),
                                      {"50258"},
                                      plain("\n"),
                                      {"50257"},
                                      plain("assistant\n"),
                                      plain("the", "*"),
                                      {"50258*"},
                                      plain("\n")}));
}

TEST_F(Answers, WorkersPartsAndRestartsDoNotShow) {
  std::string lines;
  for (const auto& [prompt, answer] : test::sums(300)) {
    lines += nlohmann::json{{"prompt", prompt}, {"completion", answer}}.dump() + "\n";
  }
  put(dir_ / "in.jsonl", lines);
  PrepareOptions with = options(DataFormat::kSft);
  with.part_bytes = 1 << 30;
  ASSERT_TRUE(prepare(with).ok());
  with.part_bytes = 700;
  with.workers = 3;
  with.out = dir_ / "parts";
  // A line that is wrong ends it behind parts that stay, which the next run takes up.
  put(dir_ / "in.jsonl", lines + "{\n");
  ASSERT_FALSE(prepare(with).ok());
  put(dir_ / "in.jsonl", lines);
  ASSERT_TRUE(prepare(with).ok());
  for (const char* name : {".bin", ".idx", ".json"}) {
    EXPECT_EQ(*read_file(dir_ / "parts" + name, 1 << 20), *read_file(dir_ / "out" + name, 1 << 20))
        << name;
  }
}

TEST_F(Answers, WhatIsCachedDependsOnTheFormat) {
  put(dir_ / "in.jsonl", kConversation);
  CacheRequest request{.input = dir_ / "in.jsonl",
                       .tokenizer = dir_ / "t.json",
                       .directory = dir_ / "cache",
                       .max_bytes = 1 << 20,
                       .max_vocabulary = 1 << 16,
                       .workers = 1,
                       .format = DataFormat::kChat,
                       .chat_template = ChatTemplate::kChatml};
  const auto quiet = [](const PrepareProgress&) {};
  const auto chatml = prepare_cached(request, quiet);
  ASSERT_TRUE(chatml.ok()) << chatml.error().message;
  EXPECT_FALSE(prepare_cached(request, quiet)->is_new);
  request.chat_template = ChatTemplate::kLlama3;
  EXPECT_NE(prepare_cached(request, quiet)->prefix, chatml->prefix);
  request.max_bytes = 1;
  EXPECT_THAT(prepare_cached(request, quiet).error().message,
              HasSubstr("t.json --format chat --chat-template llama3 --out PREFIX`"));
}

// Pairs of 4, 5 and 3 tokens; those of 4 and 3 share a sequence of 8, the one of 9 has no place.
DataSpec packed_data(const std::string& prefix) {
  test::put_answers(prefix, {{"ab", "AB"}, {"cde", "CD"}, {"f", "FG"}, {"tooolong", "X"}});
  DataSpec data;
  data.path = prefix;
  data.format = DataFormat::kSft;
  data.seq_len = 8;
  return data;
}

TEST_F(Answers, ASampleIsWholePairsAndPadding) {
  const DataSpec data = packed_data(dir_ / "pairs");
  auto reader = SampleReader::open(data, 1, 256);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->windows(), 2U);
  EXPECT_EQ(reader->mask(), DocumentMask::kDocuments);
  EXPECT_EQ(
      reader->packing(),
      "3 documents in 2 sequences of 8 tokens, 75% full; left out because they are longer: 1");
  std::vector<std::string> rows;
  for (uint64_t sample = 0; sample < 2; ++sample) {
    std::vector<int64_t> tokens(9);
    std::vector<int64_t> positions(9);
    std::vector<uint8_t> counted(9);
    ASSERT_TRUE(reader->read_sample(sample, tokens, positions, counted).ok());
    std::string row;
    for (size_t i = 0; i < tokens.size(); ++i) {
      row += tokens[i] == 0 ? '.' : static_cast<char>(tokens[i]);
    }
    row += " ";
    for (const int64_t position : positions) row += std::to_string(position);
    row += " ";
    for (const uint8_t count : counted) row += std::to_string(count);
    rows.push_back(row);
  }
  EXPECT_THAT(rows, ::testing::UnorderedElementsAre("cdeCDfFG. 012340120 000110110",
                                                    "abAB..... 012301234 001100000"));
}

TEST_F(Answers, AnAnswerWithoutAPromptCountsFromItsSecondToken) {
  test::put_answers(dir_ / "pairs", {{"", "ABC"}});
  DataSpec data = packed_data(dir_ / "other");
  data.path = dir_ / "pairs";
  auto reader = SampleReader::open(data, 1, 256);
  ASSERT_TRUE(reader.ok());
  std::vector<int64_t> tokens(9);
  std::vector<int64_t> positions(9);
  std::vector<uint8_t> counted(9);
  ASSERT_TRUE(reader->read_sample(0, tokens, positions, counted).ok());
  EXPECT_THAT(counted, ElementsAre(0, 1, 1, 0, 0, 0, 0, 0, 0));
}

TEST_F(Answers, FormatsMustAgree) {
  DataSpec data = packed_data(dir_ / "pairs");
  data.seq_len = 3;
  data.split = {2, 1, 0};
  EXPECT_THAT(SampleReader::open(data, 1, 256, DataPart::kValidation).error().message,
              HasSubstr("in the 1 of its 4 documents that data.split gives to validation, no "
                        "document of at most workload.train.data.seq_len (3) tokens"));
  data.format = DataFormat::kText;
  EXPECT_THAT(
      SampleReader::open(data, 1, 256).error().message,
      HasSubstr("was prepared as format sft, but workload.train.data asks for format text"));
  put(dir_ / "in.jsonl", "{}");
  data.path = dir_ / "in.jsonl";
  data.format = DataFormat::kSft;
  EXPECT_THAT(SampleReader::open(data, 1, 256).error().message,
              HasSubstr("--tokenizer byte --format sft --out PREFIX`"));
}

}  // namespace
}  // namespace hpctl
