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
using ::testing::Not;

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

// Its series end with the node.
TEST(Metrics, TellWhoStandsByOnEachNode) {
  const auto metrics = Metrics::open("127.0.0.1:0");
  ASSERT_TRUE(metrics.ok());
  JobView view;
  view.job = 3;
  view.name = "t";
  view.nodes.push_back({"n0", "active", "up", "i-0", "b-0", 10, 11, "", StandbyView{1, 0, 1, 0}});
  view.nodes.push_back({"n1", "spare", "up", "i-1", "b-1", 12, 13, "", StandbyView{2, 2, 0, 512}});
  (*metrics)->job(view);
  const std::string text = http_get(port_of(**metrics), "/metrics");
  const std::string n0 = R"({job="3",name="t",node="n0")";
  const std::string n1 = R"({job="3",name="t",node="n1")";
  EXPECT_THAT(text, HasSubstr("hpctl_standbys" + n0 + R"(,state="ready"} 0)"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys" + n0 + R"(,state="loading"} 1)"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys" + n1 + R"(,state="ready"} 2)"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys_wanted" + n1 + "} 2"));
  EXPECT_THAT(text, HasSubstr("hpctl_standbys_memory_bytes" + n1 + "} 512"));
  EXPECT_THAT(text, Not(HasSubstr("hpctl_standbys_memory_bytes" + n0)));
  view.nodes[0].standbys.reset();
  (*metrics)->job(view);
  EXPECT_THAT(http_get(port_of(**metrics), "/metrics"), Not(HasSubstr("node=\"n0\"")));
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
