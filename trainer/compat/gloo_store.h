// SPDX-License-Identifier: Apache-2.0
// The base of a store that Gloo can use; its own, or, in a build without Gloo, what is left of it.
#pragma once

#ifdef HPCTL_GLOO
#include <gloo/rendezvous/store.h>
#else
#include <chrono>
#include <string>
#include <vector>
#endif

namespace hpctl::compat {

#ifdef HPCTL_GLOO
using Store = gloo::rendezvous::Store;
#else
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
#endif

}  // namespace hpctl::compat
