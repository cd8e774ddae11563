// SPDX-License-Identifier: Apache-2.0
// What is read without gRPC and without data: records, packets, texts, pages, facts about machines.
#include "tests/fuzz/harness.h"

namespace hpctl::fuzz {

const std::vector<Harness>& all_harnesses() {
  static const std::vector<Harness> all =
      joined({agent_harnesses(), frame_harnesses(), record_harnesses(), text_harnesses(),
              yaml_harnesses()});
  return all;
}

}  // namespace hpctl::fuzz
