// SPDX-License-Identifier: Apache-2.0
// Tensors stored as n-dimensional slices: whatever the cut, what is read is what was written, and a
// manifest whose slices are not every element once is refused.
#include "trainer/checkpoint/tensor_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/rng.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/shard_table.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

SyntheticSave sliced_save(const TemporaryDirectory& dir, uint64_t cut, int32_t world) {
  return {.checkpoint_dir = dir / ("cut" + std::to_string(cut)),
          .ref = {40, 3},
          .world_size = world,
          .salt = 1,
          .parent = 2,
          .skipped = {},
          .cut = cut};
}

std::string directory_of(const SyntheticSave& save) {
  return save.checkpoint_dir + "/" + save.ref.name();
}

// One to four dimensions, and a number.
std::vector<Block> some_blocks() {
  std::vector<Block> blocks(3);
  blocks[0].name = "vectors";
  append_tensor(blocks[0], "scalar", {});
  append_tensor(blocks[0], "vector", {101});
  blocks[1].name = "experts";
  append_tensor(blocks[1], "experts", {5, 7, 6});
  append_tensor(blocks[1], "matrix", {33, 18});
  blocks[2].name = "four";
  append_tensor(blocks[2], "four", {3, 4, 5, 2});
  append_tensor(blocks[2], "row", {1, 40});
  return blocks;
}

void expect_loads(CheckpointLoader& loader, const SyntheticSave& save, Rng& random) {
  const std::vector<Block>& blocks = loader.manifest().blocks;
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto block = static_cast<int32_t>(b);
    for (const StateKind kind : kStateKinds) {
      const auto numel = static_cast<uint64_t>(blocks[b].numel);
      const auto begin = static_cast<int64_t>(random.below(numel));
      const auto end =
          begin + 1 + static_cast<int64_t>(random.below(numel - static_cast<uint64_t>(begin)));
      for (const ElementRange range : {ElementRange{begin, end}, {0, blocks[b].numel}}) {
        std::vector<float> values(static_cast<size_t>(range.size()), -1.0F);
        const Outcome loaded = loader.load_range(block, kind, range, values);
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        for (int64_t i = range.begin; i < range.end; ++i) {
          ASSERT_EQ(values[static_cast<size_t>(i - range.begin)],
                    synthetic_value(blocks, block, kind, i, save.salt))
              << blocks[b].name << " element " << i << " of cut " << save.cut;
        }
      }
    }
  }
}

TEST(Slices, OfAnyCutAreReadByAnyOther) {
  const TemporaryDirectory dir;
  Rng random(5);
  size_t slices = 0;
  for (uint64_t cut = 1; cut <= 60; ++cut) {
    const SyntheticSave save = sliced_save(dir, cut, 1 + static_cast<int32_t>(cut % 4));
    Manifest base = synthetic_manifest(save);
    base.blocks = some_blocks();
    const Outcome saved = save_synthetic(save, base);
    ASSERT_TRUE(saved.ok()) << saved.error().message << " of cut " << cut;
    auto loader = CheckpointLoader::open(directory_of(save));
    ASSERT_TRUE(loader.ok()) << loader.error().message;
    EXPECT_EQ(loader->manifest().slices, random_slices(base.blocks, cut));
    slices += loader->manifest().slices.size();
    expect_loads(*loader, save, random);
  }
  EXPECT_GT(slices, 1000U) << "nothing was cut";
}

// The same state, stored in intervals and in slices.
TEST(Slices, HoldTheSameStateAsIntervals) {
  const TemporaryDirectory dir;
  const SyntheticSave intervals = sliced_save(dir, 0, 3);
  ASSERT_TRUE(save_synthetic(intervals).ok());
  const std::string digest = digest_checkpoint(directory_of(intervals)).value();
  ASSERT_TRUE(export_huggingface(directory_of(intervals), dir / "hf0", {}).ok());
  const std::string weights = read_file(dir / "hf0/model.safetensors").value();
  for (uint64_t cut = 1; cut <= 8; ++cut) {
    const SyntheticSave save = sliced_save(dir, cut, 2);
    ASSERT_TRUE(save_synthetic(save).ok());
    ASSERT_FALSE(read_manifest(directory_of(save))->slices.empty());
    const auto report = verify_checkpoint(directory_of(save));
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_THAT(report->problems, testing::IsEmpty());
    EXPECT_EQ(digest_checkpoint(directory_of(save)).value(), digest);
    EXPECT_TRUE(diff_checkpoints(directory_of(save), directory_of(intervals))->same());
    const std::string out = dir / ("hf" + std::to_string(cut));
    ASSERT_TRUE(export_huggingface(directory_of(save), out, {}).ok());
    EXPECT_EQ(read_file(out + "/model.safetensors").value(), weights);
  }
}

// Two columns of 3 x 2^20 elements: each slice has a checksum for every 4 MiB of its own.
TEST(Slices, LongerThanAPieceHaveAChecksumForEach) {
  const TemporaryDirectory dir;
  Manifest base = synthetic_manifest(sliced_save(dir, 1, 2));
  Block block;
  block.name = "wide";
  append_tensor(block, "wide", {3, kStoredPiece});
  base.blocks = {block};
  const int64_t half = kStoredPiece / 2;
  std::vector<Receipt> receipts;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const TensorSlice slice{0, 0, {0, rank * half}, {3, half}};
    std::vector<float> values;
    for_each_run(block.tensors[0], slice, {0, 3 * half}, [&](int64_t place, int64_t, int64_t n) {
      for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(place + i));
    });
    ShardJob job{.checkpoint_dir = dir.path(),
                 .checkpoint = base.ref(),
                 .rank = rank,
                 .world_size = 2,
                 .blocks = &base.blocks,
                 .parts = {}};
    for (const StateKind kind : kStateKinds) {
      job.parts.push_back({0, kind, {0, 3 * half}, values, &slice});
    }
    receipts.push_back(decode_receipt(encode_receipt(write_shard(job).value())).value());
    EXPECT_EQ(receipts.back().entries.size(), 6U) << "two pieces of every kind";
  }
  ASSERT_TRUE(commit_checkpoint(dir.path(), base, receipts).ok());
  auto loader = CheckpointLoader::open(dir / base.ref().name());
  ASSERT_TRUE(loader.ok()) << loader.error().message;
  // Of the second row a bit of both halves: the first piece of each slice has it.
  const ElementRange wanted{kStoredPiece + half - 3, kStoredPiece + half + 3};
  std::vector<float> values(6);
  ASSERT_TRUE(loader->load_range(0, StateKind::kExpAvg, wanted, values).ok());
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(values[i], static_cast<float>(wanted.begin + static_cast<int64_t>(i)));
  }
  EXPECT_EQ(loader->bytes_read(), 2 * kStoredPiece * sizeof(float));
}

TEST(Slices, DamageNamesTheSlice) {
  const TemporaryDirectory dir;
  const SyntheticSave save = sliced_save(dir, 1, 1);
  ASSERT_TRUE(save_synthetic(save).ok());
  const Manifest manifest = read_manifest(directory_of(save)).value();
  const auto entry = std::find_if(manifest.shards.begin(), manifest.shards.end(),
                                  [](const ShardEntry& e) { return e.slice >= 0; });
  ASSERT_NE(entry, manifest.shards.end());
  const std::string path = directory_of(save) + "/" + shard_file_name(0);
  std::string bytes = read_file(path).value();
  bytes[entry->offset] ^= 1;
  ASSERT_TRUE(write_file_atomic(path, bytes).ok());
  const std::string name =
      describe_slice(manifest.blocks[static_cast<size_t>(entry->block)].tensors[0],
                     manifest.slices[static_cast<size_t>(entry->slice)]);
  auto loader = CheckpointLoader::open(directory_of(save));
  std::vector<float> values(
      static_cast<size_t>(manifest.blocks[static_cast<size_t>(entry->block)].numel));
  const Outcome damaged = loader->load_range(entry->block, StateKind::kParam,
                                             {0, static_cast<int64_t>(values.size())}, values);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kDataLoss);
  EXPECT_THAT(damaged.error().message, HasSubstr(name));
  EXPECT_THAT(verify_checkpoint(directory_of(save))->problems.at(0), HasSubstr(name));
}

// ---- what a manifest may say --------------------------------------------------------------------

std::string problem_of(const std::vector<TensorSlice>& slices) {
  const std::vector<Block> blocks = some_blocks();
  for (const TensorSlice& slice : slices) {
    if (auto problem = slice_problem(blocks, slice); !problem.empty()) return problem;
  }
  return tiling_problem(blocks[1], slices);
}

TEST(Slices, MustBeEveryElementOnce) {
  const TensorSlice experts{1, 0, {0, 0, 0}, {5, 7, 6}};
  const TensorSlice left{1, 1, {0, 0}, {33, 9}};
  const TensorSlice right{1, 1, {0, 9}, {33, 9}};
  EXPECT_EQ(problem_of({experts, left, right}), "");
  EXPECT_EQ(problem_of({experts, left}), "matrix misses 297 elements");
  EXPECT_EQ(problem_of({left, right}), "experts misses 210 elements");
  EXPECT_EQ(problem_of({experts, left, right, {1, 1, {32, 0}, {1, 1}}}),
            "matrix has elements that are there twice");
  EXPECT_THAT(problem_of({experts, left, {1, 1, {0, 8}, {33, 9}}}),
              HasSubstr("matrix has elements that are there twice"))
      << "as many elements as there are, and not all of them";
  // No cut goes through all of it.
  EXPECT_EQ(problem_of({experts,
                        {1, 1, {0, 0}, {10, 12}},
                        {1, 1, {0, 12}, {20, 6}},
                        {1, 1, {10, 0}, {23, 6}},
                        {1, 1, {10, 6}, {10, 6}},
                        {1, 1, {20, 6}, {13, 12}}}),
            "");
}

TEST(Slices, LieInTheirTensor) {
  EXPECT_THAT(problem_of({{3, 0, {0}, {1}}}), HasSubstr("unknown block"));
  EXPECT_THAT(problem_of({{1, 2, {0}, {1}}}), HasSubstr("unknown tensor"));
  EXPECT_THAT(problem_of({{1, -1, {0}, {1}}}), HasSubstr("unknown tensor"));
  EXPECT_THAT(problem_of({{1, 1, {0}, {33}}}), HasSubstr("number of dimensions"));
  for (const auto& [offset, length] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 19}, {18, 1}, {-1, 2}, {0, 0}, {0, -1}, {int64_t{1} << 62, int64_t{1} << 62}}) {
    EXPECT_THAT(problem_of({{1, 1, {0, offset}, {33, length}}}), HasSubstr("lies outside"));
  }
}

std::string sealed_text(const nlohmann::json& document) {
  std::string text = document.dump();
  text.pop_back();
  return text + manifest_seal(text);
}

TEST(Slices, AreOfTheThirdVersionAndIntervalsOfTheSecond) {
  const TemporaryDirectory dir;
  const SyntheticSave save = sliced_save(dir, 1, 2);
  ASSERT_TRUE(save_synthetic(save).ok());
  ASSERT_TRUE(save_synthetic(sliced_save(dir, 0, 2)).ok());
  const auto text_of = [&](const char* directory) {
    auto document = nlohmann::json::parse(
        read_file(dir / (std::string(directory) + "/step-40.g3/manifest.json")).value());
    document.erase("crc32c");
    document["environment"] = nlohmann::json::object();
    return document;
  };
  EXPECT_EQ(text_of("cut0")["version"], 2) << "releases that know no slices read it";
  auto sliced = text_of("cut1");
  EXPECT_EQ(sliced["version"], 3);
  ASSERT_TRUE(manifest_from_text(sealed_text(sliced), "m").ok());
  // Each change alone.
  const auto refused = [&](const std::function<void(nlohmann::json&)>& change) {
    auto changed = sliced;
    change(changed);
    return manifest_from_text(sealed_text(changed), "m").error().message;
  };
  size_t b = 0;
  while (!sliced["ranges"][b].contains("slices")) ++b;
  EXPECT_THAT(refused([](auto& d) { d["version"] = 2; }), HasSubstr("ends is missing"));
  EXPECT_THAT(refused([&](auto& d) { d["ranges"][b]["slices"].erase(0); }),
              HasSubstr("slices without files"));
  EXPECT_THAT(refused([&](auto& d) { d["ranges"][b]["slices"][0].erase(2); }),
              HasSubstr("malformed row"));
  EXPECT_THAT(refused([&](auto& d) { d["ranges"][b]["slices"][0][1] = "x"; }),
              HasSubstr("malformed row"));
  EXPECT_THAT(refused([&](auto& d) { d["ranges"][b]["slices"][0][1][0] = 99999; }),
              HasSubstr("lies outside"));
  EXPECT_THAT(refused([&](auto& d) { d["ranges"][b]["files"][0] = 7; }), HasSubstr("unknown file"));
}

// A manifest as a release has written it, in tests/unit/checkpoint: it is read, and written again
// as it was, but for the keys that a model has got since.
Manifest golden(const char* name) {
  const std::string path = std::string(HPCTL_SOURCE) + "/tests/unit/checkpoint/" + name;
  const std::string text = read_file(path).value();
  auto manifest = manifest_from_text(text, path);
  EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  auto before = nlohmann::json::parse(text);
  auto after = nlohmann::json::parse(to_manifest_text(*manifest).value());
  for (auto* document : {&before, &after}) {
    document->erase("model");
    document->erase("crc32c");
  }
  EXPECT_EQ(after, before);
  return std::move(manifest).value();
}

TEST(Slices, OfTheThirdVersionAreReadForEver) {
  const Manifest manifest = golden("manifest-3.json");
  EXPECT_EQ(manifest.slices, (std::vector<TensorSlice>{{1, 0, {0}, {12}},
                                                       {1, 1, {0, 0}, {2, 4}},
                                                       {1, 1, {0, 4}, {3, 4}},
                                                       {1, 1, {2, 0}, {1, 4}}}));
  ASSERT_EQ(manifest.shards.size(), 18U);
  // Of the block of slices, exp_avg: the first rank's matrix, behind its vector.
  const ShardEntry& entry = manifest.shards[11];
  EXPECT_EQ(entry.kind, StateKind::kExpAvg);
  EXPECT_EQ(entry.slice, 1);
  EXPECT_EQ(entry.file, 0);
  EXPECT_EQ(entry.range, (ElementRange{0, 8}));
  EXPECT_EQ(entry.offset, 1024U + 4 * (36 + 16 + 12));
  EXPECT_EQ(entry.crc32c, 5U);
}

TEST(Slices, TheSecondVersionHasNone) { EXPECT_TRUE(golden("manifest-2.json").slices.empty()); }

TEST(Receipt, OfSlicesIsBelievedOnlyWhereItCanBe) {
  const std::string file = R"({"rank":0,"file":"f","bytes":1,"crc32c":1,"data":8,"ranges":[)";
  const std::string sums = R"(],"sums":"0a1b2c3d0a1b2c3d0a1b2c3d"})";
  const auto good = decode_receipt(file + "[0,1,[0,2],[3,4]]" + sums);
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(good->slices, (std::vector<TensorSlice>{{0, 1, {0, 2}, {3, 4}}}));
  EXPECT_EQ(good->entries.at(2).range, (ElementRange{0, 12}));
  for (const char* bad : {"[0,1,[0,2],[0,4]]", "[0,1,[0,2],[-3,4]]", "[0,1,[0,2],7]",
                          "[0,1,[0,2],[4611686018427387904,4]]", "[0,1,[0,2],[3,4],5]"}) {
    EXPECT_FALSE(decode_receipt(file + bad + sums).ok()) << bad;
  }
}

}  // namespace
}  // namespace hpctl
