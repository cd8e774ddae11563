// SPDX-License-Identifier: Apache-2.0
// Models are cloned with git. Where Git LFS is missing, each large file is then a pointer to it:
// three lines of text, which no reader of the file itself understands.
#pragma once

#include <string_view>

namespace hpctl {

inline constexpr std::string_view kGitLfsStart = "version https://git-lfs";

// Remedy for a file that begins with that prefix.
inline constexpr char kGitLfsRemedy[] =
    "a pointer of Git LFS, not the file itself; run `git lfs pull` where it was cloned";

}  // namespace hpctl
