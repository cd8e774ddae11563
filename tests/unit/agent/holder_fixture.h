// SPDX-License-Identifier: Apache-2.0
// A holder of its own process, and the test in the place of the agent proper.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <iterator>
#include <optional>

#include "agent/holder/holder.h"
#include "agent/holder/holder_protocol.h"
#include "common/net/packet_socket.h"
#include "tests/support/promise.h"
#include "tests/unit/agent/node_fixture.h"

namespace hpctl::holder {

using test::eventually;
using test::number_after;
using test::text_of;

inline constexpr JobId kJob{7};

class HolderTest : public ::testing::Test {
 protected:
  HolderTest() : socket_path_(home_.path() + "/agent.sock") {
    listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_path_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
  }

  // The log writer outlives a holder that is killed, and would write into a home that is removed.
  ~HolderTest() override {
    const UniqueFd writer = open_pidfd(log_writer());
    holder_ = test::Child();
    EXPECT_TRUE(await_end(writer)) << broken_promise("leftover");
  }

  HolderOptions options() const {
    return {home_.paths(),
            kJob,
            "n0",
            {test::test_program("fake_agent"), socket_path_},
            {test::product_program("hpagent"), "--reaper"},
            stacks_program_,
            ping_times_,
            stacks_limit_ms_};
  }

  void start_holder() {
    holder_ = test::Child([this] {
      ::setenv("OMP_NUM_THREADS", "3", 1);
      if (stderr_.valid()) ::dup2(stderr_.get(), STDERR_FILENO);
      return run_holder(options());
    });
    accept_agent();
  }

  // Takes over the connection of the agent that the holder has just started; reads its greeting.
  void accept_agent() {
    agent_.reset();
    pollfd ready{listener_.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1) << "the holder did not start an agent";
    PacketSocket connection(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    std::optional<Packet> packet;
    ASSERT_TRUE(eventually([&] {
      auto received = connection.receive();
      if (received.ok()) packet = std::move(*received);
      return packet.has_value();
    }));
    std::memcpy(&agent_pid_, packet->bytes.data(), sizeof(agent_pid_));
    agent_.emplace(std::move(packet->descriptor));
    greeting_.clear();
    for (;;) {
      ToAgent message = next();
      if (std::holds_alternative<HelloEnd>(message)) break;
      greeting_.push_back(std::move(message));
    }
    hello_ = std::get<Hello>(greeting_.at(0));
    tell(Alive{600'000});  // this one is not to be replaced because the machine is slow
    expect<AliveToo>();
  }

  ToAgent next() {
    std::optional<Packet> packet;
    const bool arrived = eventually([&] {
      auto received = agent_->receive();
      if (received.ok()) packet = std::move(*received);
      return packet.has_value();
    });
    if (!arrived) {
      ADD_FAILURE() << "no message from the holder";
      return HelloEnd{};
    }
    descriptor_ = std::move(packet->descriptor);
    auto message = decode_to_agent(packet->bytes);
    EXPECT_TRUE(message.ok());
    return std::move(message).value();
  }
  template <typename T>
  T expect() {
    ToAgent message = next();
    EXPECT_TRUE(std::holds_alternative<T>(message)) << "got kind " << message.index();
    return std::holds_alternative<T>(message) ? std::get<T>(message) : T{};
  }
  template <typename T>
  std::vector<T> greeted() const {
    std::vector<T> found;
    for (const ToAgent& message : greeting_) {
      if (const T* one = std::get_if<T>(&message)) found.push_back(*one);
    }
    return found;
  }

  void tell(const ToHolder& message) { ASSERT_TRUE(agent_->send_now(encode(message)).ok()); }

  Spawn worker(uint64_t generation, int32_t rank, std::vector<std::string> script) const {
    Spawn spawn;
    spawn.generation = generation;
    spawn.rank = rank;
    spawn.local_rank = rank;
    spawn.argv = std::move(script);
    spawn.argv.insert(spawn.argv.begin(), test::test_program("probe_worker"));
    spawn.env = {"RANK=" + std::to_string(rank), "HPCTL_GENERATION=" + std::to_string(generation)};
    spawn.directory = home_.path();
    spawn.log_path = log_path(rank);
    spawn.workload = "{\"rank\":" + std::to_string(rank) + "}";
    return spawn;
  }
  WorkerState spawn(const Spawn& request) {
    tell(request);
    return expect<WorkerState>();
  }
  std::string log_path(int32_t rank) const { return home_.paths().rank_log(kJob, Rank{rank}); }
  // Waits until the holder has `count` children. One more than that is a leftover.
  void expect_children(long count) const {
    const std::string pid = std::to_string(holder_.pid());
    const std::string children = "/proc/" + pid + "/task/" + pid + "/children";
    EXPECT_TRUE(eventually([&] {
      std::istringstream pids(text_of(children));
      return std::distance(std::istream_iterator<int>(pids), std::istream_iterator<int>()) == count;
    })) << text_of(children)
        << broken_promise("leftover");
  }
  // The log of a rank, when `text` is in it.
  std::string log_with(int32_t rank, const std::string& text) const {
    std::string log;
    EXPECT_TRUE(eventually([&] {
      log = text_of(log_path(rank));
      return log.find(text) != std::string::npos;
    })) << log;
    return log;
  }
  // The holder's log writer.
  pid_t log_writer() const { return log_writer_of(holder_.pid()); }
  pid_t logged_pid(int32_t rank, const std::string& key) const {
    eventually([&] { return number_after(text_of(log_path(rank)), key) > 0; });
    return static_cast<pid_t>(number_after(text_of(log_path(rank)), key));
  }

  test::TemporaryHome home_;
  std::string socket_path_;
  std::string stacks_program_ = test::product_program("hpstacks");
  PingTimes ping_times_;
  int64_t stacks_limit_ms_ = 60'000;  // also on a machine that is busy
  UniqueFd stderr_;                   // of the holder; invalid = ours
  UniqueFd listener_;
  test::Child holder_;
  std::optional<PacketSocket> agent_;
  pid_t agent_pid_ = 0;
  Hello hello_;
  std::vector<ToAgent> greeting_;
  UniqueFd descriptor_;
};

}  // namespace hpctl::holder
