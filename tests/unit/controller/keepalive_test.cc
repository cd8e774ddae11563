// SPDX-License-Identifier: Apache-2.0
// How soon agents notice that nobody answers at the controller's end of their connection.
#include <dirent.h>
#include <grpcpp/channel.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/job/job_files.h"
#include "common/net/socket_address.h"
#include "common/rpc/job_channel.h"
#include "tests/fault/job_cluster.h"

namespace hpctl {
namespace {

// TCP_USER_TIMEOUT of this process's connections to a port of this machine.
std::vector<unsigned> user_timeouts_ms(uint16_t port) {
  std::vector<unsigned> timeouts;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc/self/fd"), ::closedir);
  while (const dirent* entry = ::readdir(directory.get())) {
    const int fd = std::atoi(entry->d_name);
    sockaddr_in peer{};
    socklen_t peer_bytes = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) != 0) continue;
    if (ntohs(peer.sin_port) != port) continue;
    unsigned timeout_ms = 0;
    socklen_t bytes = sizeof(timeout_ms);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, &bytes) == 0) {
      timeouts.push_back(timeout_ms);
    }
  }
  return timeouts;
}

TEST(Keepalive, AgentsOfALargeJobPingSeldom) {
  EXPECT_EQ(keepalive_ms_of_agents(1), kKeepaliveMs);
  EXPECT_EQ(keepalive_ms_of_agents(200), kKeepaliveMs);
  EXPECT_EQ(keepalive_ms_of_agents(500), 5'000);
  EXPECT_EQ(keepalive_ms_of_agents(1'000), 10'000);
  EXPECT_EQ(keepalive_ms_of_agents(12'500), kLongestKeepaliveMs);
}

// That the machine is gone is known by beats that TCP does not get acknowledged, so pings may be
// seldom: this is where the kernel is told.
TEST(Keepalive, WhatIsNotAcknowledgedEndsTheConnectionHoweverSeldomThePingsAre) {
  JobSpec spec;
  spec.name = "waits";
  spec.nodes = 1'000;
  spec.command = {"/bin/sleep", "1000"};
  test::JobCluster cluster(spec);
  cluster.start_controller("n0");
  const auto record = newest_controller(cluster.job_dir());
  ASSERT_TRUE(record.ok() && *record) << cluster.logs();
  EXPECT_EQ(keepalive_ms_of_agents((*record)->nodes.size()), kLongestKeepaliveMs);
  const auto channel = connect_as_agent(cluster.job_dir(), **record, kAttemptMs);
  ASSERT_TRUE(channel.ok()) << channel.error().message;
  ASSERT_TRUE(
      (*channel)->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(30)))
      << cluster.logs();
  const SocketAddress address = SocketAddress::parse((*record)->address).value();
  EXPECT_EQ(user_timeouts_ms(address.port()), std::vector<unsigned>{kKeepaliveTimeoutMs});
}

}  // namespace
}  // namespace hpctl
