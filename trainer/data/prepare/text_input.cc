// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/prepare/text_input.h"

#include <fcntl.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <utility>

namespace hpctl {

// One step of a decompressing library.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  struct Step {
    size_t used = 0;
    size_t made = 0;
    bool damaged = false;
    bool between = false;  // a member has ended and no other has begun
  };
  // `ended`: `in` is the last input. Makes progress whenever it has input or output left to give.
  virtual Step run(std::span<const char> in, bool ended, std::span<char> out) = 0;
};

namespace {

constexpr size_t kRawBytes = 1 << 18;

class Gzip : public Decompressor {
 public:
  Gzip() { ready_ = inflateInit2(&stream_, 15 + 16) == Z_OK; }
  ~Gzip() override { inflateEnd(&stream_); }

  Step run(std::span<const char> in, bool, std::span<char> out) override {
    Step step;
    if (between_ && !in.empty()) {
      ready_ = inflateReset(&stream_) == Z_OK;
      between_ = false;
    }
    if (between_ || in.empty()) return {0, 0, false, between_};
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int status = ready_ ? inflate(&stream_, Z_NO_FLUSH) : Z_MEM_ERROR;
    between_ = status == Z_STREAM_END;
    step.damaged = status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR;
    step.used = in.size() - stream_.avail_in;
    step.made = out.size() - stream_.avail_out;
    step.between = between_;
    return step;
  }

 private:
  z_stream stream_{};
  bool ready_ = false;
  bool between_ = false;
};

class Xz : public Decompressor {
 public:
  Xz() { ready_ = lzma_stream_decoder(&stream_, kMemory, LZMA_CONCATENATED) == LZMA_OK; }
  ~Xz() override { lzma_end(&stream_); }

  Step run(std::span<const char> in, bool ended, std::span<char> out) override {
    Step step;
    stream_.next_in = reinterpret_cast<const uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out.data());
    stream_.avail_out = out.size();
    const lzma_ret status =
        ready_ ? lzma_code(&stream_, ended ? LZMA_FINISH : LZMA_RUN) : LZMA_MEM_ERROR;
    step.between = status == LZMA_STREAM_END;
    step.damaged = status != LZMA_OK && status != LZMA_STREAM_END && status != LZMA_BUF_ERROR;
    step.used = in.size() - stream_.avail_in;
    step.made = out.size() - stream_.avail_out;
    return step;
  }

 private:
  static constexpr uint64_t kMemory = 256U << 20;  // `xz -9` needs 65 MiB
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool ready_ = false;
};

class Zstd : public Decompressor {
 public:
  Zstd() : stream_(ZSTD_createDStream()) {
    // As the zstd program with --long=31 writes it.
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 31);
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }

  Step run(std::span<const char> in, bool, std::span<char> out) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t status = ZSTD_decompressStream(stream_, &to, &from);
    if (from.pos > 0 || to.pos > 0) between_ = status == 0;
    return {from.pos, to.pos, ZSTD_isError(status) != 0, between_};
  }

 private:
  ZSTD_DStream* stream_;
  bool between_ = false;
};

std::unique_ptr<Decompressor> decompressor_for(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<Gzip>();
  if (path.ends_with(".xz")) return std::make_unique<Xz>();
  if (path.ends_with(".zst")) return std::make_unique<Zstd>();
  return nullptr;
}

}  // namespace

std::string without_compression(const std::string& path) {
  for (const std::string suffix : {".gz", ".xz", ".zst"}) {
    if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  }
  return path;
}

TextInput::TextInput() = default;
TextInput::TextInput(TextInput&&) noexcept = default;
TextInput& TextInput::operator=(TextInput&&) noexcept = default;
TextInput::~TextInput() = default;

Result<TextInput> TextInput::open(const std::string& path) {
  TextInput input;
  input.path_ = path;
  input.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input.fd_.valid()) return errno_error("cannot open " + path);
  input.decompressor_ = decompressor_for(path);
  return input;
}

Result<size_t> TextInput::read_raw(std::span<char> out) {
  for (;;) {
    const ssize_t n = ::read(fd_.get(), out.data(), out.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("cannot read " + path_);
    return static_cast<size_t>(n);
  }
}

Result<size_t> TextInput::read(std::span<char> out) {
  if (!decompressor_) {
    HP_TRY_ASSIGN(const size_t got, read_raw(out));
    raw_position_ += got;
    return got;
  }
  while (!out.empty()) {
    if (raw_used_ == raw_.size() && !raw_ended_) {
      raw_.resize(kRawBytes);
      HP_TRY_ASSIGN(const size_t got, read_raw(raw_));
      raw_.resize(got);
      raw_used_ = 0;
      raw_ended_ = got == 0;
    }
    const auto step = decompressor_->run(std::span(raw_).subspan(raw_used_), raw_ended_, out);
    raw_used_ += step.used;
    raw_position_ += step.used;
    if (step.damaged) {
      return Error{ErrorCode::kDataLoss, path_ + ": damaged compressed data near byte " +
                                             std::to_string(raw_position_) +
                                             "; get the file again"};
    }
    if (step.made > 0) return step.made;
    if (!raw_ended_ || step.used > 0) continue;
    if (step.between) return size_t{0};
    return Error{ErrorCode::kDataLoss, path_ + ": the compressed data ends too early, at byte " +
                                           std::to_string(raw_position_) + "; get the file again"};
  }
  return size_t{0};
}

Outcome TextInput::skip(uint64_t bytes) {
  if (!decompressor_) {
    if (::lseek(fd_.get(), static_cast<off_t>(bytes), SEEK_CUR) < 0) {
      return errno_error("cannot read " + path_);
    }
    raw_position_ += bytes;
    return Ok{};
  }
  std::string piece(1 << 20, '\0');
  while (bytes > 0) {
    HP_TRY_ASSIGN(const size_t got,
                  read(std::span(piece).first(std::min<uint64_t>(bytes, piece.size()))));
    if (got == 0) return Error{ErrorCode::kDataLoss, path_ + " became shorter"};
    bytes -= got;
  }
  return Ok{};
}

}  // namespace hpctl
