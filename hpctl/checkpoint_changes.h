// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint rm and adopt: the only commands that change a checkpoint directory.
//
// Before anything is changed, the owner of the directory is asked whether it has ended. While it
// lives, or cannot be asked, rm leaves alone what that job saved, what it continues and what it
// started from, and adopt does nothing. --take-directory overrides an owner that cannot be asked,
// and the command becomes the owner; an owner that lives has to be cancelled.
#pragma once

#include <string>
#include <vector>

#include "hpctl/command_line.h"

namespace hpctl {

// `names`: checkpoints, each a step-N.gG of this directory; none with --chain.
int run_remove(const Invocation& invocation, const std::string& directory,
               const std::vector<std::string>& names);

int run_adopt(const Invocation& invocation, const std::string& directory);

}  // namespace hpctl
