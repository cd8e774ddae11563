// SPDX-License-Identifier: Apache-2.0
// workload.command with a real PyTorch script: what torchrun promises its workers, kept through the
// loss of a worker and of a node.
#include <gtest/gtest.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "common/base/file.h"
#include "common/worker/worker_abi.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr seconds kLong{240};
constexpr int kSteps = 60;

bool has_torch() {
  // Importing it costs seconds of processor time.
  const std::string look = "from importlib.util import find_spec; exit(not find_spec('torch'))";
  static const bool found = run_command({"/usr/bin/python3", "-c", look}, {}).exit_code == 0;
  return found;
}

class CommandJob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_torch()) GTEST_SKIP() << "python3-torch is not installed";
    // Beside the job file.
    std::filesystem::create_symlink(HPCTL_SOURCE "/tests/integration/ddp_train.py",
                                    cluster_.directory() + "/ddp_train.py");
  }
  // A directory for the script's own files.
  std::string new_output(const std::string& name) {
    std::string out = cluster_.directory() + "/" + name;
    EXPECT_TRUE(make_directories(out).ok());
    return out;
  }
  JobId submit(const std::string& out, const std::string& more = "",
               const std::string& recovery = "", int max_restarts = 5) {
    return cluster_.submit("name: ddp-" + out.substr(out.rfind('/') + 1) +
                           "\n"
                           "nodes: 2\n"
                           "workers_per_node: 2\n"
                           "workload: {command: [/usr/bin/python3, ddp_train.py, " +
                           out + ", '" + std::to_string(kSteps) + "'" + more +
                           "]}\n"
                           "recovery: {" +
                           recovery + "max_restarts: " + std::to_string(max_restarts) + "}\n");
  }
  static void hold(const std::string& out, int step) {
    EXPECT_TRUE(write_file_atomic(out + "/hold-" + std::to_string(step), "").ok());
  }
  static void release(const std::string& out, int step) {
    EXPECT_TRUE(remove_tree(out + "/hold-" + std::to_string(step)).ok());
  }
  // Rank 0 has completed the step in some generation.
  bool wait_for_step(const std::string& out, int step) const {
    return wait_until(
        out,
        [&] {
          std::ifstream in(out + "/steps.jsonl");
          for (std::string line; std::getline(in, line);) {
            const json parsed = json::parse(line, nullptr, false);
            if (!parsed.is_discarded() && parsed["step"] == step) return true;
          }
          return false;
        },
        kLong);
  }
  // Those that were started on all nodes.
  int standbys(JobId job) const {
    int begun = 0;
    for (const char* node : {"n0", "n1"}) {
      const auto log = read_file(cluster_.paths().job_logs(job) + "/standby-" + node + ".log");
      if (!log.ok()) continue;
      for (size_t at = log->find(" standby on "); at != std::string::npos;
           at = log->find(" standby on ", at + 1)) {
        ++begun;
      }
    }
    return begun;
  }
  std::string diagnosis(JobId job) const {
    return cluster_.hpctl({"events", to_string(job)}).out +
           cluster_.hpctl({"logs", to_string(job), "--tail", "30"}).out;
  }
  // What the ranks of one generation were told.
  static std::vector<json> told(const std::string& out, int generation) {
    std::vector<json> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      const auto text = read_file(out + "/env-g" + std::to_string(generation) + "-r" +
                                  std::to_string(rank) + ".json");
      if (text.ok()) ranks.push_back(json::parse(*text));
    }
    return ranks;
  }

  LocalCluster cluster_;
};

void expect_coherent(const std::vector<json>& ranks, JobId job, int restarts) {
  ASSERT_EQ(ranks.size(), 4U);
  for (int rank = 0; rank < 4; ++rank) {
    const json& env = ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(env["RANK"], std::to_string(rank));
    EXPECT_EQ(env["LOCAL_RANK"], std::to_string(rank % 2));
    EXPECT_EQ(env["GROUP_RANK"], std::to_string(rank / 2));
    EXPECT_EQ(env["GROUP_WORLD_SIZE"], "2");
    EXPECT_EQ(env["WORLD_SIZE"], "4");
    EXPECT_EQ(env["TORCHELASTIC_RUN_ID"], to_string(job));
    EXPECT_EQ(env["TORCHELASTIC_RESTART_COUNT"], std::to_string(restarts));
    EXPECT_EQ(env["TORCHELASTIC_MAX_RESTARTS"], "5");
    EXPECT_EQ(env["MASTER_ADDR"], ranks[0]["MASTER_ADDR"]);
    EXPECT_EQ(env["MASTER_PORT"], ranks[0]["MASTER_PORT"]);
  }
}

// After the first of the two faults the script is run by Pythons that stood by.
TEST_F(CommandJob, LosingAWorkerAndANodeChangesNothingInTheResult) {
  const std::string calm = new_output("calm");
  const JobId undisturbed = submit(calm);
  ASSERT_EQ(cluster_.wait_for_end(undisturbed, kLong), "FINISHED") << diagnosis(undisturbed);

  const std::string out = new_output("rough");
  hold(out, 23);
  hold(out, 43);
  const JobId job = submit(out, "", "standby_imports: [torch], ");
  ASSERT_TRUE(wait_for_step(out, 22)) << diagnosis(job);
  ASSERT_TRUE(wait_until(
      cluster_.paths().job_logs(job), [&] { return standbys(job) == 4; }, kLong))
      << "one for each rank";
  ASSERT_TRUE(end_process(worker_pid(cluster_.status(job), 2)));
  release(out, 23);
  ASSERT_TRUE(wait_for_step(out, 42)) << diagnosis(job);
  ASSERT_TRUE(end_process(node_pid(cluster_.status(job), 1, "holder_pid")));
  release(out, 43);
  ASSERT_EQ(cluster_.wait_for_end(job, kLong), "FINISHED") << diagnosis(job);

  const json after = cluster_.status(job);
  EXPECT_EQ(after["generation"], 3) << diagnosis(job);
  EXPECT_EQ(after["restarts"], 2);
  EXPECT_EQ(after["step"], kSteps) << "as the script told it";
  for (int rank = 0; rank < 4; ++rank) {
    const std::string log = read_file(cluster_.paths().rank_log(job, Rank{rank})).value();
    const size_t begin = log.find(" generation 2 rank ");
    ASSERT_NE(begin, std::string::npos) << log;
    EXPECT_NE(log.substr(begin, log.find('\n', begin) - begin).find(", which stood by"),
              std::string::npos)
        << log;
  }
  const auto expected = read_file(calm + "/loss");
  const auto loss = read_file(out + "/loss");
  ASSERT_TRUE(expected.ok() && loss.ok());
  EXPECT_EQ(*loss, *expected);
  std::set<std::string> ports;
  for (int generation = 1; generation <= 3; ++generation) {
    const auto ranks = told(out, generation);
    expect_coherent(ranks, job, generation - 1);
    if (!ranks.empty()) ports.insert(ranks[0]["MASTER_PORT"].get<std::string>());
  }
  EXPECT_EQ(ports.size(), 3U) << "every generation has a port of its own";
}

// The script told its steps; the process that stopped is blamed, and the others find a new peer.
TEST_F(CommandJob, ARankThatHangsIsFoundAndBlamed) {
  const std::string out = new_output("hangs");
  hold(out, 13);
  const JobId job = submit(out, "", "hang_timeout: 6s, ");
  ASSERT_TRUE(wait_for_step(out, 12)) << diagnosis(job);
  const auto worker = static_cast<pid_t>(worker_pid(cluster_.status(job), 3));
  ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  release(out, 13);
  ASSERT_EQ(cluster_.wait_for_end(job, kLong), "FINISHED") << diagnosis(job);
  EXPECT_EQ(cluster_.status(job)["generation"], 2) << diagnosis(job);
  const std::string why = cluster_.hpctl({"events", to_string(job), "--json"}).out;
  const std::string who = "rank 3 (pid " + std::to_string(worker) + ") is stopped (state T)";
  EXPECT_NE(why.find(who), std::string::npos) << why;
  const auto stacks = read_file(cluster_.paths().job_stacks(job) + "/g1-rank0003.txt");
  ASSERT_TRUE(stacks.ok()) << stacks.error().message << diagnosis(job);
  EXPECT_NE(stacks->find("_PyEval_EvalFrameDefault (python3"), std::string::npos) << *stacks;
}

TEST_F(CommandJob, TheExceptionIsTheCauseThatPeopleRead) {
  const std::string out = new_output("fails");
  // It fails again after each restart, which starts four Pythons with PyTorch.
  const JobId job = submit(out, ", fail-at, '7'", "", 1);
  ASSERT_EQ(cluster_.wait_for_end(job, kLong), "FAILED") << diagnosis(job);
  const std::string why = cluster_.hpctl({"why", to_string(job)}).out;
  // Its peers die of the lost connection, often before it has; they are not the cause.
  EXPECT_NE(why.find("ValueError: no luck at step 7"), std::string::npos) << why;
}

// Programs of the test's own, beside the job file.
class CommandEnvironment : public ::testing::Test {
 protected:
  void put_program(const std::string& path, const std::string& text) {
    ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(write_file_atomic(path, "#!/bin/sh\n" + text + "\n").ok());
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  // What the command wrote as its first argument names it.
  std::string run(const std::string& more = "") {
    const std::string out = cluster_.directory() + "/out";
    EXPECT_TRUE(write_file_atomic(out, "").ok());
    const JobId job =
        cluster_.submit("name: e\nworkload: {command: [python, " + out + "]}\n" + more);
    EXPECT_EQ(cluster_.wait_for_end(job, seconds(60)), "FINISHED")
        << cluster_.hpctl({"events", to_string(job)}).out;
    const auto text = read_file(out);
    return text.ok() ? *text : text.error().message;
  }

  LocalCluster cluster_;
};

TEST_F(CommandEnvironment, AVirtualEnvironmentBesideTheJobFileIsActivated) {
  const std::string venv = cluster_.directory() + "/.venv";
  put_program(venv + "/bin/python", "echo \"$VIRTUAL_ENV ${PATH%%:*}\" > \"$1\"");
  EXPECT_EQ(run(), venv + " " + venv + "/bin\n");
}

TEST_F(CommandEnvironment, AUvProjectRunsThroughUv) {
  const std::string programs = cluster_.directory() + "/programs";
  put_program(programs + "/uv", "for out; do :; done; echo \"$*\" > \"$out\"");
  ASSERT_TRUE(write_file_atomic(cluster_.directory() + "/pyproject.toml", "").ok());
  const std::string path = std::getenv("PATH");
  setenv("PATH", (programs + ":" + path).c_str(), 1);
  const std::string told = run();
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(told, "run --project " + cluster_.directory() + " -- python " + cluster_.directory() +
                      "/out\n");
}

// A job got the variables of whichever shell had started the controller.
TEST_F(CommandEnvironment, IsThatOfTheSubmitter) {
  put_program(cluster_.directory() + "/.venv/bin/python",
              "echo \"$GIVEN,$SSH_TTY,$SLURM_JOB_ID,${HPCTL_HOME:+home}\" > \"$1\"");
  setenv("GIVEN", "one", 1);
  EXPECT_EQ(run(), "one,,,home\n");
  setenv("GIVEN", "two", 1);
  setenv("SSH_TTY", "/dev/pts/9", 1);
  EXPECT_EQ(run(), "two,,,home\n") << "the controller was started with another";
  unsetenv("SSH_TTY");
  unsetenv("GIVEN");
}

TEST_F(CommandEnvironment, FilesAreReadOnTheNodeAndKeptNowhere) {
  put_program(cluster_.directory() + "/.venv/bin/python", "echo \"$KEY,$SET\" > \"$1\"");
  const std::string keys = cluster_.directory() + "/keys.env";
  ASSERT_TRUE(write_file_atomic(keys, "export KEY='very secret'\nSET=file\n").ok());
  EXPECT_EQ(run("env: {files: [keys.env], set: {SET: given}}\n"), "very secret,given\n");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cluster_.paths().home())) {
    if (!entry.is_regular_file()) continue;
    const auto text = read_file(entry.path().string());
    EXPECT_TRUE(!text.ok() || text->find("very secret") == std::string::npos) << entry.path();
  }
}

TEST_F(CommandEnvironment, OutlivesTheControllerAndEndsWithTheJob) {
  const std::string out = cluster_.directory() + "/out";
  const auto told = [&] {
    const auto text = read_file(out);
    return text.ok() ? *text : "";
  };
  put_program(cluster_.directory() + "/.venv/bin/python",
              "echo \"$GIVEN\" >> \"$1\"; while [ ! -e \"$1.go\" ]; do sleep 0.1; done");
  ASSERT_TRUE(write_file_atomic(out, "").ok());
  setenv("GIVEN", "one", 1);
  const JobId job = cluster_.submit("name: e\nworkload: {command: [python, " + out + "]}\n");
  ASSERT_TRUE(wait_until(
      cluster_.directory(), [&] { return told() == "one\n"; }, seconds(60)));
  const std::string kept = cluster_.paths().job(job) + "/submitted.env";
  EXPECT_EQ(std::filesystem::status(kept).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const json status = cluster_.status(job);
  ::kill(status["controller"]["pid"].get<pid_t>(), SIGKILL);
  ::kill(status["nodes"][0]["holder_pid"].get<pid_t>(), SIGKILL);
  setenv("GIVEN", "two", 1);
  cluster_.submit("name: other\nworkload: {command: [/bin/true]}\n");  // starts a controller
  unsetenv("GIVEN");
  EXPECT_TRUE(wait_until(
      cluster_.directory(), [&] { return told() == "one\none\n"; }, seconds(60)))
      << told();
  ASSERT_TRUE(write_file_atomic(out + ".go", "").ok());
  EXPECT_EQ(cluster_.wait_for_end(job, seconds(60)), "FINISHED");
  EXPECT_TRUE(wait_until(
      cluster_.directory(), [&] { return !std::filesystem::exists(kept); }, seconds(30)));
}

TEST_F(CommandEnvironment, HooksRunAroundTheCommandOnEveryNode) {
  const std::string told = cluster_.directory() + "/told";
  put_program(cluster_.directory() + "/.venv/bin/python", "echo run >> " + told + "; echo > $1");
  run("nodes: 2\nhooks: {pre: 'echo pre >> " + told + "', post: 'echo post >> " + told + "'}\n");
  const auto lines = [&] {
    const auto text = read_file(told);
    return text.ok() ? *text : "";
  };
  // The job is FINISHED before its nodes have cleaned up.
  EXPECT_TRUE(wait_until(
      cluster_.directory(), [&] { return lines().ends_with("post\npost\n"); }, seconds(30)))
      << lines();
  EXPECT_EQ(lines().size(), std::string("pre\npre\nrun\nrun\npost\npost\n").size()) << lines();
  EXPECT_TRUE(lines().starts_with("pre\n"));
}

// Rank 1 fails once both are ready; rank 0 closes its files when it is told to end.
TEST(CommandExit, ASurvivorMayCloseItsFiles) {
  LocalCluster cluster;
  const std::string out = cluster.directory() + "/out";
  ASSERT_TRUE(make_directories(out).ok());
  const std::string script = out + "/script";
  ASSERT_TRUE(write_file_atomic(script,
                                "[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0\n"
                                "cd " +
                                    out +
                                    "\n"
                                    "if [ $RANK = 1 ]; then\n"
                                    "  until [ -e ready ]; do sleep 0.05; done; exit 5\n"
                                    "fi\n"
                                    "trap 'echo closed > file; exit 1' TERM\n"
                                    "echo > ready\n"
                                    "while :; do sleep 0.05; done\n")
                  .ok());
  const JobId job = cluster.submit(
      "name: closes\nworkers_per_node: 2\nrecovery: {grace: 30s}\nworkload: {command: [/bin/sh, " +
      script + "]}\n");
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_TRUE(is_accessible(out + "/file"));
  EXPECT_EQ(cluster.status(job)["restarts"], 1);
}

// The last rank of the first generation never ends by itself.
TEST(CommandExit, TheLastRankThatHangsIsAFault) {
  LocalCluster cluster;
  const JobId job = cluster.submit(
      "name: lingers\nworkers_per_node: 2\nrecovery: {hang_timeout: 1s}\n"
      "workload: {command: [/bin/sh, -c, 'test $RANK.$TORCHELASTIC_RESTART_COUNT != 1.0 || sleep "
      "1000']}\n");
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  const std::string events = cluster.hpctl({"events", to_string(job)}).out;
  // Long lines are folded.
  EXPECT_NE(events.find("worker 1 on n0 has not ended 1 s after the last of"), std::string::npos)
      << events;
}

// The program tells no steps, and nobody has edited it. Rank 0 prints its loss twice and then no
// more, in the first generation only.
TEST(CommandHang, ARuleOfTheLogFindsASilentProgram) {
  LocalCluster cluster;
  const std::string script = cluster.directory() + "/script";
  ASSERT_TRUE(write_file_atomic(script,
                                "if [ $RANK = 0 ]; then echo loss=3; sleep 0.3; echo loss=2; fi\n"
                                "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec sleep 1000\n")
                  .ok());
  const JobId job = cluster.submit(
      "name: silent\nworkers_per_node: 2\n"
      "recovery: {hang_rules: [{pattern: 'loss=[0-9]', within: 2s, action: restart}]}\n"
      "workload: {command: [/bin/sh, " +
      script + "]}\n");
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  EXPECT_EQ(cluster.status(job)["restarts"], 1);
  std::string hang;
  for (const json& event : cluster.events(job)) {
    if (event["type"] == "HangDetected") hang = event["cause"].get<std::string>();
  }
  EXPECT_NE(hang.find("no rank has printed a line that matches"), std::string::npos) << hang;
}

// Asked to warn, hpctl says what it sees, and leaves the program alone.
TEST(CommandHang, ARuleThatWarnsRestartsNothing) {
  LocalCluster cluster;
  const std::string gate = cluster.directory() + "/gate";
  const JobId job = cluster.submit(
      "name: slow\n"
      "recovery: {hang_rules: [{pattern: loss=, within: 1s}]}\n"
      "workload: {command: [/bin/sh, -c, 'echo loss=3; until [ -e " +
      gate + " ]; do sleep 0.1; done; echo loss=2']}\n");
  const auto is_found = [&] {
    const std::string found = cluster.hpctl({"watch", to_string(job), "--once", "--json"}).out;
    return found.find("hang_suspected") != std::string::npos;
  };
  EXPECT_TRUE(wait_until(cluster.directory(), is_found, seconds(60)));
  ASSERT_TRUE(write_file_atomic(gate, "").ok());
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "FINISHED");
  EXPECT_EQ(cluster.status(job)["restarts"], 0);
}

// Rank 2 stands still outside of any collective, in which the others wait for it. No rank tells
// more steps than another, so only what their flight recorders dump tells them apart.
TEST(CommandHang, FlightRecordersNameTheRankThatDoesNotCome) {
  LocalCluster cluster;
  const std::string out = cluster.directory() + "/out";
  ASSERT_TRUE(make_directories(out).ok());
  ::setenv("HPCTL_STACKS_LIMIT", "60000", 1);  // of the agents: also on a machine that is busy
  const JobId job = cluster.submit(
      "name: recorded\nnodes: 2\nworkers_per_node: 2\nrecovery: {hang_timeout: 5s}\n"
      "env: {set: {HANGS: '2', TORCH_NCCL_DEBUG_INFO_PIPE_FILE: " +
      out + "/ask-, TORCH_NCCL_DEBUG_INFO_TEMP_FILE: " + out +
      "/dump-}}\n"
      "workload: {command: [/usr/bin/python3, " HPCTL_SOURCE "/tests/support/flight_recorder.py, " +
      out + "]}\n");
  ::unsetenv("HPCTL_STACKS_LIMIT");
  ASSERT_EQ(cluster.wait_for_end(job, seconds(60)), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  const json why = json::parse(cluster.hpctl({"why", to_string(job), "--json"}).out);
  const json& recorders = why["flight_recorders"];
  ASSERT_EQ(recorders.size(), 1U) << why.dump(2);
  EXPECT_EQ(recorders[0]["generation"], 1);
  EXPECT_EQ(recorders[0]["ranks"], json({0, 1, 2, 3}));
  EXPECT_EQ(recorders[0]["without_dump"], json::array());
  EXPECT_EQ(recorders[0]["blamed"], json({2}));
  EXPECT_EQ(recorders[0]["findings"],
            json({"process group 0 (default_pg): ranks 0, 1, 3 wait in collective 3, all_reduce of "
                  "[1024] Float, called at flight_recorder.py:142 in step; rank 2 has not begun "
                  "it, the last was 2, all_reduce of [1024] Float, called at "
                  "flight_recorder.py:142 in step"}));
  const std::string text = cluster.hpctl({"why", to_string(job)}).out;
  EXPECT_NE(text.find("rank 2 is to blame"), std::string::npos) << text;
}

// A program that knows nothing of the page may still write there. Rank 0 says that 2^64-1 steps
// were not applied, rank 1 that everything is 2^64-1.
TEST(CommandExit, WhatAWorkerWritesIntoItsPageHarmsNobody) {
  LocalCluster cluster;
  const std::string script = cluster.directory() + "/script";
  const std::string count = std::to_string(offsetof(ProgressPage, bad_steps));
  ASSERT_TRUE(write_file_atomic(script,
                                "page() { dd of=/proc/self/fd/4 conv=notrunc bs=1 seek=$1; }\n"
                                "printf 'PHPG\\001\\000\\000\\000' | page 0 || exit 7\n"
                                "case $RANK in 0) at=" +
                                    count +
                                    " bytes=8;; *) at=8 bytes=4088;; esac\n"
                                    "head -c $bytes /dev/zero | tr '\\000' '\\377' | page $at\n"
                                    "cd " +
                                    cluster.directory() +
                                    "\n"
                                    "until [ -e go ]; do sleep 0.05; done\n")
                  .ok());
  const JobId job =
      cluster.submit("name: scribbles\nnodes: 2\nworkload: {command: [/bin/sh, " + script + "]}\n");
  const auto is_told = [&](const char* node) {
    const auto log = read_file(cluster.paths().node_log(job, node));
    return log.ok() && log->find("holds what no trainer writes") != std::string::npos;
  };
  EXPECT_TRUE(wait_until(
      cluster.directory(), [&] { return is_told("n0") && is_told("n1"); }, seconds(30)))
      << cluster.hpctl({"events", to_string(job)}).out;
  const json before = cluster.status(job);
  ASSERT_TRUE(write_file_atomic(cluster.directory() + "/go", "").ok());
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "FINISHED")
      << cluster.hpctl({"events", to_string(job)}).out;
  const json after = cluster.status(job);
  EXPECT_EQ(after["generation"], 1);
  EXPECT_EQ(after["faults"], 0);
  ASSERT_EQ(after["nodes"].size(), 2U);
  for (size_t node = 0; node < 2; ++node) {
    EXPECT_EQ(after["nodes"][node]["role"], "active");
    for (const char* process : {"agent_pid", "holder_pid"}) {
      EXPECT_EQ(after["nodes"][node][process], before["nodes"][node][process]) << process;
    }
  }
}

TEST(CommandExit, Code93EndsTheJobWithoutARestart) {
  LocalCluster cluster;
  const JobId job = cluster.submit(
      "name: hopeless\nnodes: 2\n"
      "workload: {command: [/bin/sh, -c, 'test $RANK = 0 || exit 93; sleep 1000']}\n");
  EXPECT_EQ(cluster.wait_for_end(job, seconds(60)), "FAILED");
  EXPECT_EQ(cluster.status(job)["restarts"], 0);
  const std::string why = cluster.hpctl({"why", to_string(job)}).out;
  EXPECT_NE(why.find("93"), std::string::npos) << why;
}

}  // namespace
}  // namespace hpctl::testing
