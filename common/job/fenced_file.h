// SPDX-License-Identifier: Apache-2.0
// A file in a shared directory that one writer after another replaces, and where the newer writer's
// word must stay. A former one may be stopped, or cut off from the file system, for minutes in the
// middle of its write; to look before it is not enough.
//
// The newer writer first makes itself known there, then removes what others have not finished. The
// former looks for a newer one when its temporary is there, before that takes the name. So it sees
// the newer one, or its temporary was there to be removed, or it had the name before. Free
// functions; safe from any thread; they do I/O on a shared file system and may block.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace hpctl {

using IsOurs = std::function<bool()>;  // no newer writer has made itself known

// As write_file_atomic(). False: a newer writer has the file, and it is as that one wants it.
Result<bool> replace_fenced(const std::string& path, std::string_view data, const IsOurs& is_ours);

// By the newer one, after it made itself known and before it writes.
Outcome remove_unfinished(const std::string& path);

}  // namespace hpctl
