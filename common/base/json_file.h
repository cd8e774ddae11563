// SPDX-License-Identifier: Apache-2.0
// A JSON document in a file that the user got from elsewhere, such as a model's. Copies and
// downloads often truncate such files, so errors are in our own words, with the place and the
// remedy; the library's errors name what its grammar expects.
#pragma once

#include <string>
#include <string_view>

#include "common/base/bounded_json.h"
#include "common/base/result.h"

namespace hpctl {

// The document in `text`, the content of the file `path`. kInvalidArgument, as in "t.json:3: the
// file ends inside the document, after 70 bytes: it was cut short; get it again".
Result<nlohmann::json> json_of_file(std::string_view text, const std::string& path,
                                    const JsonLimits& limits = {});

}  // namespace hpctl
