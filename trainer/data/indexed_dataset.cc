// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/indexed_dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/checksum.h"
#include "trainer/data/file_writer.h"
#include "trainer/data/prepared_note.h"
#include "trainer/data/read_at.h"

namespace hpctl {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr size_t kReadBytes = 32 << 10;
constexpr uint64_t kProbes = 64;
constexpr uint64_t kProbeBytes = 4096;

template <typename T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls visit(index, value) for `count` numbers of type T that begin at `offset`.
template <typename T, typename Read, typename Visit>
Outcome for_each_number(uint64_t offset, uint64_t count, Read&& read, Visit&& visit) {
  std::vector<uint8_t> piece;
  for (uint64_t first = 0; first < count;) {
    const uint64_t numbers = std::min<uint64_t>(count - first, kPieceBytes / sizeof(T));
    piece.resize(numbers * sizeof(T));
    HP_TRY(read(offset + first * sizeof(T), std::span<uint8_t>(piece)));
    for (uint64_t i = 0; i < numbers; ++i) {
      HP_TRY(visit(first + i, load<T>(piece.data() + i * sizeof(T))));
    }
    first += numbers;
  }
  return Ok{};
}

template <typename T>
bool widen(std::span<const uint8_t> from, std::span<int64_t> out) {
  int64_t lowest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    // NOLINTNEXTLINE(bugprone-signed-char-misuse): int8 is one of the format's numbers
    out[i] = static_cast<int64_t>(load<T>(from.data() + i * sizeof(T)));
    lowest = std::min(lowest, out[i]);
  }
  return lowest >= 0;
}

bool widen(TokenType type, std::span<const uint8_t> from, std::span<int64_t> out) {
  switch (type) {
    case TokenType::kUint8:
      return widen<uint8_t>(from, out);
    case TokenType::kInt8:
      return widen<int8_t>(from, out);
    case TokenType::kInt16:
      return widen<int16_t>(from, out);
    case TokenType::kInt32:
      return widen<int32_t>(from, out);
    case TokenType::kInt64:
      return widen<int64_t>(from, out);
    case TokenType::kUint16:
      return widen<uint16_t>(from, out);
  }
  return false;
}

Result<uint64_t> file_bytes(int fd, const std::string& path) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return errno_error("cannot read data " + path);
  if (!S_ISREG(st.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path + " is not a regular file"};
  }
  return static_cast<uint64_t>(st.st_size);
}

}  // namespace

IndexedDataset::IndexedDataset(const std::string& prefix)
    : index_path_(prefix + ".idx"), tokens_path_(prefix + ".bin") {}

Result<IndexedDataset> IndexedDataset::open(const std::string& prefix) {
  IndexedDataset data(prefix);
  data.index_ = UniqueFd(::open(data.index_path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!data.index_.valid()) return errno_error("cannot open data " + data.index_path_);
  data.bin_ = UniqueFd(::open(data.tokens_path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!data.bin_.valid()) return errno_error("cannot open data " + data.tokens_path_);
  HP_TRY_ASSIGN(const uint64_t index_bytes, file_bytes(data.index_.get(), data.index_path_));
  HP_TRY_ASSIGN(const uint64_t bytes, file_bytes(data.bin_.get(), data.tokens_path_));
  HP_TRY(data.read_header(index_bytes));
  HP_TRY(data.check_sequences());
  HP_TRY(data.check_boundaries());
  if (bytes != data.tokens_ * token_bytes(data.type_)) {
    return data.damaged("it describes " + std::to_string(data.tokens_) + " tokens of " +
                        to_string(data.type_) + ", but " + data.tokens_path_ + " has " +
                        std::to_string(bytes) + " bytes");
  }
  if (data.tokens_ == 0) {
    return Error{ErrorCode::kInvalidArgument, "no tokens in " + data.tokens_path_};
  }
  HP_TRY_ASSIGN(const auto note, read_prepared_note(prefix));
  if (note) {
    data.vocabulary_ = note->vocabulary;
    data.format_ = note->format;
    data.chat_template_ = note->chat_template;
  }
  HP_TRY(data.compute_fingerprint());
  return data;
}

Error IndexedDataset::damaged(const std::string& what) const {
  return Error{ErrorCode::kDataLoss,
               index_path_ + ": " + what + "; prepare the dataset again, or copy both files again"};
}

Outcome IndexedDataset::read_index(uint64_t offset, std::span<uint8_t> out) const {
  HP_TRY_ASSIGN(const size_t got, read_at(index_.get(), index_path_, offset, out));
  if (got == out.size()) return Ok{};
  return damaged("it ends at byte " + std::to_string(offset + got) + ", too early");
}

Outcome IndexedDataset::read_header(uint64_t index_bytes) {
  std::array<uint8_t, kIndexHeaderBytes> header{};
  HP_TRY(read_index(0, header));
  const std::string_view magic(reinterpret_cast<const char*>(header.data()), kIndexMagic.size());
  if (magic != kIndexMagic) return damaged("it does not begin as an indexed dataset");
  const auto version = load<uint64_t>(header.data() + 9);
  if (version != kIndexVersion) {
    return damaged("version " + std::to_string(version) + ", expected 1");
  }
  const auto type = token_type(header[17]);
  if (!type) return damaged("type code " + std::to_string(header[17]) + " is not one of tokens");
  type_ = *type;
  sequences_ = load<uint64_t>(header.data() + 18);
  boundaries_ = load<uint64_t>(header.data() + 26);
  // Bounds first, so that the sum below cannot wrap.
  const bool fits = sequences_ <= index_bytes / 12 && boundaries_ <= index_bytes / 8;
  const uint64_t expected = fits ? kIndexHeaderBytes + 12 * sequences_ + 8 * boundaries_ : 0;
  if (fits && sequences_ > 0 && expected + sequences_ == index_bytes) {
    return damaged("it is of multimodal data, which cannot be trained on");
  }
  if (!fits || expected != index_bytes) {
    return damaged("it has " + std::to_string(index_bytes) + " bytes, but announces " +
                   std::to_string(sequences_) + " sequences and " + std::to_string(boundaries_) +
                   " document boundaries");
  }
  if (boundaries_ < 2) return damaged("it has no document");
  return Ok{};
}

// Lengths and pointers side by side: each sequence begins where the one before it ended.
Outcome IndexedDataset::check_sequences() {
  const uint64_t width = token_bytes(type_);
  std::vector<uint8_t> lengths;
  uint64_t first = 0;  // sequence that `lengths` begins with
  const auto read = [this](uint64_t at, std::span<uint8_t> out) { return read_index(at, out); };
  return for_each_number<int64_t>(
      pointers_at(), sequences_, read, [&](uint64_t i, int64_t pointer) -> Outcome {
        if (i * 4 >= first * 4 + lengths.size()) {
          first = i;
          lengths.resize(4 * std::min(sequences_ - i, kPieceBytes / 4));
          HP_TRY(read_index(kIndexHeaderBytes + 4 * i, lengths));
        }
        const auto length = load<int32_t>(lengths.data() + 4 * (i - first));
        if (length < 0) return damaged("sequence " + std::to_string(i) + " has a negative length");
        if (pointer < 0 || static_cast<uint64_t>(pointer) != tokens_ * width) {
          return damaged("sequence " + std::to_string(i) + " begins at byte " +
                         std::to_string(pointer) + ", not at " + std::to_string(tokens_ * width) +
                         " where the one before it ends");
        }
        tokens_ += static_cast<uint64_t>(length);
        return Ok{};
      });
}

Outcome IndexedDataset::check_boundaries() {
  uint64_t last = 0;
  const auto read = [this](uint64_t at, std::span<uint8_t> out) { return read_index(at, out); };
  HP_TRY(for_each_number<int64_t>(
      boundaries_at(), boundaries_, read, [&](uint64_t k, int64_t sequence) -> Outcome {
        const auto value = static_cast<uint64_t>(sequence);
        if (value > sequences_ || value < last || (k == 0 && value != 0)) {
          return damaged("document boundary " + std::to_string(k) + " is at sequence " +
                         std::to_string(sequence) + " of " + std::to_string(sequences_));
        }
        last = value;
        return Ok{};
      }));
  if (last != sequences_) {
    return damaged("its documents end at sequence " + std::to_string(last) + " of " +
                   std::to_string(sequences_));
  }
  return Ok{};
}

// The header, and probes of both files: an edit that keeps the sizes and avoids them is not seen.
Outcome IndexedDataset::compute_fingerprint() {
  Sha256 hash;
  hash.update("hpctl indexed 1\n");
  std::vector<uint8_t> piece(kIndexHeaderBytes);
  HP_TRY(read_index(0, piece));
  hash.update(piece.data(), piece.size());
  const auto probe = [&](int fd, const std::string& path, uint64_t bytes) -> Outcome {
    const uint64_t size = std::min(bytes, kProbeBytes);
    piece.resize(size);
    for (uint64_t k = 0; k < kProbes; ++k) {
      const uint64_t at = (bytes - size) / (kProbes - 1) * k;
      HP_TRY_ASSIGN(const size_t got, read_at(fd, path, at, piece));
      hash.update(piece.data(), got);
    }
    return Ok{};
  };
  HP_TRY(probe(index_.get(), index_path_, boundaries_at() + 8 * boundaries_));
  HP_TRY(probe(bin_.get(), tokens_path_, tokens_ * token_bytes(type_)));
  fingerprint_ = hash.hex_digest();
  return Ok{};
}

Result<uint64_t> IndexedDataset::document_begin(uint64_t k) {
  HP_CHECK(k < boundaries_);
  std::array<uint8_t, 8> number{};
  HP_TRY(read_index(boundaries_at() + 8 * k, number));
  const auto sequence = load<uint64_t>(number.data());
  if (sequence == sequences_) return tokens_;
  if (sequence > sequences_) return damaged("it was changed while in use");
  HP_TRY(read_index(pointers_at() + 8 * sequence, number));
  const uint64_t token = load<uint64_t>(number.data()) / token_bytes(type_);
  if (token > tokens_) return damaged("it was changed while in use");
  return token;
}

Result<std::vector<uint64_t>> IndexedDataset::sequence_lengths(uint64_t k) {
  HP_CHECK(k < documents());
  std::array<uint8_t, 16> bounds{};
  HP_TRY(read_index(boundaries_at() + 8 * k, bounds));
  const auto first = load<uint64_t>(bounds.data());
  const auto last = load<uint64_t>(bounds.data() + 8);
  if (first > last || last > sequences_) return damaged("it was changed while in use");
  std::vector<uint8_t> numbers((last - first) * 4);
  HP_TRY(read_index(kIndexHeaderBytes + 4 * first, numbers));
  std::vector<uint64_t> lengths;
  for (size_t i = 0; i < last - first; ++i) lengths.push_back(load<uint32_t>(&numbers[4 * i]));
  return lengths;
}

// Boundaries in pieces, and beside them the pointers that they mean, which ascend with them.
Result<std::vector<uint64_t>> IndexedDataset::document_begins(uint64_t first, uint64_t last) {
  HP_CHECK(first <= last && last < boundaries_);
  std::vector<uint64_t> begins;
  begins.reserve(last - first + 1);
  std::vector<uint8_t> pointers;
  uint64_t held = 0;  // sequence that `pointers` begins with
  const auto read = [this](uint64_t at, std::span<uint8_t> out) { return read_index(at, out); };
  HP_TRY(for_each_number<uint64_t>(
      boundaries_at() + 8 * first, last - first + 1, read,
      [&](uint64_t, uint64_t sequence) -> Outcome {
        if (sequence > sequences_) return damaged("it was changed while in use");
        if (sequence == sequences_) {
          begins.push_back(tokens_);
          return Ok{};
        }
        if (sequence < held || sequence >= held + pointers.size() / 8) {
          held = sequence;
          pointers.resize(8 * std::min(sequences_ - sequence, kPieceBytes / 8));
          HP_TRY(read_index(pointers_at() + 8 * sequence, pointers));
        }
        const auto pointer = load<uint64_t>(pointers.data() + 8 * (sequence - held));
        begins.push_back(pointer / token_bytes(type_));
        const bool falls = begins.size() > 1 && begins.back() < begins[begins.size() - 2];
        if (falls || begins.back() > tokens_) return damaged("it was changed while in use");
        return Ok{};
      }));
  return begins;
}

// In pieces, so that nothing is allocated.
Outcome IndexedDataset::read(uint64_t begin, std::span<int64_t> out) {
  HP_CHECK(begin <= tokens_ && out.size() <= tokens_ - begin);
  const uint64_t width = token_bytes(type_);
  std::array<uint8_t, kReadBytes> bytes;
  for (size_t done = 0; done < out.size();) {
    const std::span<int64_t> part =
        out.subspan(done, std::min(out.size() - done, bytes.size() / width));
    const std::span<uint8_t> piece = std::span(bytes).first(part.size() * width);
    const uint64_t first = begin + done;
    HP_TRY_ASSIGN(const size_t got, read_at(bin_.get(), tokens_path_, first * width, piece));
    if (got < piece.size()) {
      return Error{ErrorCode::kFailedPrecondition,
                   tokens_path_ + " became shorter while training; restore it and resume"};
    }
    if (!widen(type_, piece, part)) {
      const auto at = std::find_if(part.begin(), part.end(), [](int64_t t) { return t < 0; });
      return Error{ErrorCode::kInvalidArgument,
                   tokens_path_ + ": token " + std::to_string(first + uint64_t(at - part.begin())) +
                       " is " + std::to_string(*at) + "; prepare the dataset again"};
    }
    done += part.size();
  }
  return Ok{};
}

Outcome write_index(const std::string& path, TokenType type, std::span<const int32_t> lengths,
                    std::span<const int32_t> documents) {
  HP_TRY_ASSIGN(FileWriter file, FileWriter::create(path));
  HP_TRY(file.append(kIndexMagic));
  HP_TRY(file.append_number(kIndexVersion, 8));
  HP_TRY(file.append_number(static_cast<uint64_t>(type), 1));
  HP_TRY(file.append_number(lengths.size(), 8));
  const size_t count = documents.empty() ? lengths.size() : documents.size();
  HP_TRY(file.append_number(count + 1, 8));
  for (const int32_t length : lengths) {
    HP_CHECK(length >= 0);
    HP_TRY(file.append_number(static_cast<uint64_t>(length), 4));
  }
  uint64_t pointer = 0;
  for (const int32_t length : lengths) {
    HP_TRY(file.append_number(pointer, 8));
    pointer += static_cast<uint64_t>(length) * token_bytes(type);
  }
  uint64_t sequence = 0;
  HP_TRY(file.append_number(sequence, 8));
  for (size_t k = 0; k < count; ++k) {
    sequence += documents.empty() ? 1 : static_cast<uint64_t>(documents[k]);
    HP_TRY(file.append_number(sequence, 8));
  }
  HP_CHECK(sequence == lengths.size());
  return file.finish();
}

}  // namespace hpctl
