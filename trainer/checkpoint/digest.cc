// SPDX-License-Identifier: Apache-2.0
// The number that says whether two checkpoints hold the same training state. Framing (all numbers
// unsigned 64-bit little-endian; docs/formats.md):
//   "hpctl digest 1\n", number of tensors, then per tensor in bytewise name order
//   len(name) name len(dtype) dtype ndim dim... len(data) data,
//   then step, sample cursor, number of skipped ranges, and begin and end of each.
// Every parameter NAME counts as three tensors: NAME, NAME.exp_avg, NAME.exp_avg_sq.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/shard_reader.h"

namespace hpctl {
namespace {

constexpr size_t kPieceElements = 1U << 18;

struct NamedTensor {
  std::string name;
  int32_t block = 0;
  StateKind kind = StateKind::kParam;
  const TensorSlot* slot = nullptr;
};

std::vector<NamedTensor> tensors_by_name(const Manifest& manifest) {
  std::vector<NamedTensor> tensors;
  for (size_t b = 0; b < manifest.blocks.size(); ++b) {
    for (const TensorSlot& slot : manifest.blocks[b].tensors) {
      for (const StateKind kind : kStateKinds) {
        std::string name = slot.name;
        if (kind != StateKind::kParam) name += std::string(".") + to_string(kind);
        tensors.push_back({std::move(name), static_cast<int32_t>(b), kind, &slot});
      }
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  return tensors;
}

class Digester {
 public:
  Digester(const std::string& step_dir, const Manifest& manifest)
      : manifest_(manifest), shards_(step_dir), buffer_(kPieceElements) {
    hash_.update("hpctl digest 1\n");
  }

  void number(uint64_t value) {
    std::array<unsigned char, 8> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(value >> (8 * i));
    }
    hash_.update(bytes.data(), bytes.size());
  }

  Outcome tensor(const NamedTensor& tensor) {
    text(tensor.name);
    text("F32");
    number(tensor.slot->shape.size());
    for (const int64_t extent : tensor.slot->shape) number(static_cast<uint64_t>(extent));
    number(static_cast<uint64_t>(tensor.slot->numel) * sizeof(float));
    const ElementRange whole{tensor.slot->offset, tensor.slot->offset + tensor.slot->numel};
    for (const ShardEntry& entry : entries_of(manifest_, tensor.block, tensor.kind, whole)) {
      HP_TRY(values(entry, intersect(entry.range, whole)));
    }
    return Ok{};
  }

  std::string finish() { return hash_.hex_digest(); }

 private:
  void text(std::string_view value) {
    number(value.size());
    hash_.update(value);
  }

  Outcome values(const ShardEntry& entry, ElementRange part) {
    for (int64_t at = part.begin; at < part.end;) {
      const size_t size = std::min(static_cast<size_t>(part.end - at), kPieceElements);
      const auto skip = static_cast<uint64_t>(at - entry.range.begin) * sizeof(float);
      HP_TRY(shards_.read(manifest_.files[static_cast<size_t>(entry.file)], entry.offset + skip,
                          buffer_.data(), size * sizeof(float)));
      hash_.update(buffer_.data(), size * sizeof(float));
      at += static_cast<int64_t>(size);
    }
    return Ok{};
  }

  const Manifest& manifest_;
  ShardFiles shards_;
  std::vector<float> buffer_;
  Sha256 hash_;
};

}  // namespace

Result<std::string> digest_checkpoint(const std::string& step_dir) {
  HP_TRY_ASSIGN(const VerifyReport report, verify_checkpoint(step_dir));
  if (!report.problems.empty()) return Error{ErrorCode::kDataLoss, report.problems.front()};
  HP_TRY_ASSIGN(const Manifest manifest, read_manifest(step_dir));
  Digester digester(step_dir, manifest);
  const auto tensors = tensors_by_name(manifest);
  digester.number(tensors.size());
  for (const NamedTensor& tensor : tensors) HP_TRY(digester.tensor(tensor));
  digester.number(manifest.step);
  digester.number(manifest.sample_cursor);
  digester.number(manifest.skipped.size());
  for (const SampleRange& range : manifest.skipped) {
    digester.number(range.begin);
    digester.number(range.end);
  }
  return digester.finish();
}

}  // namespace hpctl
