// SPDX-License-Identifier: Apache-2.0
// The real hpctl program: what `submit` sends, and what it refuses before anything is started. Its
// siblings are stand-ins in a directory of the test, since hpctl only looks for them here; the
// controller is scripted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/base/json.h"
#include "common/job/job_spec.h"
#include "hpctl/exit_codes.h"
#include "tests/integration/local_cluster.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "tests/unit/cli/scripted_controller.h"
#include "trainer/arch/registry.h"

namespace hpctl::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCommandJob = "name: c\nworkload: {command: [sh, -c, 'true']}\n";

class Submit : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(bin());
    const char* built = std::getenv("HPCTL_BIN");
    ASSERT_NE(built, nullptr) << "run by ctest, or set HPCTL_BIN to build/PRESET/bin";
    std::filesystem::copy_file(std::string(built) + "/hpctl", bin() + "/hpctl");
    for (const char* name : {"hpcontroller", "hpagent", "hptrain"}) write(bin() + "/" + name, "");
    for (const char* name : {"hpcontroller", "hpagent", "hptrain"}) {
      ASSERT_EQ(::chmod((bin() + "/" + name).c_str(), 0755), 0);
    }
  }

  std::string bin() const { return home_.directory() + "/bin"; }
  std::string file() const { return home_.directory() + "/job.yaml"; }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }

  CommandResult submit(const std::string& yaml, std::vector<std::string> options = {"--local"}) {
    write(file(), yaml);
    options.insert(options.begin(), {bin() + "/hpctl", "submit", file()});
    return run_command(options, {});
  }

  std::string train_job(const std::string& data) {
    return "name: t\nworkload:\n  train:\n    model: {preset: tiny}\n    data: {path: " + data +
           ", seq_len: 8}\n    batch: {global: 1}\n    steps: 1\n";
  }

  ScopedHome home_;
};

TEST_F(Submit, SendsTheResolvedJobOnce) {
  ScriptedController controller(home_.paths());
  controller.jobs = {running_job(7, "c")};
  controller.jobs[0].set_state("STARTING");
  const CommandResult result = submit(kCommandJob, {"--local", "--json"});
  EXPECT_EQ(result.exit_code, kExitOk) << result.err;
  EXPECT_EQ(result.out, "{\"job\":7,\"name\":\"c\",\"state\":\"STARTING\"}\n");
  ASSERT_EQ(controller.submits().size(), 1U);
  const auto spec = job_spec_from_json(controller.submits()[0].spec_json());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->name, "c");
  EXPECT_EQ(controller.submits()[0].submit_key().size(), 32U);
}

TEST_F(Submit, MetricsOnAnotherPortAreTold) {
  ScriptedController controller(home_.paths());  // which says 127.0.0.1:9
  write(file(), kCommandJob);
  const auto told = [&](const std::string& metrics) {
    return run_command({bin() + "/hpctl", "submit", file(), "--local"},
                       {"HPCTL_METRICS=" + metrics})
        .err;
  };
  EXPECT_THAT(told("127.0.0.1:9400"),
              HasSubstr("hpctl: the metrics are on 127.0.0.1:9, not on "
                        "HPCTL_METRICS=127.0.0.1:9400: when the controller started, "));
  EXPECT_EQ(told("0.0.0.0:9"), "");
  EXPECT_EQ(told("0.0.0.0:0"), "");
}

TEST_F(Submit, PageThatCannotListenIsTold) {
  ScriptedController controller(home_.paths());
  controller.page = "";
  write(file(), kCommandJob);
  const auto told = [&](const std::string& page) {
    return run_command({bin() + "/hpctl", "submit", file(), "--local"}, {"HPCTL_PAGE=" + page}).err;
  };
  EXPECT_THAT(told("127.0.0.1:9500"), HasSubstr("hpctl: warning: "));
  EXPECT_THAT(told("127.0.0.1:9500"), HasSubstr("there is no status page: in use"));
  EXPECT_EQ(told("127.0.0.1:0"), "") << "any port will do";
  controller.page = "127.0.0.1:9501";
  EXPECT_EQ(told("127.0.0.1:9501"), "");
  EXPECT_EQ(told("127.0.0.1:9500"),
            "hpctl: warning: the status page is at http://127.0.0.1:9501, not on "
            "HPCTL_PAGE=127.0.0.1:9500: the variable was not set when the controller started\n");
}

TEST_F(Submit, ProgramInsteadOfAJobFileIsTold) {
  write(home_.directory() + "/train.py", "import torch\n");
  const CommandResult result =
      run_command({bin() + "/hpctl", "submit", home_.directory() + "/train.py", "--local"}, {});
  EXPECT_EQ(result.exit_code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("train.py is a program and no job file; `hpctl init script` "));
}

TEST_F(Submit, RepeatsALostAnswerWithTheSameKey) {
  ScriptedController controller(home_.paths());
  controller.failing_submits = 1;
  const CommandResult result = submit(kCommandJob);
  EXPECT_EQ(result.exit_code, kExitOk) << result.err;
  ASSERT_EQ(controller.submits().size(), 2U);
  EXPECT_EQ(controller.submits()[0].submit_key(), controller.submits()[1].submit_key());
}

TEST_F(Submit, DifferentCallsAreDifferentJobs) {
  ScriptedController controller(home_.paths());
  EXPECT_EQ(submit(kCommandJob).exit_code, kExitOk);
  EXPECT_EQ(submit(kCommandJob).exit_code, kExitOk);
  ASSERT_EQ(controller.submits().size(), 2U);
  EXPECT_NE(controller.submits()[0].submit_key(), controller.submits()[1].submit_key());
}

TEST_F(Submit, ShowsARefusal) {
  ScriptedController controller(home_.paths());
  controller.submit_status = {grpc::StatusCode::FAILED_PRECONDITION, "job 3 is named c already"};
  const CommandResult result = submit(kCommandJob);
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_EQ(result.err, "hpctl: job 3 is named c already\n");
}

TEST_F(Submit, WaitsAndTellsTheEndByItsStatus) {
  ScriptedController controller(home_.paths());
  controller.jobs = {running_job(7, "c")};
  controller.polls_until_end = 2;
  const CommandResult result = submit(kCommandJob, {"--local", "--wait", "--json"});
  EXPECT_EQ(result.exit_code, kExitOk) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out).at("state"), "FINISHED");
  EXPECT_EQ(result.err, "job 7 c submitted: 1 x 1 workers\n");
  controller.jobs[0].set_state("FAILED");
  controller.polls_until_end = -1;
  EXPECT_EQ(submit(kCommandJob, {"--local", "--wait"}).exit_code, kExitFailed);
}

TEST_F(Submit, APlanOfFaultsIsCheckedBeforeTheJobIsSubmitted) {
  ScriptedController controller(home_.paths());
  const std::string plan = home_.directory() + "/plan.yaml";
  const auto refused = [&](const std::string& faults, const std::string& job,
                           std::vector<std::string> more = {}) {
    write(plan, faults);
    more.insert(more.end(), {"--local", "--chaos", plan});
    const CommandResult result = submit(job, more);
    EXPECT_EQ(result.exit_code, kExitUsage) << result.err;
    return result.err;
  };
  const std::string attackable = std::string(kCommandJob) + "debug: {chaos: true}\n";
  const std::string kill = "faults: [{fault: kill-worker}]\n";
  EXPECT_THAT(refused(kill, kCommandJob), HasSubstr("does not say debug: {chaos: true}"));
  EXPECT_THAT(refused("faults: [{fault: kil-worker}]\n", attackable), HasSubstr("plan.yaml:1:18"));
  EXPECT_THAT(refused("faults: [{fault: hang-worker}]\n", attackable),
              HasSubstr("faults[0]: the job cannot have hang-worker: only the built-in trainer"));
  EXPECT_THAT(refused("faults: [{fault: kill-worker, rank: 1}]\n", attackable),
              HasSubstr("the job has no rank 1"));
  EXPECT_THAT(refused(kill, attackable, {"--json", "--wait"}), HasSubstr("one document"));
  EXPECT_TRUE(controller.submits().empty());
}

TEST_F(Submit, FaultsComeWhenTheJobRuns) {
  ScriptedController controller(home_.paths());
  controller.jobs = {running_job(7, "c")};
  controller.jobs[0].set_chaos(true);
  controller.consequences = {event(0, "WorkerExited", "why"), event(0, "JobRecovering", "why"),
                             event(0, "JobRunning", "generation 2 completed step 35")};
  for (v1::Event& e : controller.consequences) e.set_wall_ms(1'763'700'000'200);
  const std::string plan = home_.directory() + "/plan.yaml";
  write(plan, "faults: [{fault: kill-worker}]\n");
  const CommandResult result = submit(std::string(kCommandJob) + "debug: {chaos: true}\n",
                                      {"--local", "--json", "--chaos", plan});
  ASSERT_EQ(controller.submits().size(), 1U) << result.err;
  EXPECT_THAT(controller.orders(), ::testing::ElementsAre("inject kill-worker 0 n0"));
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("job"), 7);
  EXPECT_EQ(report.at("faults").size(), 1U);
  EXPECT_TRUE(report.at("faults")[0].at("injected").get<bool>()) << result.out;
}

TEST_F(Submit, BadFilesStartNothing) {
  ScriptedController controller(home_.paths());
  const CommandResult result = submit("name: c\nnodez: 2\n");
  EXPECT_EQ(result.exit_code, kExitUsage);
  EXPECT_EQ(result.err,
            file() +
                ":1:1: workload: this key is required: expected section, exactly one of train "
                "and command\n" +
                file() + ":2:1: unknown key \"nodez\"; did you mean \"nodes\"?\n");
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(controller.submits().empty());
}

TEST_F(Submit, DryRunStartsNothing) {
  const CommandResult yaml = submit(kCommandJob, {"--dry-run"});
  EXPECT_EQ(yaml.exit_code, kExitOk);
  EXPECT_THAT(yaml.out, HasSubstr("\n#   #!/bin/bash\n#   #SBATCH --job-name=c\n"));
  EXPECT_THAT(yaml.out, HasSubstr("heartbeat_timeout: 10s\n"));
  EXPECT_EQ(submit(yaml.out, {"--dry-run"}).out, yaml.out);
  EXPECT_TRUE(job_spec_from_json(submit(kCommandJob, {"--dry-run", "--json"}).out).ok());
  EXPECT_FALSE(is_accessible(home_.paths().socket_directory()));
}

TEST_F(Submit, WithoutASchedulerNamesLocal) {
  const CommandResult result = submit(kCommandJob, {});
  EXPECT_EQ(result.exit_code, kExitNoController);
  EXPECT_THAT(result.err, HasSubstr("no Slurm on this machine; add --local to run the job here"));
  EXPECT_THAT(result.err, HasSubstr("there is no " + bin() + "/hpslurm"));
}

TEST_F(Submit, MissingProgramsAreNamed) {
  std::filesystem::remove(bin() + "/hpagent");
  EXPECT_THAT(submit(kCommandJob).err,
              HasSubstr("cannot run " + bin() + "/hpagent: it is missing"));
  write(bin() + "/hpagent", "");
  const CommandResult result = submit(kCommandJob);
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("hpagent: it is not a program"));
}

TEST_F(Submit, AControllerThatDoesNotStartIsExitThree) {
  write(bin() + "/hpcontroller", "#!/bin/sh\necho 'no space left' >&2\nexit 1\n");
  const CommandResult result = submit(kCommandJob);
  EXPECT_EQ(result.exit_code, kExitNoController);
  EXPECT_THAT(result.err, HasSubstr("the controller did not start: no space left"));
}

TEST_F(Submit, SmallTextIsTokenisedHere) {
  ScriptedController controller(home_.paths());
  std::filesystem::copy_file(std::string(std::getenv("HPCTL_BIN")) + "/hpdata", bin() + "/hpdata");
  write(home_.directory() + "/t.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},)"
        R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}})");
  write(home_.directory() + "/text", "abababababababababababababababababababab");
  std::string job = train_job("text, tokenizer: t.json");
  const CommandResult first = submit(job);
  ASSERT_EQ(first.exit_code, kExitOk) << first.err;
  EXPECT_THAT(first.err, HasSubstr("data " + home_.directory() + "/text prepared as "));
  const CommandResult second = submit(job);
  ASSERT_EQ(second.exit_code, kExitOk) << second.err;
  EXPECT_EQ(second.err, "") << "it is there";
  ASSERT_EQ(controller.submits().size(), 2U);
  const auto path = [&](size_t i) {
    return job_spec_from_json(controller.submits()[i].spec_json())->train->data.path;
  };
  EXPECT_EQ(path(0), path(1));
  EXPECT_TRUE(is_accessible(path(0) + ".idx")) << path(0);

  write(home_.directory() + "/other.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},)"
        R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}})");
  EXPECT_THAT(submit(train_job(path(0) + ", tokenizer: other.json")).err,
              HasSubstr("was prepared with another tokenizer (t.json) than"));
  EXPECT_EQ(submit(train_job(path(0) + ", tokenizer: t.json")).exit_code, kExitOk);
  const CommandResult missing = submit(train_job("text, tokenizer: missing.json"));
  EXPECT_THAT(missing.err, HasSubstr("missing.json: No such file"));
  EXPECT_EQ(missing.exit_code, kExitUsage) << "a mistake in the job file";
}

TEST_F(Submit, PairsArePreparedHereEvenAsBytes) {
  ScriptedController controller(home_.paths());
  std::filesystem::copy_file(std::string(std::getenv("HPCTL_BIN")) + "/hpdata", bin() + "/hpdata");
  write(home_.directory() + "/pairs.jsonl",
        "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"prompt\": \"ab\"}\n");
  const CommandResult wrong = submit(train_job("pairs.jsonl, format: sft"));
  EXPECT_EQ(wrong.exit_code, kExitUsage);
  EXPECT_THAT(wrong.err,
              HasSubstr("/pairs.jsonl:2: no key \"completion\"; expected {\"prompt\": TEXT"));
  write(home_.directory() + "/pairs.jsonl",
        "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"prompt\": \"" + std::string(100, 'a') +
            "\", \"completion\": \"b\"}\n");
  const CommandResult done = submit(train_job("pairs.jsonl, format: sft"));
  ASSERT_EQ(done.exit_code, kExitOk) << done.err;
  EXPECT_THAT(done.err, HasSubstr("data: 1 documents in 1 sequences of 8 tokens"));
  EXPECT_THAT(done.err, HasSubstr("left out because they are longer: 1"));
  ASSERT_EQ(controller.submits().size(), 1U);
  const std::string path =
      job_spec_from_json(controller.submits()[0].spec_json())->train->data.path;
  EXPECT_TRUE(is_accessible(path + ".idx")) << path;
  EXPECT_THAT(
      submit(train_job(path)).err,
      HasSubstr("was prepared as format sft, but workload.train.data asks for format text"));
  EXPECT_EQ(submit(train_job(path + ", format: sft")).exit_code, kExitOk);
}

TEST_F(Submit, DataAndDirectoriesAreCheckedHere) {
  const ScriptedController controller(home_.paths());
  const CommandResult missing = submit(train_job("missing"));
  EXPECT_EQ(missing.exit_code, kExitUsage) << "a mistake in the job file";
  EXPECT_THAT(missing.err, HasSubstr(home_.directory() + "/missing: No such file or directory"));
  write(home_.directory() + "/empty", "");
  EXPECT_THAT(submit(train_job("empty")).err, HasSubstr("no text in"));
  write(home_.directory() + "/short", "abc");
  EXPECT_THAT(submit(train_job("short")).err, HasSubstr("has 3 tokens"));
  write(home_.directory() + "/text", "enough text for one sample");
  EXPECT_EQ(submit(train_job("text")).exit_code, kExitOk);
  EXPECT_THAT(submit(train_job("text") + "checkpoint: {dir: text/below}\n").err,
              HasSubstr("/text is not a directory"));
  EXPECT_THAT(submit(train_job("text") + "checkpoint: {dir: /proc/x}\n").err,
              HasSubstr("checkpoint.dir /proc/x cannot be written"));
  EXPECT_THAT(submit(train_job("text") + "checkpoint: {resume: text}\n").err,
              HasSubstr("/text is not a checkpoint"));
  EXPECT_THAT(submit("name: c\nworkload: {command: [no-such-program-here]}\n").err,
              HasSubstr("\"no-such-program-here\" is not in PATH"));
  const CommandResult nope = submit("name: c\nworkload: {command: [./nope.py]}\n");
  EXPECT_EQ(nope.exit_code, kExitUsage);
  EXPECT_THAT(nope.err, HasSubstr(home_.directory() + "/nope.py is missing"));
  write(home_.directory() + "/nope.py", "");
  EXPECT_THAT(submit("name: c\nworkload: {command: [./nope.py]}\n").err,
              HasSubstr("not an executable file; see chmod +x"));
  EXPECT_THAT(submit("name: c\nworkload: {command: [python3, trian.py]}\n").err,
              HasSubstr("workload.command: " + home_.directory() + "/trian.py is missing"));
  EXPECT_EQ(submit("name: c\nworkload: {command: [python3, nope.py]}\n").exit_code, kExitOk);
}

TEST_F(Submit, MissingRoomForCheckpointsIsAWarning) {
  ScriptedController controller(home_.paths());
  write(home_.directory() + "/text", "enough text for one sample");
  const CommandResult few = submit(train_job("text"));
  EXPECT_EQ(few.exit_code, kExitOk) << few.err;
  EXPECT_THAT(few.err, Not(HasSubstr("warning")));
  const CommandResult many =
      submit(train_job("text") + "checkpoint: {dir: saved, keep: 1000000}\n");
  EXPECT_EQ(many.exit_code, kExitOk) << many.err;
  EXPECT_THAT(many.err, HasSubstr("hpctl: warning: " + home_.directory() + "/saved has "));
  EXPECT_THAT(many.err, HasSubstr(" free, and 1000001 checkpoints of "));
  EXPECT_EQ(controller.submits().size(), 2U);
}

TEST_F(Submit, AModelOfADirectoryIsImportedOnce) {
  ScriptedController controller(home_.paths());
  write(home_.directory() + "/text", "enough text for one sample");
  const SyntheticSave save = {home_.directory() + "/saved", {40, 3}, 1, 1, 2, {}};
  Manifest base = synthetic_manifest(save);
  base.model = *model_preset("tiny");
  base.blocks = model_layout(base.model);
  ASSERT_TRUE(save_synthetic(save, base).ok());
  const std::string model = home_.directory() + "/model";
  const CommandResult exported = run_command(
      {bin() + "/hpctl", "checkpoint", "export", save.checkpoint_dir + "/step-40.g3", model}, {});
  ASSERT_EQ(exported.exit_code, kExitOk) << exported.err;

  const std::string job =
      "name: t\nworkload:\n  train:\n    model: {from: model}\n"
      "    data: {path: text, seq_len: 8}\n    batch: {global: 1}\n    steps: 1\n";
  const CommandResult first = submit(job);
  EXPECT_EQ(first.exit_code, kExitOk) << first.err;
  EXPECT_THAT(first.err, HasSubstr("model " + model + " is imported into "));
  const CommandResult second = submit(job);
  EXPECT_EQ(second.exit_code, kExitOk) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("is imported")));
  ASSERT_EQ(controller.submits().size(), 2U);
  for (const auto& request : controller.submits()) {
    const auto spec = job_spec_from_json(request.spec_json());
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->train->model.dim, base.model.dim);
    EXPECT_TRUE(spec->checkpoint.resume.starts_with(home_.paths().home() + "/models/"));
    EXPECT_TRUE(std::filesystem::exists(spec->checkpoint.resume + "/manifest.json"));
  }
  EXPECT_THAT(submit(job, {"--local", "--dry-run"}).out, HasSubstr("from: " + model));
  EXPECT_THAT(submit(job, {"--local", "--set", "workload.train.model.preset=tiny"}).err,
              HasSubstr("a preset and a directory both say which model it is"));
  std::filesystem::remove(model + "/config.json");
  const CommandResult without = submit(job);
  EXPECT_EQ(without.exit_code, kExitUsage);
  EXPECT_THAT(without.err, HasSubstr("workload.train.model.from: "));
}

TEST_F(Submit, ACheckpointOfAnotherModelIsRefusedHere) {
  const ScriptedController controller(home_.paths());
  write(home_.directory() + "/text", "enough text for one sample");
  ASSERT_TRUE(save_synthetic({home_.directory() + "/saved", {40, 3}, 2, 1, 2, {}}).ok());
  const CommandResult resumed =
      submit(train_job("text") + "checkpoint: {resume: saved/step-40.g3}\n");
  EXPECT_EQ(resumed.exit_code, kExitUsage);
  EXPECT_THAT(resumed.err, HasSubstr("checkpoint.resume: cannot resume from " + home_.directory() +
                                     "/saved/step-40.g3: model."));
  const CommandResult adapted = submit(
      "name: t\nworkload:\n  train:\n    model: {preset: tiny}\n"
      "    lora: {base: saved/step-40.g3, rank: 2}\n"
      "    data: {path: text, seq_len: 8}\n    batch: {global: 1}\n"
      "    steps: 1\n");
  EXPECT_EQ(adapted.exit_code, kExitUsage);
  EXPECT_THAT(adapted.err,
              HasSubstr("workload.train.lora.base: " + home_.directory() +
                        "/saved/step-40.g3 is another model than workload.train.model: "
                        "model."));
}

TEST_F(Submit, AScriptThatIsToStandByNamesPython) {
  const ScriptedController controller(home_.paths());
  const std::string script = home_.directory() + "/train";
  const std::string job =
      "name: c\nworkload: {command: [./train]}\nrecovery: {standby_imports: [json]}\n";
  write(script, "#!/bin/sh\nexec python3 train.py\n");
  ASSERT_EQ(::chmod(script.c_str(), 0755), 0);
  const CommandResult refused = submit(job);
  EXPECT_EQ(refused.exit_code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("recovery.standby_imports: " + script +
                                     " does not name Python in its first line"));
  write(script, "#!/usr/bin/env python3\n");
  ASSERT_EQ(::chmod(script.c_str(), 0755), 0);
  EXPECT_EQ(submit(job).exit_code, kExitOk);
  write(home_.directory() + "/pyproject.toml", "[project]\nname = 'x'\n");
  EXPECT_THAT(submit(job).err, HasSubstr(script + " is run by uv, which chooses the Python; name "
                                                  "it: [python, train]"));
}

TEST_F(Submit, WhatThisMachineCannotHoldIsNotStarted) {
  ScriptedController controller(home_.paths());
  write(home_.directory() + "/text", "enough text for one sample");
  std::string job = train_job("text");
  job.replace(job.find("preset: tiny"), 12, "preset: llama3.1-405b");
  const CommandResult result = submit(job);
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, AllOf(HasSubstr("out of memory: 1 worker needs"), HasSubstr("moments"),
                                HasSubstr("smaller workload.train.model")));
  EXPECT_TRUE(controller.submits().empty());
}

// Once: what the controller gets has values and no word of auto, so nobody chooses again.
TEST_F(Submit, KeysThatAreAutoAreChosenBeforeTheJobIsSubmitted) {
  ScriptedController controller(home_.paths());
  write(home_.directory() + "/text", "enough text for one sample");
  const std::string job = train_job("text");
  ASSERT_EQ(submit(job, {"--local", "--gpu", "cpu"}).exit_code, kExitOk);
  ASSERT_EQ(controller.submits().size(), 1U);
  const std::string sent = controller.submits()[0].spec_json();
  const auto spec = job_spec_from_json(sent);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->chosen.values.size(), 4U);
  EXPECT_THAT(spec->chosen.basis, HasSubstr("1 worker with 90 % of "));
  EXPECT_EQ(spec->train->batch.micro, 1);
  EXPECT_THAT(to_json_text(*spec), ::testing::Not(HasSubstr("\"micro\":\"auto\"")));

  const CommandResult told = submit(job, {"--local", "--gpu", "cpu", "--dry-run"});
  EXPECT_THAT(told.out, ::testing::StartsWith("# auto, for 1 worker with 90 % of "));
  EXPECT_THAT(told.out, HasSubstr("\n#   workload.train.batch.micro: 1  (on a CPU the plan knows "
                                  "no times; this takes the least memory)\n"));
  EXPECT_THAT(told.out, HasSubstr("micro: 1\n")) << "of the job file";
  // What is shown is a job file that leaves nothing open, and means the same job.
  const CommandResult again = submit(told.out, {"--local", "--gpu", "cpu", "--dry-run"});
  EXPECT_EQ(told.out.substr(told.out.find("name: ")), again.out);
}

TEST_F(Submit, TheGpuDecidesWhatFits) {
  std::string job = train_job("text");
  job.replace(job.find("preset: tiny"), 12, "preset: llama3-8b");
  job.replace(job.find("seq_len: 8"), 10, "seq_len: 8192");
  job.replace(job.find("global: 1"), 9, "global: 64");
  job = "workers_per_node: 8\n" + job;
  const auto dry = [&](const std::string& more, std::vector<std::string> options) {
    options.insert(options.end(), {"--dry-run", "--json"});
    const CommandResult result = submit(job + more, options);
    EXPECT_EQ(result.exit_code, kExitOk) << result.err;
    return result.exit_code == kExitOk ? nlohmann::json::parse(result.out) : nlohmann::json();
  };
  const auto unknown = dry("", {});
  EXPECT_THAT(unknown["chosen"]["basis"].get<std::string>(),
              HasSubstr("memory that is not known (neither --gpu "));
  EXPECT_EQ(unknown["train"]["batch"]["micro"], 1);
  EXPECT_EQ(unknown["train"]["strategy"], "full");
  const auto told = dry("", {"--gpu", "h100"});
  EXPECT_THAT(told["chosen"]["basis"].get<std::string>(), HasSubstr("(h100 by --gpu)"));
  EXPECT_NE(told["train"], unknown["train"]);
  const auto gres = dry("slurm: {gres: 'gpu:h100:8'}\n", {});
  EXPECT_THAT(gres["chosen"]["basis"].get<std::string>(), HasSubstr("(h100 of slurm.gres)"));
  EXPECT_EQ(gres["train"], told["train"]);
  EXPECT_TRUE(gres.contains("batch_script"));
  EXPECT_FALSE(dry("slurm: {gres: 'gpu:8'}\n", {})["train"] == told["train"]);

  job.replace(0, 19, "workers_per_node: auto");
  EXPECT_EQ(dry("slurm: {gres: 'gpu:h100:8'}\n", {}), gres);
  const CommandResult many =
      submit(job + "slurm: {gres: 'gpu:h100:128'}\n", {"--dry-run", "--json"});
  EXPECT_EQ(many.exit_code, kExitUsage);
  EXPECT_THAT(many.err, AllOf(HasSubstr("workers_per_node: auto is 128: slurm.gres asks for 128"),
                              HasSubstr("expected at least nodes x workers_per_node (128)")));
  job.replace(0, 22, "workers_per_node: 8");

  const CommandResult small = submit(job, {"--gpu", "a10g", "--dry-run"});
  EXPECT_EQ(small.exit_code, kExitFailed);
  EXPECT_THAT(small.err,
              AllOf(HasSubstr("out of memory: 8 workers need "), HasSubstr("it fits with"),
                    HasSubstr("give the keys that are auto values of your own")));
  const CommandResult unheard = submit(job, {"--gpu", "h1000", "--dry-run"});
  EXPECT_EQ(unheard.exit_code, kExitUsage);
  EXPECT_THAT(unheard.err, HasSubstr("--gpu: expected one of cpu, "));
}

// A job belongs to its user. Another user gets an error that says so, and nothing is created.
TEST_F(Submit, AnotherUserIsTold) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  std::filesystem::permissions(home_.directory(), std::filesystem::perms(0755));
  write(file(), kCommandJob);
  const auto as_nobody = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                                 "--clear-groups", bin() + "/hpctl"});
    return run_command(words, {});
  };
  CommandResult result = as_nobody({"submit", "--local", file()});
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr(home_.paths().home() + " belongs to uid 0, you are uid 65534"));
  EXPECT_EQ(as_nobody({"ps"}).exit_code, kExitOk);  // the record may be read where modes allow it
  std::filesystem::permissions(home_.paths().home(), std::filesystem::perms(0700));
  result = as_nobody({"ps"});
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("belongs to uid 0"));
}

}  // namespace
}  // namespace hpctl::testing
