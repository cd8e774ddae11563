// SPDX-License-Identifier: Apache-2.0
// Metrics are best effort, and their port is open to strangers.
#include "controller/publish/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "controller/publish/scrape_targets.h"
#include "tests/support/http_get.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

uint16_t port_of(const Metrics& metrics) {
  const std::string& address = metrics.address();
  return static_cast<uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
}

UniqueFd connect_to(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(Metrics, APortThatIsTakenIsReplacedByAFreeOne) {
  const auto first = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->moved(), "");
  const auto second = Metrics::open((*first)->address());
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_NE((*second)->address(), (*first)->address());
  EXPECT_THAT((*second)->moved(), HasSubstr((*first)->address() + " is in use"));
  EXPECT_THAT(http_get(port_of(**second), "/healthz"), HasSubstr("200 OK"));
}

TEST(Metrics, AnAddressOfAnotherMachineIsAnError) {
  const auto metrics = Metrics::open("203.0.113.1:9400");
  ASSERT_FALSE(metrics.ok());
  EXPECT_THAT(metrics.error().message, HasSubstr("not an address of this machine"));
}

// One after the other would wait for half a minute each.
TEST(Metrics, SilentClientsDoNotHoldOthers) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(connect_to(port_of(**metrics)));
  EXPECT_THAT(http_get(port_of(**metrics), "/healthz"), HasSubstr("200 OK"));
}

TEST(ScrapeTargets, NameAnAddressThatOthersReach) {
  EXPECT_EQ(scrape_targets("0.0.0.0:9400", "10.0.0.7", {{"hpctl_job", "7"}}),
            R"([{"targets":["10.0.0.7:9400"],"labels":{"hpctl_job":"7"}}])"
            "\n");
  EXPECT_EQ(scrape_targets("127.0.0.1:1", "10.0.0.7", {}),
            R"([{"targets":["127.0.0.1:1"],"labels":{}}])"
            "\n");
  EXPECT_EQ(scrape_targets("", "10.0.0.7", {{"hpctl_job", "7"}}), "[]\n");
}

}  // namespace
}  // namespace hpctl
