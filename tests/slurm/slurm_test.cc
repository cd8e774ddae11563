// SPDX-License-Identifier: Apache-2.0
#include "tests/slurm/slurm_test.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>

#include "common/base/file.h"
#include "common/job/directory_owner.h"
#include "common/job/lineage.h"
#include "common/process/pidfd.h"
#include "tests/slurm/slurm_cluster.h"
#include "tests/support/promise.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr int kNodes = 4;

std::unique_ptr<test::SlurmCluster> g_cluster;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string SlurmJob::yaml() const {
  std::string text = training.yaml();
  const std::string two_nodes = "nodes: 2\n";
  text.replace(text.find(two_nodes), two_nodes.size(),
               "nodes: " + nodes + "\nslurm: " + slurm + "\n");
  const auto add_key = [&](const std::string& section, const std::string& key) {
    text.insert(text.find(section + ": {") + section.size() + 3, key + ", ");
  };
  if (!on_node_loss.empty()) add_key("recovery", "on_node_loss: " + on_node_loss);
  if (!checkpoint_dir.empty()) add_key("checkpoint", "dir: " + checkpoint_dir);
  return text + more;
}

json node_of(const json& status, const std::string& name) {
  for (const json& node : status["nodes"]) {
    if (node["name"] == name) return node;
  }
  return nullptr;
}

std::vector<json> workers_on(const json& status, const std::string& node) {
  std::vector<json> workers;
  for (const json& worker : status["workers"]) {
    if (worker["node"] == node && worker["state"] == "running") workers.push_back(worker);
  }
  return workers;
}

void SlurmTest::bring_up(const std::string& options) {
  g_cluster = std::make_unique<test::SlurmCluster>("--nodes " + std::to_string(kNodes) +
                                                   " --netns --slurmd-timeout 20 " + options);
}

void SlurmTest::TearDownTestSuite() { g_cluster.reset(); }

void SlurmTest::SetUp() {
  if (g_cluster->code() == test::SlurmCluster::kCannotRun) {
    GTEST_SKIP() << "no Slurm cluster here; the reason is above";
  }
  ASSERT_EQ(g_cluster->code(), 0);
}

void SlurmTest::TearDown() {
  if (g_cluster->code() != 0) return;
  if (HasFailure()) {
    for (const JobId job : jobs_) std::cout << diagnosis(job);
  }
  slurm({"scancel", "--full", "-u", "root"});
  for (int i = 1; i <= kNodes; ++i) cluster("heal", "n" + std::to_string(i));
  const auto clean = [] {
    const auto nodes = lines_of(slurm({"sinfo", "-hN", "-p", "main", "-o", "%T"}).out);
    const auto jobs = slurm({"squeue", "-h"});
    return nodes == std::vector<std::string>(kNodes, "idle") && jobs.exit_code == 0 &&
           jobs.out.empty();
  };
  EXPECT_TRUE(wait_until(home_.directory(), clean, kPatience))
      << slurm({"sinfo", "-N"}).out << slurm({"squeue"}).out;
}

HeldTraining::HeldTraining(pid_t worker) : process_(open_pidfd(worker)) {
  EXPECT_EQ(signal_pidfd(process_, SIGSTOP), 0) << "worker " << worker;
}

HeldTraining::~HeldTraining() { signal_pidfd(process_, SIGCONT); }

StoppedDaemon::StoppedDaemon(const std::string& name) : name_(name) {
  test::SlurmCluster::must("stop " + name_);
}

StoppedDaemon::~StoppedDaemon() { test::SlurmCluster::must("start " + name_); }

void SlurmTest::cluster(const std::string& verb, const std::string& argument) {
  test::SlurmCluster::must(verb + " " + argument);
}

bool SlurmTest::has_network_namespaces() {
  const char* value = std::getenv("HPCTL_TEST_NETNS");
  return value != nullptr && std::string(value) == "true";
}

bool SlurmTest::blocks(const std::string& node) {
  const int code = test::SlurmCluster::command("block " + node).code;
  EXPECT_TRUE(code == 0 || code == test::SlurmCluster::kCannotRun) << code;
  return code == 0;
}

CommandResult SlurmTest::slurm(const std::vector<std::string>& command) {
  std::vector<std::string> argv = {"/usr/bin/env"};
  argv.insert(argv.end(), command.begin(), command.end());
  return run_command(argv, {}, seconds(60));
}

std::vector<pid_t> SlurmTest::processes_on(const std::string& node) {
  std::vector<pid_t> pids;
  std::istringstream in(test::SlurmCluster::command("pids " + node).out);
  for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
  return pids;
}

void SlurmTest::expect_only_slurmd_on(const std::string& node) const {
  const auto only_slurmd = [&] { return processes_on(node).size() == 1; };
  if (wait_until(home_.directory(), only_slurmd, kPatience)) return;
  ADD_FAILURE() << "more than slurmd is left on " << node << ":\n"
                << slurm({"sh", "-c", "ps -o pid=,stat=,args= -p \"$0\"",
                          test::SlurmCluster::command("pids " + node).out})
                       .out
                << broken_promise("leftover");
}

std::string SlurmTest::slurm_state(JobId job) {
  const auto answer = slurm({"squeue", "-h", "-j", to_string(job), "-o", "%T"});
  const auto lines = lines_of(answer.out);
  if (!lines.empty()) return lines[0];
  const bool unknown = answer.err.find("Invalid job id specified") != std::string::npos;
  return answer.exit_code == 0 || unknown ? "" : "?";
}

void SlurmTest::await_saved(JobId job) const {
  const auto saved = [] {
    return slurm({"sh", "-c", "stat -c %y \"$HPCTL_TEST_CLUSTER/state/job_state\""}).out;
  };
  const std::string before = saved();
  ASSERT_EQ(slurm({"scontrol", "update", "jobid=" + to_string(job), "nice=1"}).exit_code, 0);
  ASSERT_TRUE(wait_until(
      home_.directory(), [&] { return saved() != before; }, kPatience));
}

void SlurmTest::end_soon(JobId job) {
  constexpr int64_t kLeastLeftS = 45;
  std::istringstream ran(slurm({"squeue", "-h", "-j", to_string(job), "-o", "%M"}).out);
  int64_t ran_s = 0;
  for (std::string part; std::getline(ran, part, ':');) ran_s = ran_s * 60 + std::stoi(part);
  const std::string minutes = std::to_string((ran_s + kLeastLeftS) / 60 + 1);
  ASSERT_EQ(
      slurm({"scontrol", "update", "jobid=" + to_string(job), "TimeLimit=" + minutes}).exit_code,
      0);
}

std::string SlurmTest::undisturbed_digest(const SlurmJob& job) {
  static std::map<int, std::string> known;
  std::string& digest = known[job.training.steps];
  if (digest.empty()) {
    LocalCluster local;
    const JobId id = local.submit(job.training.yaml());
    EXPECT_EQ(local.wait_for_end(id, kPatience), "FINISHED");
    digest = local.digest(id);
    local.stop_and_expect_no_leftovers(kPatience);
  }
  return digest;
}

CommandResult SlurmTest::submit(const SlurmJob& job, const std::vector<std::string>& options) {
  return submit(job.yaml(), options);
}

CommandResult SlurmTest::submit(const std::string& yaml, const std::vector<std::string>& options) {
  const std::string file = home_.directory() + "/job.yaml";
  EXPECT_TRUE(write_file_atomic(file, yaml).ok());
  std::vector<std::string> args = {"submit", "--json", file};
  args.insert(args.end(), options.begin(), options.end());
  return home_.hpctl(args, kPatience);
}

JobId SlurmTest::submitted(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const json answer = json::parse(result.out, nullptr, false);
  if (answer.is_discarded() || !answer.contains("job")) return JobId{0};
  const json& id = answer["job"];
  const JobId started{id.is_string() ? std::stoull(id.get<std::string>()) : id.get<uint64_t>()};
  jobs_.push_back(started);
  return started;
}

JobId SlurmTest::start(const SlurmJob& job, uint64_t step) {
  const JobId started = submitted(submit(job));
  if (started == JobId{0}) return started;
  EXPECT_TRUE(home_.wait_for_step(started, step, kPatience)) << "no step " << step;
  return started;
}

JobId SlurmTest::start_command(const std::string& yaml, uint64_t step) {
  const JobId started = submitted(submit(yaml));
  if (started == JobId{0}) return started;
  const auto reached = [&] { return status(started).value("step", uint64_t{0}) >= step; };
  EXPECT_TRUE(wait_until(home_.directory(), reached, kPatience)) << "no step " << step;
  return started;
}

std::string SlurmTest::batch_node(JobId job) {
  const auto lines = lines_of(slurm({"squeue", "-h", "-j", to_string(job), "-o", "%B"}).out);
  return lines.empty() ? "" : lines[0];
}

std::string SlurmTest::other_active_node(JobId job) const {
  const std::string batch = batch_node(job);
  const json now = status(job);
  for (const json& node : now["nodes"]) {
    if (node["role"] == "active" && node["name"] != batch) return node["name"];
  }
  return "";
}

std::string SlurmTest::checkpoints_of(JobId job, const SlurmJob& spec) const {
  return spec.checkpoint_dir.empty() ? home_.paths().default_checkpoints(job) : spec.checkpoint_dir;
}

void SlurmTest::expect_owner(JobId job, const SlurmJob& spec) const {
  const std::string dir = checkpoints_of(job, spec);
  const auto owner = read_directory_owner(dir);
  ASSERT_TRUE(owner.ok() && *owner) << dir;
  EXPECT_EQ((*owner)->owner.job, job.value);
  EXPECT_NE((*owner)->owner.uuid, "");
  const auto records = read_lineage(dir);
  ASSERT_TRUE(records.ok());
  for (const GenerationRecord& record : *records) {
    if (record.job != job.value) continue;
    EXPECT_EQ(record.job_uuid, (*owner)->owner.uuid) << "generation " << record.generation;
  }
}

void SlurmTest::expect_exact_finish(JobId job, const SlurmJob& spec, seconds limit) {
  // Whatever failed before, the digest of a finished job is compared.
  ASSERT_EQ(home_.wait_for_end(job, limit), "FINISHED");
  const auto digest = home_.hpctl({"checkpoint", "digest", checkpoints_of(job, spec)});
  EXPECT_EQ(digest.out, undisturbed_digest(spec)) << digest.err << broken_promise("digest");
  expect_owner(job, spec);
  const auto gone = [&] {
    const std::string state = slurm_state(job);
    return state.empty() || state == "COMPLETED";
  };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience))
      << "Slurm still has the job as " << slurm_state(job);
}

HeldTraining SlurmTest::hold(JobId job) const {
  const json now = status(job);
  for (const json& worker : now["workers"]) {
    if (worker["state"] == "running") return HeldTraining(worker["pid"].get<pid_t>());
  }
  ADD_FAILURE() << "no worker runs: " << now;
  return HeldTraining(0);
}

std::string SlurmTest::diagnosis(JobId job) const {
  const std::string id = to_string(job);
  std::string text = "--- job " + id + "\n" + home_.hpctl({"status", id}).out +
                     home_.hpctl({"events", id}).out +
                     home_.hpctl({"logs", id, "--tail", "20"}).out;
  const std::string show = "cd '" + home_.paths().job(job) +
                           "' && tail -n 40 slurm-*.out controller*.log nodes/*/agent.log " +
                           "controllers/* 2>/dev/null";
  text += slurm({"sh", "-c", show}).out + slurm({"scontrol", "show", "job", id}).out;
  return text + slurm({"sinfo", "-N"}).out;
}

std::string SlurmTest::causes(JobId job, const std::string& type) const {
  std::string text;
  for (const json& event : home_.events(job)) {
    if (event["type"] == type) text += event["cause"].get<std::string>() + "\n";
  }
  return text;
}

}  // namespace hpctl::testing
