// SPDX-License-Identifier: Apache-2.0
// Whether the file system of a directory answers, for verbs that must not wait for a file server.
// A thread that waits for one in the kernel cannot be ended. So a thread of its own looks, and the
// verb leaves it behind.
#pragma once

#include <string>

#include "common/base/result.h"

namespace hpctl {

// False if the file system has not answered for three seconds. An error is an answer, too. While an
// earlier look at the directory still waits, the result is false at once.
bool directory_answers(const std::string& directory);

// For people, of one that does not: for how long, and what to do.
std::string describe_verdict(const std::string& directory);

// Before files of the directory are read. kUnavailable with these words.
Outcome check_directory_answers(const std::string& directory);

}  // namespace hpctl
