// SPDX-License-Identifier: Apache-2.0
// Controllers of a job come and go: nobody starts one again but the agents, and the workers must
// not notice.
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/job/controller_beat.h"
#include "common/job/job_files.h"
#include "common/net/tls_identity.h"
#include "controller/access/tcp_access.h"
#include "controller/leadership/job_mode.h"
#include "controller/publish/status_files.h"
#include "tests/fault/job_cluster.h"
#include "tests/support/loopback_port.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"

namespace hpctl {
namespace {

constexpr int kPatienceMs = 60'000;

class Succession : public testing::Test {
 protected:
  static JobSpec gated_pairs() {
    JobSpec spec = test::gated_job();
    spec.nodes = 3;
    spec.workers_per_node = 2;
    return spec;
  }
  void start() {
    first_ = cluster_.start_all();
    ASSERT_TRUE(runs()) << cluster_.logs();
    workers_ = worker_pids();
    ASSERT_EQ(workers_.size(), 6U);
  }
  // RUNNING, and every agent is connected to the newest controller.
  bool runs() const {
    return cluster_.wait_for_status(
        [](const v1::JobStatus& status) {
          for (const auto& node : status.nodes()) {
            if (node.state() != "up") return false;
          }
          return status.state() == "RUNNING";
        },
        kPatienceMs);
  }
  std::set<uint64_t> worker_pids() const {
    std::set<uint64_t> pids;
    const v1::JobStatus status = cluster_.shown();
    for (const auto& worker : status.workers()) pids.insert(worker.pid());
    return pids;
  }
  void expect_finish() {
    cluster_.open_gate();
    ASSERT_TRUE(test::eventually([&] { return cluster_.verdict().has_value(); }, kPatienceMs));
    EXPECT_EQ(cluster_.verdict(), kVerdictFinished) << cluster_.logs();
    EXPECT_TRUE(test::eventually([&] { return cluster_.processes().empty(); }, kPatienceMs))
        << cluster_.logs() << broken_promise("leftover");
  }

  void expect_impostor_is_ignored(const std::shared_ptr<grpc::ServerCredentials>& credentials);

  test::JobCluster cluster_{gated_pairs()};
  pid_t first_ = -1;
  std::set<uint64_t> workers_;
};

// Takes the place of a dead controller and would have every node end its workers.
class Impostor {
 public:
  Impostor(const std::string& address,
           const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(address, credentials, &port);
    builder.RegisterService(&agents_);
    builder.RegisterService(&people_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(port, 0) << "the port is not free";
  }
  ~Impostor() { server_->Shutdown(std::chrono::system_clock::now()); }
  // Calls that reached it, each with a token.
  int heard() const { return agents_.heard + people_.heard; }

 private:
  struct Agents final : v1::AgentLink::Service {
    grpc::Status Connect(
        grpc::ServerContext*,
        grpc::ServerReaderWriter<v1::ControllerMessage, v1::AgentMessage>* stream) override {
      ++heard;
      v1::AgentMessage hello;
      if (!stream->Read(&hello)) return grpc::Status::OK;
      v1::ControllerMessage order;
      order.set_job(hello.job());
      order.mutable_welcome()->set_heartbeat_interval_ms(500);
      stream->Write(order);
      order.mutable_end_node()->set_action_seq(1);
      stream->Write(order);
      while (stream->Read(&hello)) {
      }
      return grpc::Status::OK;
    }
    std::atomic<int> heard{0};
  };
  struct OperatorAcl final : v1::Controller::Service {
    grpc::Status GetVersion(grpc::ServerContext*, const v1::GetVersionRequest*,
                            v1::GetVersionResponse*) override {
      ++heard;
      return grpc::Status::OK;
    }
    std::atomic<int> heard{0};
  };

  Agents agents_;
  OperatorAcl people_;
  std::unique_ptr<grpc::Server> server_;
};

void Succession::expect_impostor_is_ignored(
    const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  start();
  const auto dead = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(dead);
  cluster_.kill_controller(1);
  const Impostor impostor(dead->address, credentials);
  EXPECT_FALSE(cluster_.status()) << "people ask it nothing either";
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(cluster_.shown().generation(), 1U);
  EXPECT_EQ(worker_pids(), workers_) << "nobody obeyed it";
  EXPECT_EQ(impostor.heard(), 0);
  expect_finish();
}

TEST_F(Succession, AnImpostorOnADeadControllersPortIsToldNothingAndSucceeded) {
  expect_impostor_is_ignored(grpc::InsecureServerCredentials());
}

TEST_F(Succession, AnImpostorWithACertificateOfItsOwnIsNoBetter) {
  expect_impostor_is_ignored(server_credentials(*make_tls_identity()));
}

TEST_F(Succession, ASuccessorHasASuccessor) {
  start();
  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(cluster_.shown().controller_pid(), second->pid);
  EXPECT_EQ(worker_pids(), workers_);
  cluster_.kill_controller(2);
  ASSERT_TRUE(cluster_.wait_for_epoch(3, kPatienceMs)) << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(cluster_.shown().generation(), 1U);
  EXPECT_EQ(worker_pids(), workers_);
  expect_finish();
}

TEST_F(Succession, WhatHappenedMeanwhileReachesTheSuccessor) {
  start();
  cluster_.kill_controller(1);
  ::kill(static_cast<pid_t>(*workers_.begin()), SIGKILL);
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  ASSERT_TRUE(cluster_.wait_for_status(
      [](const v1::JobStatus& status) {
        return status.generation() == 2 && status.state() == "RUNNING";
      },
      kPatienceMs))
      << cluster_.logs();
  EXPECT_EQ(cluster_.shown().restarts(), 1);
  const auto before = cluster_.shown();
  EXPECT_GT(before.lost_ms(), 0);
  const HomePaths paths = cluster_.paths("n0");
  ASSERT_TRUE(test::eventually(
      [&] {
        const auto written = read_status(paths, cluster_.job());
        return written.ok() && written->generation == 2 && written->state == "RUNNING";
      },
      kPatienceMs));
  cluster_.kill_controller(2);
  ASSERT_TRUE(cluster_.wait_for_epoch(3, kPatienceMs)) << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(cluster_.shown().restarts(), 1);
  EXPECT_EQ(cluster_.shown().lost_ms(), before.lost_ms());
  EXPECT_EQ(cluster_.shown().submitted_wall_ms(), before.submitted_wall_ms());
  expect_finish();
}

TEST_F(Succession, OfRacingSuccessorsOneWins) {
  start();
  cluster_.kill_controller(1);
  // Without waiting for one another, each as its node's agent would do it.
  const pid_t racers[] = {cluster_.start_controller("n1", {"--successor"}),
                          cluster_.start_controller("n2", {"--successor"})};
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 2U);
  const auto winner = static_cast<pid_t>(cluster_.shown().controller_pid());
  for (const pid_t racer : racers) {
    if (racer == winner) continue;
    EXPECT_EQ(cluster_.wait_for(racer, kPatienceMs), kExitSuperseded);
  }
  EXPECT_EQ(worker_pids(), workers_);
  expect_finish();
}

// A node that is cut off finds no controller, but in the directory that one which serves the
// others.
TEST_F(Succession, NobodySucceedsAControllerWhoseBeatMoves) {
  start();
  ASSERT_EQ(::kill(first_, SIGSTOP), 0);
  // A file that differs each time: it moves also while this test has no turn.
  const std::string beat = beat_path(cluster_.job_dir());
  const std::string moving = beat + ".moving";
  ASSERT_EQ(::symlink("/proc/uptime", moving.c_str()), 0);
  ASSERT_EQ(::rename(moving.c_str(), beat.c_str()), 0);
  const auto refused = [&] {
    return cluster_.logs().find("this node is cut off") != std::string::npos;
  };
  ASSERT_TRUE(test::eventually(refused, kPatienceMs)) << cluster_.logs();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  ASSERT_EQ(::unlink(beat.c_str()), 0);
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs))
      << "the beat stands still: " << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  ASSERT_EQ(::kill(first_, SIGCONT), 0);
  EXPECT_EQ(cluster_.wait_for(first_, kPatienceMs), kExitSuperseded);
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(cluster_.shown().generation(), 1U);
  EXPECT_EQ(worker_pids(), workers_);
  expect_finish();
}

// It shows what it has, which is old, as the first thing after it was away, or has been stopped in
// the middle of that.
TEST_F(Succession, AControllerThatComesBackAfterTheEndLeavesTheRecordAlone) {
  start();
  ASSERT_EQ(::kill(first_, SIGSTOP), 0);
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << cluster_.logs();
  ASSERT_TRUE(runs()) << cluster_.logs();
  cluster_.open_gate();
  const auto only_first = [&] {
    std::vector<pid_t> found = cluster_.processes();
    std::erase_if(found, is_of_a_log);
    return found == std::vector<pid_t>{first_};
  };
  ASSERT_TRUE(test::eventually(only_first, kPatienceMs)) << cluster_.logs();
  const auto record = read_file(cluster_.job_dir() + "/status.json");
  ASSERT_TRUE(record.ok());
  ASSERT_EQ(::kill(first_, SIGCONT), 0);
  EXPECT_EQ(cluster_.wait_for(first_, kPatienceMs), kExitSuperseded);
  EXPECT_EQ(read_file(cluster_.job_dir() + "/status.json").value(), *record);
}

// The batch node: its controller and its agent die together.
TEST_F(Succession, TheControllersNodeIsLostWithIt) {
  start();
  // Stopped, it does not see the holder's end; and its node's agent is gone before it could follow.
  ASSERT_EQ(::kill(first_, SIGSTOP), 0);
  cluster_.kill_holder("n0");
  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << cluster_.logs();
  EXPECT_NE(second->node, "n0");
  cluster_.start_agent("n0");  // the node comes back
  ASSERT_TRUE(cluster_.wait_for_status(
      [](const v1::JobStatus& status) {
        return status.generation() == 2 && status.state() == "RUNNING";
      },
      kPatienceMs))
      << cluster_.logs();
  expect_finish();
}

// From its first answer on. The workers of a command tell no checkpoints: only the directory knows.
TEST_F(Succession, OnAnotherNodeTheSuccessorShowsTheNewestCheckpoint) {
  start();
  EXPECT_EQ(cluster_.shown().checkpoint_step(), 0U);
  const std::string checkpoint = cluster_.checkpoints() + "/step-100.g1";
  ASSERT_TRUE(make_directories(checkpoint).ok());
  ASSERT_TRUE(write_file_atomic(checkpoint + "/manifest.json", "{}").ok());
  cluster_.kill_holder("n0");  // a successor there would go on with the rows of the dead
  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << cluster_.logs();
  EXPECT_NE(second->node, "n0");
  std::optional<v1::JobStatus> shown;
  ASSERT_TRUE(
      test::eventually([&] { return (shown = cluster_.status()).has_value(); }, kPatienceMs))
      << cluster_.logs();
  EXPECT_EQ(shown->checkpoint_step(), 100U);
  EXPECT_EQ(shown->state(), "RECOVERING") << "ranks are dead";
}

TEST_F(Succession, AnAgentWhoseJobHasEndedEndsItsNode) {
  start();
  ASSERT_EQ(::kill(first_, SIGSTOP), 0);
  ASSERT_TRUE(write_verdict(cluster_.job_dir(), kVerdictFailedForGood, 0).ok());
  cluster_.kill_controller(1);
  EXPECT_TRUE(test::eventually([&] { return cluster_.processes().empty(); }, kPatienceMs))
      << cluster_.logs() << broken_promise("leftover");
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U) << "nobody succeeded";
}

// A successor looks at the one before it for seconds, time enough for that one to end the job.
TEST_F(Succession, NobodySucceedsAControllerThatEndsTheJobMeanwhile) {
  const test::LoopbackPort silent;
  const timeval patience{kPatienceMs / 1000, 0};
  ASSERT_EQ(::setsockopt(silent.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  ASSERT_EQ(::listen(silent.fd(), 1), 0);
  ControllerRecord first;
  first.epoch = 1;
  first.address = silent.address();
  first.certificate = make_tls_identity()->certificate;
  first.node = "n0";
  first.nodes = cluster_.nodes();
  first.scheduler = "none";
  ASSERT_TRUE(create_controller_record(cluster_.job_dir(), first).ok());
  std::thread ending([&] {
    const UniqueFd asked(::accept(silent.fd(), nullptr, nullptr));
    EXPECT_TRUE(asked.valid()) << "the successor did not ask";
    EXPECT_TRUE(write_verdict(cluster_.job_dir(), kVerdictFinished, 0).ok());
  });
  const pid_t successor = cluster_.start_controller("n1", {"--successor"});
  ending.join();
  EXPECT_EQ(cluster_.wait_for(successor, kPatienceMs), kExitSuperseded);
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  EXPECT_NE(cluster_.logs().find("the job has ended before with 0"), std::string::npos)
      << cluster_.logs();
}

}  // namespace
}  // namespace hpctl
