// SPDX-License-Identifier: Apache-2.0
// The one way out for JSON: the text of a document. The library's own dump() throws type_error.316
// for a string that is not UTF-8, and a path, an argument, a host name or a line of a log may hold
// any bytes. Here such a byte becomes U+FFFD, so what is written can always be read. A path that
// must be found again cannot travel this way: its owner refuses it first (home_at() in paths.cc).
// tools/check_layout refuses dump() elsewhere.
#pragma once

#include <string>

#include "common/base/json.h"

namespace hpctl {

struct JsonForm {
  int indent = -1;     // spaces for each level; -1: all in one line
  bool ascii = false;  // other characters as \uXXXX
};

std::string json_text(const nlohmann::json& document, JsonForm form = {});
std::string json_text(const nlohmann::ordered_json& document, JsonForm form = {});

}  // namespace hpctl
