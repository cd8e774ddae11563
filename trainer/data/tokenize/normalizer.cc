// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <cstdint>

namespace hpctl {
namespace {

constexpr size_t kMostBytes = 1U << 30;  // ICU counts in 32 bits

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

const icu::Normalizer2* find_instance(NormalForm form, UErrorCode& status) {
  switch (form) {
    case NormalForm::kNfc:
      return icu::Normalizer2::getNFCInstance(status);
    case NormalForm::kNfd:
      return icu::Normalizer2::getNFDInstance(status);
    case NormalForm::kNfkc:
      return icu::Normalizer2::getNFKCInstance(status);
    case NormalForm::kNfkd:
      return icu::Normalizer2::getNFKDInstance(status);
  }
  return nullptr;
}

Error failed(UErrorCode status) {
  return Error{ErrorCode::kInternal,
               std::string("ICU cannot normalise text: ") + u_errorName(status)};
}

}  // namespace

Outcome Normalizer::apply(std::string_view& text, std::string& buffer) const {
  if (text.size() > kMostBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "a text of more than a GiB cannot be normalised; cut it into documents"};
  }
  for (const NormalForm form : forms_) {
    if (is_ascii(text)) return Ok{};  // in every form already
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* const normalizer = find_instance(form, status);
    if (U_FAILURE(status)) return failed(status);
    const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
    const bool is_normal = normalizer->isNormalizedUTF8(piece, status) != 0;
    if (U_FAILURE(status)) return failed(status);
    if (is_normal) continue;
    std::string normal;
    icu::StringByteSink<std::string> sink(&normal);
    normalizer->normalizeUTF8(0, piece, sink, nullptr, status);
    if (U_FAILURE(status)) return failed(status);
    buffer = std::move(normal);
    text = buffer;
  }
  return Ok{};
}

}  // namespace hpctl
