// SPDX-License-Identifier: Apache-2.0
// The number that says whether two checkpoints hold the same training state. Framing (all numbers
// unsigned 64-bit little-endian; docs/formats.md):
//   "hpctl digest 1\n", number of tensors, then per tensor in bytewise name order
//   len(name) name len(dtype) dtype ndim dim... len(data) data,
//   then step, sample cursor, number of skipped ranges, and begin and end of each; and where the
//   manifest has it, len "stability", skips, then number and fp64 bits of losses and grad_norms;
//   likewise len "loss_scale", scale, good_steps, hysteresis_left, overflows.
#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "common/base/checksum.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/stored_tensors.h"

namespace hpctl {
namespace {

constexpr int64_t kPieceElements = 1 << 18;

class Digester {
 public:
  explicit Digester(const std::string& step_dir, const Manifest& manifest)
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

  Outcome tensor(const StoredTensor& tensor) {
    text(tensor.name);
    text("F32");
    number(tensor.slot->shape.size());
    for (const int64_t extent : tensor.slot->shape) number(static_cast<uint64_t>(extent));
    const int64_t numel = tensor.slot->numel;
    number(static_cast<uint64_t>(numel) * sizeof(float));
    for (int64_t at = 0; at < numel; at += kPieceElements) {
      const auto size = static_cast<size_t>(std::min(kPieceElements, numel - at));
      const std::span<float> piece(buffer_.data(), size);
      HP_TRY(read_elements(manifest_, shards_, tensor, at, piece));
      hash_.update(piece.data(), piece.size_bytes());
    }
    return Ok{};
  }

  void stability(const StabilityRecord& record) {
    text("stability");
    number(record.skips);
    for (const auto* values : {&record.losses, &record.grad_norms}) {
      number(values->size());
      for (const double value : *values) number(std::bit_cast<uint64_t>(value));
    }
  }

  void loss_scale(const LossScaleRecord& record) {
    text("loss_scale");
    for (const uint64_t value :
         {record.scale, record.good_steps, record.hysteresis_left, record.overflows}) {
      number(value);
    }
  }

  std::string finish() { return hash_.hex_digest(); }

 private:
  void text(std::string_view value) {
    number(value.size());
    hash_.update(value);
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
  for (const StoredTensor& tensor : tensors) HP_TRY(digester.tensor(tensor));
  digester.number(manifest.step);
  digester.number(manifest.sample_cursor);
  digester.number(manifest.skipped.size());
  for (const SampleRange& range : manifest.skipped) {
    digester.number(range.begin);
    digester.number(range.end);
  }
  if (manifest.stability != StabilityRecord{}) digester.stability(manifest.stability);
  if (manifest.loss_scale != LossScaleRecord{}) digester.loss_scale(manifest.loss_scale);
  return digester.finish();
}

}  // namespace hpctl
