// SPDX-License-Identifier: Apache-2.0
// hpctl: the command line. Reads its arguments, runs one verb, exits with its status.
#include <csignal>
#include <iostream>

#include "hpctl/command_line.h"
#include "hpctl/standard_streams.h"

int main(int argc, char** argv) {
  hpctl::open_standard_streams();
  // A closed pipe (hpctl events JOB | head) is a failed write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  std::ios::sync_with_stdio(false);
  hpctl::Terminal terminal = hpctl::standard_terminal();
  return hpctl::finish_output(hpctl::run_command_line({argv + 1, argv + argc}, terminal));
}
