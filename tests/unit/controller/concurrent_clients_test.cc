// SPDX-License-Identifier: Apache-2.0
// Many clients at once, on connections of their own, while a job runs and until the controller has
// ended: every call is answered, with success or with "stopping". Above all a test for the thread
// sanitizer: gRPC's threads, the owner thread and the end of the process meet here.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "tests/fault/live_controller.h"

namespace hpctl {
namespace {

constexpr int kClients = 4;

class ConcurrentClients : public testing::Test {
 protected:
  void SetUp() override {
    controller_.start();
    ASSERT_EQ(::mkfifo(gate_path_.c_str(), 0600), 0);
    gate_.reset(::open(gate_path_.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(gate_.valid());
  }
  static uint64_t submit(v1::Controller::Stub& stub, const JobSpec& spec) {
    v1::SubmitRequest request;
    request.set_spec_json(to_json_text(spec));
    request.set_submit_key(spec.name);
    v1::SubmitResponse response;
    grpc::ClientContext context;
    test::set_deadline(context);
    const auto status = stub.Submit(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }
  // Reads events of the job until one has this type, then drops the stream in the middle.
  static bool watch_until(v1::Controller::Stub& stub, uint64_t job, const std::string& type) {
    grpc::ClientContext context;
    test::set_deadline(context);
    v1::WatchEventsRequest request;
    request.set_job(std::to_string(job));
    request.set_follow(true);
    const auto stream = stub.WatchEvents(&context, request);
    bool found = false;
    for (v1::Event event; !found && stream->Read(&event);) found = event.type() == type;
    context.TryCancel();
    stream->Finish();
    return found;
  }
  // False once the controller does not answer any more.
  bool ask_everything(v1::Controller::Stub& stub, uint64_t job) {
    v1::GetJobRequest get;
    v1::ListNodesRequest nodes;
    v1::WhyRequest why;
    for (auto* request : {get.mutable_job(), nodes.mutable_job(), why.mutable_job()}) {
      *request = std::to_string(job);
    }
    v1::JobStatus status;
    v1::ListJobsResponse jobs;
    v1::ListNodesResponse node_list;
    v1::WhyResponse chain;
    grpc::ClientContext contexts[4];
    for (grpc::ClientContext& context : contexts) test::set_deadline(context);
    return answered(stub.GetJob(&contexts[0], get, &status)) &&
           answered(stub.ListJobs(&contexts[1], {}, &jobs)) &&
           answered(stub.ListNodes(&contexts[2], nodes, &node_list)) &&
           answered(stub.Why(&contexts[3], why, &chain));
  }
  bool answered(const grpc::Status& status) const {
    if (status.ok()) return true;
    EXPECT_TRUE(ending_) << status.error_code() << " " << status.error_message();
    return false;
  }

  test::LiveController controller_;
  const std::string gate_path_ = controller_.paths().home() + "/gate";
  UniqueFd gate_;
  std::atomic<bool> ending_{false};
};

TEST_F(ConcurrentClients, AskWatchSubmitAndCancelUntilTheControllerEnds) {
  const auto stub = controller_.stub();
  const uint64_t job =
      submit(*stub, test::gated_job("busy", controller_.paths().home() + "/journal", gate_path_));
  ASSERT_TRUE(watch_until(*stub, job, "JobRunning"));
  std::vector<std::thread> clients;
  std::atomic<int> ready{0};
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const auto own = controller_.stub();
      JobSpec other;
      other.name = "other" + std::to_string(i);
      other.command = {"sleep", "600"};
      const uint64_t id = submit(*own, other);
      EXPECT_TRUE(watch_until(*own, id, "JobSubmitted"));
      EXPECT_TRUE(ask_everything(*own, job));
      v1::CancelRequest cancel;
      cancel.set_job(std::to_string(id));
      v1::CancelResponse cancelled;
      grpc::ClientContext context;
      test::set_deadline(context);
      EXPECT_TRUE(own->Cancel(&context, cancel, &cancelled).ok());
      EXPECT_TRUE(watch_until(*own, id, "JobCancelled"));
      ++ready;
      while (ask_everything(*own, job)) {
      }
    });
  }
  ASSERT_TRUE(write_all(gate_.get(), std::string(64, '\n'), gate_path_).ok());
  EXPECT_TRUE(watch_until(*stub, job, "JobFinished"));
  while (ready < kClients) ask_everything(*stub, job);
  ending_ = true;
  controller_.terminate();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(controller_.wait_for_end(), 0);
}

}  // namespace
}  // namespace hpctl
