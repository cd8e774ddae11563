// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <thread>

#include "agent/shim/controller_connection.h"
#include "agent/shim/launcher_environment.h"
#include "common/worker/step_protocol.h"
#include "tests/support/loopback_port.h"

namespace hpctl::shim {
namespace {

TEST(BringsLauncher, KnowsTheUsualOnes) {
  EXPECT_TRUE(brings_launcher("/opt/venv/bin/torchrun", {"--nnodes=2", "train.py"}));
  EXPECT_TRUE(brings_launcher("/usr/bin/python3", {"-m", "torch.distributed.run", "train.py"}));
  EXPECT_TRUE(
      brings_launcher("/usr/bin/python3", {"-u", "-m", "torch.distributed.launch", "x.py"}));
  EXPECT_TRUE(brings_launcher("/usr/bin/python3", {"/opt/venv/bin/torchrun", "train.py"}));
  EXPECT_TRUE(brings_launcher("/usr/bin/mpirun", {"./a.out"}));
}

TEST(BringsLauncher, AnOrdinaryProgramDoesNot) {
  EXPECT_FALSE(brings_launcher("/usr/bin/python3", {"train.py"}));
  EXPECT_FALSE(brings_launcher("/usr/bin/python3", {"-m", "my.trainer"}));
  // What follows the script is the script's business.
  EXPECT_FALSE(brings_launcher("/usr/bin/python3", {"train.py", "-m", "torch.distributed.run"}));
  EXPECT_FALSE(brings_launcher("/home/a/mytorchrun", {}));
}

TEST(LauncherEnvironment, IsWhatTorchrunSets) {
  TaskSettings settings;
  settings.rank = 5;
  settings.tasks = 7;
  settings.local_rank = 1;
  settings.local_tasks = 3;
  settings.node_rank = 2;
  settings.nodes = 3;
  step::Start start;
  start.restart_count = 4;
  start.max_restarts = 20;
  start.run_id = "12.0";
  start.master_address = "10.0.0.1";
  start.master_port = 4711;
  std::map<std::string, std::string> found;
  for (const auto& [name, value] : launcher_environment(settings, start)) found[name] = value;
  const std::map<std::string, std::string> expected = {{"RANK", "5"},
                                                       {"LOCAL_RANK", "1"},
                                                       {"WORLD_SIZE", "7"},
                                                       {"LOCAL_WORLD_SIZE", "3"},
                                                       {"GROUP_RANK", "2"},
                                                       {"GROUP_WORLD_SIZE", "3"},
                                                       {"ROLE_RANK", "5"},
                                                       {"ROLE_WORLD_SIZE", "7"},
                                                       {"ROLE_NAME", "default"},
                                                       {"TORCHELASTIC_RESTART_COUNT", "4"},
                                                       {"TORCHELASTIC_MAX_RESTARTS", "20"},
                                                       {"TORCHELASTIC_RUN_ID", "12.0"},
                                                       {"MASTER_ADDR", "10.0.0.1"},
                                                       {"MASTER_PORT", "4711"}};
  EXPECT_EQ(found, expected);
}

TEST(LauncherEnvironment, WithoutAPortThereIsNoMaster) {
  for (const auto& [name, value] : launcher_environment({}, {})) {
    EXPECT_FALSE(name.starts_with("MASTER_")) << name;
  }
}

// Who took over the port of a step's controller that has died.
TEST(JoinStep, AnImpostorIsNotToldTheTokenAndNotBelieved) {
  const test::LoopbackPort port;
  ASSERT_EQ(::listen(port.fd(), 1), 0);
  std::string heard;
  std::thread impostor([&] {
    UniqueFd fd(::accept4(port.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    FrameStream stream(std::move(fd));
    for (int i = 0; i < 2;) {  // its random bytes, and its Hello
      const auto frame = stream.receive();
      if (!frame.ok()) return;
      if (frame->has_value()) {
        heard += **frame;
        ++i;
        continue;
      }
      pollfd wait{stream.fd(), POLLIN, 0};  // only now: both may have come at once
      ::poll(&wait, 1, 10'000);
    }
    EXPECT_TRUE(stream.send(step::encode(step::ToShim(step::Welcome{}))).ok());
    pollfd gone{stream.fd(), POLLIN, 0};
    ::poll(&gone, 1, 10'000);
  });
  TaskSettings settings;
  settings.host = "127.0.0.1";
  settings.port = static_cast<uint16_t>(std::stoul(port.address().substr(10)));
  settings.token = "the token of this step";
  settings.tasks = 1;
  const auto joined = join_step(settings);
  const ErrorCode code = joined.ok() ? ErrorCode::kInternal : joined.error().code;
  EXPECT_EQ(code, ErrorCode::kPermissionDenied);
  impostor.join();
  EXPECT_GT(heard.size(), 32U);
  EXPECT_EQ(heard.find(settings.token), std::string::npos);
}

}  // namespace
}  // namespace hpctl::shim
