// SPDX-License-Identifier: Apache-2.0
// Inputs of a harness that are known before anything is mutated.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/harness.h"

namespace hpctl::fuzz {

// regressions/ of this program's harnesses, each with a directory of its name.
std::string regressions_directory();

// Harness::seeds and Harness::files.
std::vector<std::string> sound_inputs(const Harness& harness);

struct Regression {
  std::string name;  // of the file
  std::string input;
};
// Of tests/fuzz/regressions/PROGRAM/NAME/, in the order of their names: what once broke the parser,
// or the harness. A name that ends in .hex is of a file of hexadecimal digits, blanks and newlines.
std::vector<Regression> regressions(const Harness& harness);

}  // namespace hpctl::fuzz
