// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint: what people and programs see, and the exit status, for good and bad
// directories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/support/command_run.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/data/ledger.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::CommandRun;
using testing::HasSubstr;

class CheckpointVerb : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save_synthetic({dir_.path(), {20, 1}, 2, 1, 0, {}}).ok());
    ASSERT_TRUE(save_synthetic({dir_.path(), {40, 1}, 3, 2, 0, {{5, 7}}}).ok());
  }
  static CommandRun call(std::vector<std::string> words) {
    words.insert(words.begin(), "checkpoint");
    return test::run_hpctl(words);
  }
  void damage(const std::string& file) {
    const std::string bytes = read_file(dir_ / file).value();
    std::string bad = bytes;
    bad[bad.size() - 3] ^= 1;
    ASSERT_TRUE(write_file_atomic(dir_ / file, bad).ok());
  }
  TemporaryDirectory dir_;
};

TEST_F(CheckpointVerb, LsShowsEveryOneAndWhetherItCounts) {
  ASSERT_TRUE(write_synthetic_shard({dir_.path(), {60, 1}, 2, 1, 0, {}}, 0).ok());
  const CommandRun text = call({"ls", dir_.path()});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("step-20.g1"));
  EXPECT_THAT(text.out, HasSubstr("incomplete"));
  const json document = json::parse(call({"ls", dir_.path(), "--json"}).out);
  ASSERT_EQ(document.at("checkpoints").size(), 3U);
  EXPECT_EQ(document["checkpoints"][1]["name"], "step-40.g1");
  EXPECT_EQ(document["checkpoints"][1]["state"], "valid");
  EXPECT_EQ(document["checkpoints"][1]["world_size"], 3);
  EXPECT_EQ(document["checkpoints"][2]["state"], "incomplete");
}

TEST_F(CheckpointVerb, ShowMeansTheNewestValidOneOrTheOneNamed) {
  EXPECT_EQ(json::parse(call({"show", dir_.path(), "--json"}).out),
            json::parse(R"({"step":40,"generation":1,"parent":0,"world_size":3,
                            "sample_cursor":320,"skipped":[[5,7]]})"));
  EXPECT_EQ(json::parse(call({"show", dir_ / "step-20.g1/", "--json"}).out)["step"], 20);
  EXPECT_THAT(call({"show", dir_.path()}).out, HasSubstr("workers        3\n"));
}

TEST_F(CheckpointVerb, DigestPrintsOneLineOfHex) {
  const CommandRun answer = call({"digest", dir_ / "step-20.g1"});
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.out, digest_checkpoint(dir_ / "step-20.g1").value() + "\n");
}

TEST_F(CheckpointVerb, VerifySaysUndamagedOrNamesTheDamage) {
  EXPECT_THAT(call({"verify", dir_.path()}).out, HasSubstr("step-40.g1: undamaged, "));
  damage("step-40.g1/shard-00002.safetensors");
  const CommandRun damaged = call({"verify", dir_.path()});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("shard-00002.safetensors: head exp_avg_sq"));
  const CommandRun document = call({"verify", dir_.path(), "--json"});
  EXPECT_EQ(document.status, 1);
  EXPECT_EQ(json::parse(document.out)["problems"].size(), 1U);
  const CommandRun digest = call({"digest", dir_.path()});
  EXPECT_EQ(digest.status, 1);
  EXPECT_EQ(digest.out, "") << "no digest of damaged bytes";
  damage("step-40.g1/manifest.json");
  EXPECT_THAT(call({"show", dir_.path()}).err, HasSubstr("manifest.json is damaged"));
}

TEST_F(CheckpointVerb, ExportAndImportSayWhatTheyWrote) {
  const CommandRun exported =
      call({"export", dir_.path(), dir_ / "model", "--dtype", "bf16", "--json"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(json::parse(exported.out)["tensors"], 21);
  EXPECT_EQ(call({"export", dir_.path(), dir_ / "model"}).status, 1) << "it is there already";
  const CommandRun imported = call({"import", dir_ / "model", dir_ / "weights"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("checkpoint.resume: " + (dir_ / "weights/step-0.g0")));
  EXPECT_THAT(call({"show", dir_ / "weights"}).out, HasSubstr("parameters only, imported"));
  EXPECT_EQ(call({"export", dir_.path(), dir_ / "x", "--dtype", "fp8"}).status, 2);
  EXPECT_EQ(call({"show", dir_.path(), "--dtype", "bf16"}).status, 2);
  EXPECT_EQ(call({"import", dir_ / "model"}).status, 2);
  EXPECT_THAT(call({"import", dir_ / "none", dir_ / "w"}).err,
              HasSubstr("has no config.json; expected a Hugging Face model directory"));
  ASSERT_EQ(::unlink((dir_ / "model/model.safetensors").c_str()), 0);
  EXPECT_THAT(call({"import", dir_ / "model", dir_ / "w"}).err,
              HasSubstr("has no model.safetensors; weights in another form"));
}

TEST_F(CheckpointVerb, DiffTellsSameFromDifferent) {
  EXPECT_EQ(call({"diff", dir_ / "step-40.g1", dir_.path()}).status, 0);
  const CommandRun different = call({"diff", dir_ / "step-20.g1", dir_ / "step-40.g1"});
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.out, HasSubstr("lm_head.weight.exp_avg"));
  EXPECT_FALSE(json::parse(call({"diff", dir_ / "step-20.g1", dir_.path(), "--json"}).out)["same"]);
}

TEST_F(CheckpointVerb, DiffTellsHowLargeASmallDifferenceIs) {
  ASSERT_EQ(call({"export", dir_.path(), dir_ / "model"}).status, 0);
  const std::string path = dir_ / "model/model.safetensors";
  std::string text = read_file(path).value();
  for (const float last : {0.0F, 0.25F}) {
    std::memcpy(text.data() + text.size() - sizeof last, &last, sizeof last);
    ASSERT_TRUE(write_file_atomic(path, text).ok());
    ASSERT_EQ(call({"import", dir_ / "model", dir_ / (last == 0 ? "a" : "b")}).status, 0);
  }
  EXPECT_THAT(call({"diff", dir_ / "a", dir_ / "b"}).out, HasSubstr("  0.25\n"));
}

TEST_F(CheckpointVerb, LedgerProvesOrNamesWhatIsMissing) {
  EXPECT_EQ(call({"ledger", dir_.path()}).status, 1);
  auto writer = LedgerWriter::create(dir_ / "ledger", 1, 0);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append(1, {{0, 5}, {7, 319}}, 0).ok());
  const CommandRun missing = call({"ledger", dir_.path()});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("sample 319 never counted"));
  ASSERT_TRUE(writer->append(2, {{319, 320}}, 0).ok());
  EXPECT_THAT(call({"ledger", dir_.path()}).out,
              HasSubstr("below 320 (step 40) counted exactly once"));
}

TEST_F(CheckpointVerb, WrongArgumentsAreStatus2) {
  EXPECT_EQ(call({"ls"}).status, 2);
  EXPECT_EQ(call({"diff", dir_.path()}).status, 2);
  EXPECT_EQ(call({"ls", dir_.path(), dir_.path()}).status, 2);
  const CommandRun unknown = call({"verfy", dir_.path()});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("expected ls, show, verify, digest, diff, ledger, export or import"));
  const CommandRun gone = call({"verify", dir_ / "gone"});
  EXPECT_EQ(gone.status, 1);
  EXPECT_THAT(gone.err, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace hpctl
