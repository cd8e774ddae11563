// SPDX-License-Identifier: Apache-2.0
// Jobs of a real Slurm whose controllers run at a cluster controller on the head node: to the end,
// and through the death of the job's controller, of the service, of the batch node and of the head,
// also with a second head.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <set>
#include <sstream>

#include "common/base/file.h"
#include "common/job/directory_owner.h"
#include "common/job/endpoint.h"
#include "common/job/lineage.h"
#include "common/process/spawn.h"
#include "common/rpc/controller_process.h"
#include "tests/slurm/slurm_test.h"
#include "tests/support/promise.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kHead[] = "head";
constexpr char kFirstHead[] = "head1";  // where there are two
constexpr char kFirstNode[] = "n4";     // its network
const TrainingJob kTraining{
    .name = "slurm", .steps = 80, .checkpoint_every = 10, .hang_timeout = "10m"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "SlurmctldHost=NAME(ADDRESS)": how the nodes reach this machine.
std::string head_address() {
  const std::string conf = read_file(variable("SLURM_CONF")).value();
  const size_t begin = conf.find('(', conf.find("SlurmctldHost=")) + 1;
  return conf.substr(begin, conf.find(')', begin) - begin);
}

class ClusterController : public SlurmTest {
 protected:
  void SetUp() override {
    SlurmTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const std::string munge = variable("HPCTL_TEST_CLUSTER") + "/munge.socket";
    ::setenv("HPCTL_MUNGE_SOCKET", munge.c_str(), 1);
    address_ = head_address() + ":0";
    start_service();
    ::setenv("HPCTL_CLUSTER", address_.c_str(), 1);
  }
  void TearDown() override {
    SlurmTest::TearDown();
    for (pid_t* service : {&service_, &first_service_}) {
      if (*service > 0) kill_service(*service);
    }
    for (const char* name : {"HPCTL_CLUSTER", "HPCTL_CLUSTER_CA", "HPCTL_MUNGE_SOCKET"}) {
      ::unsetenv(name);
    }
    if (HasFailure()) std::cout << read_file(log()).value();
  }

  std::string log() const { return home_.directory() + "/service.log"; }
  void start_service() { service_ = start_service(kHead, address_, log()); }
  // `address` with port 0, or as a former start has set it.
  pid_t start_service(const std::string& node, std::string& address, const std::string& log,
                      std::vector<std::string> argv = {}) {
    std::array<int, 2> pipe_fds{};
    EXPECT_EQ(::pipe2(pipe_fds.data(), O_CLOEXEC), 0);
    const UniqueFd reader(pipe_fds[0]);
    UniqueFd writer(pipe_fds[1]);
    const std::string before = is_accessible(log) ? read_file(log).value() : "";
    // Whatever is left of it is this home's.
    ::setenv("HPCTL_HOME", home_.paths().home().c_str(), 1);
    argv.insert(argv.end(),
                {variable("HPCTL_BIN") + "/hpcontroller", "--cluster", "--listen", address,
                 "--state-dir", home_.directory() + "/state-" + node, "--node", node, "--metrics",
                 "127.0.0.1:0", "--ready-fd", std::to_string(kSpawnedFd)});
    const auto pid = spawn_in_new_session({std::move(argv), log, writer.get(), {"HPCTL_CLUSTER"}});
    ::unsetenv("HPCTL_HOME");
    EXPECT_TRUE(pid.ok()) << pid.error().message;
    writer.reset();
    char byte = 0;
    EXPECT_EQ(::read(reader.get(), &byte, 1), 1) << read_file(log).value();
    EXPECT_EQ(byte, kControllerReady);
    // Its log is written by a process of its own, perhaps after it is ready.
    const std::string mark = "cluster controller on ";
    size_t begin = std::string::npos;
    std::string said;
    const auto is_said = [&] {
      said = read_file(log).value().substr(before.size());
      begin = said.find(mark);
      return begin != std::string::npos && said.find('\n', begin) != std::string::npos;
    };
    EXPECT_TRUE(wait_until(home_.directory(), is_said, kPatience)) << said;
    if (begin == std::string::npos) return *pid;
    begin += mark.size();
    address = said.substr(begin, said.find(',', begin) - begin);
    return *pid;
  }
  void kill_service() { kill_service(service_); }
  static void kill_service(pid_t& service) {
    ::kill(service, SIGKILL);
    ASSERT_EQ(::waitpid(service, nullptr, 0), service);
    service = -1;
  }

  // One more in the network of a node that the job does not have, and asked before the other.
  std::string first_log() const { return home_.directory() + "/first.log"; }
  JobId start_at_first_head(const SlurmJob& spec) {
    const std::string address = head_address();
    const std::string network = address.substr(0, address.rfind('.'));
    std::string first = network + "." + std::string(kFirstNode).substr(1) + ":0";
    const std::string slot = network.substr(network.rfind('.') + 1);
    first_service_ = start_service(
        kFirstHead, first, first_log(),
        {"/usr/bin/nsenter", "--net=/run/netns/hps" + slot + "-" + std::string(kFirstNode)});
    ::setenv("HPCTL_CLUSTER", (first + "," + address_).c_str(), 1);
    return HasFailure() ? JobId{} : start(spec);
  }
  // hpctl ca of the head's authority.
  std::string authority() const { return home_.directory() + "/ca"; }
  json ca(std::vector<std::string> words) const {
    words.insert(words.begin(), {variable("HPCTL_BIN") + "/hpctl", "ca"});
    words.insert(words.end(), {"--dir", authority(), "--json"});
    const auto said = run_command(words, {}, kPatience);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return json::parse(said.out, nullptr, false);
  }
  // Everybody's copy of its bundle, as an operator carries it to all machines.
  void carry_bundle() const {
    const std::string copy = home_.directory() + "/ca.pem";
    const std::string bundle = read_file(authority() + "/bundle.pem").value();
    ASSERT_TRUE(write_file_atomic(copy, bundle).ok());
    ::setenv("HPCTL_CLUSTER_CA", copy.c_str(), 1);
  }
  // As somebody whose home the job is not in.
  json status_elsewhere(JobId job) const {
    const auto shown =
        run_command({variable("HPCTL_BIN") + "/hpctl", "status", to_string(job), "--json"},
                    {"HPCTL_HOME=" + home_.directory() + "/elsewhere"}, kPatience);
    const json document = json::parse(shown.out, nullptr, false);
    return document.is_discarded() ? json() : document;
  }

  ControllerRecord controller(JobId job) const {
    const auto record = newest_controller(home_.paths().job(job));
    EXPECT_TRUE(record.ok() && *record);
    return record.ok() && *record ? **record : ControllerRecord();
  }
  // What the service that runs now answers on the path.
  std::string http_get(const std::string& path) const {
    const std::string said = read_file(log()).value();
    const std::string mark = "metrics on 127.0.0.1:";
    const size_t begin = said.rfind(mark) + mark.size();
    const std::string port = said.substr(begin, said.find('\n', begin) - begin);
    return slurm({"bash", "-c",
                  "exec 3<>/dev/tcp/127.0.0.1/" + port + "; printf 'GET " + path +
                      " HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"})
        .out;
  }
  // And so has removed what it had on this machine.
  void expect_controller_ends(JobId job) const {
    const auto ended = [&] {
      return !is_accessible("/proc/" + std::to_string(controller(job).pid));
    };
    EXPECT_TRUE(wait_until(home_.directory(), ended, kPatience))
        << read_file(log()).value() << broken_promise("leftover");
  }
  // What was killed on this machine under another name.
  static void remove_state_on_first_head(JobId job) {
    EXPECT_TRUE(remove_tree("/tmp/hpctl-" + std::to_string(::geteuid()) + "/job-" + to_string(job) +
                            "-" + kFirstHead)
                    .ok());
  }
  void expect_node(JobId job, const std::string& node) const {
    EXPECT_EQ(controller(job).node, node) << read_file(log()).value();
  }

  std::string address_;
  pid_t service_ = -1;
  pid_t first_service_ = -1;
};

TEST_F(ClusterController, KilledServiceAndKilledController) {
  const SlurmJob spec{.training = kTraining};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  json before;
  {
    const HeldTraining held = hold(job);
    EXPECT_THAT(http_get("/healthz"), HasSubstr("hpctl_controller_up 1"));
    EXPECT_THAT(http_get("/metrics"), HasSubstr("hpctl_cluster_jobs_serving 1"));
    before = status(job);
    kill_service();
    start_service();
    EXPECT_EQ(controller(job).epoch, 1U) << "started twice";
    ASSERT_TRUE(end_process(before["controller"]["pid"].get<pid_t>()));
    const auto succeeded = [&] { return controller(job).epoch == 2; };
    EXPECT_TRUE(wait_until(home_.directory(), succeeded, kPatience));
    expect_node(job, kHead);
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(status(job)["generation"], before["generation"]) << "training was disturbed";
  EXPECT_EQ(controller(job).epoch, 2U);
}

// By an authority of the head's own, in whose place comes another while a job trains. Who calls:
// hpctl, the batch script, and of the job that is submitted afterwards both again.
TEST_F(ClusterController, ByAnAuthorityThatIsRotatedWhileAJobTrains) {
  kill_service();
  ASSERT_EQ(ca({"make"})["authorities"].size(), 1U);
  carry_bundle();
  service_ = start_service(kHead, address_, log(), {"/usr/bin/env", "HPCTL_CA=" + authority()});
  const SlurmJob spec{.training = kTraining};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  expect_node(job, kHead);
  json before;
  {
    const HeldTraining held = hold(job);
    before = status(job);
    EXPECT_EQ(status_elsewhere(job)["controller"]["node"], kHead);
    const json rotated = ca({"rotate", "--spread", "0"});
    ASSERT_EQ(rotated["authorities"].size(), 2U);
    const auto is_refused = [&] { return status_elsewhere(job).is_null(); };
    EXPECT_TRUE(wait_until(home_.directory(), is_refused, kPatience)) << "the copy is the old one";
    carry_bundle();
    EXPECT_EQ(status_elsewhere(job)["controller"]["node"], kHead);
    const std::string name = rotated["authorities"][0]["name"];
    const auto is_said = [&] {
      return read_file(log()).value().find("certificates are of " + name) != std::string::npos;
    };
    EXPECT_TRUE(wait_until(home_.directory(), is_said, kPatience)) << read_file(log()).value();
    ASSERT_TRUE(end_process(before["controller"]["pid"].get<pid_t>()));
    const auto succeeded = [&] { return controller(job).epoch == 2; };
    EXPECT_TRUE(wait_until(home_.directory(), succeeded, kPatience));
    expect_node(job, kHead);
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(status(job)["generation"], before["generation"]) << "training was disturbed";
  const JobId next = start(SlurmJob{.training = {.name = "next", .steps = 1000000}});
  ASSERT_FALSE(HasFailure());
  expect_node(next, kHead);
  EXPECT_EQ(home_.hpctl({"cancel", to_string(next)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(next, kPatience), "CANCELLED");
  expect_controller_ends(next);
}

// The service and what it runs are gone, as with the head node: an agent takes over.
TEST_F(ClusterController, LostHead) {
  const SlurmJob spec{.training = kTraining};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  {
    const HeldTraining held = hold(job);
    kill_service();
    ASSERT_TRUE(end_process(before["controller"]["pid"].get<pid_t>()));
    const auto succeeded = [&] { return controller(job).node != kHead; };
    EXPECT_TRUE(wait_until(home_.directory(), succeeded, kPatience));
  }
  expect_exact_finish(job, spec);
  EXPECT_NE(controller(job).node, kHead);
  EXPECT_EQ(status(job)["generation"], before["generation"]) << "training was disturbed";
}

// The link of the first head is cut while a job trains. Its controller, which runs on there, stands
// back for the one at the second; the first leaves the job to it when its link is back.
TEST_F(ClusterController, FirstHeadCutOff) {
  if (!has_network_namespaces()) GTEST_SKIP() << "no network namespaces here: nothing to cut";
  const SlurmJob spec{.training = kTraining};
  const JobId job = start_at_first_head(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  EXPECT_EQ(before["controller"]["node"], kFirstHead);
  {
    const HeldTraining held = hold(job);
    EXPECT_EQ(status_elsewhere(job)["controller"]["node"], kFirstHead);
    cluster("cut", kFirstNode);
    const auto answers = [&] { return status_elsewhere(job)["controller"]["node"] == kHead; };
    EXPECT_TRUE(wait_until(home_.directory(), answers, kPatience)) << read_file(log()).value();
    const std::string its_log = home_.paths().job(job) + "/nodes/" + kFirstHead + "/controller.log";
    const auto stands_back = [&] {
      return read_file(its_log).value().find("stands back") != std::string::npos;
    };
    EXPECT_TRUE(wait_until(home_.directory(), stands_back, kPatience))
        << read_file(its_log).value();
    cluster("heal", kFirstNode);
    const auto gone = [&] { return !is_accessible("/proc/" + before["controller"]["pid"].dump()); };
    EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << read_file(its_log).value();
    EXPECT_EQ(status_elsewhere(job)["state"], "RUNNING");
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(controller(job).epoch, 2U);
  expect_node(job, kHead);
  EXPECT_EQ(status(job)["generation"], before["generation"]) << "training was disturbed";
  EXPECT_EQ(status(job)["restarts"], 0);
}

// As after a loss of power: nobody answers there any more, and nothing says so. What is submitted
// then begins at the second.
TEST_F(ClusterController, FirstHeadLost) {
  if (!has_network_namespaces()) GTEST_SKIP() << "no network namespaces here: nothing to cut";
  const SlurmJob spec{.training = kTraining};
  const JobId job = start_at_first_head(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  JobId next{};
  {
    const HeldTraining held = hold(job);
    cluster("cut", kFirstNode);
    kill_service(first_service_);
    ASSERT_TRUE(end_process(before["controller"]["pid"].get<pid_t>()));
    next = start(SlurmJob{.training = {.name = "next", .steps = 1000000}, .nodes = "1"});
    expect_node(next, kHead);
    const auto succeeded = [&] { return controller(job).epoch == 2; };
    EXPECT_TRUE(wait_until(home_.directory(), succeeded, kPatience)) << diagnosis(job);
    expect_node(job, kHead);
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(status(job)["generation"], before["generation"]) << "training was disturbed";
  EXPECT_EQ(controller(next).epoch, 1U);
  EXPECT_EQ(home_.hpctl({"cancel", to_string(next)}).exit_code, 0);
  EXPECT_EQ(home_.wait_for_end(next, kPatience), "CANCELLED");
  expect_controller_ends(next);
  remove_state_on_first_head(job);
}

// The second head has the job's UUID from its document, so the directory stays the job's.
TEST_F(ClusterController, SecondHeadKeepsTheCheckpointDirectory) {
  if (!has_network_namespaces()) GTEST_SKIP() << "no network namespaces here: no second head";
  const SlurmJob spec{.training = kTraining, .checkpoint_dir = home_.directory() + "/shared"};
  const JobId job = start_at_first_head(spec);
  ASSERT_FALSE(HasFailure());
  expect_node(job, kFirstHead);
  const auto owner = [&] {
    const auto found = read_directory_owner(spec.checkpoint_dir);
    return found.ok() && *found ? (*found)->owner.uuid : "";
  };
  const std::string uuid = owner();
  EXPECT_NE(uuid, "");
  {
    const HeldTraining held = hold(job);
    kill_service(first_service_);
    ASSERT_TRUE(end_process(status(job)["controller"]["pid"].get<pid_t>()));
    json now;
    const auto answers = [&] {
      now = status(job);
      return now["controller"]["node"] == kHead && now["state"] == "RUNNING";
    };
    ASSERT_TRUE(wait_until(home_.directory(), answers, kPatience)) << diagnosis(job);
    const CommandResult refused = submit(spec);
    EXPECT_EQ(refused.exit_code, 1) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("belongs to Slurm job " + to_string(job)));
    ASSERT_TRUE(end_process(worker_pid(now, 1)));  // the next generation is the second head's
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(owner(), uuid);
  EXPECT_GT(read_lineage(spec.checkpoint_dir).value().size(), 1U);
  EXPECT_EQ(controller(job).epoch, 2U);
  remove_state_on_first_head(job);
}

// Its controller is not lost with it, and ends the allocation that has no batch script any more.
TEST_F(ClusterController, BatchNodeGoneForGood) {
  const SlurmJob spec{.training = kTraining, .nodes = "{count: 2, spares: 1}"};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  cluster("kill", batch_node(job));
  expect_exact_finish(job, spec);
  EXPECT_EQ(controller(job).epoch, 1U);
  expect_node(job, kHead);
}

// Started from the head, and yet as if the batch script had done it.
TEST_F(ClusterController, ANodeThatIsStartedAgainHasTheJobsEnvironment) {
  const std::string seen = home_.directory() + "/seen";
  const std::string file = home_.directory() + "/environment.yaml";
  ASSERT_TRUE(write_file_atomic(file,
                                "name: environment\nnodes: 2\nworkers_per_node: 1\n"
                                "slurm: {partition: main}\nworkload: {command: [sh, -c, "
                                "'echo $HPCTL_GENERATION/$RANK/$HPCTL_TEST_VARIABLE/$USER/"
                                "$HPCTL_CLUSTER >> " +
                                    seen + "; sleep 1000']}\n")
                  .ok());
  ::setenv("HPCTL_TEST_VARIABLE", "of the shell", 1);
  const auto result = home_.hpctl({"submit", "--json", file}, kPatience);
  ::unsetenv("HPCTL_TEST_VARIABLE");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const JobId job{json::parse(result.out)["job"].get<uint64_t>()};
  jobs_.push_back(job);
  const auto lines_of = [&](int generation) {
    const auto text = read_file(seen);
    std::set<std::string> lines;
    std::istringstream in(text.ok() ? *text : "");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(std::to_string(generation) + "/")) lines.insert(line.substr(2));
    }
    return lines;
  };
  const auto both = [&](int generation) {
    return wait_until(
        home_.directory(), [&] { return lines_of(generation).size() == 2; }, kPatience);
  };
  ASSERT_TRUE(both(1)) << diagnosis(job);
  ASSERT_TRUE(end_process(node_of(status(job), "n2")["holder_pid"].get<pid_t>()));
  ASSERT_TRUE(both(2)) << diagnosis(job);
  EXPECT_EQ(lines_of(2), lines_of(1));
  EXPECT_TRUE(lines_of(2).contains("1/of the shell/" + variable("USER") + "/" + address_));
  EXPECT_EQ(home_.hpctl({"cancel", to_string(job)}).exit_code, 0);
}

TEST_F(ClusterController, RequeuedBySlurm) {
  const SlurmJob spec{.training = kTraining};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  ASSERT_EQ(slurm({"scontrol", "requeue", to_string(job)}).exit_code, 0);
  expect_exact_finish(job, spec);
  expect_node(job, kHead);
  EXPECT_EQ(controller(job).restart_count, 1U);
}

// The controller on the head runs on while the nodes are stopped, for longer than a silent node is
// waited for.
TEST_F(ClusterController, SuspendedAndResumedBySlurm) {
  const SlurmJob spec{.training = kTraining};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const json before = status(job);
  ASSERT_EQ(slurm({"scontrol", "suspend", to_string(job)}).exit_code, 0);
  // Not an awaited event but the fault itself; heartbeat_timeout is 2 s.
  wait_until(
      home_.directory(), [] { return false; }, std::chrono::seconds(6));
  EXPECT_EQ(status(job)["state"], "SUSPENDED");
  EXPECT_EQ(status(job)["generation"], before["generation"]) << causes(job, "JobRecovering");
  ASSERT_EQ(slurm({"scontrol", "resume", to_string(job)}).exit_code, 0);
  expect_exact_finish(job, spec);
  const json after = status(job);
  EXPECT_EQ(after["generation"], before["generation"]) << causes(job, "JobRecovering");
  EXPECT_EQ(after["faults"], 0);
  EXPECT_EQ(controller(job).restart_count, 0U);
}

TEST_F(ClusterController, CancelledBySlurm) {
  const JobId job = start(SlurmJob{.training = {.name = "endless", .steps = 1000000}});
  ASSERT_FALSE(HasFailure());
  slurm({"scancel", to_string(job)});
  const auto gone = [&] { return slurm_state(job).empty(); };
  EXPECT_TRUE(wait_until(home_.directory(), gone, kPatience)) << slurm_state(job);
  // Slurm, which leaves the job 5 s, may be done before its controller here.
  const auto cancelled = [&] { return status(job)["state"] == "CANCELLED"; };
  EXPECT_TRUE(wait_until(home_.directory(), cancelled, kPatience)) << status(job);
  expect_controller_ends(job);
}

TEST_F(ClusterController, WithoutItTheJobHasAControllerOfItsOwn) {
  kill_service();
  const SlurmJob spec{.training = kTraining};
  const auto result = submit(spec);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the cluster controller at " + address_));
  EXPECT_THAT(result.err, HasSubstr("will run on its first node"));
  const JobId job{json::parse(result.out)["job"].get<uint64_t>()};
  jobs_.push_back(job);
  EXPECT_EQ(home_.wait_for_end(job, kPatience), "FINISHED");
  EXPECT_NE(controller(job).node, kHead);
}

// Root's training and a command of nobody, each in a home of its user.
TEST_F(ClusterController, TwoUsersSubmitTrainFinishAtOnce) {
  constexpr uid_t kNobody = 65534;
  const std::string theirs = home_.directory() + "/nobody";
  ASSERT_EQ(::chmod(home_.directory().c_str(), 0711), 0);
  ASSERT_EQ(::mkdir(theirs.c_str(), 0700), 0);
  ASSERT_EQ(::chown(theirs.c_str(), kNobody, kNobody), 0);
  const std::string file = home_.directory() + "/nobody.yaml";
  const std::string gate = home_.directory() + "/gate";
  ASSERT_TRUE(write_file_atomic(file,
                                "name: nobodys\nnodes: 2\nslurm: {partition: main}\n"
                                "workload: {command: [sh, -c, 'until [ -e " +
                                    gate + " ]; do sleep 0.1; done']}\n")
                  .ok());
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  const auto hpctl = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                 "--clear-groups", variable("HPCTL_BIN") + "/hpctl"});
    return run_command(words, {"HPCTL_HOME=" + theirs, "HOME=" + theirs}, kPatience);
  };
  const SlurmJob spec{.training = kTraining};
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const auto result = hpctl({"submit", file, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::string other = json::parse(result.out)["job"].dump();
  const auto state = [&] {
    const auto shown = hpctl({"status", other, "--json"});
    const json document = json::parse(shown.out, nullptr, false);
    return document.is_discarded() ? json() : document;
  };
  const auto runs = [&] { return state()["state"] == "RUNNING"; };
  EXPECT_TRUE(wait_until(theirs, runs, kPatience)) << state();
  const json running = state();
  EXPECT_EQ(running["controller"]["node"], kHead);
  struct stat process {};
  const std::string pid = running["controller"]["pid"].dump();
  ASSERT_EQ(::stat(("/proc/" + pid).c_str(), &process), 0);
  const std::string credentials = read_file("/proc/" + pid + "/status").value();
  EXPECT_THAT(credentials, HasSubstr("Uid:\t65534\t65534\t65534\t65534"));
  ASSERT_TRUE(write_file_atomic(gate, "").ok());
  const auto finished = [&] { return state()["state"] == "FINISHED"; };
  EXPECT_TRUE(wait_until(theirs, finished, kPatience)) << state();
  for (const char* node : {"n1", "n2", "n3", "n4"}) {  // of root alone each node has its own
    EXPECT_TRUE(remove_tree("/tmp/hpctl-65534/job-" + other + "-" + node).ok());
  }
  expect_exact_finish(job, spec);
  EXPECT_EQ(controller(job).epoch, 1U);
  expect_node(job, kHead);
  EXPECT_EQ(status(job)["restarts"], 0);
}

}  // namespace
}  // namespace hpctl::testing
