// SPDX-License-Identifier: Apache-2.0
// The line of a script that submits its job (script.h).
#pragma once

#include "controller/core/events.h"
#include "tests/golden/words.h"

namespace hpctl::core {

// submit [OPTION ...]. Throws std::exception for a line that does not say enough.
JobSubmitted read_submit(const Words& words);

}  // namespace hpctl::core
