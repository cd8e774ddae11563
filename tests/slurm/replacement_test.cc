// SPDX-License-Identifier: Apache-2.0
// HyperPod's way with broken nodes, on a real Slurm with a stand-in for its service
// (replacement_service): the node is marked byte for byte, once, after the work has left; the job
// waits in the queue and ends exactly as without the fault, on the machine that took the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "common/base/file.h"
#include "tests/slurm/slurm_test.h"

namespace hpctl::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Slurm gives a node up, the service works, the queue moves, and the job trains.
constexpr seconds kWithReplacement{400};

std::string cluster_directory() { return std::getenv("HPCTL_TEST_CLUSTER"); }

std::vector<std::string> matching_lines(const std::string& path, const std::string& text) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.find(text) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

class Replacement : public SlurmTest {
 public:
  static void SetUpTestSuite() { bring_up("--hyperpod"); }

 protected:
  void SetUp() override {
    SlurmTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    log_ = home_.directory() + "/service.log";
    const auto started =
        slurm({"sh", "-c",
               "setsid " HPCTL_REPLACEMENT_SERVICE " >" + log_ + " 2>&1 </dev/null & echo $!"});
    service_ = std::stoi(started.out);
  }
  void TearDown() override {
    if (service_ > 1) ::kill(-service_, SIGTERM);
    if (HasFailure()) std::cout << "--- service\n" << *read_file(log_);
    SlurmTest::TearDown();
  }

  // Only n1 and n2 are open to it, so that it has to wait for the one that is replaced.
  static SlurmJob two_nodes() {
    return {.slurm = "{partition: main, exclusive: true, exclude: [n3, n4]}",
            .on_node_loss = "[wait]",
            .more = "health: {preflight: [efa]}\n"};
  }
  static std::string root_of(const std::string& node) {
    return cluster_directory() + "/nodes/" + node + "/root";
  }
  static std::string instance_of(const std::string& node) {
    const auto text = read_file(root_of(node) + "/sys/devices/virtual/dmi/id/board_asset_tag");
    return text.ok() ? text->substr(0, text->find('\n')) : "";
  }
  // A type of machine that has EFA devices, and none of them is there.
  static void break_devices(const std::string& node) {
    const std::string dmi = root_of(node) + "/sys/devices/virtual/dmi/id/";
    ASSERT_TRUE(write_file_atomic(dmi + "sys_vendor", "Amazon EC2\n").ok());
    ASSERT_TRUE(write_file_atomic(dmi + "product_name", "p4d.24xlarge\n").ok());
  }
  void kill_a_worker_on(JobId job, const std::string& node) const {
    const json now = status(job);
    for (const json& worker : now["workers"]) {
      if (worker["node"] == node && ::kill(worker["pid"].get<pid_t>(), SIGKILL) == 0) return;
    }
    FAIL() << "no worker on " << node << ": " << now;
  }
  // What slurmctld was told about the node: "reason set to: TEXT", in full.
  static std::vector<std::string> reasons_set(const std::string& node) {
    std::vector<std::string> reasons;
    const std::string what = "update_node: node " + node + " reason set to: ";
    for (const auto& line : matching_lines(cluster_directory() + "/slurmctld.log", what)) {
      reasons.push_back(line.substr(line.find(what) + what.size()));
    }
    return reasons;
  }
  // Those after the first `told`.
  static std::vector<std::string> reasons_set(const std::string& node, size_t told) {
    const auto all = reasons_set(node);
    return {all.begin() + static_cast<ptrdiff_t>(told), all.end()};
  }
  // "taken n2 PROGRAMS"
  std::vector<std::string> service_says(const std::string& what) const {
    return matching_lines(log_, what);
  }
  void expect_no_work_on_taken(const std::string& node) const {
    const auto taken = service_says("taken " + node);
    EXPECT_FALSE(taken.empty());
    EXPECT_THAT(taken, Each(Not(HasSubstr("hptrain")))) << "work had not left";
  }

  std::string log_;
  pid_t service_ = 0;
};

// Devices that are missing: first a reboot, which does not bring them, then another machine.
TEST_F(Replacement, ARebootThatDoesNotMendIsFollowedByAReplacement) {
  const SlurmJob spec = two_nodes();
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  const std::string before = instance_of(victim);
  const size_t told = reasons_set(victim).size();
  const HeldTraining held = hold(job);
  break_devices(victim);
  kill_a_worker_on(job, victim);
  expect_exact_finish(job, spec, 2 * kWithReplacement);

  EXPECT_THAT(reasons_set(victim, told), ElementsAre("Action:Reboot", "Action:Replace"));
  expect_no_work_on_taken(victim);
  const json after = node_of(status(job), victim);
  EXPECT_EQ(after["instance_id"], instance_of(victim));
  EXPECT_NE(after["instance_id"], before);
  EXPECT_THAT(causes(job, "NodeQuarantined"), HasSubstr("preflight efa: exit code 3: fail: efa."));
  EXPECT_THAT(causes(job, "NodeQuarantined"), HasSubstr("hpctl requested its reboot"));
  EXPECT_THAT(causes(job, "RebootNode"), HasSubstr(victim + " (" + before + ") is to be rebooted"));
  EXPECT_THAT(causes(job, "NodeGivenBack"), HasSubstr("the same instance"));
  EXPECT_THAT(causes(job, "ReplaceNode"),
              HasSubstr(victim + " (" + before + ") is to be replaced"));
  EXPECT_THAT(causes(job, "NodeReplaced"), HasSubstr(" s after it was marked"));
  const std::string why = home_.hpctl({"why", to_string(job)}).out;
  EXPECT_THAT(why, HasSubstr("ReplaceNode"));
  EXPECT_THAT(why, HasSubstr("is another instance now (" + before));
}

TEST_F(Replacement, NodeWithoutPower) {
  const SlurmJob spec = two_nodes();
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  const std::string before = instance_of(victim);
  cluster("kill", victim);
  expect_exact_finish(job, spec, kWithReplacement);
  EXPECT_EQ(service_says("marked " + victim + " Action:Replace").size(), 1U);
  EXPECT_NE(node_of(status(job), victim)["instance_id"], before);
  EXPECT_THAT(causes(job, "NodeReplaced"), HasSubstr(before + " before"));
}

TEST_F(Replacement, AnOperatorHasANodeRebooted) {
  const SlurmJob spec = two_nodes();
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = other_active_node(job);
  const std::string before = instance_of(victim);
  const size_t told = reasons_set(victim).size();
  const HeldTraining held = hold(job);
  const auto asked = home_.hpctl({"nodes", "reboot", victim, "--reason", "a new driver"});
  EXPECT_EQ(asked.out,
            victim + " of job " + to_string(job) + " is to be rebooted once its work has left\n" +
                "  RECOVERING: " + victim +
                " is to be rebooted: a new driver; no spare is up, the job waits for it\n")
      << asked.err;
  expect_exact_finish(job, spec, kWithReplacement);
  EXPECT_THAT(reasons_set(victim, told), ElementsAre("Action:Reboot"));
  expect_no_work_on_taken(victim);
  const json after = node_of(status(job), victim);
  EXPECT_EQ(after["instance_id"], before);
  EXPECT_THAT(causes(job, "RecoveryRequested"), HasSubstr("wants a reboot"));
  EXPECT_THAT(causes(job, "NodeGivenBack"), HasSubstr("the same instance"));
}

// By an operator, or by HyperPod's own health agent: hpctl vacates the node and writes nothing.
TEST_F(Replacement, SomebodyElseWantsARebootOfTheBatchNode) {
  const SlurmJob spec = two_nodes();
  const JobId job = start(spec);
  ASSERT_FALSE(HasFailure());
  const std::string victim = batch_node(job);
  const std::string before = instance_of(victim);
  const size_t told = reasons_set(victim).size();
  const HeldTraining held = hold(job);
  ASSERT_EQ(
      slurm({"scontrol", "update", "nodename=" + victim, "state=fail", "reason=Action:Reboot"})
          .exit_code,
      0);
  expect_exact_finish(job, spec, kWithReplacement);
  EXPECT_EQ(reasons_set(victim).size(), told + 1) << "only the operator's";
  expect_no_work_on_taken(victim);
  EXPECT_EQ(node_of(status(job), victim)["instance_id"], before);
  EXPECT_THAT(causes(job, "NodeReplacementRequested"), HasSubstr("hpctl stands back"));
  EXPECT_THAT(causes(job, "NodeGivenBack"), HasSubstr("the same instance"));
}

}  // namespace
}  // namespace hpctl::testing
