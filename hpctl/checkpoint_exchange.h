// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint export and import: the same weights in a Hugging Face model directory.
#pragma once

#include <string>

#include "hpctl/command_line.h"

namespace hpctl {

// `step_dir`: the checkpoint; `out`: a directory that is not there yet or empty.
int run_export(const Invocation& invocation, const std::string& step_dir, const std::string& out);
int run_import(const Invocation& invocation, const std::string& model_dir, const std::string& out);

}  // namespace hpctl
