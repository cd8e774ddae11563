// SPDX-License-Identifier: Apache-2.0
// The display of `hpctl data prepare`: on a terminal a bar that is rewritten in place, elsewhere a
// line every ten seconds.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "hpctl/terminal.h"
#include "trainer/data/prepare/prepare.h"

namespace hpctl {

// "[=====>    ] 52 %  1.2 GB of 2.4 GB  35 MB/s  310M tokens  34 s left"
std::string prepare_line(const PrepareProgress& progress, int64_t elapsed_ms);

class PrepareDisplay {
 public:
  // Times are monotonic.
  PrepareDisplay(std::ostream& out, bool live, int64_t now_ms)
      : out_(out), live_(live), began_ms_(now_ms), shown_ms_(now_ms) {}

  void update(const PrepareProgress& progress, int64_t now_ms);
  // Removes the bar.
  void finish();

 private:
  std::ostream& out_;
  bool live_;
  bool drawn_ = false;
  int64_t began_ms_;
  int64_t shown_ms_;
};

}  // namespace hpctl
