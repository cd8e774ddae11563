// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/inputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/base/file.h"

namespace hpctl {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr int kMaxDepth = 64;

bool is_json_lines(const std::string& path) {
  const std::string name = without_compression(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
}

Error parquet_error(const std::string& path) {
  const std::string lines = path.substr(0, path.rfind('.')) + ".jsonl";
  return Error{ErrorCode::kInvalidArgument,
               path + " is a Parquet file, which hpctl does not read; convert it in Python: " +
                   "import pandas; pandas.read_parquet(\"" + path + "\").to_json(\"" + lines +
                   "\", orient=\"records\", lines=True, force_ascii=False)"};
}

Outcome add(const std::string& path, int depth, std::vector<InputFile>& files) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return errno_error("cannot read " + path);
  if (S_ISDIR(st.st_mode)) {
    if (depth == kMaxDepth) {
      return Error{ErrorCode::kInvalidArgument, path + " is nested too deeply"};
    }
    HP_TRY_ASSIGN(const auto names, list_directory(path));
    for (const std::string& name : names) {
      if (name[0] != '.') HP_TRY(add(path + "/" + name, depth + 1, files));
    }
    return Ok{};
  }
  if (!S_ISREG(st.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path + " is not a regular file"};
  }
  if (path.ends_with(".parquet")) return parquet_error(path);
  files.push_back(InputFile{path, static_cast<uint64_t>(st.st_size),
                            st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec,
                            is_json_lines(path)});
  return Ok{};
}

}  // namespace

Result<std::vector<InputFile>> find_inputs(const std::vector<std::string>& paths) {
  std::vector<InputFile> files;
  for (const std::string& path : paths) HP_TRY(add(path, 0, files));
  if (files.empty()) return Error{ErrorCode::kInvalidArgument, "no files in " + paths[0]};
  return files;
}

Outcome PartCutter::open_next() {
  HP_TRY_ASSIGN(input_, TextInput::open(files_[file_].path));
  pending_.clear();
  input_ended_ = false;
  offset_ = line_ = raw_given_ = 0;
  return Ok{};
}

// Reads on; sets input_ended_ when there is nothing left.
Outcome PartCutter::fill() {
  const size_t before = pending_.size();
  pending_.resize(before + kReadBytes);
  auto got = input_->read(std::span(pending_).subspan(before));
  pending_.resize(before + (got.ok() ? *got : 0));
  if (!got.ok()) return got.error();
  input_ended_ = *got == 0;
  return Ok{};
}

Result<std::optional<InputPart>> PartCutter::next() {
  if (file_ == files_.size()) return std::optional<InputPart>();
  if (!input_) HP_TRY(open_next());
  const InputFile& file = files_[file_];
  size_t end = std::string::npos;  // of the part, in pending_
  for (size_t searched = 0; end == std::string::npos && !input_ended_;) {
    if (file.json_lines && pending_.size() >= part_bytes_) {
      const size_t newline = pending_.find('\n', std::max(searched, part_bytes_ - 1));
      searched = pending_.size();
      if (newline != std::string::npos) {
        end = newline + 1;
        break;
      }
    }
    if (pending_.size() > part_bytes_ + kMaxDocumentBytes) {
      return Error{ErrorCode::kInvalidArgument,
                   file.path +
                       (file.json_lines ? ": a line near line " + std::to_string(line_ + 1)
                                        : std::string()) +
                       " is longer than 512 MiB; cut it into documents"};
    }
    HP_TRY(fill());
  }
  if (end == std::string::npos) end = pending_.size();
  // One read more, so that the last part knows that it is.
  if (end == pending_.size() && !input_ended_) HP_TRY(fill());
  InputPart part;
  part.text = pending_.substr(0, end);
  pending_.erase(0, end);
  part.place =
      PartPlace{file_,
                offset_,
                offset_ + end,
                line_,
                static_cast<uint64_t>(std::count(part.text.begin(), part.text.end(), '\n')),
                0,
                false};
  part.place.last = pending_.empty() && input_ended_;
  part.place.raw_bytes = (part.place.last ? file.bytes : input_->raw_position()) - raw_given_;
  raw_given_ += part.place.raw_bytes;
  offset_ = part.place.end;
  line_ += part.place.lines;
  if (part.place.last) {
    input_.reset();
    ++file_;
  }
  return std::optional(std::move(part));
}

Outcome PartCutter::skip(const PartPlace& place) {
  if (place.last) {
    input_.reset();
    ++file_;
    return Ok{};
  }
  if (!input_) HP_TRY(open_next());
  const uint64_t size = place.end - place.begin;
  const size_t held = std::min<uint64_t>(size, pending_.size());
  pending_.erase(0, held);
  HP_TRY(input_->skip(size - held));
  offset_ = place.end;
  line_ += place.lines;
  raw_given_ += place.raw_bytes;
  return Ok{};
}

}  // namespace hpctl
