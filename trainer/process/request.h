// SPDX-License-Identifier: Apache-2.0
// `hptrain --request JSON`: a question about a checkpoint (trainer/loop/model_request.h).
#pragma once

#include <string>

namespace hpctl {

// Has the engine answer it, and prints the answer on stdout. Returns the exit status: 0, 2 where
// the request or its data is wrong, else 1; then the reason is in the log.
int print_answer(const std::string& request);

}  // namespace hpctl
