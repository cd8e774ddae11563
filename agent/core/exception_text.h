// SPDX-License-Identifier: Apache-2.0
// The exception that ended a Python program, read from the end of its output.
//
// Python prints the exception as the last line of its traceback. Other lines may follow it: a
// progress bar that is closed, a warning of a library at exit, the report of a launcher about its
// child. So the last line of the output often is not the cause. Two kinds of tracebacks are passed
// over if an earlier one is left, because they follow from another exception: one that Python
// ignored at exit, and torchrun's own (ChildFailedError).
//
// Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace hpctl::agent {

// "ModuleNotFoundError: No module named 'x'"; "" = `output` has no whole traceback.
std::string last_exception(std::string_view output);

}  // namespace hpctl::agent
