// SPDX-License-Identifier: Apache-2.0
// Checkpoint directories that do not answer, as on a file server that is gone: jobs elsewhere go
// on, and so does the controller's end. A record of the lineage that is a named pipe nobody writes
// to stands in for such a directory.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "common/base/file.h"
#include "tests/fault/live_controller.h"

namespace hpctl {
namespace {

using test::LiveController;

constexpr int kDeadJobs = 5;

void submit(v1::Controller::Stub& stub, const std::string& name, const std::string& directory) {
  JobSpec spec;
  spec.name = name;
  spec.command = {"true"};
  spec.checkpoint.dir = directory;
  v1::SubmitRequest request;
  request.set_spec_json(to_json_text(spec));
  v1::SubmitResponse response;
  grpc::ClientContext context;
  test::set_deadline(context);
  const auto status = stub.Submit(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

// Whether the job's history comes to an event of this type.
bool comes_to(v1::Controller::Stub& stub, const std::string& job, const std::string& type) {
  v1::WatchEventsRequest watch;
  watch.set_job(job);
  watch.set_follow(true);
  grpc::ClientContext context;
  test::set_deadline(context);
  const auto stream = stub.WatchEvents(&context, watch);
  bool found = false;
  for (v1::Event event; !found && stream->Read(&event);) found = event.type() == type;
  context.TryCancel();
  stream->Finish();
  return found;
}

TEST(DeadDirectory, HindersNeitherOtherJobsNorTheEnd) {
  // The thread sanitizer is not to report the threads that are left with the process on purpose.
  if (const char* options = ::getenv("TSAN_OPTIONS")) {
    ::setenv("TSAN_OPTIONS", (std::string(options) + ":report_thread_leaks=0").c_str(), 1);
  }
  LiveController controller;
  controller.start();
  const auto stub = controller.stub();
  for (int i = 0; i < kDeadJobs; ++i) {
    const std::string name = "dead-" + std::to_string(i);
    const std::string directory = controller.paths().home() + "/" + name;
    ASSERT_TRUE(make_directories(directory + "/generations").ok());
    ASSERT_EQ(::mkfifo((directory + "/generations/1.json").c_str(), 0600), 0);
    submit(*stub, name, directory);
    ASSERT_TRUE(comes_to(*stub, name, "FindCheckpoint"));
  }
  submit(*stub, "alive", controller.paths().home() + "/alive");
  EXPECT_TRUE(comes_to(*stub, "alive", "JobFinished"));
  ::kill(controller.pid(), SIGTERM);
  EXPECT_EQ(WEXITSTATUS(controller.wait_for_end()), 0);
  // A process of its own writes the log, perhaps after the controller has ended.
  std::string log;
  const auto is_said = [&] {
    log = read_file(controller.paths().controller_log()).value();
    return log.find("/dead-4, which does not answer") != std::string::npos;
  };
  EXPECT_TRUE(test::eventually(is_said, 60'000)) << log;
}

}  // namespace
}  // namespace hpctl
