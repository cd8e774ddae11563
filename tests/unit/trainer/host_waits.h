// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/unit/trainer/counted_operations.h"

namespace hpctl::testing {

// Operations of this thread after which a GPU's host waits for it.
class HostWaits {
 public:
  int count() const {
    int all = 0;
    for (const char* name :
         {"aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero", "aten::nonzero"}) {
      all += counted_.of(name);
    }
    return all;
  }

 private:
  CountedOperations counted_;
};

}  // namespace hpctl::testing
