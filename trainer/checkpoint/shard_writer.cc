// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/shard_writer.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/shard_table.h"

namespace hpctl {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "stored bytes are little-endian");

// Every range begins at a multiple of 64 bytes of the file: so does the data, and ranges are
// multiples of kAlignElements.
std::string shard_header(const ShardJob& job) {
  std::vector<SafetensorsTensor> tensors;
  uint64_t offset = 0;
  for (const ShardPart& part : job.parts) {
    if (part.range.empty()) continue;
    const uint64_t end = offset + part.values.size_bytes();
    const std::string& block = (*job.blocks)[static_cast<size_t>(part.block)].name;
    tensors.push_back(
        {block + "/" + to_string(part.kind), "F32", {part.range.size()}, offset, end});
    offset = end;
  }
  return safetensors_header(shard_metadata(job.checkpoint, job.rank, job.world_size), tensors);
}

Outcome prepare_directory(const std::string& step_dir) {
  if (auto made = make_directories(step_dir); !made.ok()) return with_disk_remedy(made.error());
  if (path_exists(step_dir + "/manifest.json")) {
    return Error{ErrorCode::kAlreadyExists, step_dir + " is a committed checkpoint already"};
  }
  return Ok{};
}

}  // namespace

std::map<std::string, std::string> shard_metadata(const CheckpointRef& checkpoint, int32_t rank,
                                                  int32_t world_size) {
  return {{"format", "hpctl.shard.1"},
          {"step", std::to_string(checkpoint.step)},
          {"generation", std::to_string(checkpoint.generation)},
          {"rank", std::to_string(rank)},
          {"world_size", std::to_string(world_size)}};
}

Result<Receipt> write_shard(const ShardJob& job) {
  HP_CHECK(job.blocks != nullptr && job.rank >= 0 && job.rank < job.world_size);
  const std::string step_dir = job.checkpoint_dir + "/" + job.checkpoint.name();
  Receipt receipt;
  receipt.rank = job.rank;
  receipt.file.file = shard_file_name(job.rank);
  HP_TRY(prepare_directory(step_dir));
  HP_FAILPOINT("checkpoint.shard.before_create");
  HP_TRY_ASSIGN(DurableFile file, DurableFile::create(step_dir + "/" + receipt.file.file));
  HP_FAILPOINT("checkpoint.shard.created");
  const std::string header = shard_header(job);
  HP_TRY(file.append(header.data(), header.size()));
  for (const ShardPart& part : job.parts) {
    if (part.range.empty()) continue;
    HP_CHECK(part.values.size() == static_cast<size_t>(part.range.size()));
    for (int64_t at = part.range.begin; at < part.range.end; at += kStoredPiece) {
      const ElementRange piece{at, std::min(at + kStoredPiece, part.range.end)};
      const auto values = part.values.subspan(static_cast<size_t>(at - part.range.begin),
                                              static_cast<size_t>(piece.size()));
      ShardEntry entry{part.block, part.kind, piece, job.rank, file.bytes(), 0};
      const uint32_t before = file.crc32c();
      HP_TRY(file.append(values.data(), values.size_bytes()));
      entry.crc32c = crc32c_of_end(before, file.crc32c(), values.size_bytes());
      receipt.entries.push_back(entry);
    }
    HP_FAILPOINT("checkpoint.shard.range_written");
  }
  HP_TRY(file.sync());
  // The new directory's own entry must be durable before the commit; every rank makes sure of it,
  // because none knows which of them created it. Not sooner: a sync waits for all that the disk is
  // writing, so before the data it would wait for the other ranks' data.
  HP_TRY(sync_directory(job.checkpoint_dir));
  HP_FAILPOINT("checkpoint.shard.before_rename");
  HP_TRY(file.rename_into_place());
  HP_FAILPOINT("checkpoint.shard.renamed");
  receipt.file.bytes = file.bytes();
  receipt.file.crc32c = file.crc32c();
  return receipt;
}

std::string encode_receipt(const Receipt& receipt) {
  const std::optional<ShardTable> table = table_of(receipt.entries, kStateKinds.size());
  HP_CHECK(table.has_value());
  json ranges = json::array();
  for (const BlockRange& r : table->ranges) {
    ranges.push_back({r.block, r.range.begin, r.range.end});
  }
  return json{{"rank", receipt.rank},        {"file", receipt.file.file},
              {"bytes", receipt.file.bytes}, {"crc32c", receipt.file.crc32c},
              {"data", table->data},         {"ranges", ranges},
              {"sums", table->sums}}
      .dump();
}

Result<Receipt> decode_receipt(const std::string& bytes) {
  try {
    const json document = parse_json(
        bytes, {.bytes = kMaxManifestBytes, .depth = 8, .values = kMaxManifestBytes / 2});
    Receipt receipt;
    receipt.rank = document.at("rank").get<int32_t>();
    receipt.file = {document.at("file").get<std::string>(), document.at("bytes").get<uint64_t>(),
                    document.at("crc32c").get<uint32_t>()};
    ShardTable table;
    table.data = document.at("data").get<uint64_t>();
    for (const json& row : document.at("ranges")) {
      table.ranges.push_back(
          {row.at(0).get<int32_t>(), {row.at(1).get<int64_t>(), row.at(2).get<int64_t>()}});
    }
    table.sums = document.at("sums").get<std::string>();
    auto entries = entries_of_table(table, receipt.rank, kStateKinds.size(), kStoredPiece);
    if (!entries) {
      return Error{ErrorCode::kInvalidArgument,
                   "not a shard receipt: its checksums do not fit its ranges"};
    }
    receipt.entries = std::move(*entries);
    return receipt;
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, std::string("not a shard receipt: ") + e.what()};
  }
}

}  // namespace hpctl
