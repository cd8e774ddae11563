// SPDX-License-Identifier: Apache-2.0
// What controllers and the programs around them read: all that needs gRPC.
#include "tests/fuzz/harness.h"

namespace hpctl::fuzz {

const std::vector<Harness>& all_harnesses() {
  static const std::vector<Harness> all =
      joined({controller_harnesses(), request_harnesses(), tool_harnesses()});
  return all;
}

}  // namespace hpctl::fuzz
