// SPDX-License-Identifier: Apache-2.0
// hpctl: the command line. Reads its arguments, runs one verb, exits with its status.
#include <grpc/grpc.h>

#include <csignal>
#include <iostream>

#include "hpctl/command_line.h"

namespace {

// gRPC otherwise ends behind the last channel, in a thread of its own that exit() does not await:
// OpenSSL is then taken down under it.
class GrpcUntilExit {
 public:
  GrpcUntilExit() { grpc_init(); }
  ~GrpcUntilExit() { grpc_shutdown_blocking(); }
  GrpcUntilExit(const GrpcUntilExit&) = delete;
  GrpcUntilExit& operator=(const GrpcUntilExit&) = delete;
};

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe (hpctl events JOB | head) is a failed write, not a death.
  std::signal(SIGPIPE, SIG_IGN);
  const GrpcUntilExit grpc;
  std::ios::sync_with_stdio(false);
  hpctl::Terminal terminal = hpctl::standard_terminal();
  return hpctl::run_command_line({argv + 1, argv + argc}, terminal);
}
