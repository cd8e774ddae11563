// SPDX-License-Identifier: Apache-2.0
// Files that a test of data makes.
#pragma once

#include <fstream>
#include <string>

namespace hpctl::test {

inline void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace hpctl::test
