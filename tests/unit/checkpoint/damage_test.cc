// SPDX-License-Identifier: Apache-2.0
// Stored bytes are untrusted: every single-byte change is found and named, and no change to the
// manifest, sealed again or not, makes a reader crash or read outside its bounds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "tests/support/json_mutation.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/confirm.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/manifest_format.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

// Not by truncation: ext4 writes a file that was truncated and rewritten to disk at once.
void overwrite(const std::string& path, const std::string& bytes) {
  ::unlink(path.c_str());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// First message that verify or the manifest gives; "" when everything is fine.
std::string complaint(const std::string& step_dir) {
  const auto report = verify_checkpoint(step_dir);
  if (!report.ok()) return report.error().message;
  return report->problems.empty() ? "" : report->problems.front();
}

// After an error `fault` says what it is about.
Outcome load_everything(const std::string& step_dir, FileFault* fault = nullptr) {
  HP_TRY_ASSIGN(auto loader, CheckpointLoader::open(step_dir, fault));
  for (size_t b = 0; b < loader.manifest().blocks.size(); ++b) {
    const int64_t numel = loader.manifest().blocks[b].numel;
    std::vector<float> values(static_cast<size_t>(numel));
    for (const StateKind kind : kStateKinds) {
      const Outcome loaded = loader.load_range(static_cast<int32_t>(b), kind, {0, numel}, values);
      if (!loaded.ok() && fault != nullptr) *fault = loader.fault();
      HP_TRY(loaded);
    }
  }
  return Ok{};
}

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    const auto saved = save_synthetic({dir_.path(), {40, 3}, 2, 1, 2, {}});
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    ASSERT_EQ(complaint(step_dir_), "");
  }
  TemporaryDirectory dir_;
  std::string step_dir_ = dir_ / "step-40.g3";
};

// A verification is slow under the sanitizer, which is there for what damaged bytes lead to; that
// every change is found, the release preset shows.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStride = 11;
#else
constexpr size_t kStride = 1;
#endif

TEST_F(Damage, EverySingleByteChangeOfEveryFileIsFoundAndNamed) {
  for (const char* name : {"manifest.json", "shard-00000.safetensors", "shard-00001.safetensors"}) {
    const std::string path = step_dir_ + "/" + name;
    const std::string good = read_file(path).value();
    const UniqueFd fd(::open(path.c_str(), O_WRONLY));
    Rng rng(1);
    // Every byte of headers and manifest; every 7th of the rest.
    for (size_t at = 0; at < good.size(); at += kStride * (at < 4096 ? 1 : 7)) {
      const char bad = static_cast<char>(good[at] ^ (1 + rng.below(255)));
      ASSERT_EQ(pwrite(fd.get(), &bad, 1, static_cast<off_t>(at)), 1);
      const std::string found = complaint(step_dir_);
      ASSERT_THAT(found, HasSubstr(name)) << "byte " << at;
      ASSERT_EQ(pwrite(fd.get(), &good[at], 1, static_cast<off_t>(at)), 1);
    }
  }
  EXPECT_EQ(complaint(step_dir_), "");
}

TEST_F(Damage, ADamagedRangeNamesFileTensorAndOffsetOnLoad) {
  const Manifest manifest = read_manifest(step_dir_).value();
  for (const ShardEntry& entry : manifest.shards) {
    const std::string path = step_dir_ + "/" + manifest.files[static_cast<size_t>(entry.file)].file;
    const std::string good = read_file(path).value();
    std::string bad = good;
    bad[entry.offset + 5] ^= 1;
    overwrite(path, bad);
    const auto loaded = load_everything(step_dir_);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, ErrorCode::kDataLoss);
    EXPECT_THAT(loaded.error().message, HasSubstr(path));
    EXPECT_THAT(loaded.error().message,
                HasSubstr(manifest.blocks[static_cast<size_t>(entry.block)].name + " " +
                          to_string(entry.kind)));
    EXPECT_THAT(loaded.error().message, HasSubstr("at byte " + std::to_string(entry.offset)));
    EXPECT_THAT(loaded.error().message, HasSubstr(".weight"));
    EXPECT_FALSE(digest_checkpoint(step_dir_).ok()) << "no digest of damaged bytes";
    overwrite(path, good);
  }
}

TEST_F(Damage, TruncatedAndMissingFilesAreNamed) {
  const std::string shard = step_dir_ + "/shard-00001.safetensors";
  struct stat st {};
  ASSERT_EQ(stat(shard.c_str(), &st), 0);
  ASSERT_EQ(truncate(shard.c_str(), st.st_size - 1), 0);
  EXPECT_THAT(complaint(step_dir_), HasSubstr("shard-00001.safetensors is damaged: it has"));
  EXPECT_EQ(load_everything(step_dir_).error().code, ErrorCode::kDataLoss);
  EXPECT_EQ(list_checkpoint_states(dir_.path())->at(0).state, CheckpointState::kDamaged);
  ASSERT_EQ(unlink(shard.c_str()), 0);
  EXPECT_THAT(complaint(step_dir_), HasSubstr("shard-00001.safetensors"));
  EXPECT_EQ(load_everything(step_dir_).error().code, ErrorCode::kDataLoss);
}

TEST_F(Damage, EveryTruncationOfTheManifestIsRefused) {
  const std::string path = step_dir_ + "/manifest.json";
  const std::string good = read_file(path).value();
  for (size_t size = 0; size < good.size(); size += 13) {
    overwrite(path, good.substr(0, size));
    EXPECT_EQ(read_manifest(step_dir_).error().code, ErrorCode::kDataLoss) << size;
  }
}

TEST_F(Damage, WithoutAManifestThereIsNoCheckpoint) {
  ASSERT_EQ(unlink((step_dir_ + "/manifest.json").c_str()), 0);
  const auto refused = CheckpointLoader::open(step_dir_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(refused.error().message, HasSubstr("the save was not completed"));
  EXPECT_EQ(list_checkpoint_states(dir_.path())->at(0).state, CheckpointState::kIncomplete);
  EXPECT_FALSE(*latest_valid_checkpoint(dir_.path(), {}));
}

TEST_F(Damage, ARenamedCheckpointIsRefusedUnlessTheNameSaysNothing) {
  ASSERT_EQ(rename(step_dir_.c_str(), (dir_ / "step-41.g3").c_str()), 0);
  EXPECT_THAT(read_manifest(dir_ / "step-41.g3").error().message,
              HasSubstr("it belongs to step-40.g3"));
  ASSERT_EQ(rename((dir_ / "step-41.g3").c_str(), (dir_ / "precious").c_str()), 0);
  EXPECT_TRUE(read_manifest(dir_ / "precious").ok());
}

std::string sealed(const std::string& body_with_brace) {
  const std::string body = body_with_brace.substr(0, body_with_brace.size() - 1);
  return body + manifest_seal(body);
}

// What reads a manifest must stay within its rules whatever a sealed document says: an error or a
// usable result, no crash (the sanitizer builds see out-of-bounds reads).
TEST_F(Damage, SealedMutationsAreRefusedOrHarmless) {
  const std::string path = step_dir_ + "/manifest.json";
  auto original = nlohmann::json::parse(read_file(path).value());
  original.erase("crc32c");
  int refused = 0;
  constexpr int kRounds = 1500;
  for (int round = 0; round < kRounds; ++round) {
    Rng rng(static_cast<uint64_t>(round));
    nlohmann::json document = original;
    for (uint64_t i = 0; i <= rng.below(3); ++i) mutate(document, rng);
    std::string text = document.dump();
    if (text.back() != '}') text += '}';
    overwrite(path, sealed(text));
    const auto manifest = read_manifest(step_dir_);
    if (!manifest.ok()) {
      ++refused;
      continue;
    }
    (void)load_everything(step_dir_);
    (void)verify_checkpoint(step_dir_);
    (void)digest_checkpoint(step_dir_);
  }
  EXPECT_GT(refused, kRounds / 2) << "most mutations break a rule";
  EXPECT_LT(refused, kRounds) << "some are harmless, e.g. of labels";
}

// One reader's word is none of the checkpoint's.
TEST_F(Damage, ClaimIsConfirmedOnlyWhereAnotherReaderFindsDamage) {
  const std::string shard = step_dir_ + "/shard-00001.safetensors";
  const std::string good = read_file(shard).value();
  std::string bad = good;
  bad[bad.size() - 3] = static_cast<char>(~bad[bad.size() - 3]);
  overwrite(shard, bad);
  const auto claim = load_everything(step_dir_);
  ASSERT_FALSE(claim.ok());
  EXPECT_THAT(confirm_damage(step_dir_, claim.error().message).value(),
              HasSubstr("shard-00001.safetensors"));
  EXPECT_EQ(confirm_damage(step_dir_, "shard-00000.safetensors is short").value(), "")
      << "only what was claimed is read";
  EXPECT_NE(confirm_damage(step_dir_, "no file is named").value(), "") << "then everything is";
  overwrite(shard, good);
  EXPECT_EQ(confirm_damage(step_dir_, claim.error().message).value(), "");
  EXPECT_EQ(confirm_damage(step_dir_, "no file is named").value(), "");
}

// The words that named the file were parsed. Another wording, and the whole checkpoint was read.
TEST_F(Damage, ClaimInFieldsIsReadAloneWhateverTheWords) {
  const std::string shard = step_dir_ + "/shard-00001.safetensors";
  const std::string good = read_file(shard).value();
  std::string bad = good;
  bad[bad.size() - 3] = static_cast<char>(~bad[bad.size() - 3]);
  overwrite(shard, bad);
  FileFault part;
  ASSERT_FALSE(load_everything(step_dir_, &part).ok());
  EXPECT_EQ(part.file, "shard-00001.safetensors");
  EXPECT_GT(part.bytes, 0U);
  EXPECT_GE(part.offset + part.bytes, bad.size() - 3);
  EXPECT_EQ(part.error, 0) << "it could be read";
  EXPECT_THAT(confirm_damage(step_dir_, "words", part).value(),
              HasSubstr("shard-00001.safetensors"));
  FileFault elsewhere = part;
  elsewhere.file = "shard-00000.safetensors";
  EXPECT_EQ(confirm_damage(step_dir_, "shard-00001.safetensors", elsewhere).value(), "");
  elsewhere = {"shard-00001.safetensors", part.offset - 4, 4};
  EXPECT_EQ(confirm_damage(step_dir_, "words", elsewhere).value(), "") << "another range";
  EXPECT_EQ(confirm_damage(step_dir_, "words", {"manifest.json"}).value(), "");
  EXPECT_NE(confirm_damage(step_dir_, "words", {"shard-00001.safetensors"}).value(), "")
      << "the whole file";
  EXPECT_NE(confirm_damage(step_dir_, "words", {"no-such-file"}).value(), "") << "everything";
}

TEST_F(Damage, AFileThatCannotBeReadIsNamedWithItsErrno) {
  const std::string shard = step_dir_ + "/shard-00001.safetensors";
  ASSERT_EQ(::unlink(shard.c_str()), 0);
  FileFault part;
  ASSERT_FALSE(load_everything(step_dir_, &part).ok());
  EXPECT_EQ(part, (FileFault{"shard-00001.safetensors", 0, 0, ENOENT}));
  ASSERT_EQ(::symlink(shard.c_str(), shard.c_str()), 0);
  ASSERT_FALSE(load_everything(step_dir_, &part).ok());
  EXPECT_EQ(part.error, ELOOP);
  ASSERT_EQ(::unlink((step_dir_ + "/manifest.json").c_str()), 0);
  ASSERT_FALSE(load_everything(step_dir_, &part).ok());
  EXPECT_EQ(part, (FileFault{"manifest.json", 0, 0, ENOENT}));
  ASSERT_EQ(::symlink("manifest.json", (step_dir_ + "/manifest.json").c_str()), 0);
  ASSERT_FALSE(load_everything(step_dir_, &part).ok());
  EXPECT_EQ(part, (FileFault{"manifest.json", 0, 0, ELOOP}));
}

TEST_F(Damage, MissingFileIsConfirmedAndUnreadableOneIsNot) {
  const std::string shard = step_dir_ + "/shard-00001.safetensors";
  const std::string claim = "cannot open " + shard + ": No such file or directory";
  ASSERT_EQ(::rename(shard.c_str(), (dir_ / "away").c_str()), 0);
  EXPECT_THAT(confirm_damage(step_dir_, claim).value(), HasSubstr("it is missing"));
  ASSERT_EQ(::symlink(shard.c_str(), shard.c_str()), 0);
  const auto unread = confirm_damage(step_dir_, claim);
  ASSERT_FALSE(unread.ok()) << "an error proves nothing";
  EXPECT_THAT(unread.error().message, HasSubstr("shard-00001.safetensors"));
  ASSERT_EQ(::unlink((step_dir_ + "/manifest.json").c_str()), 0);
  EXPECT_THAT(confirm_damage(step_dir_, claim).value(),
              HasSubstr("manifest.json is damaged: it is missing"));
}

TEST_F(Damage, AManifestOfANewerVersionIsRefusedByName) {
  const std::string path = step_dir_ + "/manifest.json";
  auto document = nlohmann::json::parse(read_file(path).value());
  document.erase("crc32c");
  document["version"] = kManifestVersion + 1;
  document["a_key_of_that_version"] = 1;
  overwrite(path, sealed(document.dump()));
  const auto refused = read_manifest(step_dir_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument) << "it is not damaged";
  EXPECT_THAT(refused.error().message,
              HasSubstr("version " + std::to_string(kManifestVersion + 1)));
  EXPECT_THAT(refused.error().message, HasSubstr("written by a newer release of hpctl"));
  EXPECT_EQ(list_checkpoint_states(dir_.path())->at(0).state, CheckpointState::kDamaged);
}

TEST_F(Damage, DeepNestingAndGarbageAreRefused) {
  const std::string path = step_dir_ + "/manifest.json";
  for (const std::string& body :
       {std::string(100'000, '['), "{\"a\":" + std::string(100'000, '['), std::string(4096, '\0'),
        std::string("{\"format\":\"hpctl.checkpoint\"")}) {
    overwrite(path, body + manifest_seal(body));
    EXPECT_EQ(read_manifest(step_dir_).error().code, ErrorCode::kDataLoss);
  }
}

TEST(Receipt, GarbageIsRefused) {
  const std::string file = R"({"rank":0,"file":"f","bytes":1,"crc32c":1,"data":8,)";
  const std::string sums = R"("0a1b2c3d0a1b2c3d0a1b2c3d"})";
  ASSERT_TRUE(decode_receipt(file + R"("ranges":[[0,0,16]],"sums":)" + sums).ok());
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[]"), std::string("\xff"),
        R"({"rank":"x"})" + std::string(), file + R"("ranges":[[0,0,16]]})",
        file + R"("ranges":[1],"sums":)" + sums, file + R"("ranges":[[0,0]],"sums":)" + sums,
        file + R"("ranges":[[0,16,0]],"sums":)" + sums,
        file + R"("ranges":[[0,-16,0]],"sums":)" + sums,
        file + R"("ranges":[[0,0,9223372036854775807]],"sums":)" + sums,
        file + R"("ranges":[[0,0,16],[1,0,16]],"sums":)" + sums,
        file + R"("ranges":[[0,0,16]],"sums":"0a1b2c3d0a1b2c3d0a1b2c3z"})"}) {
    EXPECT_FALSE(decode_receipt(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace hpctl
