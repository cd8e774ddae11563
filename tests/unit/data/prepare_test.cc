// SPDX-License-Identifier: Apache-2.0
// hpctl data prepare: the same bytes whatever the workers, the compression and the crashes; errors
// with file and line.
#include "trainer/data/prepare/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/rng.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/data/put.h"
#include "trainer/data/indexed_dataset.h"
#include "trainer/data/prepare/cached.h"

namespace hpctl {
namespace {

using test::put;
using testing::HasSubstr;

std::string get(const std::string& path) { return read_file(path, 1U << 28).value(); }

PrepareOptions options_for(std::vector<std::string> inputs, const std::string& out) {
  PrepareOptions options;
  options.inputs = std::move(inputs);
  options.out = out;
  options.tokenizer = "byte";
  options.part_bytes = 4000;
  return options;
}

Result<PrepareResult> prepare(const PrepareOptions& options) {
  return prepare_data(options, [](const PrepareProgress&) {});
}

// Lines of which some are blank, some have empty text, some a text of several parts' size.
std::string random_lines(uint64_t seed, size_t count) {
  Rng rng(seed);
  std::string lines;
  for (size_t i = 0; i < count; ++i) {
    if (rng.chance(0.05)) lines += "\r\n";
    const size_t size = rng.chance(0.03) ? 2000 : rng.chance(0.1) ? 0 : rng.below(120);
    std::string text(size, 'a');
    for (char& c : text) c = static_cast<char>('a' + rng.below(26));
    lines += R"({"id": [1, {"text": "no"}], "text": ")" + text + R"("})" +
             (rng.chance(0.5) ? "\n" : "\r\n");
  }
  return lines;
}

std::vector<std::string> documents_of(const std::string& prefix) {
  auto data = IndexedDataset::open(prefix);
  EXPECT_TRUE(data.ok()) << data.error().message;
  std::vector<std::string> documents;
  for (uint64_t k = 0; data.ok() && k < data->documents(); ++k) {
    const uint64_t begin = data->document_begin(k).value();
    std::vector<int64_t> tokens(data->document_begin(k + 1).value() - begin);
    EXPECT_TRUE(data->read(begin, tokens).ok());
    documents.emplace_back(tokens.begin(), tokens.end());
  }
  return documents;
}

TEST(Prepare, DocumentsInOrderWithAnEndToken) {
  const TemporaryDirectory dir;
  put(dir / "a.jsonl",
      "{\"text\": \"one\"}\n\n  \r\n{\"x\": {\"text\": 1}, \"text\": \"t\\u00e4o\"}\r\n"
      "{\"text\": \"\"}\n{\"text\": \"first\", \"text\": \"three\"}");
  put(dir / "b.txt", "a text\nof two lines\n");
  PrepareOptions options = options_for({dir / "a.jsonl", dir / "b.txt"}, dir / "deep");
  options.append_eod = true;
  const auto done = prepare(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const std::string end(1, '\0');
  EXPECT_THAT(documents_of(dir / "deep"),
              testing::ElementsAre("one" + end, "t\xc3\xa4o" + end, "three" + end,
                                   "a text\nof two lines\n" + end));
  EXPECT_EQ(done->empty, 1U);
  EXPECT_EQ(done->note.documents, 4U);
  EXPECT_EQ(done->note.tokens, 36U);
  EXPECT_EQ(done->note.end_of_document, 0);
  EXPECT_EQ(IndexedDataset::open(dir / "deep")->vocabulary(), 256U);
  EXPECT_FALSE(is_accessible(dir / "deep.parts"));
}

struct Dataset {
  std::string bin, idx, note;
  bool operator==(const Dataset&) const = default;
};
Dataset dataset(const std::string& prefix) {
  return {get(prefix + ".bin"), get(prefix + ".idx"), get(prefix + ".json")};
}

TEST(Prepare, WorkersAndPartsDoNotShow) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "in/sub").ok());
  put(dir / "in/a.jsonl", random_lines(1, 120));
  put(dir / "in/sub/b.jsonl", random_lines(2, 50));
  put(dir / "in/.hidden", "not this");
  PrepareOptions options = options_for({dir / "in"}, dir / "one");
  options.part_bytes = 1 << 30;
  ASSERT_TRUE(prepare(options).ok());
  for (const auto& [workers, part_bytes] :
       std::vector<std::pair<int, uint64_t>>{{1, 2500}, {2, 1500}, {5, 3333}}) {
    options.out = dir / "many" + std::to_string(part_bytes);
    options.workers = workers;
    options.part_bytes = part_bytes;
    const auto done = prepare(options);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(dataset(options.out), dataset(dir / "one")) << workers << " " << part_bytes;
  }
}

std::string gzip(const std::string& text) {
  const std::string path = "/proc/self/fd/" + std::to_string(fileno(std::tmpfile()));
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  return get(path);
}

std::string xz(const std::string& text) {
  std::string out(lzma_stream_buffer_bound(text.size()), '\0');
  size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr,
                                    reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                                    reinterpret_cast<uint8_t*>(out.data()), &size, out.size()),
            LZMA_OK);
  return out.substr(0, size);
}

std::string zst(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  return out.substr(0, ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
}

TEST(Prepare, CompressedFilesInOneOrSeveralMembers) {
  const TemporaryDirectory dir;
  const std::string text = random_lines(3, 1500);
  const std::string first = text.substr(0, text.size() / 3);
  const std::string second = text.substr(first.size());
  put(dir / "plain.jsonl", text);
  ASSERT_TRUE(prepare(options_for({dir / "plain.jsonl"}, dir / "plain")).ok());
  for (const auto& [suffix, compress] :
       std::vector<std::pair<std::string, std::string (*)(const std::string&)>>{
           {".gz", gzip}, {".xz", xz}, {".zst", zst}}) {
    const std::string name = dir / "x.jsonl" + suffix;
    for (const std::string& bytes : {compress(text), compress(first) + compress(second)}) {
      put(name, bytes);
      (void)remove((dir / "x.idx").c_str());
      PrepareOptions options = options_for({name}, dir / "x");
      options.part_bytes = 30'000;
      const auto done = prepare(options);
      ASSERT_TRUE(done.ok()) << done.error().message;
      EXPECT_EQ(dataset(dir / "x"), dataset(dir / "plain")) << suffix;
    }
    put(name, compress(text).substr(0, compress(text).size() - 20));
    EXPECT_THAT(prepare(options_for({name}, dir / "cut" + suffix)).error().message,
                HasSubstr("ends too early"))
        << suffix;
    put(name, "this is no compressed file at all, whatever its name");
    EXPECT_THAT(prepare(options_for({name}, dir / "bad" + suffix)).error().message,
                HasSubstr("damaged compressed data"))
        << suffix;
  }
}

// The victim: in a process of its own, because fail-points are read when a process starts.
TEST(PrepareVictim, DISABLED_Prepares) {
  const char* dir = std::getenv("PREPARE_TEST_DIR");
  ASSERT_NE(dir, nullptr);
  PrepareOptions options = options_for({std::string(dir) + "/in"}, std::string(dir) + "/out");
  options.workers = 2;
  const auto done = prepare(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
}

// False when it ran to its end without passing the fail-point.
bool victim_dies(const std::string& failpoint, const std::string& dir) {
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("HPCTL_FAILPOINT", failpoint.c_str(), 1);
    setenv("PREPARE_TEST_DIR", dir.c_str(), 1);
    if (freopen("/dev/null", "w", stdout) == nullptr) _exit(98);
    execl("/proc/self/exe", "prepare_test", "--gtest_filter=PrepareVictim.*",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(99);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGKILL;
  EXPECT_EQ(WEXITSTATUS(status), 0) << failpoint;
  return false;
}

TEST(Prepare, KilledAnywhereItGoesOnToTheSameBytes) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "in").ok());
  put(dir / "in/a.jsonl", random_lines(5, 60));
  put(dir / "in/b.jsonl.gz", gzip(random_lines(6, 60)));
  put(dir / "in/c.txt", "the last one");
  PrepareOptions options = options_for({dir / "in"}, dir / "reference");
  ASSERT_TRUE(prepare(options).ok());
  for (const std::string failpoint :
       {"prepare.part.tokens_written", "prepare.part.before_record", "prepare.part.recorded",
        "prepare.join.created", "prepare.join.before_index", "prepare.join.before_remove"}) {
    // Killed at the first pass, then, going on from what is there, at the second; then let through.
    int deaths = 0;
    while (deaths < 2 && victim_dies(failpoint + ":" + std::to_string(deaths + 1), dir.path())) {
      ++deaths;
    }
    EXPECT_GE(deaths, 1) << failpoint << " was never passed";
    options.out = dir / "out";
    const auto done = prepare(options);
    // A victim that was let through has finished the dataset.
    ASSERT_EQ(done.ok(), deaths == 2) << failpoint;
    EXPECT_EQ(dataset(dir / "out"), dataset(dir / "reference")) << failpoint;
    EXPECT_FALSE(is_accessible(dir / "out.parts"));
    for (const char* suffix : {".bin", ".idx", ".json"}) {
      ASSERT_EQ(remove((dir / "out" + suffix).c_str()), 0);
    }
  }
}

TEST(Prepare, PartsOfAnotherRunAreNotTakenUp) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(make_directories(dir / "in").ok());
  put(dir / "in/a.jsonl", random_lines(5, 60));
  ASSERT_TRUE(victim_dies("prepare.part.recorded:2", dir.path()));
  PrepareOptions options = options_for({dir / "in"}, dir / "out");
  options.append_eod = true;
  EXPECT_THAT(prepare(options).error().message, HasSubstr("out.parts holds the parts of a run"));
  // A damaged part is made again.
  options.append_eod = false;
  put(dir / "out.parts/0.bin", "x");
  ASSERT_TRUE(prepare(options).ok());
  ASSERT_EQ(prepare(options_for({dir / "in"}, dir / "again")).ok(), true);
  EXPECT_EQ(dataset(dir / "out"), dataset(dir / "again"));
}

TEST(Prepare, ARunThatMadeNothingDoesNotStandInTheWay) {
  const TemporaryDirectory dir;
  put(dir / "empty.txt", "");
  put(dir / "a.txt", "text");
  EXPECT_THAT(prepare(options_for({dir / "empty.txt"}, dir / "out")).error().message,
              HasSubstr("no text in"));
  const auto prepared = prepare(options_for({dir / "a.txt"}, dir / "out"));
  EXPECT_TRUE(prepared.ok()) << prepared.error().message;
}

// A bad line of the second file is mended: what the first gave stays.
TEST(Prepare, GoesOnAfterAnInputWasEdited) {
  const TemporaryDirectory dir;
  put(dir / "a.jsonl", random_lines(5, 400));
  const std::string good = random_lines(6, 60);
  put(dir / "b.jsonl", good + "oops\n");
  const PrepareOptions options = options_for({dir / "a.jsonl", dir / "b.jsonl"}, dir / "out");
  ASSERT_THAT(prepare(options).error().message, HasSubstr("b.jsonl:"));
  const auto part_was_made = [&] {
    return std::filesystem::last_write_time(dir / "out.parts/0.json");
  };
  const auto before = part_was_made();
  put(dir / "b.jsonl", good + "again oops\n");
  ASSERT_THAT(prepare(options).error().message, HasSubstr("b.jsonl:"));
  EXPECT_EQ(part_was_made(), before);
  put(dir / "b.jsonl", good);
  ASSERT_TRUE(prepare(options).ok());
  ASSERT_TRUE(prepare(options_for(options.inputs, dir / "fresh")).ok());
  EXPECT_EQ(dataset(dir / "out"), dataset(dir / "fresh"));
}

TEST(Prepare, AnExistingDatasetIsNotOverwritten) {
  const TemporaryDirectory dir;
  put(dir / "a.txt", "text");
  ASSERT_TRUE(prepare(options_for({dir / "a.txt"}, dir / "out")).ok());
  EXPECT_THAT(prepare(options_for({dir / "a.txt"}, dir / "out")).error().message,
              HasSubstr("out.idx exists"));
}

std::string error_of(const std::string& name, const std::string& content, int workers = 1) {
  const TemporaryDirectory dir;
  put(dir / name, content);
  PrepareOptions options = options_for({dir / name}, dir / "out");
  options.workers = workers;
  const auto done = prepare(options);
  return done.ok() ? "done" : done.error().message;
}

TEST(Prepare, MistakesAreNamedByFileAndLine) {
  const std::string good = "{\"text\": \"some words\"}\n";
  std::string many;
  for (int i = 0; i < 100; ++i) many += good;
  EXPECT_THAT(error_of("a.jsonl", good + "\n{\"text\": \n"),
              HasSubstr("a.jsonl:3: not JSON: column 10: "));
  EXPECT_THAT(error_of("a.jsonl", good + "1\n"), HasSubstr("a.jsonl:2: not a JSON object"));
  EXPECT_THAT(error_of("a.json", " [" + good + "]\n"),
              HasSubstr("a.json:1: not a JSON object but an array; `jq -c '.[]'` makes a line"));
  EXPECT_THAT(error_of("a.jsonl", good + "{\"x\": {\"text\": \"\"}}"),
              HasSubstr("a.jsonl:2: the object has no key \"text\""));
  EXPECT_THAT(error_of("a.jsonl", good + "{\"text\": {\"text\": \"\"}}"),
              HasSubstr("a.jsonl:2: no text under the key"));
  EXPECT_THAT(error_of("a.jsonl", good + "{\"text\": \"\xff\"}"), HasSubstr("a.jsonl:2: not JSON"));
  EXPECT_THAT(error_of("a.jsonl", many + "oops\n" + many), HasSubstr("a.jsonl:101: not JSON"));
  EXPECT_THAT(error_of("a.jsonl", many + "oops\n" + many, 4), HasSubstr("a.jsonl:101: not JSON"));
  EXPECT_THAT(error_of("a.jsonl", "\n\n"), HasSubstr("no text in"));
  EXPECT_THAT(prepare(options_for({"/nowhere"}, "/tmp/x")).error().message,
              HasSubstr("cannot read /nowhere"));
}

// As Python's json module writes them.
TEST(Prepare, WhatNobodyReadsMayHaveNumbersThatJsonLacks) {
  const TemporaryDirectory dir;
  put(dir / "a.jsonl",
      "{\"score\": NaN, \"text\": \"one\"}\n"
      "{\"text\": \"two\", \"meta\": {\"a\": [-Infinity, {\"b\": Infinity}], \"c\": 1e999}}\n"
      "{\"title\": \"\\ud83d\\\\ \\udc00\", \"text\": \"\\ud83d\\ude00\"}\n"
      "{\"n\": -1e999 , \"text\": \"NaN, {\\\"}\"}\n");
  ASSERT_TRUE(prepare(options_for({dir / "a.jsonl"}, dir / "out")).ok());
  EXPECT_THAT(documents_of(dir / "out"),
              testing::ElementsAre("one", "two", "\xf0\x9f\x98\x80", "NaN, {\"}"));
  // Where it is read, it is a fault, as is all else.
  EXPECT_THAT(error_of("a.jsonl", "{\"x\": NaN, \"text\": NaN}\n"),
              HasSubstr("a.jsonl:1: not JSON: column 20"));
  EXPECT_THAT(error_of("a.jsonl", "{\"te\\u0078t\": \"\\ud83d\"}\n"),
              HasSubstr("a.jsonl:1: not JSON: "));
  EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"a\\udc00\"}\n"), HasSubstr("a.jsonl:1: not JSON"));
  for (const std::string word : {"nan", "NaN1", "Inf", "+1", "1e999x", "0x1p9999", "[1 2]"}) {
    EXPECT_THAT(error_of("a.jsonl", "{\"text\": \"a\", \"x\": " + word + "}\n"),
                HasSubstr("a.jsonl:1: not JSON"))
        << word;
  }
}

TEST(Prepare, BadLinesAreLeftOutAndCountedUpToALimit) {
  const TemporaryDirectory dir;
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    lines += i % 100 == 50 ? "{\"text\": 1}\n" : "{\"text\": \"" + std::to_string(i) + "\"}\n";
  }
  put(dir / "a.jsonl", lines);
  PrepareOptions options = options_for({dir / "a.jsonl"}, dir / "out");
  options.part_bytes = 500;
  options.workers = 3;
  options.max_bad_lines = 2;
  EXPECT_THAT(prepare(options).error().message,
              testing::AllOf(HasSubstr("more than 2 bad lines, such as "), HasSubstr("a.jsonl:"),
                             HasSubstr("1: no text under the key"), HasSubstr("--max-bad-lines")));
  // The run that is given more goes on with what is there.
  options.max_bad_lines = 3;
  const auto done = prepare(options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->note.bad_lines, 3U);
  EXPECT_EQ(done->note.documents, 297U);
  EXPECT_THAT(done->first_bad, HasSubstr("a.jsonl:51: no text under the key"));
  EXPECT_THAT(get(dir / "out.json"), HasSubstr("\"bad_lines\": 3"));
  EXPECT_EQ(read_prepared_note(dir / "out").value()->bad_lines, 3U);
  // The same as without those lines, but for the count.
  std::string good;
  for (int i = 0; i < 300; ++i) {
    if (i % 100 != 50) good += "{\"text\": \"" + std::to_string(i) + "\"}\n";
  }
  put(dir / "good.jsonl", good);
  ASSERT_TRUE(prepare(options_for({dir / "good.jsonl"}, dir / "good")).ok());
  EXPECT_EQ(get(dir / "out.bin"), get(dir / "good.bin"));
  EXPECT_EQ(get(dir / "out.idx"), get(dir / "good.idx"));
  EXPECT_EQ(get(dir / "good.json").find("bad_lines"), std::string::npos);
}

// Parts of a run that let bad lines pass are no way around a limit.
TEST(Prepare, BadLinesOfAnEarlierRunCount) {
  const TemporaryDirectory dir;
  put(dir / "a.jsonl", "{}\n{\"text\": \"a\"}\n");
  put(dir / "b.jsonl", "{}\n{}\n{}\n{}\n");
  PrepareOptions options = options_for({dir / "a.jsonl", dir / "b.jsonl"}, dir / "out");
  options.max_bad_lines = 2;
  ASSERT_FALSE(prepare(options).ok());
  options.max_bad_lines = 0;
  EXPECT_THAT(prepare(options).error().message, HasSubstr("a.jsonl:1: the object has no key"));
}

TEST(Prepare, ParquetIsRefusedWithWhatConvertsIt) {
  const TemporaryDirectory dir;
  put(dir / "a.parquet", "PAR1");
  EXPECT_THAT(prepare(options_for({dir.path()}, dir / "out")).error().message,
              HasSubstr("import pandas; pandas.read_parquet(\"" + (dir / "a.parquet") +
                        "\").to_json(\"" + (dir / "a.jsonl") + "\", orient=\"records\""));
}

TEST(Prepare, TextThatIsNotUtf8IsNamed) {
  const TemporaryDirectory dir;
  put(dir / "a.txt", "ab\xff");
  PrepareOptions options = options_for({dir / "a.txt"}, dir / "out");
  options.tokenizer = HPCTL_SOURCE "/tests/unit/data/gpt2_subset.json";
  EXPECT_THAT(prepare(options).error().message, HasSubstr("a.txt: not UTF-8 at byte 2"));
}

Result<CachedData> cache(const CacheRequest& request) {
  return prepare_cached(request, [](const PrepareProgress&) {});
}

TEST(PrepareCached, OncePerInputAndTokenizer) {
  const TemporaryDirectory dir;
  put(dir / "book", "one");
  CacheRequest request{dir / "book", "byte", dir / "cache", 100, 256, 1};
  const auto first = cache(request);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(first->is_new);
  EXPECT_EQ(documents_of(first->prefix), std::vector<std::string>{std::string("one\0", 4)});
  const auto again = cache(request);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_FALSE(again->is_new);
  EXPECT_EQ(again->prefix, first->prefix);
  put(dir / "book", "another");
  EXPECT_NE(cache(request)->prefix, first->prefix);
  put(dir / "tokenizer.json",
      R"({"model": {"type": "BPE", "vocab": {"o": 0, "n": 1, "e": 2, "one": 3}, "merges": []},)"
      R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}})");
  put(dir / "book", "one");
  request.tokenizer = dir / "tokenizer.json";
  const auto other = cache(request);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(documents_of(other->prefix), std::vector<std::string>{std::string("\0\1\2", 3)});
  request.max_vocabulary = 3;
  EXPECT_THAT(cache(request).error().message, HasSubstr("has 4 ids, but the model has 3"));
}

TEST(PrepareCached, TooMuchTextIsRefusedWithTheCommandToRun) {
  const TemporaryDirectory dir;
  put(dir / "a", std::string(60, 'x'));
  put(dir / "b", std::string(60, 'x'));
  const auto refused = cache({dir.path(), "byte", dir / "cache", 100, 256, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("run `hpctl data prepare " + dir.path() +
                                                 " --tokenizer byte --append-eod --out PREFIX`"));
  EXPECT_FALSE(is_accessible(dir / "cache"));
}

}  // namespace
}  // namespace hpctl
