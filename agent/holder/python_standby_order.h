// SPDX-License-Identifier: Apache-2.0
// The start of a Python standby, and its order when it takes a rank: agent/holder/python_standby.py
// has the other side of both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/process/python_command.h"

namespace hpctl {

// Where it finds them.
struct PythonStandbyDescriptors {
  int text = -1;
  int control = -1;  // its end of the control socket (common/worker/worker_control.h)
  int output = -1;   // for what it prints while it waits; -1 = descriptors 1 and 2 are for that
};

// The text that `descriptors.text` is to hold, at position 0.
std::string_view python_standby_text();

// `modules`: names with commas between.
std::vector<std::string> python_standby_command(const PythonCommand& python,
                                                const std::string& modules,
                                                const PythonStandbyDescriptors& descriptors);

// Its part, which travels beside control::Join. JSON for Python alone: a byte that is not UTF-8 is
// the escape of a lone surrogate.
struct PythonStandbyPart {
  std::vector<std::string> argv;  // the whole command: what cannot be taken over is executed
  std::vector<std::string> env;   // NAME=value, besides what it was started with
  std::vector<int> signals;       // it ignored until now, and heeds again
};
std::string python_standby_document(const PythonStandbyPart& part);

}  // namespace hpctl
