// SPDX-License-Identifier: Apache-2.0
// Functions that a library must have; the first that is missing makes the error. And a table of
// them, for a library that is looked for once.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

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
  const Library& library() const { return library_; }

 private:
  const Library& library_;
  std::string missing_;
};

// Owns the library, so it lives as long as the functions are called: a static of its only user. Any
// thread, once it is made.
template <typename Api>
class FunctionTable {
 public:
  // Names the functions, and says what is wrong with them.
  using Fill = Outcome (*)(RequiredFunctions& find, Api& api);

  // `what` the library is, for the error: "no NCCL: ..." (kNotFound). `names` as Library::open().
  FunctionTable(const std::string& what, const std::vector<std::string>& names, Fill fill)
      : library_(Library::open(names)), api_(filled(what, fill)) {}
  FunctionTable(const FunctionTable&) = delete;
  FunctionTable& operator=(const FunctionTable&) = delete;

  Result<const Api*> get() const {
    if (!api_.ok()) return api_.error();
    return &*api_;
  }

 private:
  Result<Api> filled(const std::string& what, Fill fill) const {
    if (!library_.ok()) {
      return Error{ErrorCode::kNotFound, "no " + what + ": " + library_.error().message};
    }
    Api api{};
    RequiredFunctions find(*library_);
    HP_TRY(fill(find, api));
    return api;
  }

  const Result<Library> library_;
  const Result<Api> api_;
};

}  // namespace hpctl
