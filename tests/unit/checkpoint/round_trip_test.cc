// SPDX-License-Identifier: Apache-2.0
// What was saved is loaded, at any world size; and the stored files are what the format page says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/checkpoint/manifest_format.h"

namespace hpctl {
namespace {

using testing::HasSubstr;

constexpr int32_t kMaxWorld = 5;

std::string save_at(const TemporaryDirectory& dir, int32_t world_size) {
  const SyntheticSave save{dir / ("w" + std::to_string(world_size)), {40, 3}, world_size, 1, 2, {}};
  const auto saved = save_synthetic(save);
  EXPECT_TRUE(saved.ok()) << saved.error().message;
  return save.checkpoint_dir + "/step-40.g3";
}

// Loads rank `rank` of `world` and compares every element with where it came from.
void expect_rank_loads(CheckpointLoader& loader, int32_t rank, int32_t world) {
  const auto& blocks = loader.manifest().blocks;
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const StateKind kind : kStateKinds) {
      const ElementRange range = shard_range(blocks[b].numel, rank, world);
      std::vector<float> values(static_cast<size_t>(range.size()), -1.0F);
      const auto loaded = loader.load_range(static_cast<int32_t>(b), kind, range, values);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      for (int64_t i = range.begin; i < range.end; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i - range.begin)],
                  synthetic_value(blocks, static_cast<int32_t>(b), kind, i, 1))
            << blocks[b].name << " " << to_string(kind) << " " << i;
      }
    }
  }
}

TEST(RoundTrip, EveryWorldSizeLoadsEveryOther) {
  const TemporaryDirectory dir;
  for (int32_t saved = 1; saved <= kMaxWorld; ++saved) {
    auto loader = CheckpointLoader::open(save_at(dir, saved));
    ASSERT_TRUE(loader.ok()) << loader.error().message;
    for (int32_t world = 1; world <= kMaxWorld; ++world) {
      for (int32_t rank = 0; rank < world; ++rank) expect_rank_loads(*loader, rank, world);
    }
  }
}

TEST(RoundTrip, MoreRanksThanAlignedPieces) {
  const TemporaryDirectory
      dir;  // the smallest block has 37*12 + gaps, so 100 ranks leave some idle
  auto loader = CheckpointLoader::open(save_at(dir, 100));
  ASSERT_TRUE(loader.ok()) << loader.error().message;
  expect_rank_loads(*loader, 0, 1);
  expect_rank_loads(*loader, 99, 100);
}

TEST(RoundTrip, DigestDoesNotDependOnTheWorldSizeButOnTheState) {
  const TemporaryDirectory dir;
  const std::string digest = digest_checkpoint(save_at(dir, 1)).value();
  EXPECT_EQ(digest.size(), 64U);
  for (int32_t world = 2; world <= kMaxWorld; ++world) {
    EXPECT_EQ(digest_checkpoint(save_at(dir, world)).value(), digest) << world;
  }
  const auto other = [&](const SyntheticSave& save) {
    EXPECT_TRUE(save_synthetic(save).ok());
    return digest_checkpoint(save.checkpoint_dir + "/" + save.ref.name()).value();
  };
  EXPECT_EQ(other({dir / "generation", {40, 9}, 2, 1, 8, {}}), digest) << "generation is left out";
  EXPECT_NE(other({dir / "values", {40, 3}, 2, 2, 2, {}}), digest);
  EXPECT_NE(other({dir / "step", {41, 3}, 2, 1, 2, {}}), digest);
  EXPECT_NE(other({dir / "skips", {40, 3}, 2, 1, 2, {{3, 4}}}), digest);
}

// Adapters know by it which weights they belong beside.
TEST(LoraBase, IsTheSameHoweverManyRanksSavedItAndAnotherWithOtherWeights) {
  const TemporaryDirectory dir;
  const auto checksum_at = [](const std::string& step_dir) {
    const auto manifest = read_manifest(step_dir);
    EXPECT_TRUE(manifest.ok()) << manifest.error().message;
    return manifest.ok() ? base_checksum(*manifest) : "";
  };
  const std::string alone = checksum_at(save_at(dir, 1));
  EXPECT_EQ(alone.size(), 8U);
  for (int32_t world = 2; world <= kMaxWorld; ++world) {
    EXPECT_EQ(checksum_at(save_at(dir, world)), alone) << world;
  }
  const SyntheticSave other{dir / "other", {40, 3}, 1, /*salt=*/2, 2, {}};
  ASSERT_TRUE(save_synthetic(other).ok());
  EXPECT_NE(checksum_at(other.checkpoint_dir + "/step-40.g3"), alone);
}

TEST(RoundTrip, DiffSeesWhatTheDigestSees) {
  const TemporaryDirectory dir;
  const std::string first = save_at(dir, 1);
  const auto same = diff_checkpoints(first, save_at(dir, 4));
  ASSERT_TRUE(same.ok()) << same.error().message;
  EXPECT_TRUE(same->same());
  EXPECT_EQ(same->tensors, 3U * (1 + 2 * 9 + 2));
  ASSERT_TRUE(save_synthetic({dir / "other", {41, 3}, 2, 2, 2, {}}).ok());
  const auto other = diff_checkpoints(first, dir / "other/step-41.g3");
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->same_position);
  EXPECT_EQ(other->differences.size(), other->tensors);
  EXPECT_EQ(other->differences[0].name, "lm_head.weight");
  EXPECT_GT(other->differences[0].differing, other->differences[0].numel / 2);
  EXPECT_GT(other->differences[0].max_abs, 0.0);
}

// The framing of docs/formats.md, written here a second time over values computed, not loaded.
TEST(RoundTrip, DigestIsWhatTheFormatPageSays) {
  const auto blocks = model_layout(synthetic_model());
  std::map<std::string, std::string> tensors;
  const auto u64 = [](uint64_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const std::map<StateKind, std::string> suffixes = {{StateKind::kParam, ""},
                                                     {StateKind::kExpAvg, ".exp_avg"},
                                                     {StateKind::kExpAvgSq, ".exp_avg_sq"}};
  for (size_t b = 0; b < blocks.size(); ++b) {
    for (const TensorSlot& t : blocks[b].tensors) {
      for (const auto& [kind, suffix] : suffixes) {
        std::string bytes = u64(3) + "F32" + u64(t.shape.size());
        for (const int64_t extent : t.shape) bytes += u64(static_cast<uint64_t>(extent));
        bytes += u64(static_cast<uint64_t>(t.numel) * 4);
        for (int64_t i = 0; i < t.numel; ++i) {
          const float v = synthetic_value(blocks, static_cast<int32_t>(b), kind, t.offset + i, 1);
          bytes.append(reinterpret_cast<const char*>(&v), sizeof(v));
        }
        tensors[t.name + suffix] = bytes;
      }
    }
  }
  Sha256 hash;
  hash.update("hpctl digest 1\n" + u64(tensors.size()));
  for (const auto& [name, bytes] : tensors) hash.update(u64(name.size()) + name + bytes);
  hash.update(u64(40) + u64(320) + u64(1) + u64(5) + u64(9));
  const TemporaryDirectory dir;
  ASSERT_TRUE(save_synthetic({dir.path(), {40, 3}, 3, 1, 2, {{5, 9}}}).ok());
  EXPECT_EQ(digest_checkpoint(dir / "step-40.g3").value(), hash.hex_digest());
}

TEST(RoundTrip, ShardsAreValidSafetensors) {
  const TemporaryDirectory dir;
  const std::string step_dir = save_at(dir, 3);
  const auto blocks = model_layout(synthetic_model());
  for (int32_t rank = 0; rank < 3; ++rank) {
    const std::string bytes = read_file(step_dir + "/" + shard_file_name(rank)).value();
    uint64_t header_bytes = 0;
    ASSERT_GE(bytes.size(), 8U);
    std::memcpy(&header_bytes, bytes.data(), 8);
    EXPECT_EQ((8 + header_bytes) % 64, 0U);
    ASSERT_EQ(bytes[8], '{');
    const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    EXPECT_EQ(header.at("__metadata__").at("rank"), std::to_string(rank));
    std::map<uint64_t, uint64_t> pieces;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      EXPECT_EQ(tensor.at("dtype"), "F32");
      ASSERT_EQ(tensor.at("shape").size(), 1U);
      const uint64_t begin = tensor.at("data_offsets").at(0);
      const uint64_t end = tensor.at("data_offsets").at(1);
      EXPECT_EQ(end - begin, tensor.at("shape").at(0).get<uint64_t>() * 4);
      pieces[begin] = end;
    }
    EXPECT_EQ(pieces.size(), blocks.size() * 3);
    uint64_t covered = 0;
    for (const auto& [begin, end] : pieces) {
      EXPECT_EQ(begin, covered) << "no holes";
      covered = end;
    }
    EXPECT_EQ(8 + header_bytes + covered, bytes.size());
  }
}

TEST(RoundTrip, ManifestKeepsEveryField) {
  const TemporaryDirectory dir;
  const SyntheticSave save{dir.path(), {40, 3}, 2, 1, 2, {{3, 4}, {8, 10}}};
  ASSERT_TRUE(save_synthetic(save).ok());
  const auto read = read_manifest(dir / "step-40.g3");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const Manifest expected = synthetic_manifest(save);
  EXPECT_EQ(read->parent, 2U);
  EXPECT_EQ(read->sample_cursor, 320U);
  EXPECT_EQ(read->skipped, save.skipped);
  EXPECT_EQ(read->data, expected.data);
  EXPECT_EQ(read->seed, ~uint64_t{0});
  EXPECT_EQ(read->blocks, expected.blocks);
  EXPECT_EQ(to_manifest_text(*read).value(), read_file(dir / "step-40.g3/manifest.json").value());
  EXPECT_EQ(show_json(*read),
            R"({"step":40,"generation":3,"parent":2,"world_size":2,"sample_cursor":320,)"
            R"("skipped":[[3,4],[8,10]]})");
}

TEST(RoundTrip, ManifestKeepsTheLossScale) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(save_synthetic({dir.path(), {40, 3}, 2, 1, 2, {}}).ok());
  Manifest manifest = read_manifest(dir / "step-40.g3").value();
  EXPECT_THAT(to_manifest_text(manifest).value(), testing::Not(HasSubstr("loss_scale")))
      << "only in fp16";
  manifest.loss_scale = {.scale = 1 << 20, .good_steps = 7, .hysteresis_left = 2, .overflows = 5};
  const auto again = manifest_from_text(to_manifest_text(manifest).value(), "text");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->loss_scale, manifest.loss_scale);
  manifest.loss_scale.scale = 3;
  const auto odd = manifest_from_text(to_manifest_text(manifest).value(), "text");
  ASSERT_FALSE(odd.ok());
  EXPECT_THAT(odd.error().message, HasSubstr("scale is not a power of two"));
}

TEST(RoundTrip, ManifestOfAnUnknownArchitectureIsRefused) {
  const TemporaryDirectory dir;
  ASSERT_TRUE(save_synthetic({dir.path(), {40, 3}, 2, 1, 2, {}}).ok());
  const Manifest manifest = read_manifest(dir / "step-40.g3").value();
  std::string text = to_manifest_text(manifest).value();
  text.resize(text.size() - kManifestSealBytes);
  text.replace(text.find("llama"), 5, "bert");
  const auto refused = manifest_from_text(text + manifest_seal(text), "text");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("expected one of llama, gpt, qwen2, qwen3, mistral; found \"bert\""));
}

TEST(Resumable, AnotherModelSeedOrCorpusIsRefusedAloud) {
  const SyntheticSave save{"", {40, 3}, 2, 1, 2, {}};
  const Manifest manifest = synthetic_manifest(save);
  const RunIdentity same{manifest.model, manifest.blocks, manifest.data, manifest.seed};
  EXPECT_TRUE(check_resumable(manifest, same, "step-40.g3").ok());
  const auto refusal = [&](const RunIdentity& run) {
    const auto checked = check_resumable(manifest, run, "/c/step-40.g3");
    return checked.ok() ? "" : checked.error().message;
  };
  RunIdentity run = same;
  run.model.heads = 4;
  run.model.ffn = 96;
  EXPECT_THAT(refusal(run),
              HasSubstr("model.heads is 2 there and 4 here, model.head_dim is 6 there and 3 "
                        "here, model.ffn is 20 there and 96 here; "));
  // std::to_string() has six digits, of which these are all zero.
  for (const double eps : {1e-8, 1e-7}) {
    run = same;
    run.model.norm_eps = eps;
    EXPECT_THAT(refusal(run), HasSubstr(eps == 1e-8 ? "and 1e-08 here" : "and 1e-07 here"));
  }
  run = same;
  run.blocks.pop_back();
  EXPECT_THAT(refusal(run), HasSubstr("it holds a whole model, with another layout"));
  run = same;
  run.seed = 5;
  EXPECT_THAT(refusal(run), HasSubstr("seed is"));
  run = same;
  run.data.seq_len = 64;
  EXPECT_THAT(refusal(run), HasSubstr("data.seq_len is 32 there and 64 here"));
  run = same;
  run.data.fingerprint = "ffff";
  EXPECT_THAT(refusal(run), HasSubstr("the data have changed"));
  EXPECT_THAT(refusal(run), HasSubstr("checkpoint.resume: none and hpctl submit --fresh, or begin "
                                      "with its weights alone"));
}

TEST(Layout, BlocksAreAlignedAndCountsMatchTheModels) {
  for (const char* preset : {"tiny", "debugmodel", "llama3-8b"}) {
    const auto blocks = model_layout(*model_preset(preset));
    for (const Block& block : blocks) {
      EXPECT_EQ(block.numel % kAlignElements, 0);
      for (const TensorSlot& t : block.tensors) EXPECT_EQ(t.offset % kAlignElements, 0);
    }
    EXPECT_EQ(blocks.front().name, "embed");
    EXPECT_EQ(blocks.back().name, "head");
  }
  EXPECT_EQ(parameter_count(model_layout(*model_preset("debugmodel"))), 6'163'712);
  EXPECT_EQ(parameter_count(model_layout(*model_preset("llama3-8b"))), 8'030'261'248);
}

TEST(Layout, ShardsTileABlockAtEveryWorldSize) {
  for (const int64_t numel : {16, 32, 160, 4096, 65552}) {
    for (int32_t world = 1; world <= 40; ++world) {
      int64_t covered = 0;
      for (int32_t rank = 0; rank < world; ++rank) {
        const ElementRange range = shard_range(numel, rank, world);
        EXPECT_EQ(range.begin, covered);
        EXPECT_LE(range.size(), shard_capacity(numel, world));
        EXPECT_EQ(range.begin % kAlignElements, 0);
        covered = range.end;
      }
      EXPECT_EQ(covered, numel);
    }
  }
}

}  // namespace
}  // namespace hpctl
