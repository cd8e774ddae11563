// SPDX-License-Identifier: Apache-2.0
// The only parser for JSON from outside: files of users and of other programs, records on shared
// disks, messages. It refuses a document, while reading it, once the document is larger, deeper or
// made of more values than its reader needs, and builds nothing beyond the limits. (Values are
// copied, compared and printed by recursion, so depth costs stack, and a byte can become a value of
// sixteen.)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/json.h"

namespace hpctl {

struct JsonLimits {
  size_t bytes = 64U << 20;
  size_t depth = 64;  // arrays and objects within each other
  size_t values = 4'000'000;
  bool distinct_names = false;  // an object that has a name twice is refused; else the last counts
};

// As json::parse(text): throws json::exception, also for a document beyond the limits.
nlohmann::json parse_json(std::string_view text, const JsonLimits& limits = {});
// As json::parse(text, nullptr, false): a discarded value instead.
nlohmann::json parse_json_or_discard(std::string_view text, const JsonLimits& limits = {});

// The text of `e`, thrown while reading `document`. For a number that is not a whole number, also
// its place, as in "/nodes/0/pid: expected a whole number from 0 to …; found 2.5".
std::string problem_in(const nlohmann::json& document, const nlohmann::json::exception& e);

}  // namespace hpctl
