// SPDX-License-Identifier: Apache-2.0
// The cluster controller with a real munged: whom it takes, whom it refuses, and what becomes of
// the jobs when their controllers, the service itself or munged die.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <future>

#include "common/base/file.h"
#include "common/base/job_files.h"
#include "common/base/random_hex.h"
#include "common/rpc/cluster_client.h"
#include "common/rpc/controller_process.h"
#include "common/rpc/job_channel.h"
#include "common/rpc/munge.h"
#include "common/rpc/spawn.h"
#include "controller/job_mode.h"
#include "controller/stand_in.h"
#include "proto/hpctl/v1/cluster.grpc.pb.h"
#include "tests/fault/job_cluster.h"
#include "tests/fault/live_controller.h"

namespace hpctl {
namespace {

using ::testing::HasSubstr;

constexpr int kPatienceMs = 60'000;
constexpr std::chrono::seconds kCall{30};
constexpr uid_t kNobody = 65534;
constexpr char kHead[] = "head";
constexpr char kMunged[] = "/usr/sbin/munged";

JobSpec gated_job() {
  JobSpec spec;
  spec.name = "cluster";
  spec.nodes = 2;
  spec.command = {"/bin/sh", "-c", "until [ -e gate ]; do sleep 0.05; done"};
  return spec;
}

// A munged of this test's own, and the environment that names it.
class Munged {
 public:
  explicit Munged(test::JobCluster& cluster) : cluster_(cluster) {
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
    ASSERT_TRUE(test::eventually(answers, kPatienceMs)) << read_file(directory_ / "out").value();
  }
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    EXPECT_TRUE(cluster_.wait_for(pid_, kPatienceMs));
    pid_ = -1;
  }

 private:
  test::JobCluster& cluster_;
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
};

class ClusterController : public testing::Test {
 protected:
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
  }

  // The service's own controller of the job has its state here.
  HomePaths paths() const { return cluster_.paths(kHead); }
  std::string log() const { return directory_ / "service.log"; }
  std::string log_text() const { return read_file(log()).value(); }

  void start_service(const std::vector<std::string>& before = {}) {
    std::array<int, 2> pipe_fds{};
    ASSERT_EQ(::pipe2(pipe_fds.data(), O_CLOEXEC), 0);
    const UniqueFd reader(pipe_fds[0]);
    UniqueFd writer(pipe_fds[1]);
    std::vector<std::string> argv = before;
    for (const std::string& word :
         {test::program("hpcontroller"), std::string("--cluster"), std::string("--listen"),
          address_, std::string("--state-dir"), directory_ / "state", std::string("--node"),
          std::string(kHead), std::string("--ready-fd"), std::to_string(kSpawnedFd)}) {
      argv.push_back(word);
    }
    const size_t had = path_exists(log()) ? log_text().size() : 0;
    service_ = cluster_.spawn(argv, log(), writer.get());
    writer.reset();
    char byte = 0;
    ASSERT_EQ(::read(reader.get(), &byte, 1), 1) << log_text();
    ASSERT_EQ(byte, kControllerReady);
    // "... cluster controller on IP:PORT, state in ..."; a later start takes the same port.
    const std::string said = log_text().substr(had);
    const std::string mark = "cluster controller on ";
    const size_t begin = said.find(mark) + mark.size();
    address_ = said.substr(begin, said.find(',', begin) - begin);
  }
  void kill_service() {
    ::kill(service_, SIGKILL);
    ASSERT_TRUE(cluster_.wait_for(service_, kPatienceMs));
  }

  v1::Admission admission() const {
    v1::Admission admission;
    admission.set_job(cluster_.job().value);
    admission.set_job_dir(cluster_.job_dir());
    for (const std::string& node : cluster_.nodes()) admission.add_nodes(node);
    admission.set_scheduler("none");
    return admission;
  }
  Result<v1::ClusterJob> admit() const { return admit_to_cluster(address_, admission(), kCall); }
  v1::ClusterJob listed() const {
    const auto list = list_cluster_jobs(address_, kCall);
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
  static bool accepts(const std::string& address, const std::string& token) {
    const auto deadline = std::chrono::steady_clock::now() + kCall;
    return ping_controller(*connect_address(address, token), deadline, true).ok();
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
  void expect_finish_undisturbed() {
    ASSERT_TRUE(runs()) << cluster_.logs();
    EXPECT_EQ(cluster_.status()->generation(), 1U);
    ASSERT_TRUE(write_file_atomic(cluster_.job_dir() + "/gate", "").ok());
    EXPECT_TRUE(test::eventually([&] { return cluster_.verdict().has_value(); }, kPatienceMs));
    EXPECT_EQ(cluster_.verdict(), kVerdictFinished) << cluster_.logs();
    const auto forgotten = [&] { return listed().job() == 0; };
    EXPECT_TRUE(test::eventually(forgotten, kPatienceMs)) << log_text();
  }

  // Goes after the processes that use it.
  struct StateOnHead {
    ~StateOnHead() {
      const JobId job{static_cast<uint64_t>(::getpid())};  // as JobCluster has it
      EXPECT_TRUE(remove_tree(HomePaths::of_job("/", job, kHead).state()).ok());
    }
  };

  TemporaryDirectory directory_;
  StateOnHead state_;
  test::JobCluster cluster_{gated_job()};
  std::optional<Munged> munged_;
  std::string address_ = "127.0.0.1:0";
  pid_t service_ = -1;
};

TEST_F(ClusterController, StartsTheJobsControllerAndStartsItAgain) {
  start_job();
  const v1::ClusterJob job = listed();
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->node, kHead);
  EXPECT_EQ(record->address, job.address());
  EXPECT_EQ(record->pid, job.pid());
  EXPECT_TRUE(accepts(job.address(), job.token()));
  EXPECT_TRUE(accepts(job.address(), read_token(cluster_.job_dir()).value()));
  EXPECT_FALSE(accepts(job.address(), std::string(job.token().rbegin(), job.token().rend())));

  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << log_text();
  EXPECT_EQ(second->node, kHead);
  ASSERT_TRUE(test::eventually([&] { return listed().address() == second->address; }, kPatienceMs));
  EXPECT_EQ(listed().restarts(), 1U);
  // The token outlives the process.
  EXPECT_TRUE(accepts(second->address, job.token()));
  expect_finish_undisturbed();
  EXPECT_FALSE(path_exists(paths().state())) << "left on the head node";
}

// From a home that knows nothing of the job: address and token come by MUNGE.
TEST_F(ClusterController, HpctlFindsAJobOfAnotherHome) {
  start_job();
  ::setenv("HPCTL_CLUSTER", address_.c_str(), 1);
  ::setenv("HPCTL_HOME", (directory_ / "another").c_str(), 1);
  const std::string out = directory_ / "status";
  const auto ask = [&](const std::string& job) {
    return cluster_.wait_for(cluster_.spawn({test::program("hpctl"), "status", job, "--json"}, out),
                             kPatienceMs);
  };
  EXPECT_EQ(ask(to_string(cluster_.job())), 0);
  EXPECT_THAT(read_file(out).value(), HasSubstr(R"("name":"cluster",)"));
  EXPECT_THAT(read_file(out).value(), HasSubstr(R"("state":"RUNNING",)"));
  EXPECT_EQ(ask("4294967295"), 1);
  ::unsetenv("HPCTL_CLUSTER");
  ::unsetenv("HPCTL_HOME");
  EXPECT_EQ(ask(to_string(cluster_.job())), 1) << "without a cluster controller";
}

TEST_F(ClusterController, IsStartedAgainAndFindsWhatRuns) {
  start_job();
  const v1::ClusterJob before = listed();
  kill_service();
  start_service();
  const v1::ClusterJob after = listed();
  EXPECT_EQ(after.pid(), before.pid());
  EXPECT_EQ(after.address(), before.address());
  // Asked again, it starts nothing.
  const auto again = admit();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->pid(), before.pid());
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
  // A controller that is no child of this service is started again like any other.
  cluster_.kill_controller(1);
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << log_text();
  ASSERT_TRUE(runs()) << cluster_.logs();
  EXPECT_EQ(newest_controller(cluster_.job_dir()).value()->node, kHead);
  expect_finish_undisturbed();
}

TEST_F(ClusterController, StartsWhatDiedWhileItWasAway) {
  start_job();
  kill_service();
  ::kill(static_cast<pid_t>(newest_controller(cluster_.job_dir()).value()->pid), SIGKILL);
  start_service();
  ASSERT_TRUE(cluster_.wait_for_epoch(2, kPatienceMs)) << log_text();
  expect_finish_undisturbed();
}

TEST_F(ClusterController, WithoutItAnAgentStartsTheSuccessor) {
  start_job();
  kill_service();
  cluster_.kill_controller(1);
  const auto second = cluster_.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << cluster_.logs();
  EXPECT_NE(second->node, kHead);
  ASSERT_TRUE(runs()) << cluster_.logs();
  // Back again, it finds the successor and leaves the job to it.
  start_service();
  EXPECT_TRUE(test::eventually([&] { return listed().job() == 0; }, kPatienceMs)) << log_text();
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 2U);
  expect_finish_undisturbed();
}

TEST_F(ClusterController, ARequeueReplacesTheController) {
  const auto first = admit();
  ASSERT_TRUE(first.ok()) << first.error().message;
  v1::Admission later = admission();
  later.set_restart_count(1);
  const auto second = admit_to_cluster(address_, later, kCall);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_NE(second->pid(), first->pid());
  EXPECT_NE(second->token(), first->token());
  EXPECT_EQ(newest_controller(cluster_.job_dir()).value()->restart_count, 1U);
  // What belongs to the life before is an echo.
  const auto echo = admit();
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(echo->pid(), second->pid());
}

TEST_F(ClusterController, RefusesWhatIsNotGenuine) {
  EXPECT_EQ(ask_with("").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(ask_with("MUNGE:AwQFAAA=:").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const std::string credential = question();
  EXPECT_TRUE(ask_with(credential).ok());
  const grpc::Status replayed = ask_with(credential);
  EXPECT_EQ(replayed.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(replayed.error_message(), HasSubstr("Replayed"));
  const grpc::Status not_for_it = ask_with(question(::geteuid() + 1));
  EXPECT_THAT(not_for_it.error_message(), HasSubstr("Unauthorized"));
  const grpc::Status no_question = ask_with(munge_encode("", std::nullopt).value());
  EXPECT_EQ(no_question.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ClusterController, RefusesAnExpiredCredential) {
  if (::access("/usr/bin/munge", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/munge";
  const std::string file = directory_ / "credential";
  const pid_t munge = cluster_.spawn({"/usr/bin/munge", "--socket=" + munged_->socket(), "--ttl=1",
                                      "--no-input", "--output=" + file},
                                     directory_ / "munge.log");
  ASSERT_EQ(cluster_.wait_for(munge, kPatienceMs), 0);
  std::string credential = read_file(file).value();
  credential.pop_back();
  ::poll(nullptr, 0, 2'500);  // its time, in whole seconds
  EXPECT_THAT(ask_with(credential).error_message(), HasSubstr("Expired"));
}

TEST_F(ClusterController, RefusesWhatTheJobsOwnerMayNot) {
  v1::Admission wrong = admission();
  wrong.set_job_dir("/nonexistent/job");
  const auto absent = admit_to_cluster(address_, wrong, kCall);
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/job"));
  wrong.set_job_dir("job");
  EXPECT_FALSE(admit_to_cluster(address_, wrong, kCall).ok());
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a directory of another uid";
  const std::string other = directory_ / "other";
  ASSERT_EQ(::mkdir(other.c_str(), 0755), 0);
  ASSERT_EQ(::chown(other.c_str(), kNobody, kNobody), 0);
  wrong.set_job_dir(other);
  const auto others = admit_to_cluster(address_, wrong, kCall);
  ASSERT_FALSE(others.ok());
  EXPECT_EQ(others.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(others.error().message, HasSubstr("belongs to uid 65534"));
  EXPECT_EQ(listed().job(), 0U);
}

TEST_F(ClusterController, SaysThatMungedIsAway) {
  start_job();
  const std::string credential = question();
  munged_->stop();
  const auto client = list_cluster_jobs(address_, kCall);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(client.error().message, HasSubstr("munged does not answer"));
  const grpc::Status server = ask_with(credential);
  EXPECT_EQ(server.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(server.error_message(), HasSubstr("munged does not answer"));
  munged_->start();
  expect_finish_undisturbed();
}

// The batch script's part: `hpcontroller --at`.
class StandIn : public ClusterController {
 protected:
  pid_t start_stand_in(const std::string& at, const std::vector<std::string>& before = {}) {
    std::vector<std::string> argv = before;
    std::string nodes;
    for (const std::string& node : cluster_.nodes()) nodes += (nodes.empty() ? "" : ",") + node;
    for (const std::string& word :
         {test::program("hpcontroller"), std::string("--job-dir"), cluster_.job_dir(),
          std::string("--job"), to_string(cluster_.job()), std::string("--node"), std::string("n0"),
          std::string("--nodes"), nodes, std::string("--scheduler"), std::string("none"),
          std::string("--at"), at}) {
      argv.push_back(word);
    }
    return cluster_.spawn(argv, directory_ / "stand-in.log");
  }

  const sigset_t no_signals_{};
};

TEST_F(StandIn, EndsWithTheVerdict) {
  const pid_t stand_in = start_stand_in(address_);
  ASSERT_TRUE(cluster_.wait_for_epoch(1, kPatienceMs)) << log_text();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  expect_finish_undisturbed();
  EXPECT_EQ(cluster_.wait_for(stand_in, kPatienceMs), kVerdictFinished);
  EXPECT_EQ(newest_controller_epoch(cluster_.job_dir()).value(), 1U);
}

// More than it starts at once for one user: the others ask again.
TEST_F(StandIn, ManyJobsAtOnce) {
  constexpr uint64_t kJobs = 7;
  std::vector<std::string> directories;
  for (uint64_t i = 1; i <= kJobs; ++i) {
    const std::string job = std::to_string(cluster_.job().value + i);
    directories.push_back(directory_ / ("job-" + job));
    ASSERT_EQ(::mkdir(directories.back().c_str(), 0700), 0);
    for (const char* name : {"/token", "/job.json"}) {
      const std::string text = read_file(cluster_.job_dir() + name).value();
      ASSERT_TRUE(write_file_atomic(directories.back() + name, text).ok());
      ASSERT_EQ(::chmod((directories.back() + name).c_str(), 0600), 0);
    }
    cluster_.spawn({test::program("hpcontroller"), "--job-dir", directories.back(), "--job", job,
                    "--node", "n0", "--nodes", "n0,n1", "--scheduler", "none", "--at", address_},
                   directory_ / "stand-in.log");
  }
  for (const std::string& job_dir : directories) {
    const auto begun = [&] { return newest_controller_epoch(job_dir).value() == 1; };
    ASSERT_TRUE(test::eventually(begun, kPatienceMs)) << log_text();
    EXPECT_EQ(newest_controller(job_dir).value()->node, kHead);
  }
  const auto list = list_cluster_jobs(address_, kCall);
  ASSERT_TRUE(list.ok()) << list.error().message;
  EXPECT_EQ(list->jobs_size(), static_cast<int>(kJobs));
  kill_service();
  for (const v1::ClusterJob& job : list->jobs()) {
    ::kill(static_cast<pid_t>(job.pid()), SIGSTOP);  // it is not to make its directory again
    EXPECT_TRUE(remove_tree("/tmp/hpctl-" + std::to_string(::geteuid()) + "/job-" +
                            std::to_string(job.job()) + "-" + kHead)
                    .ok());
  }
}

TEST_F(StandIn, ASignalCancelsTheJob) {
  const pid_t stand_in = start_stand_in(address_);
  ASSERT_TRUE(cluster_.wait_for_epoch(1, kPatienceMs)) << log_text();
  for (const std::string& node : cluster_.nodes()) cluster_.start_agent(node);
  ASSERT_TRUE(runs()) << cluster_.logs();
  ::kill(stand_in, SIGTERM);
  EXPECT_EQ(cluster_.wait_for(stand_in, kPatienceMs), kVerdictFailed);
  EXPECT_EQ(cluster_.verdict(), kVerdictFailed);
}

// Nobody is left to write a verdict: the batch script must not wait for one until the time limit.
TEST_F(StandIn, GivesAJobBackThatHasNoController) {
  ControllerOptions options;
  options.job_dir = cluster_.job_dir();
  options.job = cluster_.job().value;
  options.nodes = cluster_.nodes();
  options.scheduler = kSchedulerNone;
  options.cluster_at = address_;
  const std::string log = directory_ / "stand-in.log";  // it says when it is admitted
  const UniqueFd file(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd stderr_before(::dup(STDERR_FILENO));
  ASSERT_GE(::dup2(file.get(), STDERR_FILENO), 0);
  auto ended = std::async(std::launch::async, [&] {
    return stand_in(options, UniqueFd(::signalfd(-1, &no_signals_, SFD_CLOEXEC | SFD_NONBLOCK)),
                    2'000);
  });
  const auto admitted = [&] {
    return read_file(log).value().find("runs at the cluster's") != std::string::npos;
  };
  const bool in_time = test::eventually(admitted, kPatienceMs);
  ASSERT_GE(::dup2(stderr_before.get(), STDERR_FILENO), 0);
  ASSERT_TRUE(in_time) << log_text();
  kill_service();
  cluster_.kill_controller(1);
  EXPECT_EQ(ended.get(), kExitFault);
}

TEST_F(StandIn, RunsTheControllerItselfWhereNobodyElseDoes) {
  kill_service();
  start_stand_in(address_);
  const auto record = cluster_.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->node, "n0");
  EXPECT_THAT(read_file(directory_ / "stand-in.log").value(),
              HasSubstr("the job's controller runs here instead"));
}

// The line of /proc/PID/status with this name: real, effective, saved and file system's.
std::string credential_of(uint64_t pid, const std::string& name) {
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/status").value();
  const size_t begin = status.find(name + ":");
  return status.substr(begin, status.find('\n', begin) - begin);
}

TEST_F(StandIn, JobsOfTwoUsersRunAsTheirOwners) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: jobs of two uids";
  if (::access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "no setpriv";
  // With the rights that deploy/systemd leaves it.
  kill_service();
  start_service(
      {"/usr/bin/setpriv", "--no-new-privs", "--bounding-set=-all,+setuid,+setgid,+kill"});
  // Root's, and beside it one of nobody with the same number.
  ASSERT_TRUE(admit().ok());
  test::JobCluster other(gated_job());
  for (const char* name : {"", "/token", "/job.json"}) {
    ASSERT_EQ(::chown((other.job_dir() + name).c_str(), kNobody, kNobody), 0);
  }
  const std::string parent = other.job_dir().substr(0, other.job_dir().rfind('/'));
  ASSERT_EQ(::chmod(parent.c_str(), 0711), 0);
  const pid_t stand_in = other.spawn(
      {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
       test::program("hpcontroller"), "--job-dir", other.job_dir(), "--job", to_string(other.job()),
       "--node", "n0", "--nodes", "n0,n1", "--scheduler", "none", "--at", address_},
      directory_ / "nobody.log");
  const auto record = other.wait_for_epoch(1, kPatienceMs);
  ASSERT_TRUE(record) << log_text() << read_file(directory_ / "nobody.log").value();
  const auto admitted = [&] {
    const std::string said = read_file(directory_ / "nobody.log").value();
    return said.find("runs at the cluster's") != std::string::npos;
  };
  ASSERT_TRUE(test::eventually(admitted, kPatienceMs)) << log_text();
  EXPECT_EQ(record->node, kHead);
  EXPECT_EQ(credential_of(record->pid, "Uid"), "Uid:\t65534\t65534\t65534\t65534");
  EXPECT_EQ(credential_of(record->pid, "Gid"), "Gid:\t65534\t65534\t65534\t65534");
  EXPECT_EQ(credential_of(record->pid, "Groups"), "Groups:\t65534 ");
  EXPECT_NE(record->pid, listed().pid());
  EXPECT_EQ(listed().job_dir(), cluster_.job_dir());  // a caller sees his own jobs only
  ::kill(static_cast<pid_t>(record->pid), SIGKILL);
  const auto second = other.wait_for_epoch(2, kPatienceMs);
  ASSERT_TRUE(second) << log_text();
  EXPECT_EQ(second->node, kHead);
  EXPECT_EQ(credential_of(second->pid, "Uid"), "Uid:\t65534\t65534\t65534\t65534");
  ::kill(stand_in, SIGKILL);
  const std::string state = "/tmp/hpctl-65534/job-" + to_string(other.job()) + "-" + kHead;
  ASSERT_TRUE(path_exists(state));
  kill_service();
  ::kill(static_cast<pid_t>(second->pid), SIGSTOP);  // it is not to make its directory again
  EXPECT_TRUE(remove_tree(state).ok());
}

TEST_F(StandIn, AServiceThatIsNotRootServesItsUserOnly) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: a service of another uid";
  kill_service();
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0711), 0);
  ASSERT_TRUE(remove_tree(directory_ / "state").ok());
  ASSERT_EQ(::mkdir((directory_ / "state").c_str(), 0700), 0);
  ASSERT_EQ(::chown((directory_ / "state").c_str(), kNobody, kNobody), 0);
  start_service({"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
  const auto refused = admit();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("serves that user only"));
}

}  // namespace
}  // namespace hpctl
