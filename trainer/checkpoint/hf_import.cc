// SPDX-License-Identifier: Apache-2.0
// All headers are read and every tensor of the layout is found, with its shape and a number type
// that fp32 holds exactly, before the first byte is written. Then the blocks are written one after
// the other as one shard, in ranges small enough that a rank of any world size reads little more
// than its own.
#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json_file.h"
#include "trainer/arch/hf_config.h"
#include "trainer/arch/registry.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/model_files.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/shard_table.h"
#include "trainer/checkpoint/shard_writer.h"
#include "trainer/checkpoint/writer_lock.h"
#include "trainer/kernels/bf16_rounding.h"

namespace hpctl {
namespace {

constexpr size_t kMaxConfigBytes = 16U << 20;
constexpr size_t kMaxIndexBytes = 64U << 20;
constexpr CheckpointRef kImported{0, 0};

constexpr const char* kModelDirectory =
    "; expected a Hugging Face model directory: config.json, and model.safetensors or its parts "
    "with their index";
constexpr const char* kGetAgain = "; get it again from where the model is from";
constexpr const char* kOtherWeights =
    "; weights in another form, such as pytorch_model.bin, have to be saved as safetensors first";

Error with_model_remedy(Error error) {
  if (error.code == ErrorCode::kDataLoss) error.message += kGetAgain;
  return error;
}

Outcome check_present(const std::string& directory, const std::string& name, const char* remedy) {
  HP_TRY_ASSIGN(const bool is_present, path_exists(directory + "/" + name));
  if (is_present) return Ok{};
  return Error{ErrorCode::kNotFound, directory + " has no " + name + remedy};
}

float from_bf16(uint16_t bits) { return float_of_bf16(bits); }

// IEEE-754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits.
float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  }
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // subnormal or zero
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + "]";
}

// Where tensors are: every file of the model directory, opened and checked.
class ModelFiles {
 public:
  static Result<ModelFiles> open(const std::string& directory, std::string_view base_prefix) {
    ModelFiles model;
    model.base_prefix_ = base_prefix;
    const std::string index = directory + "/model.safetensors.index.json";
    HP_TRY_ASSIGN(const bool has_index, path_exists(index));
    if (!has_index) {
      HP_TRY(check_present(directory, "model.safetensors", kOtherWeights));
      HP_TRY(model.add(directory + "/model.safetensors"));
      return model;
    }
    HP_TRY_ASSIGN(const auto names, weight_map(index));
    for (const auto& [tensor, file] : names) {
      if (!model.by_name_.contains(file)) {
        HP_TRY(model.add(directory + "/" + file));
        model.by_name_[file] = model.files_.size() - 1;
      }
      const auto found = model.places_.find(tensor);
      if (found == model.places_.end() || found->second != model.by_name_[file]) {
        return Error{ErrorCode::kDataLoss, index + " places tensor " + tensor + " in " + file +
                                               ", which does not have it" + kGetAgain};
      }
    }
    return model;
  }

  const std::map<std::string, size_t>& places() const { return places_; }

  // A file's name for a tensor of the layout: published weights may come from the model without its
  // head, whose names lack the prefix.
  std::string stored_name(const std::string& name) const {
    if (places_.contains(name) || !name.starts_with(base_prefix_)) return name;
    const std::string bare = name.substr(base_prefix_.size());
    return places_.contains(bare) ? bare : name;
  }

  const SafetensorsFile& file_of(const std::string& tensor) const {
    return files_[places_.at(tensor)];
  }

  // Elements [first, first + out.size()) of a tensor of the layout that check_tensor() accepted.
  Outcome read(const std::string& slot_name, int64_t first, std::span<float> out) {
    const std::string name = stored_name(slot_name);
    const SafetensorsFile& file = file_of(name);
    const SafetensorsTensor& tensor = file.tensors().at(name);
    if (tensor.dtype == "F32") {
      return file.read(tensor, static_cast<uint64_t>(first) * 4, out.data(), out.size_bytes());
    }
    halves_.resize(out.size());
    HP_TRY(file.read(tensor, static_cast<uint64_t>(first) * 2, halves_.data(), out.size() * 2));
    std::transform(halves_.begin(), halves_.end(), out.begin(),
                   tensor.dtype == "BF16" ? from_bf16 : from_f16);
    return Ok{};
  }

 private:
  static Result<std::map<std::string, std::string>> weight_map(const std::string& path) {
    HP_TRY_ASSIGN(const std::string text, read_file(path, kMaxIndexBytes));
    HP_TRY_ASSIGN(const auto document, json_of_file(text, path));
    std::map<std::string, std::string> names;
    if (document.is_object() && document.contains("weight_map") &&
        document["weight_map"].is_object()) {
      for (const auto& [tensor, file] : document["weight_map"].items()) {
        // A plain name: an index must not lead out of its directory.
        const bool plain = file.is_string() && !file.get<std::string>().empty() &&
                           file.get<std::string>().find('/') == std::string::npos;
        if (!plain) {
          return Error{ErrorCode::kDataLoss,
                       path + ": tensor " + tensor + " has no file name" + kGetAgain};
        }
        names[tensor] = file.get<std::string>();
      }
    }
    if (!names.empty()) return names;
    return Error{ErrorCode::kDataLoss, path + " has no weight_map" + kGetAgain};
  }

  Outcome add(const std::string& path) {
    auto opened = SafetensorsFile::open(path);
    if (!opened.ok()) return with_model_remedy(opened.error());
    SafetensorsFile file = std::move(opened).value();
    for (const auto& [name, tensor] : file.tensors()) {
      const auto [other, added] = places_.emplace(name, files_.size());
      if (added) continue;
      return Error{ErrorCode::kDataLoss,
                   "tensor " + name + " is in " + files_[other->second].path() + " and in " + path};
    }
    files_.push_back(std::move(file));
    return Ok{};
  }

  std::string_view base_prefix_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> by_name_;  // file name, index in files_
  std::map<std::string, size_t> places_;   // tensor, index in files_
  std::vector<uint16_t> halves_;
};

Outcome check_tensor(const ModelFiles& files, const TensorSlot& slot,
                     const std::string& model_dir) {
  const std::string name = files.stored_name(slot.name);
  if (!files.places().contains(name)) {
    return Error{ErrorCode::kInvalidArgument, "no file of " + model_dir + " has tensor " +
                                                  slot.name + " " + shape_text(slot.shape) +
                                                  ", which its config.json asks for"};
  }
  const SafetensorsFile& file = files.file_of(name);
  const SafetensorsTensor& tensor = file.tensors().at(name);
  const std::string what = file.path() + ": tensor " + name;
  if (tensor.dtype != "F32" && tensor.dtype != "BF16" && tensor.dtype != "F16") {
    return Error{ErrorCode::kInvalidArgument,
                 what + " has dtype " + tensor.dtype + ", expected F32, BF16 or F16"};
  }
  if (tensor.shape != slot.shape) {
    return Error{ErrorCode::kInvalidArgument, what + " has shape " + shape_text(tensor.shape) +
                                                  ", expected " + shape_text(slot.shape)};
  }
  return Ok{};
}

// A tensor that the model does not have means another architecture. Older files carry constants,
// and files with tied embeddings sometimes the copy.
Outcome check_nothing_else(const ModelFiles& files, const ModelSpec& model,
                           const std::vector<Block>& blocks) {
  std::map<std::string, bool> known;
  for (const Block& block : blocks) {
    for (const TensorSlot& slot : block.tensors) known[files.stored_name(slot.name)] = true;
  }
  const HuggingFaceForm& form = architecture_of(model).hugging_face;
  for (const auto& [name, file] : files.places()) {
    if (known.contains(name) || form.is_constant(name) ||
        (model.tied_embeddings && name == "lm_head.weight")) {
      continue;
    }
    return Error{ErrorCode::kInvalidArgument, files.file_of(name).path() + ": tensor " + name +
                                                  " has no place in a " + form.family +
                                                  " model: another architecture?"};
  }
  return Ok{};
}

// The shard, streamed.
class ImportWriter {
 public:
  ImportWriter(ModelFiles& files, const std::vector<Block>& blocks, const StopAsked& stop_asked)
      : files_(files), blocks_(blocks), stop_asked_(stop_asked), values_(kStoredPiece) {}

  Result<Receipt> write(const std::string& step_dir) {
    Receipt receipt;
    receipt.file.file = shard_file_name(0);
    HP_TRY_ASSIGN(DurableFile file, DurableFile::create(step_dir + "/" + receipt.file.file));
    const std::string header = make_header();
    HP_TRY(file.append(header.data(), header.size()));
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (int64_t at = 0; at < blocks_[b].numel; at += kStoredPiece) {
        HP_TRY(check_stop(stop_asked_));
        const ElementRange range{at, std::min(at + kStoredPiece, blocks_[b].numel)};
        const auto values = std::span(values_).first(static_cast<size_t>(range.size()));
        HP_TRY(fill(blocks_[b], range, values));
        ShardEntry entry{static_cast<int32_t>(b), StateKind::kParam, range, 0, file.bytes(), 0};
        entry.crc32c = crc32c(values.data(), values.size_bytes());
        HP_TRY(file.append(values.data(), values.size_bytes()));
        receipt.entries.push_back(entry);
      }
    }
    HP_TRY(file.sync());
    HP_TRY(file.rename_into_place());
    receipt.file.bytes = file.bytes();
    receipt.file.crc32c = file.crc32c();
    return receipt;
  }

 private:
  std::string make_header() const {
    std::vector<SafetensorsTensor> tensors;
    uint64_t offset = 0;
    for (const Block& block : blocks_) {
      const uint64_t end = offset + static_cast<uint64_t>(block.numel) * sizeof(float);
      tensors.push_back(
          {block.name + "/" + to_string(StateKind::kParam), "F32", {block.numel}, offset, end});
      offset = end;
    }
    return safetensors_header(shard_metadata(kImported, 0, 1), tensors);
  }

  Outcome fill(const Block& block, ElementRange range, std::span<float> values) {
    std::fill(values.begin(), values.end(), 0.0F);
    for (const TensorSlot& slot : block.tensors) {
      const ElementRange part = intersect(range, {slot.offset, slot.offset + slot.numel});
      if (part.empty()) continue;
      HP_TRY(files_.read(slot.name, part.begin - slot.offset,
                         values.subspan(static_cast<size_t>(part.begin - range.begin),
                                        static_cast<size_t>(part.size()))));
    }
    return Ok{};
  }

  ModelFiles& files_;
  const std::vector<Block>& blocks_;
  const StopAsked& stop_asked_;
  std::vector<float> values_;
};

Outcome check_target(const std::string& checkpoint_dir) {
  HP_TRY_ASSIGN(const bool has_lineage, entry_exists(checkpoint_dir + "/generations"));
  if (has_lineage) {
    return Error{ErrorCode::kAlreadyExists,
                 checkpoint_dir + " holds the checkpoints of a job; import into another directory"};
  }
  HP_TRY_ASSIGN(const bool has_import, has_manifest(checkpoint_dir + "/" + kImported.name()));
  if (has_import) {
    return Error{ErrorCode::kAlreadyExists, checkpoint_dir + "/" + kImported.name() +
                                                " exists; import into another directory"};
  }
  return Ok{};
}

}  // namespace

Result<HfReport> import_huggingface(const std::string& model_dir, const std::string& checkpoint_dir,
                                    const StopAsked& stop_asked) {
  HP_TRY(check_target(checkpoint_dir));
  const std::string config_path = model_dir + "/config.json";
  HP_TRY(check_present(model_dir, "config.json", kModelDirectory));
  HP_TRY_ASSIGN(const std::string text, read_file(config_path, kMaxConfigBytes));
  HP_TRY_ASSIGN(const HfConfig config, hf_config_from_text(text, config_path));
  Manifest manifest;
  manifest.model = config.model;
  manifest.weights_only = true;
  manifest.data.seq_len = config.max_len;
  manifest.created_wall_ms = SystemClock().wall_ms();
  manifest.blocks = model_layout(config.model);
  HP_TRY_ASSIGN(
      ModelFiles files,
      ModelFiles::open(model_dir, architecture_of(config.model).hugging_face.base_prefix));
  HfReport report;
  report.path = checkpoint_dir + "/" + kImported.name();
  for (const Block& block : manifest.blocks) {
    for (const TensorSlot& slot : block.tensors) {
      HP_TRY(check_tensor(files, slot, model_dir));
      ++report.tensors;
      report.bytes += static_cast<uint64_t>(slot.numel) * sizeof(float);
    }
  }
  HP_TRY(check_nothing_else(files, config.model, manifest.blocks));
  auto lock = WriterLock::take(checkpoint_dir, kImported.name());
  if (!lock.ok()) return with_disk_remedy(lock.error());
  HP_TRY(check_target(checkpoint_dir));  // another one may have come before
  // Removes the remains of a killed import.
  HP_TRY(abandon_checkpoint(checkpoint_dir, kImported));
  if (auto made = make_directories(report.path); !made.ok()) return with_disk_remedy(made.error());
  HP_TRY(sync_directory(checkpoint_dir));
  auto receipt = ImportWriter(files, manifest.blocks, stop_asked).write(report.path);
  Outcome committed = receipt.ok()
                          ? keep_model_files(model_dir, report.path + "/" + kModelFilesDirectory)
                          : Outcome(receipt.error());
  if (committed.ok()) committed = commit_checkpoint(checkpoint_dir, manifest, {*receipt});
  if (!committed.ok()) {
    static_cast<void>(abandon_checkpoint(checkpoint_dir, kImported));
    return committed.error();
  }
  report.files = 1;
  return report;
}

}  // namespace hpctl
