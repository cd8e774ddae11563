// SPDX-License-Identifier: Apache-2.0
// deploy/instances.json, as the programs read it.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "agent/nodecheck/core/health.h"
#include "common/base/file.h"

namespace hpctl::agent {

inline HealthTable shipped_table() {
  const auto text = read_file(std::string(HPCTL_SOURCE) + "/deploy/instances.json");
  EXPECT_TRUE(text.ok()) << text.error().message;
  const auto table = parse_health_table(text.ok() ? *text : "", "instances.json");
  EXPECT_TRUE(table.ok()) << table.error().message;
  return table.ok() ? *table : HealthTable();
}

}  // namespace hpctl::agent
