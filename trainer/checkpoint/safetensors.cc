// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/base/bounded_json.h"
#include "common/base/check.h"
#include "common/base/git_lfs.h"
#include "common/base/json_text.h"
#include "common/base/printable.h"

namespace hpctl {
namespace {

using nlohmann::json;

constexpr size_t kDataAlignment = 64;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr size_t kShownBytes = 500;  // of what is wrong: names in it are the file's

// 0 = not a dtype of the format.
uint64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> kBytes = {
      {"F64", 8},  {"I64", 8},     {"U64", 8},     {"F32", 4}, {"I32", 4},
      {"U32", 4},  {"F16", 2},     {"I16", 2},     {"U16", 2}, {"I8", 1},
      {"BF16", 2}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"U8", 1},  {"BOOL", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

Error damaged(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kDataLoss,
               path + " is not a sound safetensors file: " + printable_line(why, kShownBytes)};
}

std::optional<uint64_t> whole_up_to(uint64_t maximum, const json& value) {
  const auto number = whole_number<uint64_t>(value);
  return number && *number <= maximum ? number : std::nullopt;
}

// The problem with one entry, or "".
std::string read_entry(const json& entry, uint64_t data_bytes, SafetensorsTensor& tensor) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return "it needs dtype, shape and data_offsets";
  }
  if (!entry["dtype"].is_string()) return "dtype is not text";
  tensor.dtype = entry["dtype"].get<std::string>();
  const uint64_t bytes = element_bytes(tensor.dtype);
  if (bytes == 0) return "unknown dtype";
  const json& shape = entry["shape"];
  if (!shape.is_array() || shape.size() > 8) return "shape is not a list of at most 8 sizes";
  uint64_t numel = 1;
  for (const json& extent : shape) {
    const auto size = whole_up_to(kMaxElements, extent);
    if (!size || __builtin_mul_overflow(numel, *size, &numel) || numel > kMaxElements) {
      return "impossible shape";
    }
    tensor.shape.push_back(static_cast<int64_t>(*size));
  }
  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return "data_offsets are not two numbers";
  const auto begin = whole_up_to(data_bytes, offsets[0]);
  const auto end = whole_up_to(data_bytes, offsets[1]);
  if (!begin || !end || *begin > *end) return "its data lie outside the file";
  if (*end - *begin != numel * bytes) return "its bytes do not fit dtype and shape";
  tensor.begin = *begin;
  tensor.end = *end;
  return "";
}

// Parses one JSON object; nullopt when it is none or has a name twice.
std::optional<json> parse_object(std::string_view text) {
  json document = parse_json_or_discard(text, {.bytes = kMaxHeaderBytes,
                                               .depth = 8,
                                               .values = kMaxHeaderBytes / 2,
                                               .distinct_names = true});
  if (!document.is_object()) return std::nullopt;
  return document;
}

}  // namespace

std::string safetensors_header(const std::map<std::string, std::string>& metadata,
                               const std::vector<SafetensorsTensor>& tensors) {
  json header = json::object();
  header["__metadata__"] = metadata;
  for (const SafetensorsTensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  }
  std::string text = json_text(header);
  while ((8 + text.size()) % kDataAlignment != 0) text += ' ';
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i));
  return bytes + text;
}

Result<std::map<std::string, SafetensorsTensor>> parse_safetensors_header(std::string_view header,
                                                                          uint64_t data_bytes,
                                                                          const std::string& path) {
  if (header.empty() || header.front() != '{') return damaged(path, "no header");
  const auto document = parse_object(header);
  if (!document) return damaged(path, "the header is not a JSON object with distinct names");
  std::map<std::string, SafetensorsTensor> tensors;
  std::vector<const SafetensorsTensor*> in_order;
  for (const auto& [name, entry] : document->items()) {
    if (name == "__metadata__") continue;
    SafetensorsTensor& tensor = tensors[name];
    tensor.name = name;
    if (auto problem = read_entry(entry, data_bytes, tensor); !problem.empty()) {
      return damaged(path, "tensor " + name + ": " + problem);
    }
    in_order.push_back(&tensor);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t end = 0;
  for (const SafetensorsTensor* tensor : in_order) {
    if (tensor->begin != end) {
      return damaged(path, "tensor " + tensor->name + " begins at byte " +
                               std::to_string(tensor->begin) + " of the data, expected " +
                               std::to_string(end));
    }
    end = tensor->end;
  }
  if (end == data_bytes) return tensors;
  return damaged(path, "it has " + std::to_string(data_bytes) + " bytes of data, its tensors " +
                           std::to_string(end));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  file.fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.fd_.valid()) return errno_error("cannot open " + path);
  struct stat st {};
  if (::fstat(file.fd_.get(), &st) != 0) return errno_error("cannot read " + path);
  if (!S_ISREG(st.st_mode)) return Error{ErrorCode::kInvalidArgument, path + " is not a file"};
  const auto size = static_cast<uint64_t>(st.st_size);
  std::array<char, kGitLfsStart.size()> start{};
  const ssize_t got = ::pread(file.fd_.get(), start.data(), start.size(), 0);
  if (got < 8) return damaged(path, "cut short");
  if (std::string_view(start.data(), start.size()) == kGitLfsStart) {
    return Error{ErrorCode::kInvalidArgument, path + " is " + kGitLfsRemedy};
  }
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<uint8_t>(start[i])} << (8 * i);
  if (length > kMaxHeaderBytes || length > size - 8) {
    return damaged(path, "its header would have " + std::to_string(length) + " bytes, it has " +
                             std::to_string(size));
  }
  std::string header(length, '\0');
  const SafetensorsTensor whole{"header", "", {}, 0, length};
  file.data_offset_ = 8;
  HP_TRY(file.read(whole, 0, header.data(), header.size()));
  file.data_offset_ = 8 + length;
  HP_TRY_ASSIGN(file.tensors_, parse_safetensors_header(header, size - 8 - length, path));
  return file;
}

Outcome SafetensorsFile::read(const SafetensorsTensor& tensor, uint64_t first, void* out,
                              size_t size) const {
  HP_CHECK(first + size <= tensor.end - tensor.begin);
  auto* bytes = static_cast<char*>(out);
  uint64_t at = data_offset_ + tensor.begin + first;
  while (size > 0) {
    const ssize_t n = ::pread(fd_.get(), bytes, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read " + path_ + " at byte " + std::to_string(at));
    if (n == 0) return damaged(path_, "it ends at byte " + std::to_string(at));
    bytes += n;
    at += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return Ok{};
}

}  // namespace hpctl
