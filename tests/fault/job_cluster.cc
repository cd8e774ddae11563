// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/job_cluster.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/job_files.h"
#include "common/process/spawn.h"
#include "common/rpc/job_channel.h"
#include "tests/fault/live_controller.h"
#include "tests/support/processes.h"
#include "tests/support/promise.h"

namespace hpctl::test {
namespace {

constexpr char kMark[] = "HPCTL_TEST_CLUSTER";
constexpr auto kCallTimeout = std::chrono::seconds(30);
constexpr int kShownTimeoutMs = 60'000;

pid_t pid_in(const std::string& path) {
  const auto text = read_file(path, 64);
  return text.ok() ? static_cast<pid_t>(std::strtol(text->c_str(), nullptr, 10)) : 0;
}

}  // namespace

JobSpec gated_job(int exit_code) {
  JobSpec spec;
  spec.name = "cluster";
  spec.nodes = 2;
  spec.command = {"/bin/sh", "-c", "until [ -e gate ]; do sleep 0.05; done"};
  if (exit_code != 0) {
    spec.command.back() += "; exit " + std::to_string(exit_code);
    spec.recovery.max_restarts = 0;
  }
  return spec;
}

void JobCluster::open_gate() const { HP_CHECK(write_file_atomic(job_dir_ + "/gate", "").ok()); }

JobId JobCluster::own_job() { return JobId{static_cast<uint64_t>(::getpid())}; }

JobCluster::JobCluster(const JobSpec& spec, JobId job)
    : spec_(spec), job_(job), job_dir_(directory_.path() + "/job") {
  ::signal(SIGPIPE, SIG_IGN);
  HP_CHECK(make_directories(job_dir_).ok());
  auto document = nlohmann::json::parse(to_json_text(spec));
  document["uid"] = ::geteuid();
  document["submit_key"] = "test";
  HP_CHECK(write_file_atomic(job_dir_ + "/job.json", document.dump()).ok());
  const std::string token = job_dir_ + "/token";
  HP_CHECK(write_file_atomic(token, std::string(63, 'a') + "5\n").ok());
  HP_CHECK(::chmod(token.c_str(), 0600) == 0);
}

void JobCluster::end_processes() const {
  EXPECT_TRUE(end_marked_processes(mark())) << broken_promise("leftover");
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

JobCluster::~JobCluster() {
  end_processes();
  for (const std::string& node : nodes()) {
    [[maybe_unused]] const auto removed = remove_tree(paths(node).state());
  }
}

pid_t JobCluster::spawn(std::vector<std::string> argv, const std::string& log, int ready_fd) {
  HP_CHECK(make_directories(log.substr(0, log.rfind('/'))).ok());
  ::setenv(kMark, job_dir_.c_str(), 1);
  const auto pid =
      spawn_in_new_session({std::move(argv),
                            log,
                            ready_fd,
                            {"HPCTL_METRICS", "SLURMD_NODENAME", "SLURM_RESTART_COUNT"}});
  ::unsetenv(kMark);
  HP_CHECK(pid.ok());
  return *pid;
}

std::vector<std::string> JobCluster::nodes() const {
  std::vector<std::string> names;
  for (int32_t i = 0; i < spec_.all_nodes(); ++i) names.push_back("n" + std::to_string(i));
  return names;
}

pid_t JobCluster::start_controller(const std::string& node, std::vector<std::string> arguments) {
  std::array<int, 2> pipe_fds{};
  HP_CHECK(::pipe2(pipe_fds.data(), O_CLOEXEC) == 0);
  const UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  std::string list;
  for (const std::string& name : nodes()) list += (list.empty() ? "" : ",") + name;
  std::vector<std::string> argv = {program("hpcontroller"),
                                   "--job-dir",
                                   job_dir_,
                                   "--job",
                                   to_string(job_),
                                   "--node",
                                   node,
                                   "--scheduler",
                                   "none",
                                   "--nodes",
                                   list,
                                   "--listen",
                                   "127.0.0.1:0",
                                   "--ready-fd",
                                   std::to_string(kSpawnedFd)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  const pid_t pid = spawn(std::move(argv), paths(node).controller_log(), writer.get());
  writer.reset();
  char byte = 0;  // or the end of the pipe
  while (::read(reader.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  return pid;
}

void JobCluster::start_agent(const std::string& node) {
  spawn({program("hpagent"), "--holder", "--job-dir", job_dir_, "--job", to_string(job_), "--node",
         node},
        paths(node).node_log(job_, node), -1);
}

pid_t JobCluster::start_all() {
  const pid_t controller = start_controller("n0");
  for (const std::string& node : nodes()) start_agent(node);
  return controller;
}

void JobCluster::kill_controller(uint64_t epoch) {
  const auto text = read_file(job_dir_ + "/controllers/" + std::to_string(epoch) + ".json");
  HP_CHECK(text.ok());
  const auto record = controller_record_from_json(*text);
  HP_CHECK(record.ok());
  HP_CHECK(kill_process(static_cast<pid_t>(record->pid)));
}

void JobCluster::kill_holder(const std::string& node) {
  const pid_t pid = pid_in(paths(node).node_lock(job_, node));
  HP_CHECK(pid > 0);
  HP_CHECK(kill_process(pid));
}

std::optional<int> JobCluster::wait_for(pid_t child, int timeout_ms) {
  int status = 0;
  const auto ended = [&] { return ::waitpid(child, &status, WNOHANG) == child; };
  if (!eventually(ended, timeout_ms)) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::optional<ControllerRecord> JobCluster::wait_for_epoch(uint64_t epoch, int timeout_ms) const {
  std::optional<ControllerRecord> found;
  eventually(
      [&] {
        const auto newest = newest_controller(job_dir_);
        if (newest.ok() && *newest && (*newest)->epoch >= epoch) found = **newest;
        return found.has_value();
      },
      timeout_ms);
  return found;
}

std::unique_ptr<v1::Controller::Stub> JobCluster::stub() const {
  const auto found = connect_job(job_dir_);
  HP_CHECK(found.ok());
  return v1::Controller::NewStub(found->channel);
}

std::optional<v1::JobStatus> JobCluster::status() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  v1::GetJobRequest request;
  request.set_job(to_string(job_));
  v1::JobStatus status;
  const auto found = connect_job(job_dir_);
  if (!found.ok()) return std::nullopt;
  const auto stub = v1::Controller::NewStub(found->channel);
  if (!stub->GetJob(&context, request, &status).ok()) return std::nullopt;
  return status;
}

v1::JobStatus JobCluster::shown() const {
  std::optional<v1::JobStatus> now;
  const auto answers = [&] { return (now = status()).has_value(); };
  EXPECT_TRUE(eventually(answers, kShownTimeoutMs)) << "no controller answers\n" << logs();
  return now.value_or(v1::JobStatus());
}

bool JobCluster::wait_for_status(const std::function<bool(const v1::JobStatus&)>& wanted,
                                 int timeout_ms) const {
  return eventually(
      [&] {
        const auto now = status();
        return now && wanted(*now);
      },
      timeout_ms);
}

std::optional<int> JobCluster::verdict() const {
  const auto verdict = standing_verdict(job_dir_, 0);
  return verdict.ok() ? *verdict : std::nullopt;
}

std::string JobCluster::mark() const { return std::string(kMark) + "=" + job_dir_; }

std::vector<pid_t> JobCluster::processes() const { return marked_processes(mark()); }

std::string JobCluster::logs() const {
  std::string text;
  for (const std::string& node : nodes()) {
    for (const std::string& path :
         {paths(node).controller_log(), paths(node).node_log(job_, node)}) {
      const auto log = read_file(path);
      if (log.ok()) text += "== " + path + "\n" + *log;
    }
  }
  return text;
}

}  // namespace hpctl::test
