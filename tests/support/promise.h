// SPDX-License-Identifier: Apache-2.0
// The marker of a broken promise. scripts/run_ctest.sh runs a failed test of real processes once
// more, but never a test that printed this marker. tests/support/checks.sh has it for bash.
#pragma once

#include <string>

namespace hpctl {

// For checks that no busy machine excuses: EXPECT_EQ(a, b) << broken_promise("digest").
// `what` is one of:
//   digest      the final state has the bits of an undisturbed run
//   ledger      every sample was trained on exactly once
//   checkpoint  a checkpoint that the rules keep is there and whole
//   leftover    no process, namespace, mount or shared memory outlives its job or test
inline std::string broken_promise(const std::string& what) {
  return "\nBROKEN PROMISE: " + what + "\n";
}

}  // namespace hpctl
