// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/core/hosts_file.h"

#include <gtest/gtest.h>

namespace hpctl::agent {
namespace {

TEST(HostsFile, GivesTheFirstAddressOfAName) {
  const char* text =
      "127.0.0.1\tlocalhost\n"
      "# 10.0.0.9 n1\n"
      "127.0.1.1 n1.cluster n1   # by the installer\n"
      "10.0.0.1 n1\n"
      "10.0.0.2 n2";
  EXPECT_EQ(address_in_hosts(text, "n1"), "127.0.1.1");
  EXPECT_EQ(address_in_hosts(text, "n2"), "10.0.0.2") << "the last line has no end";
  EXPECT_EQ(address_in_hosts(text, "n"), "");
  EXPECT_EQ(address_in_hosts(text, "installer"), "");
  EXPECT_EQ(address_in_hosts("", "n1"), "");
}

TEST(HostsFile, KnowsTheLoopback) {
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
  EXPECT_FALSE(is_loopback(""));
}

}  // namespace
}  // namespace hpctl::agent
