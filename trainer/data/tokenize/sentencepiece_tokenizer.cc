// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <utility>

#include "trainer/data/tokenize/tokenizer.h"

namespace hpctl {
namespace {

using sentencepiece::SentencePieceProcessor;

class SentencePieceEncoder : public Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceProcessor& model) : model_(model) {}

  Outcome encode(std::string_view text, std::vector<int32_t>& ids) override {
    const size_t valid = valid_utf8_prefix(text);
    if (valid < text.size()) return not_utf8(valid);
    const auto status = model_.Encode(text, &ids_);
    if (!status.ok()) return Error{ErrorCode::kInvalidArgument, status.ToString()};
    ids.insert(ids.end(), ids_.begin(), ids_.end());
    return Ok{};
  }

 private:
  const SentencePieceProcessor& model_;
  std::vector<int> ids_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<SentencePieceProcessor> model)
      : model_(std::move(model)) {}

  uint64_t vocabulary() const override { return static_cast<uint64_t>(model_->GetPieceSize()); }
  int32_t end_of_document() const override { return model_->eos_id(); }
  std::unique_ptr<Encoder> make_encoder() const override {
    return std::make_unique<SentencePieceEncoder>(*model_);
  }
  Result<std::string> decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) {
      if (id < 0 || id >= model_->GetPieceSize()) return no_token(id);
    }
    std::string text;
    const auto status = model_->Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    if (!status.ok()) return Error{ErrorCode::kInvalidArgument, status.ToString()};
    return text;
  }

 private:
  std::unique_ptr<SentencePieceProcessor> model_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(const std::string& bytes,
                                                       const std::string& path) {
  auto model = std::make_unique<SentencePieceProcessor>();
  const auto status = model->LoadFromSerializedProto(bytes);
  if (!status.ok() || model->GetPieceSize() <= 0) {
    return Error{ErrorCode::kInvalidArgument,
                 path + " is not a SentencePiece model (" + status.ToString() +
                     "); a Hugging Face tokenizer has a name that ends in .json"};
  }
  return std::unique_ptr<Tokenizer>(std::make_unique<SentencePieceTokenizer>(std::move(model)));
}

}  // namespace hpctl
