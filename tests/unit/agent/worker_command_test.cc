// SPDX-License-Identifier: Apache-2.0
// What one rank of a command is told, and what it leaves behind when it dies.
#include "agent/worker_command.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>

#include "agent/error_file.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/net/port.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::agent {
namespace {

std::map<std::string, std::string> environment_of(const holder::Spawn& spawn) {
  std::map<std::string, std::string> env;
  for (const std::string& entry : spawn.env) {
    const size_t equals = entry.find('=');
    env[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return env;
}

class Command : public ::testing::Test {
 protected:
  // Node `group` of two, with two ranks each.
  v1::StartWorkers order(int group) const {
    v1::StartWorkers start;
    start.set_generation(7);
    start.add_ranks(2 * group);
    start.add_ranks(2 * group + 1);
    start.set_world_size(4);
    start.set_group_rank(group);
    start.set_group_world_size(2);
    start.set_restart_count(6);
    start.set_max_restarts(20);
    start.add_command("train.py");
    start.set_log_dir(directory_.path() + "/logs");
    start.set_master_addr("10.0.0.5");
    start.set_master_port(port_);
    return start;
  }
  std::map<std::string, std::string> environment(const v1::StartWorkers& start, int local) const {
    const auto spawn = make_spawn(start, local, place_);
    EXPECT_TRUE(spawn.ok());
    return spawn.ok() ? environment_of(*spawn) : std::map<std::string, std::string>();
  }

  TemporaryDirectory directory_;
  NodePlace place_{42, "n1", directory_.path(), "/opt/hpctl/bin", directory_.path()};
  uint16_t port_ = choose_free_port().value();
};

TEST_F(Command, EveryRankOfAGenerationIsToldTheSameStory) {
  for (int group = 0; group < 2; ++group) {
    for (int local = 0; local < 2; ++local) {
      const auto env = environment(order(group), local);
      const std::string rank = std::to_string(2 * group + local);
      const std::map<std::string, std::string> expected = {
          {"RANK", rank},
          {"LOCAL_RANK", std::to_string(local)},
          {"WORLD_SIZE", "4"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"GROUP_RANK", std::to_string(group)},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_NAME", "default"},
          {"ROLE_RANK", rank},
          {"ROLE_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "10.0.0.5"},
          {"MASTER_PORT", std::to_string(port_)},
          {"TORCHELASTIC_RESTART_COUNT", "6"},
          {"TORCHELASTIC_MAX_RESTARTS", "20"},
          {"TORCHELASTIC_RUN_ID", "42"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
          {"TORCHELASTIC_ERROR_FILE", directory_.path() + "/errors/g7.rank-" + rank + ".json"}};
      for (const auto& [name, value] : expected) {
        ASSERT_TRUE(env.contains(name)) << name;
        EXPECT_EQ(env.at(name), value) << name;
      }
      EXPECT_FALSE(env.contains("OPENBLAS_NUM_THREADS")) << "torchrun sets OMP_NUM_THREADS alone";
    }
  }
}

TEST_F(Command, ATakenPortIsRefusedWhereRank0Runs) {
  ASSERT_TRUE(prepare_command(order(0), place_).ok());
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  const Outcome refused = prepare_command(order(0), place_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find(std::to_string(port_)), std::string::npos);
  EXPECT_TRUE(prepare_command(order(1), place_).ok()) << "the other node does not serve it";
}

TEST_F(Command, TheCauseOfDeathIsReadFromTheErrorFile) {
  ASSERT_TRUE(prepare_command(order(0), place_).ok());
  const std::string path = error_file_path(place_, 7, 1);
  const auto cause = [&](const std::string& text) {
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return read_error_file(path);
  };
  EXPECT_EQ(read_error_file(path), "") << "none was written";
  EXPECT_EQ(cause(R"({"message": {"message": "ValueError: no\nluck", "extraInfo": {}}})"),
            "ValueError: no luck");
  EXPECT_EQ(cause(R"({"message": "plain"})"), "plain");
  for (const char* damaged : {"", "{", "[]", "{\"message\": 3}", "{\"message\": {\"x\": 1}}"}) {
    EXPECT_EQ(cause(damaged), "") << damaged;
  }
  EXPECT_EQ(cause("{\"message\": \"" + std::string(300'000, 'x') + "\"}"), "") << "unbounded";
  EXPECT_LE(cause("{\"message\": \"" + std::string(200'000, 'x') + "\"}").size(), 2'000U);
}

TEST_F(Command, ErrorFilesOfEarlierGenerationsGo) {
  ASSERT_TRUE(prepare_command(order(0), place_).ok());
  const std::string old = error_file_path(place_, 7, 1);
  const std::string others = error_file_path(place_, 7, 2);
  ASSERT_TRUE(write_file_atomic(old, "{}").ok());
  ASSERT_TRUE(write_file_atomic(others, "{}").ok());
  v1::StartWorkers next = order(0);
  next.set_generation(8);
  ASSERT_TRUE(prepare_command(next, place_).ok());
  EXPECT_FALSE(is_accessible(old));
  EXPECT_TRUE(is_accessible(others)) << "of a rank on another node";
}

}  // namespace
}  // namespace hpctl::agent
