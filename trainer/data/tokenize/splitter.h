// SPDX-License-Identifier: Apache-2.0
// Finds the matches of a regular expression in text, for normalizers and pre-tokenizers, and cuts
// text at both ends of each match ("Isolated"). PCRE2 with its compiler where the machine has one.
//
// The patterns are Oniguruma's (oniguruma.h). A match of nothing cuts there, unless it lies right
// behind another match.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

struct pcre2_real_code_8;

namespace hpctl {

// The pattern of ByteLevel with use_regex: GPT-2's own.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// cl100k_base's, which Llama 3 has too.
inline constexpr std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Qwen's: each digit is a piece.
inline constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// o200k_base's: a word is capital letters and then small ones.
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Kimi's: o200k_base's without /, and Han by itself.
inline constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A compiled pattern; immutable, shared by threads.
class SplitPattern {
 public:
  // kInvalidArgument: what is wrong with the pattern, or cannot be read as Oniguruma would.
  static Result<SplitPattern> compile(const std::string& pattern);

 private:
  friend class Splitter;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
};

// A part of a text, in bytes.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

// One thread's use of a pattern, which it does not outlive.
class Splitter {
 public:
  explicit Splitter(const SplitPattern& pattern);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) = delete;

  // Appends the pieces of `text`, which is UTF-8; none is empty and together they are the text.
  // kResourceExhausted: the pattern takes too many steps on this text.
  Outcome split(std::string_view text, std::vector<std::string_view>& pieces);
  // Appends what matches, which may be nothing, and what lies between, in order. Errors as split().
  Outcome find(std::string_view text, std::vector<Span>& spans);

 private:
  struct State;
  template <typename Take>
  Outcome each_match(std::string_view text, size_t last, const Take& take);
  std::unique_ptr<State> state_;
};

}  // namespace hpctl
