// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cstdint>

#include "trainer/data/tokenize/characters.h"

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

// Each step gives the new text to `text`; it may lie in `buffer`.
struct Apply {
  std::string_view& text;
  std::string& buffer;

  void take(std::string changed) const {
    buffer = std::move(changed);
    text = buffer;
  }

  Outcome operator()(NormalForm form) const {
    if (is_ascii(text)) return Ok{};  // in every form already
    UErrorCode status = U_ZERO_ERROR;
    const icu::Normalizer2* const normalizer = find_instance(form, status);
    if (U_FAILURE(status)) return failed(status);
    const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
    const bool is_normal = normalizer->isNormalizedUTF8(piece, status) != 0;
    if (U_FAILURE(status)) return failed(status);
    if (is_normal) return Ok{};
    std::string normal;
    icu::StringByteSink<std::string> sink(&normal);
    normalizer->normalizeUTF8(0, piece, sink, nullptr, status);
    if (U_FAILURE(status)) return failed(status);
    take(std::move(normal));
    return Ok{};
  }

  Outcome operator()(Lowercase) const {
    constexpr UChar32 kCapitalDottedI = 0x130;  // the one that becomes two characters
    std::string lower;
    for (size_t at = 0; at < text.size();) {
      const UChar32 character = character_at(text, at);
      append_character(lower, character == kCapitalDottedI ? 'i' : u_tolower(character));
      if (character == kCapitalDottedI) append_character(lower, 0x307);
    }
    take(std::move(lower));
    return Ok{};
  }

  Outcome operator()(StripEnds ends) const {
    const size_t begin = ends.left ? spaces_behind(text, 0) : 0;
    const size_t end = ends.right ? std::max(begin, spaces_before(text, text.size())) : text.size();
    text = text.substr(begin, end - begin);
    return Ok{};
  }

  Outcome operator()(StripAccents) const {
    if (is_ascii(text)) return Ok{};
    std::string kept;
    for (size_t at = 0; at < text.size();) {
      const UChar32 character = character_at(text, at);
      if ((U_GET_GC_MASK(character) & U_GC_M_MASK) == 0) append_character(kept, character);
    }
    take(std::move(kept));
    return Ok{};
  }

  Outcome operator()(const Prepend& prepend) const {
    if (!text.empty()) take(prepend.text + std::string(text));
    return Ok{};
  }

  Outcome operator()(const ReplaceText& replace) const {
    if (text.find(replace.from) == std::string_view::npos) return Ok{};
    std::string changed(text);
    replace_all(changed, replace.from, replace.to);
    take(std::move(changed));
    return Ok{};
  }

  Outcome operator()(const ReplaceMatches& replace) const {
    std::vector<Span> spans;
    HP_TRY(Splitter(replace.pattern).find(text, spans));
    std::string changed;
    for (const Span& span : spans) {
      changed += span.is_match ? std::string_view(replace.to)
                               : text.substr(span.begin, span.end - span.begin);
    }
    take(std::move(changed));
    return Ok{};
  }
};

}  // namespace

Outcome Normalizer::apply(std::string_view& text, std::string& buffer) const {
  for (const TextStep& step : steps_) {
    if (text.size() > kMostBytes) {
      return Error{ErrorCode::kInvalidArgument,
                   "a text of more than a GiB cannot be normalised; cut it into documents"};
    }
    HP_TRY(std::visit(Apply{text, buffer}, step));
  }
  return Ok{};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  if (begin == 0) return;
  out.append(text, begin);
  text = std::move(out);
}

}  // namespace hpctl
