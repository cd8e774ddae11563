// SPDX-License-Identifier: Apache-2.0
// What the command line asks for: the scopes of the tests, one scope, or a replay. Returns the exit
// code that the head of main.cc tells.
#pragma once

namespace hpctl::exhaustive {

int run_command(int argc, char** argv);

}  // namespace hpctl::exhaustive
