// SPDX-License-Identifier: Apache-2.0
// For errors about numbers that do not divide another one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/base/check.h"

namespace hpctl {

// "; 2 and 4 fit": the divisors of `number` on both sides of `divisor`, or only one of them.
inline std::string nearest_divisors(int64_t number, int64_t divisor) {
  HP_CHECK(number >= 1 && divisor >= 1);
  int64_t below = std::min(divisor, number);
  while (number % below != 0) --below;
  int64_t above = divisor;
  while (above <= number && number % above != 0) ++above;
  if (above > number || above == below) return "; " + std::to_string(below) + " fits";
  return "; " + std::to_string(below) + " and " + std::to_string(above) + " fit";
}

}  // namespace hpctl
