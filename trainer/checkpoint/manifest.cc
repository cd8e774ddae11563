// SPDX-License-Identifier: Apache-2.0
// Names, writing, and the rules a manifest obeys. Reading is in manifest_read.cc.
#include "trainer/checkpoint/manifest.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/job/job_spec_json.h"
#include "trainer/checkpoint/manifest_format.h"
#include "trainer/checkpoint/shard_table.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr int64_t kMaxElements = int64_t{1} << 48;

json block_json(const Block& block) {
  json tensors = json::array();
  for (const TensorSlot& t : block.tensors) {
    tensors.push_back({{"name", t.name},
                       {"dtype", "F32"},
                       {"shape", t.shape},
                       {"offset", t.offset},
                       {"no_decay", t.no_decay}});
  }
  return {{"name", block.name}, {"numel", block.numel}, {"tensors", std::move(tensors)}};
}

// Which file holds which elements of each block: all kinds have the same division.
json ranges_json(const Manifest& m) {
  struct BlockRows {
    std::vector<int64_t> ends;
    json slices = json::array();
    std::vector<int32_t> files;
  };
  std::vector<BlockRows> rows(m.blocks.size());
  for (const ShardEntry& e : m.shards) {
    if (e.kind != StateKind::kParam) continue;
    BlockRows& row = rows[static_cast<size_t>(e.block)];
    if (e.slice >= 0) {
      if (e.range.begin > 0) continue;
      const TensorSlice& slice = m.slices[static_cast<size_t>(e.slice)];
      row.slices.push_back({slice.tensor, slice.offsets, slice.lengths});
      row.files.push_back(e.file);
      continue;
    }
    if (row.files.empty() || row.files.back() != e.file) {
      row.files.push_back(e.file);
      row.ends.push_back(0);
    }
    row.ends.back() = e.range.end;
  }
  json ranges = json::array();
  for (BlockRows& row : rows) {
    json item = {{"files", std::move(row.files)}};
    if (row.slices.empty()) {
      item["ends"] = std::move(row.ends);
    } else {
      item["slices"] = std::move(row.slices);
    }
    ranges.push_back(std::move(item));
  }
  return ranges;
}

Result<json> files_json(const Manifest& m) {
  std::vector<std::vector<ShardEntry>> by_file(m.files.size());
  for (const ShardEntry& e : m.shards) by_file[static_cast<size_t>(e.file)].push_back(e);
  json files = json::array();
  for (size_t f = 0; f < m.files.size(); ++f) {
    const ShardFile& file = m.files[f];
    std::optional<ShardTable> table = table_of(std::move(by_file[f]), m.kinds().size());
    if (!table) {
      return Error{ErrorCode::kFailedPrecondition,
                   file.file + ": its ranges do not follow each other by kind and block"};
    }
    files.push_back({{"file", file.file},
                     {"bytes", file.bytes},
                     {"crc32c", file.crc32c},
                     {"data", table->data},
                     {"sums", std::move(table->sums)}});
  }
  return files;
}

std::string tensor_problem(const Block& block, std::set<std::string>& names) {
  int64_t end = 0;
  for (const TensorSlot& t : block.tensors) {
    const std::string at = "tensor " + t.name + " of block " + block.name;
    if (t.name.empty() || !names.insert(t.name).second) return at + " has no name, or another's";
    int64_t numel = 1;
    for (const int64_t extent : t.shape) {
      if (extent < 1 || extent > kMaxElements / numel) return at + " has an impossible shape";
      numel *= extent;
    }
    if (numel != t.numel) return at + " has another size than its shape";
    if (t.offset < end || t.offset % kAlignElements != 0 || t.offset > block.numel ||
        numel > block.numel - t.offset) {
      return at + " lies outside its place";
    }
    end = t.offset + numel;
  }
  return "";
}

std::string blocks_problem(const std::vector<Block>& blocks) {
  if (blocks.empty()) return "no blocks";
  std::set<std::string> block_names;
  std::set<std::string> tensor_names;
  for (const Block& block : blocks) {
    if (block.name.empty() || !block_names.insert(block.name).second) {
      return "block \"" + block.name + "\" has no name, or another's";
    }
    if (block.numel < 1 || block.numel > kMaxElements || block.numel % kAlignElements != 0) {
      return "block " + block.name + " has an impossible size";
    }
    if (auto problem = tensor_problem(block, tensor_names); !problem.empty()) return problem;
  }
  return "";
}

std::string entry_problem(const Manifest& m, const ShardEntry& e) {
  if (e.file < 0 || static_cast<size_t>(e.file) >= m.files.size()) return "names an unknown file";
  const uint64_t file_bytes = m.files[static_cast<size_t>(e.file)].bytes;
  const uint64_t bytes = static_cast<uint64_t>(e.range.size()) * sizeof(float);
  if (e.offset < 8 || e.offset > file_bytes || bytes > file_bytes - e.offset) {
    return "lies outside its file";
  }
  return "";
}

// Entries from `next` on must cover elements [0, numel) of a block, or of its slice, once.
std::string cover_problem(const Manifest& m, const ShardEntry& of, int64_t numel, size_t& next) {
  const std::string at = m.blocks[static_cast<size_t>(of.block)].name + " " + to_string(of.kind) +
                         (of.slice < 0 ? "" : " slice " + std::to_string(of.slice));
  int64_t covered = 0;
  while (covered < numel) {
    if (next == m.shards.size() || m.shards[next].block != of.block ||
        m.shards[next].kind != of.kind || m.shards[next].slice != of.slice ||
        m.shards[next].range.begin > covered) {
      return at + " misses elements from " + std::to_string(covered) + " on";
    }
    const ShardEntry& e = m.shards[next++];
    const std::string range = at + " elements [" + std::to_string(e.range.begin) + ", " +
                              std::to_string(e.range.end) + ")";
    if (e.range.begin < covered) return range + " are there twice";
    if (e.range.empty() || e.range.end > numel) return range + " are impossible";
    if (auto problem = entry_problem(m, e); !problem.empty()) return range + ": " + problem;
    covered = e.range.end;
  }
  return "";
}

std::string slices_problem(const Manifest& m) {
  for (size_t i = 0; i < m.slices.size(); ++i) {
    if (auto problem = slice_problem(m.blocks, m.slices[i]); !problem.empty()) return problem;
    if (i > 0 && !(m.slices[i - 1] < m.slices[i])) return "the slices are not in order";
  }
  return "";
}

// Every block and kind must be covered from its first to its last element, once, or all its tensors
// by slices.
std::string tiling_problem(const Manifest& m) {
  size_t next = 0;
  auto slices = std::span(m.slices);
  for (size_t b = 0; b < m.blocks.size(); ++b) {
    size_t own = 0;
    while (own < slices.size() && slices[own].block == static_cast<int32_t>(b)) ++own;
    const auto first = static_cast<int32_t>(m.slices.size() - slices.size());
    const auto of_block = slices.first(own);
    slices = slices.subspan(own);
    if (own > 0) {
      auto problem = tiling_problem(m.blocks[b], of_block);
      if (!problem.empty()) return m.blocks[b].name + ": " + problem;
    }
    for (const StateKind kind : m.kinds()) {
      ShardEntry of;
      of.block = static_cast<int32_t>(b);
      of.kind = kind;
      for (size_t s = 0; s < std::max<size_t>(own, 1); ++s) {
        if (own > 0) of.slice = first + static_cast<int32_t>(s);
        const int64_t numel = own > 0 ? elements_of(of_block[s]) : m.blocks[b].numel;
        if (auto problem = cover_problem(m, of, numel, next); !problem.empty()) return problem;
      }
    }
  }
  return next == m.shards.size() ? "" : "more ranges than elements";
}

}  // namespace

const char* to_string(StateKind kind) {
  switch (kind) {
    case StateKind::kParam:
      return "param";
    case StateKind::kExpAvg:
      return "exp_avg";
    case StateKind::kExpAvgSq:
      return "exp_avg_sq";
  }
  return "unknown";
}

std::string shard_file_name(int32_t rank) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "shard-%05d.safetensors", rank);
  return name.data();
}

void sort_entries(std::vector<ShardEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const ShardEntry& a, const ShardEntry& b) {
    return std::tie(a.block, a.kind, a.slice, a.range.begin) <
           std::tie(b.block, b.kind, b.slice, b.range.begin);
  });
}

std::string manifest_problem(const Manifest& m) {
  if (m.world_size < 1 || m.files.size() != static_cast<size_t>(m.world_size)) {
    return "world size and number of files differ";
  }
  for (int32_t rank = 0; rank < m.world_size; ++rank) {
    const std::string& name = m.files[static_cast<size_t>(rank)].file;
    if (name != shard_file_name(rank))
      return "file \"" + name + "\" is not rank " + std::to_string(rank) + "'s";
  }
  if (!is_normalized(m.skipped)) return "the skip list is not in order";
  if (m.data.seq_len < 1) return "seq_len is not positive";
  if (auto problem = blocks_problem(m.blocks); !problem.empty()) return problem;
  if (auto problem = slices_problem(m); !problem.empty()) return problem;
  return tiling_problem(m);
}

Result<std::string> to_manifest_text(const Manifest& m, size_t most_bytes) {
  json skipped = json::array();
  for (const SampleRange& r : m.skipped) skipped.push_back({r.begin, r.end});
  json blocks = json::array();
  for (const Block& block : m.blocks) blocks.push_back(block_json(block));
  HP_TRY_ASSIGN(json files, files_json(m));
  json document = {
      {"format", kManifestFormat},
      {"version", m.slices.empty() ? kManifestOfIntervals : kManifestVersion},
      {"step", m.step},
      {"generation", m.generation},
      {"parent", m.parent},
      {"world_size", m.world_size},
      {"sample_cursor", m.sample_cursor},
      {"skipped", std::move(skipped)},
      {"data",
       {{"fingerprint", m.data.fingerprint},
        {"tokens", m.data.tokens},
        {"seq_len", m.data.seq_len}}},
      {"seed", m.seed},
      {"model", m.model},
      {"environment", m.environment},
      {"exact", m.exact},
      {"inexact_reason", m.inexact_reason},
      {"created_wall_ms", m.created_wall_ms},
      {"blocks", std::move(blocks)},
      {"files", std::move(files)},
      {"ranges", ranges_json(m)},
      {"piece_elements", kStoredPiece},
  };
  if (m.lora.on()) document["lora"] = m.lora;
  if (m.weights_only) document["weights_only"] = true;
  if (m.stability != StabilityRecord{}) {
    document["stability"] = {{"skips", m.stability.skips},
                             {"losses", m.stability.losses},
                             {"grad_norms", m.stability.grad_norms}};
  }
  if (m.loss_scale != LossScaleRecord{}) {
    document["loss_scale"] = {{"scale", m.loss_scale.scale},
                              {"good_steps", m.loss_scale.good_steps},
                              {"hysteresis_left", m.loss_scale.hysteresis_left},
                              {"overflows", m.loss_scale.overflows}};
  }
  // Names come from our own layout, labels from the environment: replace what is not UTF-8.
  std::string text = json_text(document);
  text.pop_back();
  if (text.size() + kManifestSealBytes > most_bytes) {
    return Error{ErrorCode::kFailedPrecondition,
                 "the manifest of " + std::to_string(m.world_size) + " ranks would have " +
                     std::to_string(text.size()) + " bytes, more than the " +
                     std::to_string(most_bytes) + " that are read again; use fewer workers"};
  }
  return text + manifest_seal(text);
}

std::string manifest_seal(std::string_view body) {
  std::array<char, kManifestSealBytes + 1> seal{};
  std::snprintf(seal.data(), seal.size(), ",\"crc32c\":\"%08x\"}\n",
                crc32c(body.data(), body.size()));
  return seal.data();
}

}  // namespace hpctl
