// SPDX-License-Identifier: Apache-2.0
// A cluster controller of this test's own, with a munged of its own, and one job of two nodes.
#pragma once

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/job/job_files.h"
#include "common/process/spawn.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/munge.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"
#include "tests/fault/job_cluster.h"
#include "tests/fault/live_controller.h"
#include "tests/support/loopback_port.h"

namespace hpctl::test {

inline constexpr int kPatienceMs = 60'000;
inline constexpr std::chrono::seconds kCall{30};
inline constexpr uid_t kNobody = 65534;
inline constexpr char kHead[] = "head";
inline constexpr char kSecondHead[] = "head2";
inline constexpr char kMunged[] = "/usr/sbin/munged";

inline JobSpec job_with_a_spare() {
  JobSpec spec = gated_job();
  spec.nodes = 1;
  spec.spares = 1;
  return spec;
}

// Before a command that nobody is to run.
inline std::vector<std::string> as_nobody() {
  return {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
}

// A munged of this test's own, and the environment that names it.
class Munged {
 public:
  explicit Munged(JobCluster& cluster) : cluster_(cluster) {
    EXPECT_EQ(::chmod(directory_.path().c_str(), 0711), 0);
    EXPECT_TRUE(write_file_atomic(directory_ / "key", std::string(128, 'k')).ok());
    EXPECT_EQ(::chmod((directory_ / "key").c_str(), 0600), 0);
    ::setenv("HPCTL_MUNGE_SOCKET", socket().c_str(), 1);
    start();
  }
  ~Munged() { stop(); }
  Munged(const Munged&) = delete;
  Munged& operator=(const Munged&) = delete;

  std::string socket() const { return directory_ / "socket"; }
  void start() {
    pid_ = cluster_.spawn({kMunged, "--foreground", "--force", "--socket=" + socket(),
                           "--key-file=" + directory_ / "key", "--pid-file=" + directory_ / "pid",
                           "--log-file=" + directory_ / "log", "--seed-file=" + directory_ / "seed",
                           "--num-threads=2"},
                          directory_ / "out");
    const auto answers = [] { return munge_encode("x", std::nullopt).ok(); };
    ASSERT_TRUE(eventually(answers, kPatienceMs)) << read_file(directory_ / "out").value();
  }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    EXPECT_TRUE(cluster_.wait_for(pid_, kPatienceMs));
    pid_ = -1;
  }

 private:
  JobCluster& cluster_;
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
};

class ClusterController : public testing::Test {
 protected:
  explicit ClusterController(const JobSpec& spec = gated_job()) : cluster_(spec) {}
  void SetUp() override {
    if (::access(kMunged, X_OK) != 0) GTEST_SKIP() << "no " << kMunged << ": the package munge";
    munged_.emplace(cluster_);
    start_service();
  }
  void TearDown() override {
    if (HasFailure()) {
      for (const std::string& path : {log(), paths().controller_log()}) {
        const auto text = read_file(path);
        if (text.ok()) std::printf("== %s\n%s\n", path.c_str(), text->c_str());
      }
    }
    // The service has started controllers of jobs whose directories are removed before cluster_.
    munged_.reset();
    cluster_.end_processes();
  }

  // The service's own controller of the job has its state here.
  HomePaths paths() const { return cluster_.paths(kHead); }
  std::string log() const { return directory_ / "service.log"; }
  std::string log_text() const { return read_file(log()).value(); }
  // In the log of that name. A process of its own writes each log.
  void await_line(const std::string& name, const std::string& words) const {
    std::string text;
    const auto is_said = [&] {
      text = read_file(directory_ / name).value();
      return text.find(words) != std::string::npos;
    };
    EXPECT_TRUE(eventually(is_said, kPatienceMs)) << text;
  }

  void start_service(const std::vector<std::string>& before = {},
                     const std::vector<std::string>& options = {}) {
    service_ = spawn_service({kHead, address_, directory_ / "state", log()}, before, options);
  }
  struct Head {
    std::string node;
    std::string address;
    std::string state_dir;
    std::string log;
  };
  // Returns when it serves.
  pid_t spawn_service(const Head& head, const std::vector<std::string>& before = {},
                      const std::vector<std::string>& options = {}) {
    std::array<int, 2> pipe_fds{};
    EXPECT_EQ(::pipe2(pipe_fds.data(), O_CLOEXEC), 0);
    const UniqueFd reader(pipe_fds[0]);
    UniqueFd writer(pipe_fds[1]);
    std::vector<std::string> argv = before;
    for (const std::string& word :
         {program("hpcontroller"), std::string("--cluster"), std::string("--listen"), head.address,
          std::string("--state-dir"), head.state_dir, std::string("--node"), head.node,
          std::string("--ready-fd"), std::to_string(kSpawnedFd)}) {
      argv.push_back(word);
    }
    argv.insert(argv.end(), options.begin(), options.end());
    const pid_t pid = cluster_.spawn(argv, head.log, writer.get());
    writer.reset();
    char byte = 0;
    EXPECT_EQ(::read(reader.get(), &byte, 1), 1) << read_file(head.log).value();
    EXPECT_EQ(byte, kControllerReady);
    return pid;
  }
  void kill_service() {
    ::kill(service_, SIGKILL);
    ASSERT_TRUE(cluster_.wait_for(service_, kPatienceMs));
  }

  v1::Admission admission() const { return admission_of(cluster_); }
  static v1::Admission admission_of(const JobCluster& cluster) {
    v1::Admission admission;
    admission.set_job(cluster.job().value);
    admission.set_job_dir(cluster.job_dir());
    for (const std::string& node : cluster.nodes()) admission.add_nodes(node);
    admission.set_scheduler("none");
    admission.set_agent_tokens(true);
    return admission;
  }
  Result<v1::ClusterJob> admit() const { return admit_to_cluster(address_, admission(), kCall); }
  v1::ClusterJob listed() const { return listed_at(address_); }
  static v1::ClusterJob listed_at(const std::string& address) {
    const auto list = list_cluster_jobs(address, kCall);
    EXPECT_TRUE(list.ok()) << list.error().message;
    return list.ok() && list->jobs_size() == 1 ? list->jobs(0) : v1::ClusterJob();
  }
  // One call with this credential, as a stranger could make it.
  grpc::Status ask_with(const std::string& credential) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCall);
    v1::ClusterCall call;
    call.set_credential(credential);
    v1::ClusterAnswer answer;
    return v1::Cluster::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()))
        ->ListJobs(&context, call, &answer);
  }
  static std::string question(std::optional<uid_t> reader = std::nullopt) {
    v1::ClusterQuestion question;
    question.set_nonce("n");
    return munge_encode(question.SerializeAsString(), reader).value();
  }
  static bool accepts(const std::string& address, const std::string& certificate,
                      const std::string& token) {
    const auto deadline = std::chrono::steady_clock::now() + kCall;
    const auto channel = connect_address(address, certificate, token);
    return channel.ok() && ping_controller(**channel, deadline, true).ok();
  }

  // hpctl of whoever `who` becomes, in a home that knows nothing.
  struct Said {
    std::optional<int> code;
    std::string text;
  };
  Said hpctl_of(std::vector<std::string> who, const std::vector<std::string>& words) {
    const std::string out = directory_ / "said";
    (void)::unlink(out.c_str());
    const auto code = cluster_.wait_for(spawn_hpctl_of(std::move(who), words, out), kPatienceMs);
    return {code, read_file(out).value()};
  }
  pid_t spawn_hpctl_of(std::vector<std::string> who, const std::vector<std::string>& words,
                       const std::string& out) {
    for (const std::string& word : {std::string("/usr/bin/env"), "HPCTL_CLUSTER=" + address_,
                                    std::string("HPCTL_HOME=/no/home"), program("hpctl")}) {
      who.push_back(word);
    }
    who.insert(who.end(), words.begin(), words.end());
    return cluster_.spawn(who, out);
  }
  nlohmann::json everything_seen_by(const std::vector<std::string>& who) {
    const Said said = hpctl_of(who, {"ps", "-A", "--json"});
    EXPECT_EQ(said.code, 0) << said.text;
    return nlohmann::json::parse(said.text);
  }

  bool runs() const {
    return cluster_.wait_for_status(
        [](const v1::JobStatus& status) {
          return status.state() == "RUNNING" &&
                 std::all_of(status.nodes().begin(), status.nodes().end(),
                             [](const auto& node) { return node.state() == "up"; });
        },
        kPatienceMs);
  }
  void start_job() {
    const auto job = admit();
    ASSERT_TRUE(job.ok()) << job.error().message;
    for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
    ASSERT_TRUE(runs()) << cluster_.logs();
  }
  // A job beside it, whose number must be another. Returns before it runs.
  void start_other_job(JobCluster& other) const {
    const auto job = admit_to_cluster(address_, admission_of(other), kCall);
    ASSERT_TRUE(job.ok()) << job.error().message;
    for (const std::string& node : other.nodes()) other.start_agent(node);
  }
  // `n`th of numbers that no process has, as own_job() has one.
  static JobId other_number(uint64_t n) { return JobId{(n << 23U) + JobCluster::own_job().value}; }
  void expect_finish_undisturbed() { expect_finish_undisturbed_at(address_); }
  void expect_finish_undisturbed_at(const std::string& address) {
    ASSERT_TRUE(runs()) << cluster_.logs();
    const auto status = cluster_.shown();
    EXPECT_EQ(status.generation(), 1U);
    EXPECT_EQ(status.faults(), 0U);
    EXPECT_EQ(status.restarts(), 0U);
    cluster_.open_gate();
    EXPECT_TRUE(eventually([&] { return cluster_.verdict().has_value(); }, kPatienceMs));
    EXPECT_EQ(cluster_.verdict(), kVerdictFinished) << cluster_.logs();
    const auto forgotten = [&] { return listed_at(address).job() == 0; };
    EXPECT_TRUE(eventually(forgotten, kPatienceMs)) << log_text();
  }

  pid_t start_batch_proxy(const std::string& at, const std::vector<std::string>& before = {}) {
    std::vector<std::string> argv = before;
    std::string nodes;
    for (const std::string& node : cluster_.nodes()) nodes += (nodes.empty() ? "" : ",") + node;
    for (const std::string& word :
         {program("hpcontroller"), std::string("--job-dir"), cluster_.job_dir(),
          std::string("--job"), to_string(cluster_.job()), std::string("--node"), std::string("n0"),
          std::string("--nodes"), nodes, std::string("--scheduler"), std::string("none"),
          std::string("--at"), at}) {
      argv.push_back(word);
    }
    return cluster_.spawn(argv, directory_ / "stand-in.log");
  }

  // Goes after the processes that use it.
  struct StateOnHead {
    std::string node = kHead;
    ~StateOnHead() {
      EXPECT_TRUE(remove_tree(HomePaths::of_job("/", JobCluster::own_job(), node).state()).ok());
    }
  };

  TemporaryDirectory directory_;
  StateOnHead state_;
  StateOnHead state_of_second_{kSecondHead};
  JobCluster cluster_;
  std::optional<Munged> munged_;
  const LoopbackPort port_;
  const std::string address_ = port_.address();  // of every start
  pid_t service_ = -1;
};

}  // namespace hpctl::test
