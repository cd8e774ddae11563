// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/sample_reader.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/rng.h"
#include "trainer/data/prepared_note.h"
#include "trainer/data/sample_order.h"

namespace hpctl {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

std::vector<BlendPart> parts_of(const DataSpec& spec) {
  if (!spec.blend.empty()) return spec.blend;
  return {BlendPart{spec.path, 1}};
}

std::vector<double> weights_of(const std::vector<BlendPart>& parts) {
  std::vector<double> weights;
  for (const BlendPart& part : parts) weights.push_back(part.weight);
  return weights;
}

// The first document of each part, and the number of documents.
std::vector<uint64_t> split_documents(uint64_t documents, const std::vector<double>& split) {
  const double sum = std::accumulate(split.begin(), split.end(), 0.0);
  std::vector<uint64_t> bounds = {0};
  double share = 0;
  for (const double part : split) {
    share += part / sum;
    const auto bound = static_cast<uint64_t>(std::llround(share * static_cast<double>(documents)));
    bounds.push_back(std::min(bound, documents));
  }
  bounds.back() = documents;
  return bounds;
}

bool is_split(const std::vector<double>& split) {
  return std::any_of(split.begin() + 1, split.end(), [](double part) { return part > 0; });
}

// `hpctl submit` has prepared what is small; here is what it could not see.
Error text_needs_preparing(const std::string& path, const DataSpec& spec) {
  return Error{ErrorCode::kInvalidArgument,
               "data " + path + " is text, and workers read what is prepared: run `" +
                   prepare_command(path, spec.tokenizer, spec.format, spec.chat_template) +
                   "` and set data.path to PREFIX"};
}

std::string described(DataFormat format, ChatTemplate chat_template) {
  std::string text = std::string("format ") + to_word(format);
  if (format == DataFormat::kChat) {
    text += std::string(" with chat_template ") + to_word(chat_template);
  }
  return text;
}

Outcome check_format(const std::string& path, const TokenSource& tokens, const DataSpec& spec) {
  if (tokens.format() == spec.format && tokens.chat_template() == spec.chat_template) return Ok{};
  return Error{ErrorCode::kInvalidArgument, "data " + path + " was prepared as " +
                                                described(tokens.format(), tokens.chat_template()) +
                                                ", but workload.train.data asks for " +
                                                described(spec.format, spec.chat_template) +
                                                "; make them the same, or prepare the data again"};
}

Result<std::shared_ptr<TokenSource>> open_source(const std::string& path, const DataSpec& spec,
                                                 int64_t vocab) {
  if (spec.tokenizer != "byte" || spec.has_answers()) {
    HP_TRY_ASSIGN(const bool is_text, path_exists(path));
    if (is_text) return text_needs_preparing(path, spec);
  }
  HP_TRY_ASSIGN(std::unique_ptr<TokenSource> tokens, open_tokens(path));
  HP_TRY(check_format(path, *tokens, spec));
  if (tokens->vocabulary() > static_cast<uint64_t>(vocab)) {
    return Error{ErrorCode::kInvalidArgument,
                 "data " + path + " was made by a tokenizer of " +
                     std::to_string(tokens->vocabulary()) + " ids, but the model has " +
                     std::to_string(vocab) +
                     "; set workload.train.model.vocab to at least that, or prepare the data with "
                     "the tokenizer of the model"};
  }
  return std::shared_ptr<TokenSource>(std::move(tokens));
}

}  // namespace

const char* to_string(DataPart part) {
  if (part == DataPart::kTrain) return "train";
  return part == DataPart::kValidation ? "validation" : "test";
}

SampleReader::SampleReader(int64_t seq_len, uint64_t seed, int64_t vocab, DataPart part,
                           const std::vector<double>& weights)
    : seq_len_(seq_len), seed_(seed), vocab_(vocab), part_(part), blend_(weights) {}

Result<SampleReader> SampleReader::open(const DataSpec& spec, uint64_t seed, int64_t vocab,
                                        DataPart part) {
  HP_CHECK(spec.seq_len >= 1 && spec.split.size() == 3);
  const std::vector<BlendPart> parts = parts_of(spec);
  SampleReader reader(spec.seq_len, seed, vocab, part, weights_of(parts));
  reader.mask_ = spec.keeps_apart() ? DocumentMask::kDocuments : spec.mask;
  for (size_t d = 0; d < parts.size(); ++d) {
    const std::string& path = parts[d].path;
    if (reader.blend_.count(d) == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   "workload.train.data.blend: the weight of " + path +
                       " is less than a 65536th of the sum; raise it or leave the source out"};
    }
    HP_TRY_ASSIGN(std::shared_ptr<TokenSource> tokens, open_source(path, spec, vocab));
    HP_TRY(reader.add_source(path, std::move(tokens), spec));
  }
  reader.compute_fingerprint(spec);
  return reader;
}

Result<SampleReader> SampleReader::open_part(const DataSpec& spec, DataPart part) const {
  SampleReader reader(seq_len_, seed_, vocab_, part, weights_of(parts_of(spec)));
  reader.mask_ = mask_;
  for (const Source& source : sources_) {
    HP_TRY(reader.add_source(source.path, source.tokens, spec));
  }
  reader.compute_fingerprint(spec);
  return reader;
}

Outcome SampleReader::add_source(const std::string& path, std::shared_ptr<TokenSource> tokens,
                                 const DataSpec& spec) {
  Source source;
  source.path = path;
  source.tokens = std::move(tokens);
  const auto part = static_cast<size_t>(part_);
  const std::vector<uint64_t> bounds = split_documents(source.tokens->documents(), spec.split);
  HP_TRY_ASSIGN(source.begin, source.tokens->document_begin(bounds[part]));
  HP_TRY_ASSIGN(source.end, source.tokens->document_begin(bounds[part + 1]));
  source.first_document = bounds[part];
  HP_TRY(spec.has_answers() ? pack(source, spec, bounds[part + 1])
                            : cut(source, spec, bounds[part + 1]));
  // The first source as if it were alone; sources of the same size in separate orders.
  source.seed = sources_.empty() ? seed_ : mix64(seed_ + sources_.size() * kGolden);
  windows_ += source.windows;
  tokens_ += source.tokens->tokens();
  sources_.push_back(std::move(source));
  return Ok{};
}

// Names the insufficient part of the source's documents, in an error.
std::string SampleReader::share_of(const Source& source, const DataSpec& spec,
                                   uint64_t last_document) const {
  if (!is_split(spec.split)) return "";
  return ", in the " + std::to_string(last_document - source.first_document) + " of its " +
         std::to_string(source.tokens->documents()) + " documents that data.split gives to " +
         to_string(part_) + ",";
}

Outcome SampleReader::cut(Source& source, const DataSpec& spec, uint64_t last_document) const {
  const uint64_t tokens = source.end - source.begin;
  const auto needed = static_cast<uint64_t>(seq_len_) + 1;
  source.windows = tokens < needed ? 0 : (tokens - 1) / static_cast<uint64_t>(seq_len_);
  if (source.windows > 0) return Ok{};
  return Error{
      ErrorCode::kInvalidArgument,
      "data " + source.path + " has" + share_of(source, spec, last_document) + " " +
          std::to_string(tokens) +
          " tokens, a sample needs seq_len + 1 = " + std::to_string(needed) +
          (is_split(spec.split) ? "; give it more of data.split, add text" : "; add text") +
          " or lower workload.train.data.seq_len"};
}

Outcome SampleReader::pack(Source& source, const DataSpec& spec, uint64_t last_document) const {
  HP_TRY_ASSIGN(const std::vector<uint64_t> begins,
                source.tokens->document_begins(source.first_document, last_document));
  source.packed = PackedSequences(begins, static_cast<uint64_t>(seq_len_));
  source.windows = source.packed.size();
  if (source.windows > 0) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "data " + source.path + " has" + share_of(source, spec, last_document) +
                   " no document of at most workload.train.data.seq_len (" +
                   std::to_string(seq_len_) + ") tokens, of " +
                   std::to_string(source.packed.too_long()) + "; raise seq_len"};
}

std::string SampleReader::packing() const {
  uint64_t documents = 0;
  uint64_t tokens = 0;
  uint64_t too_long = 0;
  for (const Source& source : sources_) {
    documents += source.packed.documents();
    tokens += source.packed.tokens();
    too_long += source.packed.too_long();
  }
  if (documents == 0) return "";
  const uint64_t room = windows_ * static_cast<uint64_t>(seq_len_);
  std::string text = std::to_string(documents) + " documents in " + std::to_string(windows_) +
                     " sequences of " + std::to_string(seq_len_) + " tokens, " +
                     std::to_string(100 * tokens / room) + "% full";
  if (too_long > 0) text += "; left out because they are longer: " + std::to_string(too_long);
  return text;
}

void SampleReader::compute_fingerprint(const DataSpec& spec) {
  fingerprint_ = sources_[0].tokens->fingerprint();
  if (sources_.size() == 1 && !is_split(spec.split)) return;
  std::string text = "hpctl data 1\n";
  for (size_t d = 0; d < sources_.size(); ++d) {
    text += sources_[d].tokens->fingerprint() + " " + std::to_string(blend_.count(d)) + "\n";
  }
  for (const double part : spec.split) text += std::to_string(part) + "\n";
  Sha256 hash;
  hash.update(text);
  fingerprint_ = hash.hex_digest();
}

std::pair<size_t, uint64_t> SampleReader::place(uint64_t sample) const {
  if (part_ == DataPart::kTrain) {
    const BlendOrder::Place at = blend_(sample);
    const Source& source = sources_[at.source];
    return {at.source, window_of_sample(source.seed, source.windows, at.index)};
  }
  uint64_t window = window_of_sample(seed_, windows_, sample);
  size_t source = 0;
  while (window >= sources_[source].windows) window -= sources_[source++].windows;
  return {source, window};
}

Outcome SampleReader::read_sample(uint64_t sample, std::span<int64_t> out,
                                  std::span<int64_t> positions, std::span<uint8_t> counted) {
  HP_CHECK(out.size() == static_cast<size_t>(seq_len_) + 1);
  HP_CHECK(positions.empty() || positions.size() == out.size());
  HP_CHECK(counted.empty() || counted.size() == positions.size());
  const auto [index, window] = place(sample);
  Source& source = sources_[index];
  if (source.packed.size() > 0) return read_packed(source, window, out, positions, counted);
  const uint64_t begin = source.begin + window * static_cast<uint64_t>(seq_len_);
  HP_TRY(source.tokens->read(begin, out));
  HP_TRY(check_tokens(source, begin, out));
  if (positions.empty()) return Ok{};
  HP_TRY(find_positions(source, begin, positions));
  for (size_t i = 0; i < counted.size(); ++i) {
    counted[i] = mask_ == DocumentMask::kNone || positions[i] > 0 ? 1 : 0;
  }
  return Ok{};
}

Outcome SampleReader::read_packed(Source& source, uint64_t sequence, std::span<int64_t> out,
                                  std::span<int64_t> positions, std::span<uint8_t> counted) const {
  std::fill(counted.begin(), counted.end(), 0);
  uint64_t at = 0;
  for (const uint64_t packed : source.packed.documents(sequence)) {
    const uint64_t document = source.first_document + packed;
    HP_TRY_ASSIGN(const uint64_t begin, source.tokens->document_begin(document));
    HP_TRY_ASSIGN(const std::vector<uint64_t> spans, source.tokens->sequence_lengths(document));
    const uint64_t length = std::accumulate(spans.begin(), spans.end(), uint64_t{0});
    if (length > out.size() - 1 - at) {
      return Error{ErrorCode::kFailedPrecondition,
                   "data " + source.path + " was changed while in use; restore it and resume"};
    }
    const std::span<int64_t> tokens = out.subspan(at, length);
    HP_TRY(source.tokens->read(begin, tokens));
    HP_TRY(check_tokens(source, begin, tokens));
    if (!positions.empty()) {
      const std::span<int64_t> own = positions.subspan(at, length);
      std::iota(own.begin(), own.end(), 0);
    }
    if (!counted.empty()) {
      uint8_t* mark = counted.data() + at;
      for (size_t i = 0; i < spans.size(); ++i) mark = std::fill_n(mark, spans[i], i % 2);
      counted[at] = 0;  // nothing predicts it
    }
    at += length;
  }
  std::fill(out.begin() + static_cast<ptrdiff_t>(at), out.end(), 0);
  if (positions.empty()) return Ok{};
  const std::span<int64_t> padding = positions.subspan(at);
  std::iota(padding.begin(), padding.end(), 0);
  return Ok{};
}

Outcome SampleReader::check_tokens(const Source& source, uint64_t begin,
                                   std::span<const int64_t> out) const {
  const auto largest = std::max_element(out.begin(), out.end());
  if (*largest < vocab_) return Ok{};
  return Error{ErrorCode::kInvalidArgument,
               "data " + source.path + ": token " +
                   std::to_string(begin + static_cast<uint64_t>(largest - out.begin())) +
                   " has the id " + std::to_string(*largest) +
                   ", but the model has a vocabulary of " + std::to_string(vocab_) +
                   "; set workload.train.model.vocab to the size of the tokenizer's vocabulary"};
}

Outcome SampleReader::find_positions(Source& source, uint64_t begin, std::span<int64_t> positions) {
  TokenSource& tokens = *source.tokens;
  // The first document that begins behind `begin`.
  uint64_t low = 0;
  uint64_t high = tokens.documents();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    HP_TRY_ASSIGN(const uint64_t first, tokens.document_begin(middle));
    if (first > begin) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  uint64_t next = 0;  // where the next document begins, within the window
  int64_t position = 0;
  for (uint64_t i = 0; i < positions.size(); ++i) {
    if (i == next) {
      position = 0;
      while (next <= i && low <= tokens.documents()) {
        HP_TRY_ASSIGN(const uint64_t first, tokens.document_begin(low++));
        next = first - begin;
      }
    }
    positions[i] = position++;
  }
  return Ok{};
}

}  // namespace hpctl
