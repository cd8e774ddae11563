// SPDX-License-Identifier: Apache-2.0
// `hpctl` with these words, within this process.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "hpctl/command_line.h"

namespace hpctl::test {

struct CommandRun {
  int status = -1;
  std::string out;
  std::string err;
};

inline CommandRun run_hpctl(const std::vector<std::string>& words) {
  std::ostringstream out;
  std::ostringstream err;
  Terminal terminal{out, err};
  const int status = run_command_line(words, terminal);
  return {status, out.str(), err.str()};
}

}  // namespace hpctl::test
