// SPDX-License-Identifier: Apache-2.0
// Verbs run in this process, against a scripted controller and against the files that one leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/fd.h"
#include "common/base/json.h"
#include "common/net/unix_address.h"
#include "controller/publish/status_files.h"
#include "hpctl/exit_codes.h"
#include "hpctl/foreign_verbs.h"
#include "hpctl/verbs.h"
#include "tests/support/command_run.h"
#include "tests/unit/cli/scripted_controller.h"

namespace hpctl::testing {
namespace {

using test::CommandRun;
using test::run_hpctl;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kStatusJson =
    R"({"checkpoint_dir":"/ckpt","checkpoint_step":30,"controller":{"node":"here","pid":100},)"
    R"("ended_wall_ms":0,"faults":1,"generation":2,"job":1,"last_fault":"",)"
    R"("loss":2.5,"lost_ms":1200,)"
    R"("mfu":0.0,"name":"quick","nodes":[{"agent_pid":12,"boot_id":"b-0","holder_pid":11,)"
    R"("instance_id":"i-0","name":"n0","note":"","role":"active","state":"up"}],"owner":"",)"
    R"("reason":"","restarts":1,)"
    R"("snapshot_step":0,)"
    R"("spent":{"decide_ms":150,"notice_ms":200,"repeat_ms":300,"restart_ms":300,)"
    R"("start_ms":5000,"suspended_ms":2000,"wait_ms":250,)"
    R"("waits":{"checkpoint_ms":400,"data_ms":100}},)"
    R"("state":"RUNNING","step":34,"step_ms":0.0,)"
    R"("stragglers":[],"submitted_wall_ms":1763700000000,)"
    R"("tokens_per_second":12345.0,"total_steps":60,"workers":[{"generation":2,"node":"n0",)"
    R"("phase":"training","pid":13,"rank":0,"state":"running","step":34}]})"
    "\n";

TEST(Verbs, GoodputSaysWhereTheTimeWent) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  v1::JobStatus ended = running_job(1, "quick");
  ended.set_state("FINISHED");
  ended.set_ended_wall_ms(ended.submitted_wall_ms() + 65'000);
  v1::JobStatus waits = running_job(2, "waits");
  waits.clear_spent();
  waits.set_ended_wall_ms(waits.submitted_wall_ms() + 10'000);
  v1::JobStatus command = ended;
  command.set_job(3);
  command.set_step(0);
  command.set_total_steps(0);
  controller.jobs = {ended, waits, command};
  EXPECT_EQ(run_hpctl({"goodput", "1"}).out,
            "job 1 quick  FINISHED\n"
            "  goodput     93.83 % of the time since its first step, 1 fault\n"
            "  ETTR        86.62 % of 1 min 05 s since it was submitted, of each of 1 rank\n"
            "\n"
            "PART        TIME   SHARE    WHAT\n"
            "start       5.0 s  7.69 %   from its submission to its first step\n"
            "train       56 s   86.62 %  steps, and their evaluation\n"
            "checkpoint  0.4 s  0.62 %   steps waited for a checkpoint; mean of ranks\n"
            "data        0.1 s  0.15 %   steps waited for samples; mean of ranks\n"
            "notice      0.2 s  0.31 %   from the last step before a fault until it was known\n"
            "decide      0.1 s  0.23 %   workers were ended, and what to go on from was found\n"
            "wait        0.2 s  0.38 %   for nodes, in the queue again, between attempts\n"
            "restart     0.3 s  0.46 %   workers were started, until their first step\n"
            "repeat      0.3 s  0.46 %   from there to the step that had been reached\n"
            "suspended   2.0 s  3.08 %   the scheduler had stopped it\n");
  EXPECT_EQ(run_hpctl({"goodput", "1", "--json"}).out,
            R"({"checkpoint_ms":400,"data_ms":100,"decide_ms":150,"ettr":0.8661538461538462,)"
            R"("faults":1,"goodput":0.9383333333333334,"job":1,"name":"quick","notice_ms":200,)"
            R"("ranks":1,"repeat_ms":300,"restart_ms":300,"start_ms":5000,"state":"FINISHED",)"
            R"("suspended_ms":2000,"train_ms":56300,"wait_ms":250,"wall_ms":65000})"
            "\n");
  // Before its first step all of it is the start.
  EXPECT_THAT(run_hpctl({"goodput", "2", "--json"}).out,
              HasSubstr(R"("start_ms":10000,"state":"RUNNING","suspended_ms":0,"train_ms":0,)"));
  EXPECT_THAT(run_hpctl({"goodput", "2"}).out, Not(HasSubstr("ETTR")));
  // If a program reports no step, the work that it did twice is not known.
  EXPECT_THAT(run_hpctl({"goodput", "3"}).out,
              HasSubstr("  goodput     not known: its program has told no step\n\nPART "));
  EXPECT_THAT(run_hpctl({"goodput", "3", "--json"}).out,
              AllOf(HasSubstr(R"("ettr":null)"), HasSubstr(R"("goodput":null)"),
                    HasSubstr(R"("train_ms":56300)")));
  EXPECT_EQ(run_hpctl({"goodput", "9"}).status, kExitFailed);
}

TEST(Verbs, StatusFromTheController) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick"), running_job(2, "other")};
  EXPECT_EQ(run_hpctl({"status", "1", "--json"}).out, kStatusJson);
  EXPECT_EQ(run_hpctl({"--json", "status", "quick"}).out, kStatusJson);
  EXPECT_EQ(run_hpctl({"nodes", "quick"}).out,
            "JOB  NODE  ROLE    STATE  HOLDER  AGENT  INSTANCE\n"
            "1    n0    active  up     11      12     i-0\n");
  const CommandRun status = run_hpctl({"status", "quick"});
  EXPECT_EQ(status.status, kExitOk);
  EXPECT_THAT(status.out, HasSubstr("job 1 quick  RUNNING\n"
                                    "  now         training normally\n"
                                    "  step        34 of 60, loss 2.5000, 12.3k tokens/s\n"
                                    "  generation  2\n"
                                    "  faults      1 (1 restart, 1.2 s lost)\n"
                                    "  checkpoint  step 30 in /ckpt\n"));
  EXPECT_THAT(status.out, HasSubstr("RANK  NODE  PID  GENERATION  STATE    PHASE     STEP\n"
                                    "0     n0    13   2           running  training  34\n"));
}

TEST(Verbs, UnknownAndAmbiguousJobs) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick"), running_job(2, "same"), running_job(3, "same")};
  CommandRun ran = run_hpctl({"status", "quikc"});
  EXPECT_EQ(ran.status, kExitFailed);
  EXPECT_EQ(ran.err, "hpctl: no job \"quikc\"; did you mean \"quick\"? `hpctl ps` lists all\n");
  ran = run_hpctl({"why", "same"});
  EXPECT_EQ(ran.status, kExitFailed);
  EXPECT_EQ(
      ran.err,
      "hpctl: 2 live jobs are named \"same\"; give an id (the newest: 2 RUNNING, 3 RUNNING)\n");
  EXPECT_EQ(run_hpctl({"status", "9"}).err, "hpctl: no job \"9\"; `hpctl ps` lists all\n");
  EXPECT_THAT(run_hpctl({"status", "\x1b[2J"}).err, HasSubstr("no job \"?[2J\""));
}

// After the second try with one job file every verb asked for an id.
TEST(Verbs, NameMeansTheLiveJobOrElseTheNewest) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "same"), running_job(2, "same"), running_job(3, "same")};
  for (auto& job : controller.jobs) job.set_state("FAILED");
  CommandRun ran = run_hpctl({"status", "same"});
  EXPECT_EQ(ran.status, kExitOk);
  EXPECT_THAT(ran.out, HasSubstr("job 3 same"));
  EXPECT_EQ(ran.err, "hpctl: job 3 is the newest of 3 jobs named \"same\"\n");
  controller.jobs[1].set_state("RUNNING");
  ran = run_hpctl({"status", "same"});
  EXPECT_THAT(ran.out, HasSubstr("job 2 same"));
  EXPECT_EQ(ran.err, "hpctl: job 2 is the live one of 3 jobs named \"same\"\n");
  EXPECT_EQ(run_hpctl({"status", "1"}).err, "") << "an id is no choice";
}

TEST(Verbs, EventsAndWhy) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.history = {event(5, "WorkerExited", "worker 3 on n1 died of SIGKILL"),
                        event(6, "JobRecovering", "a worker died\x1b[31m", 5)};
  controller.explanation.set_summary("RUNNING: it began with: worker 3 on n1 died");
  *controller.explanation.add_chain() = controller.history[0];
  EXPECT_EQ(run_hpctl({"events", "1"}).out,
            "2025-11-21T04:40:05.000Z  WorkerExited          worker 3 on n1 died of SIGKILL\n"
            "2025-11-21T04:40:06.000Z  JobRecovering         a worker died?[31m\n");
  const std::string events = run_hpctl({"events", "1", "--json"}).out;
  const auto line = nlohmann::json::parse(events.substr(0, events.find('\n')));
  EXPECT_EQ(line, nlohmann::json::parse(R"({"seq":5,"time":"2025-11-21T04:40:05.000Z",
      "type":"WorkerExited","job":1,"generation":1,"node":"","rank":-1,
      "cause":"worker 3 on n1 died of SIGKILL","because":0,"step":0})"));
  const CommandRun why = run_hpctl({"why", "1"});
  EXPECT_EQ(why.out,
            "job 1 quick is RUNNING: training normally\n"
            "RUNNING: it began with: worker 3 on n1 died\n\n"
            "2025-11-21T04:40:05.000Z  WorkerExited          worker 3 on n1 died of SIGKILL\n");
  EXPECT_EQ(run_hpctl({"why", "1", "--json"}).out,
            R"({"job":1,"state":"RUNNING","summary":"RUNNING: it began with: worker 3 on n1 died",)"
            R"("chain":[{"seq":5,"time":"2025-11-21T04:40:05.000Z","type":"WorkerExited",)"
            R"("generation":1,"node":"","rank":-1,"reason":"worker 3 on n1 died of SIGKILL",)"
            R"("because":0}],"flight_recorders":[]})"
            "\n");
}

TEST(Verbs, EventsThatWereAskedFor) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.history = {event(5, "NodeLost", "one"), event(6, "JobRecovering", "two"),
                        event(7, "NodeLost", "three"), event(8, "JobRunning", "four")};
  const auto causes = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"events", "1", "--json"});
    std::istringstream lines(run_hpctl(options).out);
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      text += nlohmann::json::parse(line).at("cause").get<std::string>() + " ";
    }
    return text;
  };
  EXPECT_EQ(causes({"--type", "NodeLost"}), "one three ");
  EXPECT_EQ(causes({"--type", "NodeLost,JobRunning", "--tail", "2"}), "three four ");
  EXPECT_EQ(causes({"--since", "2025-11-21T04:40:07Z"}), "three four ");
  EXPECT_EQ(causes({"--since", "2025-11-21"}), "one two three four ");
  EXPECT_EQ(causes({"--since", "1h"}), "");
  const CommandRun wrong = run_hpctl({"events", "1", "--since", "yesterday"});
  EXPECT_EQ(wrong.status, kExitUsage);
  EXPECT_THAT(wrong.err, HasSubstr("--since: expected a duration such as 30m, or a time"));
}

TEST(Verbs, ADrainedNodeACommandAndAnOwner) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  v1::JobStatus job = running_job(1, "quick");
  job.set_total_steps(0);
  job.set_step(0);
  job.set_owner("0");
  job.set_reason("cannot read /h/jobs/submit-0123abcd/token");
  job.set_snapshot_step(28);
  job.mutable_nodes(0)->set_note("Slurm shows n0 as IDLE+DRAIN (maintenance)");
  controller.jobs = {job};
  EXPECT_EQ(run_hpctl({"nodes", "1"}).out,
            "JOB  NODE  ROLE    STATE  HOLDER  AGENT  INSTANCE  NOTE\n"
            "1    n0    active  up     11      12     i-0       Slurm shows n0 as IDLE+DRAIN "
            "(maintenance)\n");
  const std::string status = run_hpctl({"status", "1"}).out;
  EXPECT_THAT(status, HasSubstr("IDLE+DRAIN (maintenance)"));
  EXPECT_THAT(status, HasSubstr("RANK  NODE  PID  GENERATION  STATE\n"
                                "0     n0    13   2           running\n"));
  EXPECT_THAT(status, HasSubstr("  memory      step 28 of every rank is in two nodes' memory; a "
                                "lost node costs the steps since\n"));
  EXPECT_THAT(status, HasSubstr("  owner       root (uid 0)\n"));
  EXPECT_THAT(status, HasSubstr("cannot read /h/jobs/1/token"));
}

TEST(Verbs, StatusTellsWhatThePlanChose) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  v1::JobStatus job = running_job(1, "quick");
  EXPECT_THAT(run_hpctl({"status", "1"}).out, Not(HasSubstr("  auto ")));
  v1::ChosenValue& micro = *job.add_chosen();
  micro.set_key("workload.train.batch.micro");
  micro.set_value("4");
  micro.set_reason("as fast as 2");
  v1::ChosenValue& strategy = *job.add_chosen();
  strategy.set_key("workload.train.parallelism.strategy");
  strategy.set_value("full");
  job.set_chosen_for("8 workers, each with 90 % of 80.0 GiB (h100 by --gpu)");
  controller.jobs = {job};
  EXPECT_THAT(run_hpctl({"status", "1"}).out,
              HasSubstr("  auto        micro 4, strategy full, for 8 workers, each with 90 % of "
                        "80.0 GiB (h100 by --gpu)\n"));
  const auto json = nlohmann::json::parse(run_hpctl({"status", "1", "--json"}).out);
  EXPECT_EQ(json["chosen"]["values"][0]["reason"], "as fast as 2");
}

TEST(Verbs, WhyTellsASentenceOnce) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.explanation.set_summary("CANCELLED: ended by a signal");
  *controller.explanation.add_chain() = event(5, "CancelRequested", "the job is to end");
  *controller.explanation.add_chain() = event(6, "JobCancelled", "ended by a signal", 5);
  EXPECT_THAT(run_hpctl({"why", "1"}).out,
              HasSubstr("2025-11-21T04:40:06.000Z  JobCancelled          see above\n"));
}

TEST(Verbs, FollowingEventsEndsWithTheJob) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.history = {event(5, "JobRunning", "it trains")};
  controller.polls_until_end = 2;
  const CommandRun ran = run_hpctl({"events", "1", "-f"});
  EXPECT_EQ(ran.status, kExitOk);
  EXPECT_EQ(ran.out, "2025-11-21T04:40:05.000Z  JobRunning            it trains\n");
}

TEST(Verbs, Cancel) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick"), running_job(2, "done")};
  controller.jobs[1].set_state("FINISHED");
  EXPECT_EQ(run_hpctl({"cancel", "quick", "--json"}).out, "{\"job\":1,\"state\":\"CANCELLED\"}\n");
  EXPECT_THAT(controller.cancelled(), ::testing::ElementsAre("1"));
  const CommandRun ended = run_hpctl({"cancel", "done"});
  EXPECT_EQ(ended.status, kExitFailed);
  EXPECT_EQ(ended.err, "hpctl: job 2 has already FINISHED\n");
}

// A failing disk was a finding of `hpctl watch` alone.
TEST(Verbs, StatusAndWhyShowWhatHoldsTheJobUp) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.jobs[0].mutable_margins()->set_max_restarts(20);
  controller.jobs[0].mutable_margins()->set_failed_saves(9);
  EXPECT_THAT(run_hpctl({"status", "1"}).out,
              HasSubstr("storage takes no checkpoints: 9 saves in a row failed"));
  EXPECT_THAT(run_hpctl({"why", "1"}).out, HasSubstr("now: storage takes no checkpoints"));
  // A deleted checkpoint directory was called a full disk.
  controller.jobs[0].set_checkpoint_dir(home.directory() + "/gone");
  for (const char* verb : {"status", "why", "top"}) {
    EXPECT_THAT(run_hpctl({verb, "1"}).out, HasSubstr("owner.json")) << verb;
  }
}

// It was "pending for" the hours that a requeued job had trained, and "running for" those in the
// queue.
TEST(Verbs, StatusTellsWhenAJobWasSubmitted) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.jobs[0].set_state("PENDING");
  const std::string status = run_hpctl({"status", "1"}).out;
  EXPECT_THAT(status, ContainsRegex("submitted   2025-11-21T04:40:00Z, .* ago\n"));
}

TEST(Verbs, WaitShowsFaultsAndTheEnd) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  controller.jobs[0].set_ended_wall_ms(1'763'700'042'000);
  controller.history = {event(5, "WorkersStarted", "not worth telling"),
                        event(6, "JobRecovering", "worker 3 on n1 died of SIGKILL")};
  controller.polls_until_end = 3;
  const CommandRun ran = run_hpctl({"wait", "1"});
  EXPECT_EQ(ran.status, kExitOk);
  EXPECT_EQ(ran.out,
            "2025-11-21T04:40:06.000Z  JobRecovering         worker 3 on n1 died of SIGKILL\n"
            "step 34/60  loss 2.5000  12.3k tokens/s  gen 2  RUNNING  checkpoint 30\n"
            "job 1 quick FINISHED after 42 s: 34 steps, loss 2.5000, 1 fault survived, 1.2 s "
            "lost\n"
            "  checkpoint   step 30 in /ckpt\n"
            "  logs         " +
                home.paths().job_logs(JobId{1}) +
                "\n"
                "  more         hpctl why 1 | hpctl events 1 | hpctl logs 1\n");
}

TEST(Verbs, AnInterruptEndsTheWaitingOnly) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "quick")};
  // The verb itself asks once; by the second question it waits and the handler is in place.
  controller.on_get_job = [] { ::kill(::getpid(), SIGINT); };
  controller.calls_before_hook = 1;
  const CommandRun ran = run_hpctl({"wait", "1"});
  EXPECT_EQ(ran.status, kExitInterrupted);
  EXPECT_EQ(ran.err, "job 1 goes on; `hpctl status 1` shows it, `hpctl cancel 1` ends it\n");
  EXPECT_TRUE(controller.cancelled().empty());
}

// What it does not know gRPC answers itself, without a word.
TEST(Verbs, AnOlderControllerIsSaidToBe) {
  const ScopedHome home;
  ScriptedController controller(home.paths());
  controller.jobs = {running_job(1, "first")};
  const CommandRun run = run_hpctl({"open", "first"});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("the controller of " + home.paths().home() +
                                 " is of an older release, which cannot do that"));
}

TEST(Verbs, VersionOfTheController) {
  const ScopedHome home;
  EXPECT_THAT(run_hpctl({"version", "--json"}).out, HasSubstr("\"controller\":null"));
  const ScriptedController controller(home.paths());
  EXPECT_THAT(run_hpctl({"version", "--json"}).out,
              HasSubstr(R"("controller":{"version":"9.9.9","pid":4242,"node":"here",)"));
}

class Offline : public ::testing::Test {
 protected:
  Offline() {
    JobView view;
    view.job = 3;
    view.name = "gone";
    view.state = "RUNNING";
    view.step = 12;
    view.nodes = {{"n0", "active", "up", "i-0", "b-0", 11, 12}};
    view.workers = {{0, "n0", 13, 1, "running", "training", 12}};
    EXPECT_TRUE(make_directories(home_.paths().job(JobId{3})).ok());
    EXPECT_TRUE(write_status(home_.paths(), view).ok());
    const std::string events = home_.paths().job_events(JobId{3});
    EXPECT_TRUE(append_events(events, {{1, 1000, "JobSubmitted", 3, 0, "", -1, "by uid 0", 0},
                                       {2, 2000, "JobStarting", 3, 0, "", -1, "new", 1},
                                       {5, 5000, "JobRunning", 3, 1, "", -1, "it trains", 2}})
                    .ok());
  }

  void write_log(int rank, const std::string& text, const std::string& suffix = "") {
    const std::string path = home_.paths().rank_log(JobId{3}, Rank{rank}) + suffix;
    EXPECT_TRUE(make_directories(home_.paths().job_logs(JobId{3})).ok());
    std::ofstream(path, std::ios::app) << text;
  }

  ScopedHome home_;
};

TEST_F(Offline, AnswersFromTheRecord) {
  EXPECT_THAT(run_hpctl({"ps"}).out, HasSubstr("3    gone"));
  const CommandRun status = run_hpctl({"status", "gone", "--json"});
  EXPECT_EQ(status.status, kExitOk);
  EXPECT_EQ(nlohmann::json::parse(status.out).at("step"), 12);
  EXPECT_THAT(status.err, HasSubstr("no controller runs for " + home_.paths().home()));
  EXPECT_THAT(run_hpctl({"events", "3"}).out, HasSubstr("1970-01-01T00:00:05.000Z  JobRunning"));
  EXPECT_THAT(run_hpctl({"nodes"}).out, HasSubstr("3    n0    active  up"));
  const CommandRun why = run_hpctl({"why", "3"});
  EXPECT_THAT(why.out, HasSubstr("RUNNING: it trains; it began with: by uid 0\n"));
  EXPECT_THAT(why.out, HasSubstr("JobStarting"));
  EXPECT_FALSE(is_accessible(home_.paths().controller_socket()));
}

// A controller that was stopped with SIGSTOP was reported as one that does not run.
TEST_F(Offline, SlowControllerIsNotReportedAsGone) {
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string socket = home_.paths().controller_socket();
  ASSERT_TRUE(make_directories(std::filesystem::path(socket).parent_path().string()).ok());
  const auto address = UnixAddress::of(socket);
  ASSERT_TRUE(address.has_value());
  ASSERT_EQ(::bind(listener.get(), address->get(), address->size()), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);  // the kernel accepts, and nothing answers
  const CommandRun status = run_hpctl({"status", "gone"});
  EXPECT_EQ(status.status, kExitOk);
  EXPECT_THAT(status.err, HasSubstr("runs and has not answered in time"));
  EXPECT_THAT(status.err, Not(HasSubstr("no controller runs")));
}

TEST_F(Offline, DamagedRecordsAreNamed) {
  std::ofstream(home_.paths().job_status(JobId{3})) << "{";
  const CommandRun ran = run_hpctl({"status", "3"});
  EXPECT_EQ(ran.status, kExitFailed);
  EXPECT_THAT(ran.err, HasSubstr(home_.paths().job_status(JobId{3})));
  EXPECT_THAT(run_hpctl({"ps"}).out, HasSubstr("3    ?     -     UNKNOWN  -"));
}

TEST_F(Offline, Logs) {
  EXPECT_THAT(run_hpctl({"logs", "3"}).err, HasSubstr("job 3 (RUNNING) has no logs yet in "));
  EXPECT_THAT(run_hpctl({"logs", "3", "--rank", "4"}).err,
              HasSubstr("job 3 has no rank 4; its ranks are 0 to 0"));
  write_log(0, "old 1\nold 2\n", ".1");
  write_log(0, "a\nb\nunfinished");
  write_log(1, "other\n");
  EXPECT_EQ(run_hpctl({"logs", "3"}).out,
            "rank 0 | old 1\nrank 0 | old 2\nrank 0 | a\nrank 0 | b\n"
            "rank 0 | unfinished\nrank 1 | other\n");
  EXPECT_EQ(run_hpctl({"logs", "3", "--rank", "0", "--tail", "3"}).out,
            "old 2\na\nb\nunfinished\n");
  EXPECT_EQ(run_hpctl({"logs", "3", "--rank=1", "--json"}).out,
            "{\"rank\":1,\"line\":\"other\"}\n");
}

TEST(Verbs, WrongUse) {
  const ScopedHome home;
  EXPECT_EQ(run_hpctl({}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"stats"}).err,
            "hpctl: unknown verb \"stats\"; did you mean status? `hpctl --help` lists all\n");
  EXPECT_EQ(run_hpctl({"frobnicate"}).err,
            "hpctl: unknown verb \"frobnicate\"; `hpctl --help` lists all\n");
  EXPECT_EQ(run_hpctl({"kill", "1"}).err,
            "hpctl: unknown verb \"kill\"; here it is hpctl cancel; `hpctl --help` lists all\n");
  EXPECT_EQ(run_hpctl({"status"}).err,
            "hpctl status: too few arguments; usage: hpctl status JOB (`hpctl status --help` "
            "explains)\n");
  EXPECT_EQ(run_hpctl({"ps", "x"}).err,
            "hpctl ps: unexpected argument \"x\"; usage: hpctl ps [-A] [filters] "
            "[--sort KEY] [--wide] (`hpctl ps --help` explains)\n");
  EXPECT_EQ(run_hpctl({"checkpoint", "import", "model", ""}).err,
            "hpctl checkpoint: an argument is empty; is a variable of the shell not set? (`hpctl "
            "checkpoint --help` explains)\n");
  EXPECT_EQ(run_hpctl({"logs", "1", "--tial", "3"}).err,
            "hpctl logs: unknown option --tial; did you mean --tail? (`hpctl logs --help` "
            "explains)\n");
  EXPECT_EQ(run_hpctl({"logs", "1", "--tail"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"logs", "1", "--tail", "-1"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"ps", "--json=1"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"data", "frob", "x"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"data", "prepare", "x", "--out", "y"}).status, kExitUsage);
  EXPECT_THAT(run_hpctl({"data", "prepare", "x", "--out=y/", "--tokenizer=byte"}).err,
              HasSubstr("such as y/corpus, found the directory \"y/\""));
  EXPECT_EQ(
      run_hpctl({"data", "prepare", "x", "--out=y", "--tokenizer=byte", "--workers=0"}).status,
      kExitUsage);
  const auto prepare = [](const std::vector<std::string>& options) {
    std::vector<std::string> words = {"data", "prepare", "x", "--out=y", "--tokenizer=byte"};
    words.insert(words.end(), options.begin(), options.end());
    const CommandRun run = run_hpctl(words);
    EXPECT_EQ(run.status, kExitUsage);
    return run.err;
  };
  EXPECT_THAT(prepare({"--format=x"}), HasSubstr("--format is one of text, sft, chat"));
  EXPECT_THAT(prepare({"--format=chat"}),
              HasSubstr("--format chat needs --chat-template chatml or llama3"));
  EXPECT_THAT(prepare({"--chat-template=chatml"}),
              HasSubstr("--chat-template is for --format chat"));
  EXPECT_THAT(prepare({"--format=sft", "--json-key=t"}),
              HasSubstr("--json-key is for --format text"));
  EXPECT_EQ(run_hpctl({"data", "show", "x", "--out=y"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"data", "show", "/nonexistent"}).status, kExitFailed);
  EXPECT_EQ(run_hpctl({"checkpoint", "frob", "x"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"checkpoint", "show", "/nonexistent"}).status, kExitFailed);
  EXPECT_EQ(run_hpctl({"status", "1"}).err,
            "hpctl: no job \"1\": there is no job in " + home.paths().home() + " yet\n");
}

TEST(Verbs, WhatIsAskedOfACheckpointIsCheckedFirst) {
  const ScopedHome home;
  EXPECT_THAT(run_hpctl({"eval", "x/y"}).err, HasSubstr("expected --data PREFIX"));
  EXPECT_EQ(run_hpctl({"eval", "x/y", "--data=t", "--seq-len=0"}).status, kExitUsage);
  EXPECT_EQ(run_hpctl({"eval", "/nonexistent/step-1.g1", "--data=t"}).status, kExitFailed);
  EXPECT_THAT(run_hpctl({"generate", "x/y", "--prompt=a"}).err,
              HasSubstr("expected --tokenizer with a value"));
  EXPECT_THAT(
      run_hpctl({"generate", "x/y", "--prompt=a", "--tokenizer=byte", "--temperature=hot"}).err,
      HasSubstr("--temperature: expected a number from 0 to 100, found \"hot\""));
  EXPECT_EQ(run_hpctl({"generate", "/nonexistent/x", "--prompt=a", "--tokenizer=byte"}).status,
            kExitFailed);
}

TEST(Verbs, ForeignVerbsNameOurs) {
  const auto find = [](std::string_view name) {
    return std::find_if(verbs().begin(), verbs().end(),
                        [&](const Verb& verb) { return verb.name == name; });
  };
  for (const ForeignVerb& foreign : foreign_verbs()) {
    EXPECT_EQ(find(foreign.word), verbs().end()) << foreign.word << " is a verb of hpctl";
    const std::string_view ours = foreign.ours.substr(0, foreign.ours.find(' '));
    const auto verb = find(ours);
    ASSERT_NE(verb, verbs().end()) << foreign.word << ": " << foreign.ours;
    if (ours == foreign.ours) continue;
    const std::string second(foreign.ours.substr(ours.size() + 1));
    const bool is_action =
        std::find(verb->actions.begin(), verb->actions.end(), second) != verb->actions.end();
    const auto options = options_of(*verb);
    const bool is_option = std::any_of(options.begin(), options.end(),
                                       [&](const Option& o) { return second == o.name; });
    EXPECT_TRUE(is_action || is_option) << foreign.ours;
  }
}

TEST(Verbs, WhatNodesWouldIgnoreIsRefused) {
  const ScopedHome home;
  const CommandRun no_node = run_hpctl({"nodes", "quarantine"});
  EXPECT_EQ(no_node.status, kExitUsage);
  EXPECT_THAT(no_node.err, HasSubstr("expected the name of a node after quarantine"));
  EXPECT_THAT(run_hpctl({"nodes", "frob", "n1"}).err, HasSubstr("found \"frob\""));
  const CommandRun reboot = run_hpctl({"nodes", "reboot", "n1", "--for", "2h"});
  EXPECT_EQ(reboot.status, kExitUsage);
  EXPECT_THAT(reboot.err, HasSubstr("--for has no meaning for reboot"));
  EXPECT_THAT(run_hpctl({"nodes", "release", "n1", "--reason=x"}).err,
              HasSubstr("--reason has no meaning for release"));
  EXPECT_THAT(run_hpctl({"nodes", "--job", "1"}).err,
              HasSubstr("--job has no meaning for a list of nodes"));
}

// docs/cli.md holds what --help prints, verb by verb.
TEST(Verbs, HelpIsInTheDocs) {
  const char* source = std::getenv("HPCTL_SOURCE");
  ASSERT_NE(source, nullptr) << "run by ctest, or set HPCTL_SOURCE to the repository";
  const auto doc = read_file(std::string(source) + "/docs/cli.md");
  ASSERT_TRUE(doc.ok()) << doc.error().message;
  std::string wanted;
  for (const Verb& verb : verbs()) {
    const CommandRun help = run_hpctl({verb.name, "--help"});
    EXPECT_EQ(help.status, kExitOk);
    EXPECT_EQ(help.out, run_hpctl({"help", verb.name}).out);
    EXPECT_THAT(help.out, HasSubstr("Exit codes:"));
    const std::string section =
        std::string("### ") + verb.name + "\n```text\n" + help.out + "```\n";
    EXPECT_NE(doc->find(section), std::string::npos) << "docs/cli.md lacks:\n" << section;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_NE(doc->find(run_hpctl({"--help"}).out), std::string::npos) << "docs/cli.md lacks:\n"
                                                                     << run_hpctl({"--help"}).out;
}

}  // namespace
}  // namespace hpctl::testing
