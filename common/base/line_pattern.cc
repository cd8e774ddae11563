// SPDX-License-Identifier: Apache-2.0
#include "common/base/line_pattern.h"

#include <re2/re2.h>

#include <utility>

namespace hpctl {
namespace {

constexpr int64_t kMostMemory = 1 << 20;  // of the compiled pattern and its searches

}  // namespace

LinePattern::LinePattern(std::shared_ptr<const re2::RE2> expression)
    : expression_(std::move(expression)) {}

Result<LinePattern> LinePattern::compile(const std::string& text) {
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMostMemory);
  auto expression = std::make_shared<const re2::RE2>(text, options);
  if (!expression->ok()) return Error{ErrorCode::kInvalidArgument, expression->error()};
  return LinePattern(std::move(expression));
}

bool LinePattern::is_in(std::string_view line) const {
  return re2::RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), *expression_);
}

}  // namespace hpctl
