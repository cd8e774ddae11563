// SPDX-License-Identifier: Apache-2.0
// An environment variable of this process, and of those that it starts meanwhile, until the end of
// a scope. No other thread may read the environment while it changes.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace hpctl::testing {

class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (before_) {
      ::setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace hpctl::testing
