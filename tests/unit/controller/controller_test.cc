// SPDX-License-Identifier: Apache-2.0
// The real hpcontroller: one per home, clean ends, clear errors, and who may ask what.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/net/host_port.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/status.h"
#include "controller/publish/status_files.h"
#include "tests/fault/live_controller.h"
#include "tests/support/http_get.h"

namespace hpctl {
namespace {

using test::LiveController;

constexpr auto kCallTimeout = std::chrono::seconds(60);

// The seqs of the job's events up to its end.
std::vector<uint64_t> follow(v1::Controller::Stub& stub, const std::string& job) {
  v1::WatchEventsRequest watch;
  watch.set_job(job);
  watch.set_follow(true);
  grpc::ClientContext context;
  test::set_deadline(context);
  const auto stream = stub.WatchEvents(&context, watch);
  std::vector<uint64_t> seqs;
  for (v1::Event event; stream->Read(&event);) seqs.push_back(event.seq());
  EXPECT_TRUE(stream->Finish().ok());
  return seqs;
}

TEST(Controller, ASecondOneOnTheSameHomeIsRefusedWithThePidOfTheFirst) {
  LiveController first;
  first.start();
  const std::string pid = std::to_string(first.pid());
  const std::string log = first.paths().home() + "/second.log";
  const std::string command = test::program("hpcontroller") + " --home " + first.paths().home() +
                              " 2> " + log + " > /dev/null";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_NE(test::last_line(log).find("pid " + pid), std::string::npos) << test::last_line(log);
  EXPECT_FALSE(first.ended()) << "the first goes on";
}

TEST(Controller, EndsCleanlyOnSigterm) {
  LiveController controller;
  controller.start();
  EXPECT_TRUE(is_accessible(controller.paths().controller_socket()));
  ::kill(controller.pid(), SIGTERM);
  EXPECT_EQ(controller.wait_for_end(), 0);
  EXPECT_FALSE(is_accessible(controller.paths().controller_socket()));
  const auto wal = read_file(controller.paths().database() + "-wal");
  EXPECT_TRUE(!wal.ok() || wal->empty()) << "the write-ahead log is moved into the database";
}

TEST(Controller, EndsByItselfWhenIdle) {
  LiveController controller;
  controller.start("", {"--idle-exit", "1"});
  EXPECT_EQ(controller.wait_for_end(), 0);
}

TEST(Controller, RacingStartersGetOneController) {
  LiveController home;  // for its directory and its clean-up
  const auto deadline = std::chrono::steady_clock::now() + kCallTimeout;
  std::vector<uint64_t> pids(4);
  std::vector<std::thread> starters;
  for (uint64_t& pid : pids) {
    starters.emplace_back([&pid, &home, deadline] {
      const auto started = ensure_controller(home.paths(), deadline, test::program("hpcontroller"));
      ASSERT_TRUE(started.ok()) << message_of(started.status());
      grpc::ClientContext context;
      test::set_deadline(context);
      v1::GetVersionResponse response;
      ASSERT_TRUE(v1::Controller::NewStub(*started)->GetVersion(&context, {}, &response).ok());
      pid = response.pid();
    });
  }
  for (std::thread& starter : starters) starter.join();
  EXPECT_NE(pids[0], 0U);
  for (const uint64_t pid : pids) EXPECT_EQ(pid, pids[0]);
  home.terminate();
}

TEST(Controller, AStartThatFailsSaysWhy) {
  LiveController home;
  ASSERT_TRUE(write_file_atomic(home.paths().database(), std::string(4096, 'x')).ok());
  const auto started = ensure_controller(
      home.paths(), std::chrono::steady_clock::now() + kCallTimeout, test::program("hpcontroller"));
  ASSERT_FALSE(started.ok());
  EXPECT_NE(message_of(started.status()).find("controller.db"), std::string::npos)
      << message_of(started.status());
}

uint16_t port_of(const std::string& address) { return HostPort::parse(address).value().port; }

// A rate over a restart was negative.
TEST(Controller, ItsEventsAreCountedOverRestarts) {
  LiveController controller;
  const auto count = [&] {
    const auto text = read_file(controller.paths().controller_json());
    const uint16_t port = port_of(nlohmann::json::parse(text.value())["metrics"]);
    const std::string metrics = http_get(port, "/metrics");
    const std::string name = "\nhpctl_controller_events_total ";
    const size_t at = metrics.find(name);
    return at == std::string::npos ? -1.0 : std::stod(metrics.substr(at + name.size()));
  };
  controller.start("", {"--metrics", "127.0.0.1:0"});
  const double before = count();
  ASSERT_GE(before, 0);
  controller.terminate();
  controller.start("", {"--metrics", "127.0.0.1:0"});
  EXPECT_GE(count(), before);
}

TEST(Controller, ServesMetricsWhereAskedAndElsewhereWhenThePortIsTaken) {
  LiveController controller;
  controller.start("", {"--metrics", "127.0.0.1:0"});
  const auto text = read_file(controller.paths().controller_json());
  ASSERT_TRUE(text.ok());
  const std::string address = nlohmann::json::parse(*text)["metrics"];
  const uint16_t port = port_of(address);
  ASSERT_NE(port, 0);
  EXPECT_NE(http_get(port, "/healthz").find("200 OK"), std::string::npos);
  EXPECT_NE(http_get(port, "/metrics").find("hpctl_controller_events_total"), std::string::npos);

  LiveController other;
  other.start("", {"--metrics", address});
  ASSERT_FALSE(other.ended()) << test::last_line(other.paths().controller_log());
  const std::string file = other.paths().home() + "/metrics-targets.json";
  ASSERT_TRUE(test::eventually([&] { return is_accessible(file); }, 10'000));
  const auto targets = read_file(file);
  ASSERT_TRUE(targets.ok());
  const std::string elsewhere = nlohmann::json::parse(*targets)[0]["targets"][0];
  EXPECT_NE(elsewhere, address);
  EXPECT_NE(http_get(port_of(elsewhere), "/healthz").find("200 OK"), std::string::npos);
  other.terminate();  // which waits until its log is written
  const auto log = read_file(other.paths().controller_log());
  EXPECT_NE(log->find(address + " is in use"), std::string::npos) << *log;
  EXPECT_EQ(read_file(file).value(), "[]\n");
}

TEST(Controller, ServesWithoutMetricsWhereTheirAddressIsNotOfThisMachine) {
  for (const std::string address : {"203.0.113.1:9400", "nonsense"}) {
    LiveController controller;
    controller.start("", {"--metrics", address});
    EXPECT_FALSE(controller.ended()) << test::last_line(controller.paths().controller_log());
    EXPECT_FALSE(is_accessible(controller.paths().home() + "/metrics-targets.json"));
    controller.terminate();  // which waits until its log is written
    const auto log = read_file(controller.paths().controller_log());
    EXPECT_NE(log->find("there are no metrics"), std::string::npos) << *log;
  }
}

TEST(Controller, SubmitIsIdempotentAndBadInputIsNamed) {
  LiveController controller;
  controller.start();
  const auto stub = controller.stub();
  JobSpec spec;
  spec.name = "twice";
  spec.command = {"true"};
  v1::SubmitRequest request;
  request.set_spec_json(to_json_text(spec));
  request.set_submit_key("k");
  uint64_t jobs[2] = {0, 1};
  for (uint64_t& job : jobs) {
    grpc::ClientContext context;
    test::set_deadline(context);
    v1::SubmitResponse response;
    ASSERT_TRUE(stub->Submit(&context, request, &response).ok());
    job = response.job();
  }
  EXPECT_EQ(jobs[0], jobs[1]);
  follow(*stub, "twice");
  request.set_spec_json("{");
  grpc::ClientContext context;
  test::set_deadline(context);
  v1::SubmitResponse response;
  EXPECT_EQ(stub->Submit(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext unknown;
  test::set_deadline(unknown);
  v1::GetJobRequest get;
  get.set_job("no-such-job");
  v1::JobStatus status;
  EXPECT_EQ(stub->GetJob(&unknown, get, &status).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Controller, AJobEndsInTheStatusFilesToo) {
  LiveController controller;
  controller.start();
  const auto stub = controller.stub();
  JobSpec spec;
  spec.name = "short";
  spec.command = {"true"};
  v1::SubmitRequest request;
  request.set_spec_json(to_json_text(spec));
  v1::SubmitResponse submitted;
  {
    grpc::ClientContext context;
    test::set_deadline(context);
    ASSERT_TRUE(stub->Submit(&context, request, &submitted).ok());
  }
  const auto seqs = follow(*stub, "short");
  EXPECT_TRUE(std::is_sorted(seqs.begin(), seqs.end()));
  controller.terminate();  // writes what waits
  const JobId job{submitted.job()};
  const auto view = read_status(controller.paths(), job);
  ASSERT_TRUE(view.ok()) << view.error().message;
  EXPECT_EQ(view->state, "FINISHED");
  EXPECT_GE(read_events(controller.paths().job_events(job))->size(), seqs.size());
  EXPECT_GE(read_events(controller.paths().default_checkpoints(job) + "/events.jsonl")->size(), 1U);
  EXPECT_EQ(job_spec_from_json(read_file(controller.paths().job_spec(job)).value())->name, "short");
}

// A stream of an agent that nobody here started.
v1::ControllerMessage register_stranger(LiveController& controller, uint64_t job) {
  const auto stub = v1::AgentLink::NewStub(connect_controller(controller.paths()));
  grpc::ClientContext context;
  test::set_deadline(context);
  const auto stream = stub->Connect(&context);
  v1::AgentMessage hello;
  hello.set_job(job);
  hello.set_node("n0");
  hello.set_boot_id("stranger");
  hello.mutable_register_agent()->set_agent_pid(1);
  EXPECT_TRUE(stream->Write(hello));
  v1::ControllerMessage answer;
  EXPECT_TRUE(stream->Read(&answer));
  v1::ControllerMessage more;
  EXPECT_FALSE(stream->Read(&more)) << "the stream ends after a refusal";
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  return answer;
}

TEST(Controller, AnAgentOfAnUnknownJobIsRefusedForGood) {
  LiveController controller;
  controller.start();
  const auto answer = register_stranger(controller, 77);
  ASSERT_TRUE(answer.has_refused());
  EXPECT_TRUE(answer.refused().permanent());
  EXPECT_NE(answer.refused().reason().find("77"), std::string::npos);
}

}  // namespace
}  // namespace hpctl
