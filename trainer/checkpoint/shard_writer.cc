// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/shard_writer.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/json_text.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/shard_table.h"

namespace hpctl {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "stored bytes are little-endian");

// Every interval begins at a multiple of 64 bytes of the file: so does the data, and intervals are
// multiples of kAlignElements. Slices begin anywhere.
std::string shard_header(const ShardJob& job) {
  std::vector<SafetensorsTensor> tensors;
  uint64_t offset = 0;
  for (const ShardPart& part : job.parts) {
    if (part.range.empty()) continue;
    const uint64_t end = offset + part.values.size_bytes();
    const Block& block = (*job.blocks)[static_cast<size_t>(part.block)];
    std::string name = block.name;
    std::vector<int64_t> shape = {part.range.size()};
    if (part.slice != nullptr) {
      name = describe_slice(block.tensors[static_cast<size_t>(part.slice->tensor)], *part.slice);
      shape = part.slice->lengths;
    }
    tensors.push_back({name + "/" + to_string(part.kind), "F32", std::move(shape), offset, end});
    offset = end;
  }
  return safetensors_header(shard_metadata(job.checkpoint, job.rank, job.world_size), tensors);
}

// The slices of the first kind, which are the same for every kind.
std::vector<TensorSlice> slices_of(const ShardJob& job) {
  std::vector<TensorSlice> slices;
  for (const ShardPart& part : job.parts) {
    if (part.slice == nullptr || part.kind != StateKind::kParam) continue;
    HP_CHECK(part.slice->block == part.block && slice_problem(*job.blocks, *part.slice).empty());
    HP_CHECK(part.range == (ElementRange{0, elements_of(*part.slice)}));
    HP_CHECK(slices.empty() || slices.back() < *part.slice);
    slices.push_back(*part.slice);
  }
  return slices;
}

int32_t index_of(const std::vector<TensorSlice>& slices, const TensorSlice* slice) {
  if (slice == nullptr) return -1;
  const auto found = std::lower_bound(slices.begin(), slices.end(), *slice);
  HP_CHECK(found != slices.end() && *found == *slice);
  return static_cast<int32_t>(found - slices.begin());
}

// A row of a receipt's ranges: block, begin, end; or block, tensor, offsets, lengths. Throws where
// it is neither.
Outcome append_range(const json& row, ShardTable& table, std::vector<TensorSlice>& slices) {
  const auto block = row.at(0).get<int32_t>();
  if (row.size() == 3) {
    table.ranges.push_back({block, {row.at(1).get<int64_t>(), row.at(2).get<int64_t>()}});
    return Ok{};
  }
  if (row.size() != 4) {
    return Error{ErrorCode::kInvalidArgument, "not a shard receipt: a malformed range"};
  }
  TensorSlice slice{block, row.at(1).get<int32_t>(), row.at(2).get<std::vector<int64_t>>(),
                    row.at(3).get<std::vector<int64_t>>()};
  int64_t elements = 1;
  for (const int64_t length : slice.lengths) {
    if (length < 1 || __builtin_mul_overflow(elements, length, &elements)) {
      return Error{ErrorCode::kInvalidArgument, "not a shard receipt: an impossible slice"};
    }
  }
  table.ranges.push_back({block, {0, elements}, static_cast<int32_t>(slices.size())});
  slices.push_back(std::move(slice));
  return Ok{};
}

Outcome check_not_given_up(const ShardJob& job) {
  if (job.given_up == nullptr || !*job.given_up) return Ok{};
  return Error{ErrorCode::kUnavailable, "the save of " + job.checkpoint.name() + " was given up"};
}

Outcome prepare_directory(const std::string& step_dir) {
  if (auto made = make_directories(step_dir); !made.ok()) return with_disk_remedy(made.error());
  // By the names in it: an NFS client that looked up the manifest itself would remember its
  // absence, even when rank 0 has written it.
  HP_TRY_ASSIGN(const auto names, list_directory(step_dir));
  if (std::binary_search(names.begin(), names.end(), "manifest.json")) {
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
  receipt.slices = slices_of(job);
  HP_TRY(prepare_directory(step_dir));
  HP_FAILPOINT("checkpoint.shard.before_create");
  HP_TRY_ASSIGN(DurableFile file, DurableFile::create(step_dir + "/" + receipt.file.file));
  HP_FAILPOINT("checkpoint.shard.created");
  const std::string header = shard_header(job);
  HP_TRY(file.append(header.data(), header.size()));
  for (const ShardPart& part : job.parts) {
    if (part.range.empty()) continue;
    HP_CHECK(part.values.size() == static_cast<size_t>(part.range.size()));
    const int32_t slice = index_of(receipt.slices, part.slice);
    for (int64_t at = part.range.begin; at < part.range.end; at += kStoredPiece) {
      const ElementRange piece{at, std::min(at + kStoredPiece, part.range.end)};
      const auto values = part.values.subspan(static_cast<size_t>(at - part.range.begin),
                                              static_cast<size_t>(piece.size()));
      HP_TRY(check_not_given_up(job));
      ShardEntry entry{part.block, part.kind, piece, job.rank, file.bytes(), 0, slice};
      const uint32_t before = file.crc32c();
      HP_TRY(file.append(values.data(), values.size_bytes()));
      if (job.progress != nullptr) job.progress->bytes += values.size_bytes();
      entry.crc32c = crc32c_of_end(before, file.crc32c(), values.size_bytes());
      receipt.entries.push_back(entry);
    }
    HP_FAILPOINT("checkpoint.shard.range_written");
  }
  HP_TRY(check_not_given_up(job));
  if (job.progress != nullptr) job.progress->is_syncing = true;
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
    if (r.slice < 0) {
      ranges.push_back({r.block, r.range.begin, r.range.end});
      continue;
    }
    const TensorSlice& slice = receipt.slices[static_cast<size_t>(r.slice)];
    ranges.push_back({r.block, slice.tensor, slice.offsets, slice.lengths});
  }
  return json_text(json{{"rank", receipt.rank},
                        {"file", receipt.file.file},
                        {"bytes", receipt.file.bytes},
                        {"crc32c", receipt.file.crc32c},
                        {"data", table->data},
                        {"ranges", ranges},
                        {"sums", table->sums}});
}

Result<Receipt> decode_receipt(const std::string& bytes) {
  json document;
  try {
    document = parse_json(
        bytes, {.bytes = kMaxManifestBytes, .depth = 8, .values = kMaxManifestBytes / 2});
    Receipt receipt;
    receipt.rank = document.at("rank").get<int32_t>();
    receipt.file = {document.at("file").get<std::string>(), document.at("bytes").get<uint64_t>(),
                    document.at("crc32c").get<uint32_t>()};
    ShardTable table;
    table.data = document.at("data").get<uint64_t>();
    for (const json& row : document.at("ranges")) {
      HP_TRY(append_range(row, table, receipt.slices));
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
    return Error{ErrorCode::kInvalidArgument, "not a shard receipt: " + problem_in(document, e)};
  }
}

}  // namespace hpctl
