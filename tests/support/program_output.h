// SPDX-License-Identifier: Apache-2.0
// Runs a command line with /bin/sh and keeps what it printed on stdout.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>

#include "common/base/check.h"

namespace hpctl {

struct ProgramOutput {
  int status = -1;  // exit code
  std::string text;
};

inline ProgramOutput run_program(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  HP_CHECK(pipe != nullptr);
  ProgramOutput output;
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.text.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) output.status = WEXITSTATUS(status);
  return output;
}

}  // namespace hpctl
