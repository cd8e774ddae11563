// SPDX-License-Identifier: Apache-2.0
// A controller that answers what a test tells it to, on the real socket of an HPCTL_HOME of its
// own, through real gRPC.
#pragma once

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/job/paths.h"
#include "proto/hpctl/v1/hpctl.grpc.pb.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::testing {

// Sets HPCTL_HOME for this process and what it starts; removes home and sockets at the end.
class ScopedHome {
 public:
  ScopedHome() : paths_(directory_.path() + "/home") {
    ::setenv("HPCTL_HOME", paths_.home().c_str(), 1);
    EXPECT_TRUE(make_directories(paths_.home()).ok());
  }
  ~ScopedHome() {
    ::unsetenv("HPCTL_HOME");
    EXPECT_TRUE(remove_tree(paths_.socket_directory()).ok());
  }
  ScopedHome(const ScopedHome&) = delete;
  ScopedHome& operator=(const ScopedHome&) = delete;
  const HomePaths& paths() const { return paths_; }
  const std::string& directory() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  HomePaths paths_;
};

class ScriptedController final : public v1::Controller::Service {
 public:
  explicit ScriptedController(const HomePaths& paths) : socket_(paths.controller_socket()) {
    EXPECT_TRUE(prepare_socket_directory(paths).ok());
    start();
  }
  ~ScriptedController() override { stop(); }

  void start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void stop() {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  // What it answers. Set before the call that is tested.
  std::vector<v1::JobStatus> jobs;
  bool is_old = false;  // of a release that lists name and state alone
  int64_t now_wall_ms = 1'763'700'065'000;
  std::vector<v1::Event> history;
  v1::WhyResponse explanation;
  grpc::Status submit_status;
  int failing_submits = 0;   // the first so many are accepted, but the answer is lost
  int polls_until_end = -1;  // GetJob calls until the job counts as FINISHED; -1 = never

  // The address of its page; "" = it cannot listen, nullopt = it is of a release without one.
  std::optional<std::string> page;

  grpc::Status inject_status;
  grpc::Status remove_status;
  std::vector<v1::Event> consequences;  // what the history says after each injected fault

  std::function<void()> on_get_job;  // called by every GetJob after the first calls_before_hook
  int calls_before_hook = 0;

  std::vector<v1::SubmitRequest> submits() {
    const std::lock_guard lock(mutex_);
    return submits_;
  }
  std::vector<std::string> orders() {
    const std::lock_guard lock(mutex_);
    return orders_;
  }
  std::vector<std::string> removed() {
    const std::lock_guard lock(mutex_);
    return removed_;
  }
  std::vector<std::string> cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

 private:
  grpc::Status Submit(grpc::ServerContext*, const v1::SubmitRequest* request,
                      v1::SubmitResponse* response) override {
    const std::lock_guard lock(mutex_);
    submits_.push_back(*request);
    if (failing_submits-- > 0) return {grpc::StatusCode::UNAVAILABLE, "going down"};
    response->set_job(7);
    return submit_status;
  }
  grpc::Status OpenPage(grpc::ServerContext*, const v1::OpenPageRequest*,
                        v1::OpenPageResponse* response) override {
    if (!page) return {grpc::StatusCode::UNIMPLEMENTED, ""};
    if (page->empty()) return {grpc::StatusCode::UNAVAILABLE, "there is no status page: in use"};
    response->set_url("http://" + *page + "/open?code=1");
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest* request,
                      v1::JobStatus* response) override {
    const std::lock_guard lock(mutex_);
    if (on_get_job && calls_before_hook-- <= 0) on_get_job();
    if (polls_until_end == 0) jobs[0].set_state("FINISHED");
    if (polls_until_end > 0) --polls_until_end;
    for (const auto& job : jobs) {
      if (std::to_string(job.job()) != request->job()) continue;
      *response = job;
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "no job " + request->job()};
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse* response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs) {
      auto* line = response->add_jobs();
      line->set_job(job.job());
      line->set_name(job.name());
      line->set_state(job.state());
      if (is_old) continue;
      line->set_taken_wall_ms(now_wall_ms);
      line->set_owner(job.owner());
      line->set_generation(job.generation());
      line->set_step(job.step());
      line->set_total_steps(job.total_steps());
      line->set_tokens_per_second(job.tokens_per_second());
      line->set_step_ms(job.step_ms());
      line->set_restarts(job.restarts());
      line->set_faults(job.faults());
      for (const auto& node : job.nodes()) line->set_nodes(node.name());
      line->set_ranks(static_cast<uint32_t>(job.workers_size()));
      line->set_submitted_wall_ms(job.submitted_wall_ms());
      line->set_ended_wall_ms(job.ended_wall_ms());
      *line->mutable_spent() = job.spent();
      line->set_reason(job.reason());
      line->set_last_fault(job.last_fault());
      if (job.has_margins()) *line->mutable_margins() = job.margins();
    }
    return grpc::Status::OK;
  }
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest* request,
                      v1::CancelResponse* response) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(request->job());
    response->set_state("CANCELLED");
    return grpc::Status::OK;
  }
  grpc::Status RemoveJob(grpc::ServerContext*, const v1::RemoveJobRequest* request,
                         v1::RemoveJobResponse*) override {
    const std::lock_guard lock(mutex_);
    removed_.push_back(request->job());
    return remove_status;
  }
  grpc::Status QuarantineNode(grpc::ServerContext*, const v1::QuarantineNodeRequest* request,
                              v1::QuarantineNodeResponse*) override {
    const std::lock_guard lock(mutex_);
    if (request->node() == "n0") return {grpc::StatusCode::FAILED_PRECONDITION, "n0 has ranks"};
    orders_.push_back("quarantine " + request->job() + " " + request->node() + " " +
                      request->reason() + " " + std::to_string(request->for_ms()) +
                      (request->asks_first() ? "" : " --yes"));
    return grpc::Status::OK;
  }
  grpc::Status ReleaseNode(grpc::ServerContext*, const v1::ReleaseNodeRequest* request,
                           v1::ReleaseNodeResponse*) override {
    const std::lock_guard lock(mutex_);
    orders_.push_back("release " + request->job() + " " + request->node());
    return grpc::Status::OK;
  }
  grpc::Status RecoverNode(grpc::ServerContext*, const v1::RecoverNodeRequest* request,
                           v1::RecoverNodeResponse*) override {
    const std::lock_guard lock(mutex_);
    orders_.push_back((request->reboot() ? "reboot " : "replace ") + request->job() + " " +
                      request->node() + " " + request->reason() +
                      (request->asks_first() ? "" : " --yes"));
    return grpc::Status::OK;
  }
  grpc::Status Inject(grpc::ServerContext*, const v1::InjectRequest* request,
                      v1::InjectResponse* response) override {
    const std::lock_guard lock(mutex_);
    if (inject_status.error_code() == grpc::StatusCode::FAILED_PRECONDITION) return inject_status;
    orders_.push_back("inject " + request->fault() + " " + std::to_string(request->rank()) + " " +
                      request->node());
    v1::Event injected;
    injected.set_type("FaultInjected");
    injected.set_wall_ms(1'763'700'000'000);
    uint64_t seq = history.empty() ? 1 : history.back().seq() + 1;
    injected.set_seq(seq);
    response->set_seq(seq);
    history.push_back(injected);
    for (v1::Event consequence : consequences) {
      consequence.set_seq(++seq);
      history.push_back(consequence);
    }
    return inject_status;
  }
  grpc::Status WatchEvents(grpc::ServerContext*, const v1::WatchEventsRequest* request,
                           grpc::ServerWriter<v1::Event>* writer) override {
    const std::lock_guard lock(mutex_);
    for (const auto& event : history) {
      if (event.seq() > request->after_seq()) writer->Write(event);
    }
    return grpc::Status::OK;
  }
  grpc::Status Why(grpc::ServerContext*, const v1::WhyRequest*,
                   v1::WhyResponse* response) override {
    const std::lock_guard lock(mutex_);
    *response = explanation;
    return grpc::Status::OK;
  }
  grpc::Status GetVersion(grpc::ServerContext*, const v1::GetVersionRequest*,
                          v1::GetVersionResponse* response) override {
    response->set_version("9.9.9");
    response->set_pid(4242);
    response->set_node("here");
    response->set_metrics("127.0.0.1:9");
    return grpc::Status::OK;
  }

  std::string socket_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex mutex_;
  std::vector<v1::SubmitRequest> submits_;
  std::vector<std::string> cancelled_;
  std::vector<std::string> removed_;
  std::vector<std::string> orders_;
};

// A job half-way through, on one node with one worker.
inline v1::JobStatus running_job(uint64_t id, const std::string& name) {
  v1::JobStatus s;
  s.set_job(id);
  s.set_name(name);
  s.set_state("RUNNING");
  s.set_generation(2);
  s.set_step(34);
  s.set_total_steps(60);
  s.set_loss(2.5);
  s.set_tokens_per_second(12345);
  s.set_restarts(1);
  s.set_faults(1);
  s.set_lost_ms(1200);
  s.mutable_spent()->set_start_ms(5000);
  s.mutable_spent()->set_notice_ms(200);
  s.mutable_spent()->set_restart_ms(300);
  s.mutable_spent()->set_repeat_ms(300);
  s.mutable_spent()->set_decide_ms(150);
  s.mutable_spent()->set_wait_ms(250);
  s.mutable_spent()->set_suspended_ms(2000);
  s.mutable_spent()->set_checkpoint_ms(400);
  s.mutable_spent()->set_data_ms(100);
  s.set_controller_pid(100);
  s.set_controller_node("here");
  s.set_checkpoint_step(30);
  s.set_checkpoint_dir("/ckpt");
  s.set_submitted_wall_ms(1'763'700'000'000);
  auto* node = s.add_nodes();
  node->set_name("n0");
  node->set_role("active");
  node->set_state("up");
  node->set_instance_id("i-0");
  node->set_boot_id("b-0");
  node->set_holder_pid(11);
  node->set_agent_pid(12);
  node->set_job(id);
  auto* worker = s.add_workers();
  worker->set_rank(0);
  worker->set_node("n0");
  worker->set_pid(13);
  worker->set_generation(2);
  worker->set_state("running");
  worker->set_phase("training");
  worker->set_step(34);
  return s;
}

inline v1::Event event(uint64_t seq, const std::string& type, const std::string& cause,
                       uint64_t because = 0) {
  v1::Event e;
  e.set_seq(seq);
  e.set_wall_ms(1'763'700'000'000 + static_cast<int64_t>(seq) * 1000);
  e.set_type(type);
  e.set_job(1);
  e.set_generation(1);
  e.set_rank(-1);
  e.set_cause(cause);
  e.set_because_seq(because);
  return e;
}

}  // namespace hpctl::testing
