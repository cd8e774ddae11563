// SPDX-License-Identifier: Apache-2.0
// The controller dies at each of its fail-points in the course of a real job with real agents, and
// another takes over: the job finishes in its first generation, so the workers that ran were never
// disturbed; every worker was started exactly once; and no event that a client has seen is lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "common/base/file.h"
#include "common/rpc/controller_process.h"
#include "tests/fault/live_controller.h"

namespace hpctl {
namespace {

using test::LiveController;
using EventKey = std::tuple<uint64_t, std::string, std::string, int32_t>;

constexpr auto kCallTimeout = std::chrono::seconds(60);
// A process that is killed lets go of its connections first.
constexpr auto kEndTimeout = std::chrono::seconds(20);

EventKey key_of(const v1::Event& event) {
  return {event.seq(), event.type(), event.node(), event.rank()};
}

std::vector<std::string> all_failpoints() {
  std::vector<std::string> names;
  FILE* listing = ::popen((test::program("hpcontroller") + " --list-failpoints").c_str(), "r");
  char line[256];
  while (std::fgets(line, sizeof line, listing) != nullptr) {
    names.emplace_back(line);
    names.back().pop_back();
  }
  EXPECT_EQ(::pclose(listing), 0);
  // Later passes of the places that every event goes through.
  for (const char* name : {"controller.transaction.before", "controller.transaction.written",
                           "controller.transaction.after", "controller.action.after"}) {
    for (const char* pass : {":4", ":8"}) names.push_back(std::string(name) + pass);
  }
  return names;
}

class GatedRun {
 public:
  explicit GatedRun(const std::string& failpoint) : failpoint_(failpoint) {
    EXPECT_EQ(::mkfifo(gate().c_str(), 0600), 0);
    gate_ = UniqueFd(::open(gate().c_str(), O_RDWR | O_CLOEXEC));
  }

  void run() {
    controller_.start(failpoint_);
    const uint64_t job = submit();
    ASSERT_NE(job, 0U);
    watch(job);
    settle();
    check(job);
  }

 private:
  std::string journal() const { return controller_.paths().home() + "/journal"; }
  std::string gate() const { return controller_.paths().home() + "/gate"; }

  // Wait status of the armed controller, of which somebody has lost the connection; nullopt = it
  // lives.
  std::optional<int> await_end() {
    const auto deadline = std::chrono::steady_clock::now() + kEndTimeout;
    auto status = controller_.ended();
    while (!status && std::chrono::steady_clock::now() < deadline) {
      ::poll(nullptr, 0, 10);
      status = controller_.ended();
    }
    return status;
  }

  // The armed controller may have died: put another in its place.
  void replace_the_dead() {
    if (deaths_ > 0) return;
    const auto status = await_end();
    if (!status) return;  // only the connection was lost
    EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL)
        << failpoint_ << ": ended with status " << *status << ": "
        << test::last_line(controller_.paths().controller_log());
    ++deaths_;
    // An agent may have been quicker; the lock decides, and both are fine.
    controller_.start();
    if (const auto lost_the_race = controller_.ended()) {
      EXPECT_EQ(WEXITSTATUS(*lost_the_race), 3);
    }
  }

  // Once the armed controller is dead, the next one is waited for.
  void prepare(grpc::ClientContext& context) const {
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    context.set_wait_for_ready(deaths_ > 0);
  }

  uint64_t submit() {
    v1::SubmitRequest request;
    request.set_spec_json(to_json_text(test::gated_job("gated", journal(), gate())));
    request.set_submit_key("once");
    for (int attempt = 0; attempt < 4; ++attempt) {
      grpc::ClientContext context;
      prepare(context);
      v1::SubmitResponse response;
      const auto status = controller_.stub()->Submit(&context, request, &response);
      if (status.ok()) return response.job();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      replace_the_dead();
    }
    return 0;
  }

  // Follows the job to its end over any number of broken streams.
  void watch(uint64_t job) {
    for (int attempt = 0; attempt < 6 && !finished_; ++attempt) {
      grpc::ClientContext context;
      prepare(context);
      v1::WatchEventsRequest request;
      request.set_job(std::to_string(job));
      request.set_follow(true);
      const auto stub = controller_.stub();
      const auto stream = stub->WatchEvents(&context, request);
      v1::Event event;
      while (stream->Read(&event)) saw(event);
      if (stream->Finish().error_code() == grpc::StatusCode::UNAVAILABLE) replace_the_dead();
    }
    EXPECT_TRUE(finished_) << failpoint_ << ": the job did not finish";
  }

  void saw(const v1::Event& event) {
    seen_.insert(key_of(event));
    finished_ = finished_ || event.type() == "JobFinished";
    if (event.type() == "JobRunning" && !std::exchange(released_, true)) {
      const std::string lines(64, '\n');
      EXPECT_TRUE(write_all(gate_.get(), lines, gate()).ok());
    }
  }

  // Fail-points after the end of the job (its last status files, its last answers) still come.
  void settle() {
    if (deaths_ > 0) return;
    grpc::ClientContext context;
    prepare(context);
    v1::ListJobsResponse response;
    if (!controller_.stub()->ListJobs(&context, {}, &response).ok()) replace_the_dead();
  }

  void check(uint64_t job) {
    EXPECT_EQ(deaths_, 1) << failpoint_ << " was never passed";
    std::map<std::pair<int, int>, int> starts;
    std::istringstream lines(read_file(journal()).value());
    int generation = 0;
    int rank = 0;
    int pid = 0;
    while (lines >> generation >> rank >> pid) ++starts[{generation, rank}];
    EXPECT_EQ(starts.size(), 4U) << failpoint_ << ": another generation was started";
    for (const auto& [who, count] : starts) {
      EXPECT_EQ(who.first, 1) << failpoint_ << ": training was disturbed";
      EXPECT_EQ(count, 1) << failpoint_ << ": rank " << who.second << " was started twice";
    }
    std::set<EventKey> kept;
    grpc::ClientContext context;
    prepare(context);
    v1::WatchEventsRequest request;
    request.set_job(std::to_string(job));
    const auto stub = controller_.stub();
    const auto stream = stub->WatchEvents(&context, request);
    v1::Event event;
    uint64_t last = 0;
    while (stream->Read(&event)) {
      EXPECT_GE(event.seq(), last);
      last = event.seq();
      kept.insert(key_of(event));
    }
    EXPECT_TRUE(stream->Finish().ok());
    for (const EventKey& key : seen_) {
      EXPECT_TRUE(kept.contains(key))
          << failpoint_ << ": lost event " << std::get<0>(key) << " " << std::get<1>(key);
    }
    controller_.terminate();
  }

  const std::string failpoint_;
  LiveController controller_;
  UniqueFd gate_;
  std::set<EventKey> seen_;
  bool released_ = false;
  bool finished_ = false;
  int deaths_ = 0;
};

TEST(Failpoint, ControllerDiesAnywhereAndNothingIsLostOrRepeated) {
  const char* only = std::getenv("FAILPOINT_ONLY");
  for (const std::string& name : all_failpoints()) {
    if (only != nullptr && name != only) continue;
    SCOPED_TRACE(name);
    GatedRun(name).run();
  }
}

}  // namespace
}  // namespace hpctl
