// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint rm and adopt: the only commands that change a checkpoint directory.
//
// Before any change, the command asks whether the owner of the directory has ended. While it is
// alive, or does not answer, rm keeps that job's checkpoints, the chain that it continues and the
// checkpoint it started from, and adopt does nothing. --take-directory overrides an owner that does
// not answer, and the command becomes the owner; a live owner must be cancelled first.
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
