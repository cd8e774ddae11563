// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/token_source.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "trainer/data/corpus.h"
#include "trainer/data/indexed_dataset.h"

namespace hpctl {
namespace {

// Text as bytes; its documents are its files, each followed by the separator.
class CorpusTokens : public TokenSource {
 public:
  explicit CorpusTokens(Corpus corpus) : corpus_(std::move(corpus)) {}

  uint64_t tokens() const override { return corpus_.tokens(); }
  uint64_t documents() const override { return corpus_.files(); }
  Result<uint64_t> document_begin(uint64_t k) override { return corpus_.file_begin(k); }
  const std::string& fingerprint() const override { return corpus_.fingerprint(); }
  uint64_t vocabulary() const override { return 256; }
  Result<std::vector<uint64_t>> sequence_lengths(uint64_t k) override {
    return std::vector<uint64_t>{corpus_.file_begin(k + 1) - corpus_.file_begin(k)};
  }
  Result<std::vector<uint64_t>> document_begins(uint64_t first, uint64_t last) override {
    std::vector<uint64_t> begins;
    for (uint64_t k = first; k <= last; ++k) begins.push_back(corpus_.file_begin(k));
    return begins;
  }

  Outcome read(uint64_t begin, std::span<int64_t> out) override {
    const std::lock_guard lock(mutex_);
    buffer_.resize(out.size());
    HP_TRY(corpus_.read(begin, buffer_));
    std::copy(buffer_.begin(), buffer_.end(), out.begin());
    return Ok{};
  }

 private:
  std::mutex mutex_;  // over what follows, as far as read() changes it
  Corpus corpus_;
  std::vector<uint8_t> buffer_;
};

// PREFIX.bin or PREFIX.idx given instead of PREFIX would otherwise be trained on as text.
Outcome refuse_half(const std::string& path) {
  for (const auto& [half, other] : {std::pair(".bin", ".idx"), std::pair(".idx", ".bin")}) {
    if (!path.ends_with(half)) continue;
    const std::string prefix = path.substr(0, path.size() - 4);
    HP_TRY_ASSIGN(const bool has_other, path_exists(prefix + other));
    if (!has_other) continue;
    return Error{ErrorCode::kInvalidArgument,
                 path + " is one of two files of an indexed dataset; set data.path to " + prefix};
  }
  return Ok{};
}

}  // namespace

Result<bool> is_prepared(const std::string& path) {
  HP_TRY_ASSIGN(const bool is_file, path_exists(path));
  if (is_file) return false;
  HP_TRY_ASSIGN(const bool has_index, path_exists(path + ".idx"));
  if (has_index) return true;
  return path_exists(path + ".bin");
}

Result<std::unique_ptr<TokenSource>> open_tokens(const std::string& path) {
  HP_TRY(refuse_half(path));
  HP_TRY_ASSIGN(const bool prepared, is_prepared(path));
  if (prepared) {
    HP_TRY_ASSIGN(IndexedDataset data, IndexedDataset::open(path));
    return std::unique_ptr<TokenSource>(std::make_unique<IndexedDataset>(std::move(data)));
  }
  HP_TRY_ASSIGN(Corpus corpus, Corpus::open(path));
  return std::unique_ptr<TokenSource>(std::make_unique<CorpusTokens>(std::move(corpus)));
}

}  // namespace hpctl
