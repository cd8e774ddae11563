// SPDX-License-Identifier: Apache-2.0
// What a change of the world size costs: bytes read by a rank, and the length of the manifest that
// all ranks read. And that manifests of the first version are read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/shard_table.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

constexpr uint64_t kPieceBytes = kStoredPiece * sizeof(float);

// As `world` ranks would save the model, without the bytes.
Manifest saved_by(const ModelSpec& model, int32_t world) {
  Manifest m;
  m.step = 1;
  m.generation = 1;
  m.world_size = world;
  m.data = {"0123abcd", 100000, 32};
  m.model = model;
  m.blocks = model_layout(model);
  for (int32_t rank = 0; rank < world; ++rank) {
    ShardTable table;
    table.data = 4096;
    size_t pieces = 0;
    for (size_t b = 0; b < m.blocks.size(); ++b) {
      const ElementRange range = shard_range(m.blocks[b].numel, rank, world);
      if (range.empty()) continue;
      table.ranges.push_back({static_cast<int32_t>(b), range});
      pieces += static_cast<size_t>((range.size() + kStoredPiece - 1) / kStoredPiece);
    }
    while (table.sums.size() < pieces * kStateKinds.size() * 8) table.sums += "0a1b2c3d";
    const auto entries = entries_of_table(table, rank, kStateKinds.size(), kStoredPiece);
    m.shards.insert(m.shards.end(), entries->begin(), entries->end());
    m.files.push_back({shard_file_name(rank), uint64_t{1} << 40, 7});
  }
  std::sort(m.shards.begin(), m.shards.end(), [](const ShardEntry& a, const ShardEntry& b) {
    return std::tie(a.block, a.kind, a.range.begin) < std::tie(b.block, b.kind, b.range.begin);
  });
  return m;
}

// What a loader reads for rank `rank` of `world`: every stored piece that it touches, whole.
uint64_t bytes_for(const Manifest& m, int32_t rank, int32_t world) {
  uint64_t bytes = 0;
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    const ElementRange wanted = shard_range(m.blocks[b].numel, rank, world);
    for (const StateKind kind : kStateKinds) {
      for (const ShardEntry& e : entries_of(m, static_cast<int32_t>(b), kind, wanted)) {
        bytes += static_cast<uint64_t>(e.range.size()) * sizeof(float);
      }
    }
  }
  return bytes;
}

TEST(Reshard, From8To512RanksEachReads600MegabytesOfLlama8B) {
  const Manifest m = saved_by(*model_preset("llama3-8b"), 8);
  ASSERT_EQ(manifest_problem(m), "");
  uint64_t most = 0;
  uint64_t sum = 0;
  for (int32_t rank = 0; rank < 512; ++rank) {
    const uint64_t bytes = bytes_for(m, rank, 512);
    most = std::max(most, bytes);
    sum += bytes;
  }
  RecordProperty("most_bytes_of_a_rank", std::to_string(most));
  RecordProperty("bytes_of_all_ranks", std::to_string(sum));
  EXPECT_LT(most, 900'000'000U) << "96 GB / 512 are 188 MB; whole ranges of a rank were 12 GB";
  EXPECT_LT(sum / 512, 620'000'000U);
  EXPECT_EQ(bytes_for(m, 3, 8), 12'045'391'872U) << "with the same world size only what is needed";
}

// The same with a real loader, which counts what it reads.
TEST(Reshard, ALoaderReadsOnlyPiecesThatItNeedsSomethingOf) {
  const TemporaryDirectory dir;
  constexpr int32_t kSaved = 2;
  constexpr int32_t kWorld = 64;
  Manifest base;
  base.step = 1;
  base.generation = 1;
  base.world_size = kSaved;
  base.data = {"0123abcd", 100000, 32};
  base.model = synthetic_model();
  Block block;
  append_tensor(block, "weight", {8, kStoredPiece});
  block.name = "embed";
  base.blocks = {block};
  const auto value = [](StateKind kind, int64_t element) {
    return static_cast<float>(element % 16'777'213) + static_cast<float>(kind) * 0.25F;
  };
  std::vector<Receipt> receipts;
  for (int32_t rank = 0; rank < kSaved; ++rank) {
    const ElementRange range = shard_range(block.numel, rank, kSaved);
    std::vector<std::vector<float>> values;
    ShardJob job{.checkpoint_dir = dir.path(),
                 .checkpoint = base.ref(),
                 .rank = rank,
                 .world_size = kSaved,
                 .blocks = &base.blocks,
                 .parts = {}};
    for (const StateKind kind : kStateKinds) {
      auto& of_kind = values.emplace_back();
      for (int64_t i = range.begin; i < range.end; ++i) of_kind.push_back(value(kind, i));
    }
    for (const StateKind kind : kStateKinds) {
      job.parts.push_back({0, kind, range, values[static_cast<size_t>(kind)]});
    }
    receipts.push_back(write_shard(job).value());
  }
  ASSERT_TRUE(commit_checkpoint(dir.path(), base, receipts).ok());

  auto loader = CheckpointLoader::open(dir / base.ref().name());
  ASSERT_TRUE(loader.ok()) << loader.error().message;
  for (const int32_t rank : {0, 13, kWorld - 1}) {
    const ElementRange range = shard_range(block.numel, rank, kWorld);
    std::vector<float> values(static_cast<size_t>(range.size()));
    for (const StateKind kind : kStateKinds) {
      const uint64_t before = loader->bytes_read();
      ASSERT_TRUE(loader->load_range(0, kind, range, values).ok());
      EXPECT_EQ(loader->bytes_read() - before, kPieceBytes) << "of 16 MiB that a rank had stored";
      EXPECT_EQ(values.front(), value(kind, range.begin));
      EXPECT_EQ(values.back(), value(kind, range.end - 1));
    }
  }
}

TEST(Manifest, OfSixteenThousandRanksIsShortEnoughToBeRead) {
  ModelSpec model = *model_preset("llama3-8b");
  model.layers = 126;
  constexpr int32_t kWorld = 512;
  const Manifest m = saved_by(model, kWorld);
  const auto text = to_manifest_text(m);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_LT(text->size() * 16'384 / kWorld, kMaxManifestBytes);
  const auto read = manifest_from_text(*text, "text");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->shards, m.shards);
  EXPECT_EQ(read->files, m.files);
}

TEST(Manifest, ThatNobodyCouldReadIsNotWritten) {
  Manifest m = saved_by(synthetic_model(), 2);
  const size_t bytes = to_manifest_text(m).value().size();
  EXPECT_TRUE(to_manifest_text(m, bytes).ok());
  const auto refused = to_manifest_text(m, bytes - 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("use fewer workers"));
  std::swap(m.shards.front().offset, m.shards.back().offset);
  EXPECT_THAT(to_manifest_text(m).error().message, HasSubstr("shard-0000"));
}

// As releases before wrote it: a row for every range.
std::string first_version(const Manifest& m) {
  auto document = nlohmann::json::parse(to_manifest_text(m).value());
  for (const char* key : {"crc32c", "ranges", "piece_elements"}) document.erase(key);
  for (auto& file : document["files"]) {
    file.erase("data");
    file.erase("sums");
  }
  document["version"] = 1;
  document["shard_columns"] = kShardColumns;
  document["shards"] = nlohmann::json::array();
  for (const ShardEntry& e : m.shards) {
    document["shards"].push_back({e.block, static_cast<int>(e.kind), e.range.begin, e.range.end,
                                  e.file, e.offset, e.range.size() * 4, e.crc32c});
  }
  std::string text = document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  return text + manifest_seal(text);
}

TEST(Manifest, OfTheFirstVersionIsLoaded) {
  const TemporaryDirectory dir;
  const SyntheticSave save{dir.path(), {40, 3}, 3, 1, 2, {}};
  ASSERT_TRUE(save_synthetic(save).ok());
  const std::string step_dir = dir / "step-40.g3";
  const Manifest written = read_manifest(step_dir).value();
  ASSERT_TRUE(write_file_atomic(step_dir + "/manifest.json", first_version(written)).ok());
  auto loader = CheckpointLoader::open(step_dir);
  ASSERT_TRUE(loader.ok()) << loader.error().message;
  EXPECT_EQ(loader->manifest().shards, written.shards);
  const int64_t numel = written.blocks[1].numel;
  std::vector<float> values(static_cast<size_t>(numel));
  ASSERT_TRUE(loader->load_range(1, StateKind::kExpAvg, {0, numel}, values).ok());
  for (int64_t i = 0; i < numel; ++i) {
    ASSERT_EQ(values[static_cast<size_t>(i)],
              synthetic_value(written.blocks, 1, StateKind::kExpAvg, i, 1));
  }
}

}  // namespace
}  // namespace hpctl
