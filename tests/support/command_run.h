// SPDX-License-Identifier: Apache-2.0
// `hpctl` with these words, within this process.
#pragma once

#include <csignal>
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
  // A verb may take signals for the rest of its process, which here are other tests.
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::ostringstream out;
  std::ostringstream err;
  Terminal terminal{out, err};
  const int status = run_command_line(words, terminal);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  return {status, out.str(), err.str()};
}

}  // namespace hpctl::test
