// SPDX-License-Identifier: Apache-2.0
// One real Slurm for a test program (tests/slurm/cluster), and what its tests share: a home of
// their own per test, the digest of an undisturbed local run, and a clean cluster after every test.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "tests/integration/local_cluster.h"
#include "tests/integration/training_job.h"

namespace hpctl::testing {

// For what comes sooner or later; how soon is the machine's affair, which may be busy.
inline constexpr std::chrono::seconds kPatience{300};

// The job that Slurm tests run: the one of the integration tests, with sections for Slurm.
struct SlurmJob {
  // One that a test holds does not hang (HeldTraining).
  TrainingJob training{
      .name = "slurm", .steps = 200, .checkpoint_every = 10, .hang_timeout = "10m"};
  std::string nodes = "2";
  std::string slurm = "{partition: main, exclusive: true}";
  std::string on_node_loss = {};  // "" = the default
  std::string checkpoint_dir = {};
  std::string more = {};  // further sections

  std::string yaml() const;
};

// Training stands still, however fast the machine is, up to the end of the scope: a worker is
// stopped, and the others wait for it. A restart ends it with its generation.
class HeldTraining {
 public:
  explicit HeldTraining(pid_t worker);
  ~HeldTraining();
  HeldTraining(const HeldTraining&) = delete;
  HeldTraining& operator=(const HeldTraining&) = delete;

 private:
  UniqueFd process_;
};

class SlurmTest : public ::testing::Test {
 public:
  // Up to the end of the program; without it every test is skipped with the reason.
  static void SetUpTestSuite() { bring_up(""); }
  static void TearDownTestSuite();

 protected:
  void SetUp() override;
  void TearDown() override;

  // `options` of `cluster up`, besides those that every test program has.
  static void bring_up(const std::string& options);
  // `cluster VERB ARGUMENT`, which must succeed.
  static void cluster(const std::string& verb, const std::string& argument);
  static bool has_network_namespaces();
  // `cluster block NODE`; false where that cannot be.
  static bool blocks(const std::string& node);
  // A program of Slurm, at most 60 s.
  static CommandResult slurm(const std::vector<std::string>& command);
  static std::vector<pid_t> processes_on(const std::string& node);
  // The job has ended; its last process, which Slurm has ended too, may still be exiting.
  void expect_only_slurmd_on(const std::string& node) const;
  // JobState as squeue prints it with %T; "" = Slurm has no such job in its queue any more; "?" =
  // it did not answer.
  static std::string slurm_state(JobId job);
  // slurmctld saves its state every few seconds, and one that is killed before has never heard of
  // what is newer. Waits until it has saved the job as it is now.
  void await_saved(JobId job) const;
  // A time limit, in whole minutes, that Slurm warns of within a minute. It may be late with that
  // by 30 s; the job, which ran for as long as the machine was busy, is to be left time to save.
  static void end_soon(JobId job);
  // Digest of the newest checkpoint after an undisturbed local run of `job`; computed once per
  // number of steps.
  static std::string undisturbed_digest(const SlurmJob& job);

  CommandResult submit(const SlurmJob& job, const std::vector<std::string>& options = {});
  CommandResult submit(const std::string& yaml, const std::vector<std::string>& options = {});
  // Submits, fails the test when refused, and waits for training to be under way.
  JobId start(const SlurmJob& job, uint64_t step = 15);
  // Of a command, whose steps only its status has.
  JobId start_command(const std::string& yaml, uint64_t step);
  nlohmann::json status(JobId job) const { return home_.status(job); }
  static std::string batch_node(JobId job);
  // A node of the job that trains and does not run the batch script; "" = there is none.
  std::string other_active_node(JobId job) const;
  // The checkpoint directory's owner is the job, by one UUID in all generations that it recorded:
  // through requeues, successors and other heads.
  void expect_owner(JobId job, const SlurmJob& spec) const;
  // FINISHED, with the weights of an undisturbed run, the owner of its checkpoint directory, and
  // Slurm has let go of the nodes.
  void expect_exact_finish(JobId job, const SlurmJob& spec, std::chrono::seconds limit = kPatience);
  // By one of the workers that train now.
  HeldTraining hold(JobId job) const;
  // All that a person would look at.
  std::string diagnosis(JobId job) const;
  // Causes of all events of this type, a line each.
  std::string causes(JobId job, const std::string& type) const;

  LocalCluster home_;
  std::vector<JobId> jobs_;

 private:
  std::string checkpoints_of(JobId job, const SlurmJob& spec) const;
  JobId submitted(const CommandResult& result);
};

// munged or slurmctld killed; started again at the end of the scope.
class StoppedDaemon {
 public:
  explicit StoppedDaemon(const std::string& name);
  ~StoppedDaemon();
  StoppedDaemon(const StoppedDaemon&) = delete;
  StoppedDaemon& operator=(const StoppedDaemon&) = delete;

 private:
  std::string name_;
};

// The node of the status document with this name; null when there is none.
nlohmann::json node_of(const nlohmann::json& status, const std::string& name);
// The workers of the status document that run on this node.
std::vector<nlohmann::json> workers_on(const nlohmann::json& status, const std::string& node);

}  // namespace hpctl::testing
