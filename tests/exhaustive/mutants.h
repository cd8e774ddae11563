// SPDX-License-Identifier: Apache-2.0
// The search in worlds that lack one mend each (tests/sim/mutant.h). It must find what is wrong.
#pragma once

namespace hpctl::exhaustive {

// Tells of each mutant whether it was found. False: one was not.
bool find_all_mutants();

}  // namespace hpctl::exhaustive
