// SPDX-License-Identifier: Apache-2.0
// A cluster as its administrators use it while jobs of hpctl train: slurmctld stopped, suspend,
// hold, requeue, drain, another user's job, thirty jobs. Each case looks at the words that people
// read, and at the end of each no healthy machine has a point. The cases with a cluster of another
// kind are beside this one: preemption_test.cc, replacement_test.cc (--hyperpod),
// cluster_controller_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A verb asks Slurm for 2 s at most. It took 20 s.
constexpr seconds kPrompt{15};

// slurmctld, which does not answer until the end of the scope and then goes on.
class SilentSlurmctld {
 public:
  SilentSlurmctld() {
    const char* cluster = std::getenv("HPCTL_TEST_CLUSTER");
    const auto pid = read_file(std::string(cluster == nullptr ? "" : cluster) + "/slurmctld.pid");
    EXPECT_TRUE(pid.ok());
    if (pid.ok()) pid_ = std::stoi(*pid);
    EXPECT_TRUE(pid_ > 0 && ::kill(pid_, SIGSTOP) == 0);
  }
  ~SilentSlurmctld() {
    if (pid_ > 0) ::kill(pid_, SIGCONT);
  }
  SilentSlurmctld(const SilentSlurmctld&) = delete;
  SilentSlurmctld& operator=(const SilentSlurmctld&) = delete;

 private:
  pid_t pid_ = -1;
};

class Operator : public SlurmTest {
 protected:
  void TearDown() override {
    if (!IsSkipped()) expect_no_points();
    SlurmTest::TearDown();
  }

  static SlurmJob endless(const std::string& nodes = "2") {
    return {.training = {.name = "endless", .steps = 1000000, .hang_timeout = "10m"},
            .nodes = nodes};
  }
  // The job is in Slurm; nothing is said of its state.
  JobId submit_only(const std::string& yaml) { return start_command(yaml, 0); }

  void expect_no_points() const {
    const auto lemons = home_.hpctl({"nodes", "lemons", "--json"});
    EXPECT_EQ(json::parse(lemons.out, nullptr, false).value("nodes", json()), json::array())
        << lemons.out << lemons.err;
  }
  bool await_state(JobId job, const std::string& state) const {
    return wait_until(
        home_.directory(), [&] { return status(job).value("state", "") == state; }, kPatience);
  }
  // What the verbs that only look say, each within its time: its answer, or in a line why there is
  // none.
  std::string said(JobId job, const std::vector<std::string>& verbs) const {
    std::string all;
    for (const std::string& verb : verbs) {
      const auto begun = steady_clock::now();
      const CommandResult answer = home_.hpctl({verb, to_string(job)}, kPatience);
      EXPECT_LT(steady_clock::now() - begun, kPrompt) << verb;
      EXPECT_TRUE(answer.exit_code == 0 || answer.err.starts_with("hpctl: "))
          << verb << " ended with " << answer.exit_code << ": " << answer.out << answer.err;
      EXPECT_LE(answer.exit_code, 3) << verb;
      all += answer.out + answer.err;
    }
    return all;
  }
  void expect_state_everywhere(JobId job, const std::string& state) const {
    EXPECT_EQ(status(job).value("state", ""), state);
    EXPECT_THAT(home_.hpctl({"status", to_string(job)}).out, HasSubstr(state));
    EXPECT_THAT(home_.hpctl({"why", to_string(job)}).out, HasSubstr(state));
    EXPECT_THAT(home_.hpctl({"ps"}).out, HasSubstr(state));
    said(job, {"status", "why", "top", "events", "nodes", "goodput", "logs", "audit", "open"});
  }
  // Exit status and text of `hpctl watch JOB --once`.
  CommandResult findings(JobId job) const {
    return home_.hpctl({"watch", to_string(job), "--once"}, kPatience);
  }
};

// `open` of a Slurm job failed in every state. A suspended job alarmed people, and one that an
// administrator had requeued said that its generation was never started.
TEST_F(Operator, EveryVerbKnowsTheState) {
  const JobId job = start(endless());
  ASSERT_FALSE(HasFailure());
  const std::string id = to_string(job);
  expect_state_everywhere(job, "RUNNING");
  EXPECT_EQ(home_.hpctl({"open", id}).exit_code, 0);
  EXPECT_EQ(findings(job).exit_code, 0) << findings(job).out;

  ASSERT_EQ(slurm({"scontrol", "suspend", id}).exit_code, 0);
  ASSERT_TRUE(await_state(job, "SUSPENDED")) << diagnosis(job);
  expect_state_everywhere(job, "SUSPENDED");
  EXPECT_EQ(findings(job).exit_code, 0) << findings(job).out;
  ASSERT_EQ(slurm({"scontrol", "resume", id}).exit_code, 0);
  ASSERT_TRUE(await_state(job, "RUNNING")) << diagnosis(job);
  EXPECT_EQ(status(job)["restarts"], 0) << causes(job, "JobRecovering");

  ASSERT_EQ(slurm({"scontrol", "requeuehold", id}).exit_code, 0);
  ASSERT_TRUE(await_state(job, "PENDING")) << diagnosis(job);
  expect_state_everywhere(job, "PENDING");
  EXPECT_THAT(findings(job).out, HasSubstr("scontrol release " + id));
  EXPECT_EQ(findings(job).exit_code, 1);
  ASSERT_EQ(slurm({"scontrol", "release", id}).exit_code, 0);
  ASSERT_TRUE(await_state(job, "RUNNING")) << diagnosis(job);
  EXPECT_THAT(causes(job, "NeverStarted"), IsEmpty());

  EXPECT_EQ(home_.hpctl({"cancel", id}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
  expect_state_everywhere(job, "CANCELLED");
}

// A node is started again by srun, which waits for slurmctld. The job recovers until then.
TEST_F(Operator, EveryVerbKnowsARecoveringJob) {
  const JobId job = start(endless());
  ASSERT_FALSE(HasFailure());
  {
    const SilentSlurmctld silent;
    ASSERT_TRUE(end_process(node_pid(status(job), 1, "holder_pid")));
    ASSERT_TRUE(await_state(job, "RECOVERING")) << diagnosis(job);
    expect_state_everywhere(job, "RECOVERING");
    EXPECT_EQ(findings(job).exit_code, 0) << findings(job).out;
  }
  ASSERT_TRUE(await_state(job, "RUNNING")) << diagnosis(job);
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
}

// It alone said how the job does, and each of these waited for it for 20 s.
TEST_F(Operator, SilentSlurmctldHoldsNobodyUp) {
  const JobId job = start(endless());
  SlurmJob other = endless();
  other.slurm = "{partition: main, exclusive: true, extra: [--hold]}";
  const JobId held = submit_only(other.yaml());
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  {
    const SilentSlurmctld silent;
    said(job, {"status", "why", "top", "nodes", "events"});
    // Whether it has started is not known.
    for (const char* verb : {"status", "why", "top"}) {
      EXPECT_THAT(said(held, {verb}), AllOf(HasSubstr("PENDING"), HasSubstr("slurmctld at")));
    }
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"ps"}, {"top"}, {"nodes"}, {"status", "endless"}, {"watch", "--once"}}) {
      const auto begun = steady_clock::now();
      const CommandResult listed = home_.hpctl(words, kPatience);
      EXPECT_LT(steady_clock::now() - begun, kPrompt) << words[0];
      if (words[0] == "ps" || words[0] == "top") {
        EXPECT_THAT(listed.out, AllOf(HasSubstr("RUNNING"), HasSubstr("PENDING"))) << words[0];
        EXPECT_THAT(listed.err, HasSubstr("Slurm does not answer")) << words[0];
      }
    }
    // hpctl needs no Slurm to bring a worker back.
    const auto worker = before["workers"][0]["pid"].get<pid_t>();
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    const auto is_back = [&] {
      const json now = status(job);
      return now.value("generation", 0) > before["generation"].get<int>() &&
             now.value("state", "") == "RUNNING";
    };
    EXPECT_TRUE(wait_until(home_.directory(), is_back, kPatience)) << diagnosis(job);
  }
  EXPECT_EQ(causes(job, "NodeLost"), "");
  EXPECT_EQ(home_.hpctl({"cancel", to_string(held)}, kPatience).exit_code, 0);
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}, kPatience).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "CANCELLED");
}

// It was pending for ever, and `watch` found nothing.
TEST_F(Operator, HeldJobNamesTheCommandThatHelps) {
  SlurmJob spec;
  spec.slurm = "{partition: main, exclusive: true, extra: [--hold]}";
  const JobId job = submit_only(spec.yaml());
  ASSERT_FALSE(HasFailure());
  const std::string id = to_string(job);
  ASSERT_TRUE(await_state(job, "PENDING")) << diagnosis(job);
  EXPECT_THAT(home_.hpctl({"status", id}).out, HasSubstr("scontrol release " + id));
  EXPECT_THAT(findings(job).out, HasSubstr("scontrol release " + id));
  EXPECT_EQ(findings(job).exit_code, 1);
  ASSERT_EQ(slurm({"scontrol", "release", id}).exit_code, 0);
  expect_exact_finish(job, spec);
}

// "ticket 7" became Action:Replace, and the node was resumed.
TEST_F(Operator, DrainKeepsTheAdministratorsReason) {
  const SlurmJob spec{.nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  ASSERT_NE(victim, "");
  const std::string name = "nodename=" + victim;
  {
    const HeldTraining held = hold(job);
    ASSERT_EQ(slurm({"scontrol", "update", name, "state=drain", "reason=ticket 7"}).exit_code, 0);
    const auto is_told = [&] { return causes(job, "StopWorkers") != ""; };
    ASSERT_TRUE(wait_until(home_.directory(), is_told, kPatience)) << diagnosis(job);
  }
  expect_exact_finish(job, spec);
  EXPECT_THAT(causes(job, "NodeQuarantined"), HasSubstr("ticket 7"));
  const std::string shown = slurm({"scontrol", "show", "node", victim}).out;
  EXPECT_THAT(shown, HasSubstr("DRAIN"));
  EXPECT_THAT(shown, HasSubstr("Reason=ticket 7"));
  EXPECT_EQ(slurm({"scontrol", "update", name, "state=resume"}).exit_code, 0);
}

// It claimed that the job's token had leaked, and the audit log named the owner.
TEST_F(Operator, RootCancelsAnotherUsersJob) {
  constexpr uid_t kNobody = 65534;
  const std::string theirs = home_.directory() + "/nobody";
  ASSERT_EQ(::chmod(home_.directory().c_str(), 0711), 0);
  ASSERT_EQ(::mkdir(theirs.c_str(), 0700), 0);
  ASSERT_EQ(::chown(theirs.c_str(), kNobody, kNobody), 0);
  const std::string file = home_.directory() + "/nobody.yaml";
  ASSERT_TRUE(write_file_atomic(file,
                                "name: theirs\nslurm: {partition: main}\n"
                                "workload: {command: [sleep, '1000']}\n")
                  .ok());
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  const char* bin = std::getenv("HPCTL_BIN");
  const std::string program = std::string(bin == nullptr ? "" : bin) + "/hpctl";
  const auto run = [&](std::vector<std::string> words) {
    return run_command(words, {"HPCTL_HOME=" + theirs, "HOME=" + theirs}, kPatience);
  };
  const auto submitted = run({"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                              "--clear-groups", program, "submit", file, "--json"});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const std::string id = json::parse(submitted.out)["job"].dump();
  const auto state = [&] {
    const json shown = json::parse(run({program, "status", id, "--json"}).out, nullptr, false);
    return shown.is_object() ? shown.value("state", "") : "";
  };
  EXPECT_TRUE(wait_until(
      theirs, [&] { return state() == "RUNNING"; }, kPatience))
      << state();
  const auto cancelled = run({program, "cancel", id});
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_THAT(cancelled.err, Not(HasSubstr("token")));
  EXPECT_TRUE(wait_until(
      theirs, [&] { return state() == "CANCELLED"; }, kPatience))
      << state();
  EXPECT_THAT(run({program, "audit", id, "--json"}).out, HasSubstr(R"("call":"Cancel","uid":0,)"));
  const auto is_gone = [&] { return slurm_state(JobId{std::stoull(id)}).empty(); };
  EXPECT_TRUE(wait_until(theirs, is_gone, kPatience));
  const std::string ended = slurm({"scontrol", "show", "job", id}).out;
  EXPECT_THAT(ended, HasSubstr("JobState=CANCELLED"));
  for (const char* node : {"n1", "n2", "n3", "n4"}) {  // of root alone each node has its own
    EXPECT_TRUE(remove_tree("/tmp/hpctl-65534/job-" + id + "-" + node).ok());
  }
}

// More jobs than nodes, and each ends at once: the rest waits in the queue, which is no finding.
TEST_F(Operator, ThirtyJobsEndWithoutAFinding) {
  constexpr int kJobs = 30;
  std::vector<JobId> jobs;
  for (int i = 0; i < kJobs; ++i) {
    jobs.push_back(submit_only("name: short-" + std::to_string(i) +
                               "\nslurm: {partition: main, exclusive: true}\n"
                               "workload: {command: [sleep, '0.2']}\n"));
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(home_.hpctl({"watch", "--once"}, kPatience).exit_code, 0);
  for (const JobId job : jobs) {
    EXPECT_EQ(home_.wait_for_end(job, kPatience), "FINISHED") << diagnosis(job);
    EXPECT_EQ(status(job).value("restarts", -1), 0);
  }
  const json listed = json::parse(home_.hpctl({"ps", "--json"}).out, nullptr, false);
  EXPECT_EQ(listed.value("jobs", json::array()).size(), static_cast<size_t>(kJobs));
}

}  // namespace
}  // namespace hpctl::testing
