// SPDX-License-Identifier: Apache-2.0
// A block's parameters are stored as ranges that follow each other, and its tensors lie in them in
// ascending order; so one pass over the ranges gives the tensors, and each range's checksum is
// complete when its last element has passed. Everything is written to a directory beside `out`,
// which gets its name last.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/json_text.h"
#include "common/base/temporary_file.h"
#include "trainer/arch/hf_config.h"
#include "trainer/checkpoint/durable_file.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/loader.h"
#include "trainer/checkpoint/lora_base.h"
#include "trainer/checkpoint/model_files.h"
#include "trainer/checkpoint/peft.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/shard_reader.h"
#include "trainer/checkpoint/unfinished_directory.h"
#include "trainer/checkpoint/writer_lock.h"
#include "trainer/kernels/bf16_rounding.h"

namespace hpctl {
namespace {

constexpr int64_t kPieceElements = 1 << 18;
constexpr int64_t kWindowElements = 1 << 23;  // 32 MiB

// The elements of a block's parameters, first to last.
class BlockStream {
 public:
  BlockStream(const std::string& step_dir, const Manifest& manifest, ShardFiles& files,
              int32_t block)
      : step_dir_(step_dir),
        manifest_(manifest),
        files_(files),
        block_(block),
        numel_(manifest.blocks[static_cast<size_t>(block)].numel),
        sliced_(is_sliced(manifest, block)) {
    if (!sliced_) entries_ = entries_of(manifest, block, StateKind::kParam, {0, numel_});
  }

  int64_t position() const { return position_; }

  // The next out.size() elements; kDataLoss when a range that ends among them is damaged.
  Outcome read(std::span<float> out) {
    if (sliced_) return read_window(out);
    while (!out.empty()) {
      const ShardEntry& entry = entries_.front();
      const auto size = std::min(out.size(), static_cast<size_t>(entry.range.end - position_));
      const auto skip = static_cast<uint64_t>(position_ - entry.range.begin) * sizeof(float);
      HP_TRY(files_.read(manifest_.files[static_cast<size_t>(entry.file)], entry.offset + skip,
                         out.data(), size * sizeof(float)));
      crc_ = crc32c(out.data(), size * sizeof(float), crc_);
      position_ += static_cast<int64_t>(size);
      out = out.subspan(size);
      if (position_ < entry.range.end) continue;
      if (crc_ != entry.crc32c) {
        return Error{ErrorCode::kDataLoss, step_dir_ + "/" + describe_entry(manifest_, entry) +
                                               " is damaged: crc32c does not match the manifest"};
      }
      crc_ = 0;
      entries_ = entries_.subspan(1);
    }
    return Ok{};
  }

 private:
  // Pieces of slices lie across many rows: a window of those is read at once.
  Outcome read_window(std::span<float> out) {
    while (!out.empty()) {
      const ElementRange left = intersect(window_, {position_, numel_});
      if (left.empty()) {
        window_ = {position_, std::min(position_ + kWindowElements, numel_)};
        values_.resize(static_cast<size_t>(window_.size()));
        HP_TRY(read_slices(manifest_, files_, block_, StateKind::kParam, window_, values_));
        continue;
      }
      const auto size = std::min(out.size(), static_cast<size_t>(left.size()));
      std::copy_n(values_.data() + (position_ - window_.begin), size, out.data());
      position_ += static_cast<int64_t>(size);
      out = out.subspan(size);
    }
    return Ok{};
  }

  const std::string& step_dir_;
  const Manifest& manifest_;
  ShardFiles& files_;
  int32_t block_;
  int64_t numel_;
  bool sliced_;
  ElementRange window_;                  // of a block in slices
  std::vector<float> values_;            // those of the window
  std::span<const ShardEntry> entries_;  // the first of them is being read
  int64_t position_ = 0;
  uint32_t crc_ = 0;
};

class Exporter {
 public:
  // `adapters`, which outlive it, are merged in; null = there are none.
  Exporter(std::string step_dir, Manifest manifest, const HfExportOptions& options,
           MergedAdapters* adapters)
      : step_dir_(std::move(step_dir)),
        manifest_(std::move(manifest)),
        options_(options),
        adapters_(adapters),
        shards_(step_dir_),
        values_(kPieceElements),
        rounded_(options.bf16 ? kPieceElements : 0) {}

  // Into an existing empty directory.
  Result<HfReport> write(const std::string& directory) {
    plan_files();
    HfReport report;
    nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
    for (size_t i = 0; i < files_.size(); ++i) {
      const std::string name = file_name(i);
      HP_TRY(begin_file(directory + "/" + name, files_[i]));
      for (const Place& place : files_[i]) {
        HP_TRY(copy_tensor(place));
        weight_map[name_of(place)] = name;
        report.bytes += bytes_of(place);
        ++report.tensors;
      }
      HP_TRY(file_->sync());
      HP_TRY(file_->rename_into_place());
    }
    HP_TRY(finish_block());
    report.files = files_.size();
    if (files_.size() > 1) {
      const nlohmann::ordered_json index = {{"metadata", {{"total_size", report.bytes}}},
                                            {"weight_map", weight_map}};
      HP_TRY(write_file_atomic(directory + "/model.safetensors.index.json",
                               json_text(index, {.indent = 2}) + "\n"));
    }
    return report;
  }

 private:
  struct Place {
    int32_t block;
    size_t tensor;  // index in the block
  };

  const TensorSlot& slot(const Place& place) const {
    return manifest_.blocks[static_cast<size_t>(place.block)].tensors[place.tensor];
  }
  uint64_t bytes_of(const Place& place) const {
    return static_cast<uint64_t>(slot(place).numel) * (options_.bf16 ? 2 : 4);
  }
  std::string name_of(const Place& place) const {
    return (manifest_.lora.on() ? kPeftPrefix : "") + slot(place).name;
  }
  std::string file_name(size_t index) const {
    if (manifest_.lora.on()) return "adapter_model.safetensors";
    if (files_.size() == 1) return "model.safetensors";
    std::array<char, 80> name{};
    std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1,
                  files_.size());
    return name.data();
  }

  void plan_files() {
    uint64_t bytes = 0;
    for (size_t b = 0; b < manifest_.blocks.size(); ++b) {
      for (size_t t = 0; t < manifest_.blocks[b].tensors.size(); ++t) {
        const Place place{static_cast<int32_t>(b), t};
        const bool full = bytes + bytes_of(place) > options_.max_file_bytes;
        if (files_.empty() || (full && !manifest_.lora.on())) {
          files_.emplace_back();
          bytes = 0;
        }
        files_.back().push_back(place);
        bytes += bytes_of(place);
      }
    }
  }

  Outcome begin_file(const std::string& path, const std::vector<Place>& places) {
    std::vector<SafetensorsTensor> tensors;
    uint64_t offset = 0;
    for (const Place& place : places) {
      const uint64_t end = offset + bytes_of(place);
      tensors.push_back(
          {name_of(place), options_.bf16 ? "BF16" : "F32", slot(place).shape, offset, end});
      offset = end;
    }
    HP_TRY_ASSIGN(DurableFile file, DurableFile::create(path));
    file_.emplace(std::move(file));
    const std::string header = safetensors_header({{"format", "pt"}}, tensors);
    return file_->append(header.data(), header.size());
  }

  Outcome copy_tensor(const Place& place) {
    if (block_ != place.block) {
      HP_TRY(finish_block());
      block_ = place.block;
      stream_.emplace(step_dir_, manifest_, shards_, block_);
    }
    HP_TRY(pass_over(slot(place).offset));
    if (adapters_ != nullptr) HP_TRY(adapters_->select(slot(place)));
    for (int64_t left = slot(place).numel; left > 0;) {
      HP_TRY(check_stop(options_.stop_asked));
      const auto size = static_cast<size_t>(std::min(left, kPieceElements));
      HP_TRY(stream_->read(std::span(values_).first(size)));
      if (adapters_ != nullptr) {
        adapters_->add(slot(place).numel - left, std::span(values_).first(size));
      }
      if (options_.bf16) {
        round_to_bf16(values_.data(), rounded_.data(), static_cast<int64_t>(size));
        HP_TRY(file_->append(rounded_.data(), size * sizeof(uint16_t)));
      } else {
        HP_TRY(file_->append(values_.data(), size * sizeof(float)));
      }
      left -= static_cast<int64_t>(size);
    }
    return Ok{};
  }

  // Reads the gaps too: they count in the checksums.
  Outcome pass_over(int64_t until) {
    while (stream_->position() < until) {
      const auto size = static_cast<size_t>(std::min(until - stream_->position(), kPieceElements));
      HP_TRY(stream_->read(std::span(values_).first(size)));
    }
    return Ok{};
  }
  Outcome finish_block() {
    if (!stream_) return Ok{};
    return pass_over(manifest_.blocks[static_cast<size_t>(block_)].numel);
  }

  std::string step_dir_;
  Manifest manifest_;
  HfExportOptions options_;
  MergedAdapters* adapters_;
  ShardFiles shards_;
  std::vector<float> values_;
  std::vector<uint16_t> rounded_;
  std::vector<std::vector<Place>> files_;
  std::optional<DurableFile> file_;
  std::optional<BlockStream> stream_;
  int32_t block_ = -1;  // of stream_
};

// The base of adapters, which they are merged into.
Result<std::string> model_to_merge(const Manifest& manifest) {
  const std::string& base = manifest.lora.base;
  HP_TRY_ASSIGN(const Manifest found, read_manifest(base));
  const auto label = manifest.environment.find(kBaseLabel);
  if (label != manifest.environment.end() && is_base(found, label->second)) return base;
  return Error{ErrorCode::kInvalidArgument,
               base + " has other weights than those that the adapters were trained beside"};
}

// A model is made for longer sequences than those that it was trained on last.
int64_t longest_sequence(const Manifest& m) {
  return std::max(m.data.seq_len, m.model.max_positions);
}

}  // namespace

Result<HfReport> export_huggingface(const std::string& step_dir, const std::string& out,
                                    const HfExportOptions& options) {
  std::string source = step_dir;  // whose tensors are written
  HP_TRY_ASSIGN(Manifest manifest, read_manifest(step_dir));
  if (options.merge && !manifest.lora.on()) {
    return Error{ErrorCode::kInvalidArgument,
                 step_dir + " holds a whole model; there is nothing to merge"};
  }
  std::optional<MergedAdapters> adapters;
  if (options.merge) {
    HP_TRY_ASSIGN(source, model_to_merge(manifest));
    HP_TRY_ASSIGN(adapters, MergedAdapters::open(step_dir));
    HP_TRY_ASSIGN(manifest, read_manifest(source));
  }
  const bool whole = !manifest.lora.on();
  HP_TRY_ASSIGN(const std::string kept,
                whole ? find_model_files(source) : Result<std::string>(std::string()));
  std::string config = whole ? to_hf_config_text({.model = manifest.model,
                                                  .max_len = longest_sequence(manifest),
                                                  .dtype = options.bf16 ? "bfloat16" : "float32"})
                             : peft_config_text(manifest.lora);
  if (!kept.empty()) {
    HP_TRY_ASSIGN(config, with_special_tokens(config, kept));
  }
  std::string target = out;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  HP_TRY_ASSIGN(const bool exists, path_exists(target));
  if (exists) {
    const auto names = list_directory(target);
    if (!names.ok() || !names->empty()) {
      return Error{ErrorCode::kAlreadyExists,
                   target + " exists and is not an empty directory; nothing was written"};
    }
  }
  const auto lock = WriterLock::take(parent_of(target), target.substr(target.rfind('/') + 1));
  if (!lock.ok()) return with_disk_remedy(lock.error());
  auto unfinished = UnfinishedDirectory::create(target);
  if (!unfinished.ok()) return with_disk_remedy(unfinished.error());
  Exporter exporter(source, std::move(manifest), options, adapters ? &*adapters : nullptr);
  HP_TRY_ASSIGN(HfReport report, exporter.write(unfinished->path()));
  const char* config_name = whole ? "/config.json" : "/adapter_config.json";
  HP_TRY(write_file_atomic(unfinished->path() + config_name, config));
  if (!kept.empty()) HP_TRY(write_model_files(kept, unfinished->path()));
  HP_TRY(unfinished->rename_into_place());
  report.path = target;
  return report;
}

}  // namespace hpctl
