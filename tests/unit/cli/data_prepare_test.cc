// SPDX-License-Identifier: Apache-2.0
// The real programs hpctl and hpdata: the exit status of `data prepare` says whether the user has
// to mend what was given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "hpctl/exit_codes.h"
#include "tests/integration/local_cluster.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {
namespace {

using ::testing::HasSubstr;

class DataPrepare : public ::testing::Test {
 protected:
  CommandResult prepare(const std::string& input, const std::vector<std::string>& options = {}) {
    const char* built = std::getenv("HPCTL_BIN");
    EXPECT_NE(built, nullptr) << "run by ctest, or set HPCTL_BIN to build/PRESET/bin";
    std::vector<std::string> words = {std::string(built) + "/hpctl", "data", "prepare", input,
                                      "--out=" + (dir_ / "out")};
    words.insert(words.end(), options.begin(), options.end());
    if (options.empty()) words.emplace_back("--tokenizer=byte");
    return run_command(words, {});
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  void expect_mistake(const CommandResult& result, const std::string& words) {
    EXPECT_EQ(result.exit_code, kExitUsage) << result.err;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_FALSE(is_accessible(dir_ / "out.idx"));
  }

  TemporaryDirectory dir_;
};

TEST_F(DataPrepare, AMistakeInTheInputIsStatus2) {
  const std::string good = "{\"text\": \"a\"}\n";
  expect_mistake(prepare(write("a.jsonl", good + "{\"text\": }\n")), "a.jsonl:2: not JSON: ");
  expect_mistake(prepare(write("b.jsonl", good + "[1]\n")), "b.jsonl:2: not a JSON object");
  expect_mistake(prepare(write("c.jsonl", "{\"body\": \"a\"}\n")), "c.jsonl:1: the object has no");
  expect_mistake(prepare(write("empty.jsonl", "")), "no text in ");
  expect_mistake(
      prepare(write("pairs.jsonl", "{\"prompt\": \"a\"}\n"), {"--tokenizer=byte", "--format=sft"}),
      "pairs.jsonl:1: no key \"completion\"");
}

TEST_F(DataPrepare, SoIsADamagedTokenizer) {
  const std::string text = write("a.txt", "a");
  const std::string torn = write("torn.json", "{\"model\": {\"vocab\":");
  expect_mistake(prepare(text, {"--tokenizer=" + torn}),
                 "torn.json:1: the file ends inside the document, after 19 bytes");
}

TEST_F(DataPrepare, WhatIsMissingDamagedOrRefusedIsStatus1) {
  EXPECT_EQ(prepare(dir_ / "none.jsonl").exit_code, kExitFailed);
  EXPECT_EQ(prepare(write("a.txt", "a"), {"--tokenizer=" + (dir_ / "none.json")}).exit_code,
            kExitFailed);
  EXPECT_EQ(prepare(write("a.txt.gz", "not of gzip")).exit_code, kExitFailed);
  ASSERT_EQ(prepare(write("a.txt", "a")).exit_code, kExitOk);
  const CommandResult refused = prepare(write("b.txt", "b"));
  EXPECT_EQ(refused.exit_code, kExitFailed);
  EXPECT_THAT(refused.err, HasSubstr("out.idx exists"));
}

}  // namespace
}  // namespace hpctl::testing
