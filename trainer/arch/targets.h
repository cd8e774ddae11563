// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace hpctl {

// A target that adds nothing to the loss, with the value that Hugging Face's labels use: the first
// token of another document, padding.
inline constexpr int64_t kNotCounted = -100;

}  // namespace hpctl
