// SPDX-License-Identifier: Apache-2.0
// Functions that a library must have; the first that is missing makes the error.
#pragma once

#include <string>
#include <type_traits>

#include "common/base/library.h"

namespace hpctl {

class RequiredFunctions {
 public:
  explicit RequiredFunctions(const Library& library) : library_(library) {}

  template <typename Function>
  void operator()(const char* name, Function*& out) {
    out = library_.function<Function>(name);
    if (out == nullptr && missing_.empty()) missing_ = name;
  }

  Outcome outcome() const {
    if (missing_.empty()) return Ok{};
    return Error{ErrorCode::kFailedPrecondition,
                 library_.name() + " has no " + missing_ + "; it is too old"};
  }

 private:
  const Library& library_;
  std::string missing_;
};

}  // namespace hpctl
