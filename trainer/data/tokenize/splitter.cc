// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenize/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <optional>
#include <utility>

#include "trainer/data/tokenize/oniguruma.h"

namespace hpctl {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr size_t kMaxPatternBytes = 16 << 10;
constexpr size_t kMaxJitStack = 8 << 20;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 200> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

void SplitPattern::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<SplitPattern> SplitPattern::compile(const std::string& pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{ErrorCode::kInvalidArgument, "a pattern of more than 16 KiB"};
  }
  HP_TRY_ASSIGN(const std::string text, oniguruma_as_pcre2(pattern));
  int error = 0;
  PCRE2_SIZE at = 0;
  SplitPattern compiled;
  compiled.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                                     nullptr));
  if (!compiled.code_) {
    return Error{ErrorCode::kInvalidArgument,
                 "the pattern \"" + pattern + "\" is not understood: " + pcre2_message(error)};
  }
  // Without a compiler for this machine PCRE2 interprets.
  pcre2_jit_compile(compiled.code_.get(), PCRE2_JIT_COMPLETE);
  return compiled;
}

struct Splitter::State {
  explicit State(const pcre2_code* code) : code(code) {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const pcre2_code* code;
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kMaxJitStack, nullptr);
};

Splitter::Splitter(const SplitPattern& pattern)
    : state_(std::make_unique<State>(pattern.code_.get())) {}
Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;

// Calls `take` with the begin and end of each match, in order. As Oniguruma's users have it, a
// match of nothing right behind another match does not count. `last`: the last place where one may
// begin.
template <typename Take>
Outcome Splitter::each_match(std::string_view text, size_t last, const Take& take) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t from = 0;                 // where the next match is looked for
  std::optional<size_t> last_end;  // of the last match
  while (from <= last) {
    const int found = pcre2_match(state_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                  state_->data, state_->context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    // 0: the pattern has groups; the whole match is there nevertheless.
    if (found < 0) {
      return Error{ErrorCode::kResourceExhausted,
                   "the tokenizer's pattern cannot be matched: " + pcre2_message(found)};
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data);
    const size_t begin = bounds[0];
    const size_t end = bounds[1];
    if (end < begin || begin < last_end.value_or(0)) break;  // a \K out of order
    if (begin == end && last_end == end) {
      do ++from;
      while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xc0) == 0x80);
      continue;
    }
    take(begin, end);
    from = end;
    last_end = end;
  }
  return Ok{};
}

Outcome Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) {
  size_t done = 0;  // behind the last piece
  if (text.empty()) return Ok{};
  // A match of nothing at the end would cut nothing.
  HP_TRY(each_match(text, text.size() - 1, [&](size_t begin, size_t end) {
    if (begin > done) pieces.push_back(text.substr(done, begin - done));
    if (end > begin) pieces.push_back(text.substr(begin, end - begin));
    done = end;
  }));
  if (done < text.size()) pieces.push_back(text.substr(done));
  return Ok{};
}

Outcome Splitter::find(std::string_view text, std::vector<Span>& spans) {
  size_t done = 0;
  HP_TRY(each_match(text, text.size(), [&](size_t begin, size_t end) {
    if (begin > done) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = end;
  }));
  if (done < text.size()) spans.push_back({done, text.size(), false});
  return Ok{};
}

}  // namespace hpctl
