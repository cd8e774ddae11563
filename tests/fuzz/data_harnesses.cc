// SPDX-License-Identifier: Apache-2.0
// Datasets and tokenizers.
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "common/base/file.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/scratch.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/ledger.h"
#include "trainer/data/prepared_note.h"
#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl::fuzz {
namespace {

// ---- PREFIX.idx ---------------------------------------------------------------------------------

constexpr uint64_t kMostBinBytes = 1U << 20;

// As many bytes as the index says there are, where it says so: else no input would get past that.
uint64_t bin_bytes_of(std::string_view index) {
  if (index.size() < kIndexHeaderBytes) return 0;
  const auto type = token_type(static_cast<uint8_t>(index[17]));
  uint64_t sequences = 0;
  std::memcpy(&sequences, index.data() + 18, sizeof(sequences));
  if (!type || sequences > (index.size() - kIndexHeaderBytes) / 4) return 0;
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < sequences; ++i) {
    uint32_t length = 0;
    std::memcpy(&length, index.data() + kIndexHeaderBytes + 4 * i, sizeof(length));
    tokens += length;
  }
  return std::min(tokens * token_bytes(*type), kMostBinBytes);
}

void run_index(std::string_view input) {
  const std::string prefix = scratch() + "/indexed";
  put_file("indexed.idx", input);
  const std::string bin = put_file("indexed.bin", "");
  require(::truncate(bin.c_str(), static_cast<off_t>(bin_bytes_of(input))) == 0, "cannot grow");
  auto data = IndexedDataset::open(prefix);
  if (!data.ok()) return require_explained(data.error(), prefix);
  require(data->tokens() > 0 && data->documents() > 0, "data without tokens");
  uint64_t last = 0;
  for (uint64_t k = 0; k <= data->documents(); ++k) {
    const auto begin = data->document_begin(k);
    require(begin.ok() && *begin >= last && *begin <= data->tokens(), "documents out of order");
    last = *begin;
  }
  require(last == data->tokens(), "the last document does not end with the tokens");
  std::vector<int64_t> tokens(std::min<uint64_t>(data->tokens(), 4096));
  require(data->read(data->tokens() - tokens.size(), tokens).ok(), "tokens that cannot be read");
}

std::vector<std::string> index_seeds() {
  std::vector<std::string> seeds;
  const std::vector<int32_t> lengths = {3, 0, 5};
  for (const TokenType type : {TokenType::kUint8, TokenType::kUint16, TokenType::kInt64}) {
    const std::string path = scratch() + "/written.idx";
    require(write_index(path, type, lengths).ok(), "cannot write an index");
    seeds.push_back(*read_file(path));
  }
  return seeds;
}

// ---- beside data --------------------------------------------------------------------------------

void run_ledger(std::string_view input) {
  put_file("ledger/g1.r0.jsonl", input);
  const auto entries = read_ledger(scratch() + "/ledger");
  if (!entries.ok()) return require_explained(entries.error(), "g1.r0.jsonl:");
  require(entries->size() <= static_cast<size_t>(std::count(input.begin(), input.end(), '\n')),
          "more entries than lines");
}

std::vector<std::string> ledger_seeds() {
  const std::string directory = scratch() + "/written-ledger";
  require(remove_tree(directory).ok(), "cannot empty a directory");
  auto ledger = LedgerWriter::create(directory, 1, 0);
  require(ledger.ok() && ledger->append(1, {{0, 8}}, 0).ok() &&
              ledger->append(2, {{8, 16}}, 0).ok() && ledger->append_skip(3, {{16, 24}}, 1).ok() &&
              ledger->append(2, {{24, 32}}, 0).ok(),
          "cannot write a ledger");
  return {*read_file(directory + "/g1.r0.jsonl")};
}

void run_prepared_note(std::string_view input) {
  put_file("noted.json", input);
  const auto note = read_prepared_note(scratch() + "/noted");
  if (!note.ok()) return require_explained(note.error(), "noted.json");
  require(note->has_value(), "a note that is not there");
  const std::string again = scratch() + "/noted-again";
  require(write_prepared_note(again, **note).ok(), "cannot write a note");
  const auto read = read_prepared_note(again);
  require(read.ok() && *read && (*read)->tokens == (*note)->tokens &&
              (*read)->vocabulary == (*note)->vocabulary,
          "written, it is another note");
}

std::vector<std::string> prepared_note_seeds() {
  PreparedNote note;
  note.tokenizer = "byte";
  note.vocabulary = 256;
  note.tokens = 100;
  require(write_prepared_note(scratch() + "/noted", note).ok(), "cannot write a note");
  return {*read_file(scratch() + "/noted.json")};
}

// ---- tokenizer.json -----------------------------------------------------------------------------

void require_tokens(const Tokenizer& tokenizer, Encoder& encoder, std::string_view text) {
  std::vector<int32_t> ids = {-7};
  const auto encoded = encoder.encode(text, ids);
  require(ids.front() == -7, "what was there before is gone");
  if (!encoded.ok()) {
    require_explained(encoded.error());
    require(ids.size() == 1, "tokens of a text that has none");
    return;
  }
  require(ids.size() <= 1 + 2 * text.size() + 2, "more tokens than bytes");
  for (size_t i = 1; i < ids.size(); ++i) {
    require(ids[i] >= 0 && static_cast<uint64_t>(ids[i]) < tokenizer.vocabulary(),
            "a token beyond the vocabulary");
  }
}

void run_tokenizer(std::string_view input) {
  const auto tokenizer = parse_tokenizer_json(std::string(input), "tokenizer.json");
  if (!tokenizer.ok()) return require_explained(tokenizer.error(), "tokenizer.json");
  require((*tokenizer)->end_of_document() < static_cast<int64_t>((*tokenizer)->vocabulary()),
          "the end of documents is beyond the vocabulary");
  const auto encoder = (*tokenizer)->make_encoder();
  require_tokens(**tokenizer, *encoder, "Hello  world\n<|endoftext|>\xc3\xa9 \xf0\x9f\x8e\x89 123");
  require_tokens(**tokenizer, *encoder, input.substr(0, 200));
  require_tokens(**tokenizer, *encoder, std::string(300, 'a'));
}

std::vector<std::string> tokenizer_seeds() {
  return {R"({"added_tokens":[{"id":5,"content":"<|endoftext|>","single_word":false}],)"
          R"("normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
          R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"\u0120":3,"aba":4},)"
          R"("merges":["a b",["ab","a"]]}})",
          R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
          R"({"Regex":"\\s+|(a+)+b"},"behavior":"Isolated"},{"type":"ByteLevel","use_regex":false,)"
          R"("add_prefix_space":false}]},"model":{"type":"BPE","ignore_merges":true,)"
          R"("vocab":{"a":0,"aa":1},"merges":["a a"]}})"};
}

}  // namespace

std::vector<Harness> data_harnesses() {
  constexpr size_t kEncoder = size_t{32} << 20;  // each has a cache
  return {{"index", run_index, index_seeds},
          {"ledger", run_ledger, ledger_seeds},
          {"prepared_note", run_prepared_note, prepared_note_seeds},
          {"tokenizer", run_tokenizer, tokenizer_seeds, {}, kEncoder}};
}

}  // namespace hpctl::fuzz
