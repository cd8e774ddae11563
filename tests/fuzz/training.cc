// SPDX-License-Identifier: Apache-2.0
// What trainers and the tools around data and checkpoints read. A program of its own, because
// libsentencepiece brings a protobuf that must not meet the control plane's.
#include "tests/fuzz/harness.h"

namespace hpctl::fuzz {

const std::vector<Harness>& all_harnesses() {
  static const std::vector<Harness> all = joined({checkpoint_harnesses(), data_harnesses()});
  return all;
}

}  // namespace hpctl::fuzz
