// SPDX-License-Identifier: Apache-2.0
// The JSON library, with whole numbers read strictly. The library itself converts what it finds as
// C does: 2.5 becomes 2, -1 an unsigned number of 64 ones, 1e30 whatever the processor makes of it.
// So a damaged number would be taken for a sound one. With this header get<>(), get_to(), value(),
// and integer members of lists, maps and NLOHMANN_DEFINE_TYPE… accept an integer that the type
// holds, and throw NotWhole for anything else. That includes 3.0 and 1e3, which no writer of
// integers writes.
//
// All sources include the library through this header (tools/check_layout): a program with files
// that saw the library alone would have two definitions of the same function. Include it from .cc
// files if possible: the library is heavy.
#pragma once
// A guard besides, as this header is precompiled: ccache gives a precompiled header to a checkout
// in which the file differs in its comments alone, and #pragma once then takes it for another file.
#ifndef HPCTL_COMMON_BASE_JSON_H_
#define HPCTL_COMMON_BASE_JSON_H_

#include <concepts>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace hpctl {

// A value that is not the whole number which its reader wants. what() says what it is, not where:
// problem_in() of common/base/bounded_json.h names its place.
class NotWhole final : public nlohmann::json::exception {
 public:
  // `value`: to be found again in its document, never read.
  NotWhole(const std::string& words, const void* value)
      : exception(kId, words.c_str()), value_(value) {}
  const void* value() const { return value_; }

 private:
  static constexpr int kId = 302;  // the library's for a value of another type than its reader's

  const void* value_;
};

template <typename T>
concept WholeType = std::integral<T> && !std::same_as<T, bool>;

// The number, if it is an integer that T holds. Json: the library's type, ordered or not.
template <WholeType T, typename Json>
std::optional<T> whole_number(const Json& value) {
  if (const auto* number = value.template get_ptr<const uint64_t*>()) {
    return std::in_range<T>(*number) ? std::optional<T>(static_cast<T>(*number)) : std::nullopt;
  }
  if (const auto* number = value.template get_ptr<const int64_t*>()) {
    return std::in_range<T>(*number) ? std::optional<T>(static_cast<T>(*number)) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace hpctl

// The library reads and writes a T through this.
template <hpctl::WholeType T>
struct nlohmann::adl_serializer<T, void> {
  template <typename Json>
  static void from_json(const Json& value, T& number) {
    const std::optional<T> whole = hpctl::whole_number<T>(value);
    if (!whole) {
      using Limits = std::numeric_limits<T>;
      throw hpctl::NotWhole("expected a whole number from " + std::to_string(Limits::min()) +
                                " to " + std::to_string(Limits::max()) + "; found " +
                                (value.is_number() ? value.dump() : value.type_name()),
                            &value);
    }
    number = *whole;
  }
  template <typename Json>
  static void to_json(Json& value, T number) {
    ::nlohmann::to_json(value, number);
  }
};

#endif  // HPCTL_COMMON_BASE_JSON_H_
