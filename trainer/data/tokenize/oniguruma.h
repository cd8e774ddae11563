// SPDX-License-Identifier: Apache-2.0
// The patterns of a tokenizer.json are Oniguruma's. PCRE2 reads most of them alike; of the rest,
// some have another spelling in PCRE2, and the others are refused: read as PCRE2's, they would cut
// text elsewhere, and give other ids in silence.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// The same pattern in PCRE2's syntax, for UTF-8 with Unicode properties. kInvalidArgument: what of
// it has no form there.
Result<std::string> oniguruma_as_pcre2(const std::string& pattern);

}  // namespace hpctl
