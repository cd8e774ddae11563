// SPDX-License-Identifier: Apache-2.0
// hpctl migrate: configurations of other programs become job files that our parser reads, and
// nothing of them is dropped in silence. The fixtures are in migrate/.
#include "hpctl/migrate/migrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/jobfile/job_yaml.h"
#include "hpctl/exit_codes.h"
#include "hpctl/migrate/read_input.h"
#include "tests/support/command_run.h"
#include "tests/support/temporary_directory.h"

namespace hpctl::migrate {
namespace {

using nlohmann::json;
using test::CommandRun;
using test::run_hpctl;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string repository() {
  const char* path = std::getenv("HPCTL_SOURCE");
  EXPECT_NE(path, nullptr) << "run by ctest, or set HPCTL_SOURCE to the repository";
  return path == nullptr ? "" : path;
}

std::string fixture(const std::string& name) {
  return repository() + "/tests/unit/cli/migrate/" + name;
}

const std::map<std::string, const Tool*>& every_key() {
  static const std::map<std::string, const Tool*> files = {
      {"torchtitan_every_key.toml", &torchtitan_tool()},
      {"deepspeed_every_key.json", &deepspeed_tool()},
      {"megatron_every_key.args", &megatron_tool()},
      {"fsdp_guide_every_key.args", &fsdp_guide_tool()},
      {"hf_config_every_key.json", &hf_config_tool()},
      {"hf_trainer_every_key.yaml", &hf_trainer_tool()}};
  return files;
}

class MigrateVerb : public ::testing::Test {
 protected:
  CommandRun migrate(std::vector<std::string> words) {
    words.insert(words.begin(), "migrate");
    return run_hpctl(words);
  }
  // The job of these fixtures; the test fails where there is none.
  JobSpec job_of(std::vector<std::string> words) {
    run_ = migrate(std::move(words));
    EXPECT_EQ(run_.status, kExitOk) << run_.err;
    const JobYaml job = parse_job_yaml(run_.out, "/jobs");
    EXPECT_EQ(describe_problems("job.yaml", job.problems), "") << run_.out;
    return job.spec.value_or(JobSpec());
  }
  std::string file_with(const std::string& name, const std::string& text) {
    const std::string path = dir_ / name;
    EXPECT_TRUE(write_file_atomic(path, text).ok());
    return path;
  }

  TemporaryDirectory dir_;
  CommandRun run_;
};

std::set<std::string> keys_in(const std::string& file, const Tool& tool) {
  Input input;
  const Outcome read = read_input(fixture(file), input);
  EXPECT_TRUE(read.ok()) << read.error().message;
  std::set<std::string> keys;
  for (const Document& document : input.documents) {
    if (document.tool != &tool) continue;
    for (const Given& given : document.values) keys.insert(given.key);
  }
  return keys;
}

void expect_every_key(const std::string& file, const Tool& tool) {
  const std::set<std::string> keys = keys_in(file, tool);
  for (const Row& row : tool.rows) {
    EXPECT_TRUE(keys.contains(std::string(row.key))) << file << " lacks " << row.key;
  }
}

TEST_F(MigrateVerb, EveryKeyOfATableIsInAFixture) {
  for (const auto& [file, tool] : every_key()) expect_every_key(file, *tool);
  expect_every_key("script_every_key.sbatch", slurm_tool());
  expect_every_key("script_every_key.sbatch", launcher_tool());
}

// In one of the four groups, with its source.
TEST_F(MigrateVerb, EveryKeyIsReported) {
  std::map<std::string, std::vector<const Tool*>> files;
  for (const auto& [file, tool] : every_key()) files[file] = {tool};
  files["script_every_key.sbatch"] = {&slurm_tool(), &launcher_tool()};
  for (const auto& [file, tools] : files) {
    const CommandRun run = migrate({fixture(file), "--json"});
    const json report = json::parse(run.out);
    EXPECT_THAT(report["unknown"], IsEmpty()) << file;
    std::set<std::string> reported;
    for (const char* group : {"taken", "changed", "unneeded", "impossible"}) {
      for (const json& line : report[group]) {
        const std::string from = line["source"];
        reported.insert(from.substr(from.rfind(": ") + 2));
      }
    }
    for (const Tool* tool : tools) {
      for (const Row& row : tool->rows) {
        EXPECT_TRUE(reported.contains(std::string(row.key))) << file << ": " << row.key;
      }
    }
  }
}

TEST_F(MigrateVerb, KeyThatNoTableHasIsAnErrorThatNamesIt) {
  const std::string file = file_with("t.toml", "[training]\nsteps = 3\nseq_lenn = 4\n");
  const CommandRun run = migrate({file});
  EXPECT_EQ(run.status, kExitUsage);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr("training.seq_lenn"), HasSubstr("training.seq_len?")));
}

TEST_F(MigrateVerb, TorchTitanWithItsScriptIsAJob) {
  const JobSpec job = job_of({fixture("two_nodes.sbatch"), fixture("llama.toml")});
  ASSERT_TRUE(job.train) << run_.err;
  EXPECT_EQ(job.name, "titan-8B");
  EXPECT_EQ(job.nodes, 2);
  EXPECT_EQ(job.workers_per_node, 8);
  EXPECT_EQ(job.slurm.gres, "gpu:h100:8");
  EXPECT_EQ(job.slurm.time_minutes, 120);
  EXPECT_EQ(job.train->model.preset, "llama3-8b");
  EXPECT_EQ(job.train->batch.micro, 1);
  EXPECT_EQ(job.train->batch.global, 16);
  EXPECT_EQ(job.train->schedule.name, ScheduleShape::kLinear);
  EXPECT_EQ(job.train->schedule.warmup_steps, 200);
  EXPECT_EQ(job.train->schedule.min_lr_ratio, 0);
  EXPECT_THAT(job.train->optimizer.no_decay, IsEmpty());
  EXPECT_EQ(job.train->memory.activation_checkpointing, Checkpointing::kSelective);
  EXPECT_EQ(job.checkpoint.dir, "/fsx/ada/outputs/checkpoint");
  EXPECT_EQ(job.checkpoint.every_steps, 250);
  // Only what differs, with its source.
  EXPECT_THAT(run_.out, Not(HasSubstr("beta1")));
  EXPECT_THAT(run_.out, Not(HasSubstr("3e-4")));
  EXPECT_THAT(run_.out, HasSubstr("llama.toml"));
  EXPECT_THAT(run_.out, HasSubstr("default of TorchTitan's lr_scheduler.min_lr_factor"));
  EXPECT_THAT(run_.out, HasSubstr("NCCL_DEBUG: INFO"));
  EXPECT_THAT(run_.out, Not(HasSubstr("HF_HOME")));
}

// Kinds of fate, by TorchTitan's keys.
TEST_F(MigrateVerb, ImpossibleKeyIsStatus1AndOffersTheCommand) {
  std::string toml = *read_file(fixture("llama.toml"));
  const size_t at = toml.find("tensor_parallel_degree = 1");
  toml.replace(at, 26, "tensor_parallel_degree = 2");
  const std::string file = file_with("llama.toml", toml);
  const CommandRun run = migrate({fixture("two_nodes.sbatch"), file});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("not possible (1)"), HasSubstr("parallelism.tensor_parallel_degree"),
                    HasSubstr("--as command")));
  const JobSpec job = job_of({fixture("two_nodes.sbatch"), file, "--as", "command"});
  EXPECT_THAT(job.command, ElementsAre("python", "-m", "torchtitan.train", "--job.config_file",
                                       "/fsx/ada/llama.toml"));
  EXPECT_EQ(job.workers_per_node, 8);
}

TEST_F(MigrateVerb, TakenChangedAndUnneededKeysAreTold) {
  const JobSpec job = job_of({fixture("two_nodes.sbatch"), fixture("llama.toml")});
  const size_t taken = run_.err.find("taken (");
  const size_t changed = run_.err.find("taken with a change (");
  const size_t unneeded = run_.err.find("not needed here (");
  ASSERT_LT(taken, changed);
  ASSERT_LT(changed, unneeded);
  EXPECT_LT(run_.err.find("training.seq_len"), changed);
  const size_t folder = run_.err.find("checkpoint.folder");
  EXPECT_TRUE(folder > changed && folder < unneeded) << run_.err;
  EXPECT_GT(run_.err.find("training.compile"), unneeded);
  EXPECT_THAT(run_.err, HasSubstr("parameters; a worker needs"));
  EXPECT_EQ(job.fewest_nodes(), 2);
}

// The Trainer with DeepSpeed: four files, accumulation x micro x workers.
TEST_F(MigrateVerb, SeveralFilesGiveOneJob) {
  const JobSpec job =
      job_of({fixture("deepspeed.sbatch"), fixture("ds_config.json"), fixture("training_args.json"),
              fixture("config.json"), "--gpu", "h100"});
  ASSERT_TRUE(job.train) << run_.err;
  EXPECT_EQ(job.train->batch.micro, 2);
  EXPECT_EQ(job.train->batch.global, 2 * 4 * 16);
  EXPECT_EQ(job.train->strategy, Strategy::kShardGradOp);
  EXPECT_THAT(job.train->memory.offload, ElementsAre(Offload::kOptimizer));
  EXPECT_EQ(job.train->optimizer.clip, 0);
  EXPECT_EQ(job.train->optimizer.beta2, 0.999);
  EXPECT_EQ(job.train->schedule.warmup_steps, 30);
  EXPECT_EQ(job.train->schedule.min_lr_ratio, 0);
  EXPECT_EQ(job.train->model.preset, "llama3-8b");
  EXPECT_EQ(job.train->model.vocab, 128264);
  EXPECT_THAT(run_.err, HasSubstr("nearest to llama3-8b"));
  EXPECT_THAT(run_.err, HasSubstr("vocab 128264 (128256)"));
  EXPECT_THAT(run_.err, HasSubstr("a step takes"));
}

TEST_F(MigrateVerb, ContradictionOfTwoFilesIsNotPossible) {
  const std::string config = file_with("ds_config.json",
                                       R"({"gradient_clipping": 1.0, "train_batch_size": 100,
                                           "zero_optimization": {"stage": 3}})");
  const CommandRun run = migrate(
      {fixture("deepspeed.sbatch"), config, fixture("training_args.json"), fixture("config.json")});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("make the two agree"));
  EXPECT_THAT(run.err, HasSubstr("100 is not 2 x 4 x 16"));
}

TEST_F(MigrateVerb, MegatronCountsSamplesAndHasItsOwnDefaults) {
  const JobSpec job = job_of({fixture("gpt.args")});
  ASSERT_TRUE(job.train) << run_.err;
  EXPECT_EQ(job.train->model.preset, "gpt3-7.5b");
  EXPECT_EQ(job.train->steps, 146484375 / 288);
  EXPECT_EQ(job.train->schedule.unit, ScheduleUnit::kSamples);
  EXPECT_EQ(job.train->schedule.warmup_steps, 183105);
  EXPECT_EQ(job.train->schedule.decay_steps, 126953125 - 183105);
  EXPECT_EQ(job.train->schedule.min_lr_ratio, 0.1);
  EXPECT_EQ(job.train->optimizer.beta2, 0.999);
  EXPECT_EQ(job.train->strategy, Strategy::kOptimizer);
  EXPECT_EQ(job.train->validation.sequences, 40 * 288);
  EXPECT_EQ(job.train->seed, 1234U);
  EXPECT_THAT(run_.err, HasSubstr("--hidden-dropout"));
}

TEST_F(MigrateVerb, RampIsCountedIntoTheSteps) {
  std::string text = *read_file(fixture("gpt.args"));
  text += " --rampup-batch-size 96 96 1920\n";
  const std::string file = file_with("gpt.args", text);
  const JobSpec job = job_of({file});
  ASSERT_TRUE(job.train) << run_.err;
  ASSERT_EQ(job.train->batch.ramp.size(), 2U);
  EXPECT_EQ(job.train->batch.ramp[0].samples, 960);
  EXPECT_EQ(job.train->batch.ramp[1].global, 192);
  EXPECT_EQ(job.train->steps, 10 + 5 + (146484375 - 1920) / 288);
}

TEST_F(MigrateVerb, FsdpGuideIsAJob) {
  const JobSpec job = job_of({fixture("guide.sbatch")});
  ASSERT_TRUE(job.train) << run_.err;
  EXPECT_EQ(job.train->model.preset, "llama2-7b");
  EXPECT_EQ(job.train->data.seq_len, 4096);
  EXPECT_EQ(job.train->batch.global, 32);
  EXPECT_EQ(job.train->steps, 100);
  EXPECT_EQ(job.train->optimizer.weight_decay, 0.2);
  EXPECT_EQ(job.train->memory.activation_checkpointing, Checkpointing::kFull);
  EXPECT_EQ(job.train->validation.every_steps, 0);
}

TEST_F(MigrateVerb, NumberThatNoFileSaysIsAskedFor) {
  const CommandRun run = migrate({fixture("llama.toml")});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("--set nodes=N --set workers_per_node=N"));
  const JobSpec job =
      job_of({fixture("llama.toml"), "--set", "nodes=2", "--set", "workers_per_node=4"});
  ASSERT_TRUE(job.train) << run_.err;
  EXPECT_EQ(job.train->batch.global, 8);
  const CommandRun model = migrate({fixture("ds_config.json")});
  EXPECT_EQ(model.status, kExitFailed);
  EXPECT_THAT(model.err, HasSubstr("no file says workload.train.model"));
}

TEST_F(MigrateVerb, UnknownProgramStaysACommand) {
  // The environment must be where the file says, so this copy says where one is.
  TemporaryDirectory directory;
  const std::string venv = directory / "venv";
  ASSERT_TRUE(make_directories(venv + "/bin").ok());
  std::filesystem::create_symlink("/usr/bin/python3", venv + "/bin/python");
  const auto script = read_file(fixture("trainer.sbatch"));
  ASSERT_TRUE(script.ok());
  const std::string file = directory / "trainer.sbatch";
  ASSERT_TRUE(
      write_file_atomic(file, std::regex_replace(*script, std::regex("/fsx/ada/venv"), venv)).ok());
  const JobSpec job = job_of({file});
  EXPECT_EQ(job.name, "tune");
  EXPECT_EQ(job.nodes, 2);
  EXPECT_EQ(job.workers_per_node, 8);
  EXPECT_EQ(job.environment.path, venv);
  EXPECT_THAT(job.hooks.pre, ElementsAre("mkdir -p /scratch/ada"));
  ASSERT_EQ(job.command.size(), 3U) << run_.out;
  EXPECT_EQ(job.command[0], "bash");
  EXPECT_EQ(
      job.command[2],
      "module load cuda && export LD_LIBRARY_PATH=\"/opt/amazon/efa/lib:$LD_LIBRARY_PATH\" && "
      "exec python tune.py --config 'a b'");
  EXPECT_EQ(migrate({fixture("trainer.sbatch"), "--as", "train"}).status, kExitFailed);
}

TEST_F(MigrateVerb, LoopAndUnknownConditionAreNamedWithTheirLine) {
  const std::string script = file_with("s.sbatch",
                                       "#!/bin/bash\n"
                                       "#SBATCH --nodes=1\n"
                                       "if [ -f /etc/x ]; then A=1; fi\n"
                                       "for i in 1 2; do\n"
                                       "  srun python a.py $i\n"
                                       "done\n"
                                       "[ \"$HOSTNAME\" = n1 ] && B=2\n"
                                       "srun python b.py\n");
  const CommandRun run = migrate({script});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, AllOf(HasSubstr("s.sbatch:3"), HasSubstr("s.sbatch:4"),
                             HasSubstr("s.sbatch:7"), Not(HasSubstr("s.sbatch:8: a second"))));
}

// What only the shell knows is never written as it stands.
TEST_F(MigrateVerb, ValueThatTheShellKnowsIsAskedFor) {
  std::string text = *read_file(fixture("guide.sbatch"));
  const std::string known = "--dataset=/fsx/ada/text";
  text.replace(text.find(known), known.size(), "--dataset=$1");
  const std::string script = file_with("guide.sbatch", text);
  const CommandRun run = migrate({script});
  EXPECT_EQ(run.status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("$1 is known to the shell alone"));
  const JobSpec job = job_of({script, "--set", "workload.train.data.path=/fsx/text"});
  ASSERT_TRUE(job.train) << run_.err;
  EXPECT_EQ(job.train->data.path, "/fsx/text");
  EXPECT_THAT(migrate({script, "--set", "workload.train.frobnicate=1"}).err,
              HasSubstr("no key of job.yaml"));
}

// What is written is a file that submit takes.
TEST_F(MigrateVerb, WritesAFileThatSubmitTakes) {
  const std::string out = dir_ / "job.yaml";
  const CommandRun run = migrate({fixture("two_nodes.sbatch"), fixture("llama.toml"), "-o", out});
  EXPECT_EQ(run.status, kExitOk) << run.err;
  EXPECT_EQ(run.out, "");
  const CommandRun dry = run_hpctl({"submit", out, "--local", "--dry-run", "--gpu", "h100"});
  EXPECT_EQ(dry.status, kExitOk) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("llama3-8b"));
}

TEST_F(MigrateVerb, SubmitOfAnotherProgramsFileNamesThisVerb) {
  for (const char* name : {"llama.toml", "ds_config.json", "two_nodes.sbatch"}) {
    const CommandRun run = run_hpctl({"submit", fixture(name), "--dry-run", "--local"});
    EXPECT_EQ(run.status, kExitUsage);
    EXPECT_THAT(run.err, HasSubstr("hpctl migrate ")) << name;
  }
}

TEST_F(MigrateVerb, FileOfNoProgramIsRefused) {
  const CommandRun run = migrate({file_with("x.json", R"({"frobnicate": 1})")});
  EXPECT_EQ(run.status, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("of no program that hpctl knows"));
}

TEST_F(MigrateVerb, JobFileNeedsNoMigration) {
  const CommandRun run = migrate({file_with("j.yaml", "name: c\nworkload:\n  command: [x]\n")});
  EXPECT_EQ(run.status, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("j.yaml is a job file of hpctl already: `hpctl submit "));
}

TEST_F(MigrateVerb, TablesAreInTheDocs) {
  const auto doc = read_file(repository() + "/docs/migrate.md");
  ASSERT_TRUE(doc.ok());
  const std::string tables = run_hpctl({"migrate", "--tables"}).out;
  EXPECT_NE(doc->find(tables), std::string::npos)
      << "replace the tables at the end of docs/migrate.md with what `hpctl migrate --tables` "
         "prints";
}

}  // namespace
}  // namespace hpctl::migrate
