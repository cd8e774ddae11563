// SPDX-License-Identifier: Apache-2.0
// Whole workers: real processes, sockets, checkpoints. What design promises of them: the same bits
// again and after any resume, an exit code that says what to do, a message that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "common/base/file.h"
#include "common/base/lineage.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/worker_job.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/checkpoint/ledger_check.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/state_arena.h"

namespace hpctl {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::Job;
using testing::WorkerProcess;

TEST(Worker, KeepsItsContractWithTheHolder) {
  Job job(2);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  for (const auto& worker : job.workers) {
    const ProgressPage& page = worker->page();
    EXPECT_EQ(page.magic, kProgressMagic);
    EXPECT_EQ(page.version, kProgressVersion);
    EXPECT_EQ(page.phase, static_cast<uint32_t>(WorkerPhase::kFinished));
    EXPECT_EQ(page.step, 8U);
    EXPECT_EQ(page.checkpoint_step, 8U);
    EXPECT_EQ(page.tokens, 4U * 32U);
    EXPECT_GT(page.collective, 8U);
    EXPECT_GT(page.step_ns, 0U);
    EXPECT_GE(page.first_step_unix_ns, page.start_unix_ns);
    EXPECT_EQ(worker->message(), "");
    // The sealed state outlives the process.
    ArenaHeader header{};
    ASSERT_EQ(pread(worker->arena_fd(), static_cast<void*>(&header), sizeof header, 0),
              static_cast<ssize_t>(sizeof header));
    EXPECT_EQ(header.magic, kArenaMagic);
    const uint64_t newest = std::max(header.slots[0].step.load(), header.slots[1].step.load());
    EXPECT_EQ(newest, 8U);
  }
  const auto metrics = job.metrics();
  ASSERT_EQ(metrics.size(), 8U);
  EXPECT_EQ(metrics.back()["step"], 8);
  EXPECT_LT(metrics.back()["loss"], metrics.front()["loss"]);
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message;
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty());
  EXPECT_EQ(ledger->cursor, 32U);
}

class Precision : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Types, Precision,
                         ::testing::Values(std::pair("tiny", "fp32"), std::pair("tiny", "bf16"),
                                           std::pair("tiny-gpt", "bf16")));

TEST_P(Precision, SameBitsAgainAndAfterResume) {
  Job job(2);
  job.workload.train.model = *model_preset(GetParam().first);
  job.workload.train.precision = GetParam().second;
  job.workload.train.batch.global = 8;  // two micro-batches
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const std::string undisturbed = job.digest("step-8.g1");
  ASSERT_EQ(undisturbed.size(), 64U) << undisturbed;

  Job again(2);
  again.workload.train = job.workload.train;
  ASSERT_THAT(again.run(), Each(kExitFinished)) << again.messages();
  EXPECT_EQ(again.digest("step-8.g1"), undisturbed);

  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), undisturbed);
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok());
  EXPECT_TRUE(manifest->exact);
  EXPECT_EQ(manifest->parent, 1U);
}

TEST(Worker, Bf16MomentsTakeLessMemoryAndResumeToTheSameBits) {
  Job job(2);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const double loss = job.metrics().back()["loss"];
  const auto arena_bytes = [](const Job& of) {
    struct stat status {};
    EXPECT_EQ(fstat(of.workers[0]->arena_fd(), &status), 0);
    return status.st_size - static_cast<off_t>(kArenaHeaderBytes);
  };
  Job narrow(2);
  narrow.workload.train.optimizer.moments = "bf16";
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_EQ(arena_bytes(narrow) * 3, arena_bytes(job) * 2);
  EXPECT_NEAR(narrow.metrics().back()["loss"].get<double>(), loss, 0.02 * loss);
  const std::string undisturbed = narrow.digest("step-8.g1");
  EXPECT_NE(undisturbed, job.digest("step-8.g1"));
  narrow.resume("step-3.g1", 3);
  ASSERT_THAT(narrow.run(), Each(kExitFinished)) << narrow.messages();
  EXPECT_EQ(narrow.digest("step-8.g2"), undisturbed);
  EXPECT_TRUE(read_manifest(narrow.workload.checkpoint_dir + "/step-8.g2")->exact);
}

TEST(Worker, EveryWorldSizeLearnsTheSame) {
  std::vector<double> losses;
  for (const int world_size : {1, 2, 4}) {
    Job job(world_size);
    ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
    losses.push_back(job.metrics().back()["loss"]);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-4);
  EXPECT_NEAR(losses[2], losses[0], 1e-4);
}

TEST(Worker, ResumesAtAnotherWorldSizeAndSaysThatItIsNotExact) {
  Job job(2);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const double loss = job.metrics().back()["loss"];
  job.resume("step-3.g1", 3);
  job.workload.world_size = 4;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-4);
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-8.g2");
  ASSERT_TRUE(manifest.ok());
  EXPECT_FALSE(manifest->exact);
  EXPECT_EQ(manifest->inexact_reason, "world size changed from 2 to 4 after step 3");
}

TEST(Worker, AGptGoesOnWithOtherRanksAndAnotherStrategy) {
  Job job(2);
  job.workload.train.model = *model_preset("tiny-gpt");
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const double loss = job.metrics().back()["loss"];
  EXPECT_LT(loss, job.metrics().front()["loss"]);
  job.resume("step-3.g1", 3);
  job.workload.world_size = 4;
  job.workload.train.strategy = "no_shard";
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_NEAR(job.metrics().back()["loss"].get<double>(), loss, 1e-4);
  // A checkpoint of the other architecture is named as such.
  job.resume("step-8.g2", 8);
  job.workload.train.steps = 9;
  job.workload.train.model = *model_preset("tiny");
  job.run();
  EXPECT_THAT(job.messages(), HasSubstr("model.arch is gpt there and llama here"));
}

// With a learning rate of zero the first job keeps its first weights; so the second, which begins
// with them by way of a Hugging Face directory, must see the same loss on the same samples.
class Imported : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Weights, Imported, ::testing::Values("tiny", "tiny-gpt"));

TEST_P(Imported, AreABeginning) {
  Job first(1);
  first.workload.train.model = *model_preset(GetParam());
  first.workload.train.steps = 1;
  first.workload.train.optimizer.lr = 0;
  ASSERT_THAT(first.run(), Each(kExitFinished)) << first.messages();
  const std::string saved = first.workload.checkpoint_dir + "/step-1.g1";
  ASSERT_TRUE(export_huggingface(saved, first / "model", {}).ok());
  ASSERT_TRUE(import_huggingface(first / "model", first / "weights").ok());
  Job second(2);
  second.workload.train.model = *model_preset(GetParam());
  second.workload.resume_checkpoint = first / "weights/step-0.g0";
  second.workload.train.steps = 2;
  ASSERT_THAT(second.run(), Each(kExitFinished)) << second.messages();
  ASSERT_EQ(second.metrics().size(), 2U);
  EXPECT_EQ(second.metrics()[0]["step"], 1);
  EXPECT_NEAR(second.metrics()[0]["loss"].get<double>(), first.metrics()[0]["loss"].get<double>(),
              1e-6)
      << "two ranks add in another order than one";
  EXPECT_NE(second.metrics()[0]["loss"], second.metrics()[1]["loss"]);
  const Manifest manifest = read_manifest(second.workload.checkpoint_dir + "/step-2.g1").value();
  EXPECT_TRUE(manifest.exact);
  EXPECT_FALSE(manifest.weights_only);
}

// Peak memory of rank 0 in bytes.
double measured_peak(Job& job) {
  EXPECT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  return job.metrics().back()["peak_memory_bytes"].get<double>();
}

double planned_peak(const Job& job) {
  const PlanSetting setting = {.train = job.workload.train,
                               .nodes = 1,
                               .workers_per_node = job.workload.world_size,
                               .gpu = false};
  return plan_memory(setting, model_layout(setting.train.model)).total();
}

// What one layer with few words needs beyond its plan is the program with its libraries, which for
// products of the same shapes take the same work space.
TEST(Worker, PeakMemoryIsAsPlanned) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps freed memory and pads what is in use";
#endif
  for (const char* precision : {"fp32", "bf16"}) {
    const auto job_of = [&](Job& job, int64_t layers, int64_t vocab) {
      ModelSpec& model = job.workload.train.model;
      model.dim = 256;
      model.layers = layers;
      model.heads = 8;
      model.kv_heads = 4;
      model.ffn = 1024;
      model.vocab = vocab;
      job.workload.train.precision = precision;
      job.workload.train.data.seq_len = 384;
      job.workload.train.batch.micro = 2;
      job.workload.train.steps = 4;
    };
    Job small(2);
    job_of(small, 1, 256);
    const double program = measured_peak(small) - planned_peak(small);
    Job job(2);
    job_of(job, 6, 4096);
    const double measured = measured_peak(job) - program;
    const double planned = planned_peak(job);
    EXPECT_GT(planned, 3 * planned_peak(small)) << "most of the plan is under test";
    EXPECT_NEAR(measured / planned, 1, 0.1) << precision << ": " << measured << " bytes measured, "
                                            << planned << " planned, program " << program;
  }
}

TEST(Worker, TracesAndEventsAreWhereTheDocsSay) {
  Job job(2);
  job.workload.train.metrics = {.tensorboard = true, .trace_from = 7, .trace_steps = 5};
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(list_directory(job / "tensorboard").value().size(), 1U) << "rank 0 alone writes";
  for (const char* rank : {"0", "1"}) {
    const auto trace = nlohmann::json::parse(
        read_file(job / (std::string("trace/g1.r") + rank + ".json")).value());
    std::set<std::string> seen;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      seen.insert(event["name"].get<std::string>() + " " + event["args"]["step"].dump());
    }
    for (const char* span :
         {"gather layers.1", "forward layers.0", "backward head", "reduce embed"}) {
      EXPECT_TRUE(seen.contains(span + std::string(" 8"))) << span;
    }
    for (const char* part : {"data", "compute", "reduce", "optimizer", "save"}) {
      EXPECT_TRUE(seen.contains(part + std::string(" 7"))) << part;
      EXPECT_TRUE(seen.contains(part + std::string(" 8"))) << part << ": the job's last step";
    }
  }
  const auto last = job.metrics().back();
  EXPECT_GT(last["tflops"], last["tflops_causal"]);
  EXPECT_FALSE(last.contains("mfu")) << "a CPU has no peak to compare with";
  EXPECT_GT(last["peak_memory_bytes"], 1 << 20);
}

TEST(Worker, SavesByTheClockToo) {
  Job job(2);
  job.workload.train.steps = 24;
  job.workload.checkpoint.every_steps = 0;
  job.workload.checkpoint.every_minutes = 1e-5;  // at every step that finds no save under way
  job.workload.checkpoint.keep = 2;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const auto checkpoints = list_checkpoints(job.workload.checkpoint_dir);
  ASSERT_TRUE(checkpoints.ok());
  ASSERT_EQ(checkpoints->size(), 2U) << "keep = 2, and rank 1 agreed to more than the final one";
  EXPECT_EQ(checkpoints->back().step, 24U);
  const auto entries = list_directory(job.workload.checkpoint_dir);
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->size(), 2U) << "nothing half-written stays";
}

TEST(Worker, FinishedJobIsLeftAlone) {
  Job job(1);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  job.resume("step-8.g1", 8);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_FALSE(path_exists(job.workload.checkpoint_dir + "/step-8.g2"));
}

TEST(Worker, SurvivorOfAKilledPeerSaysSoAndExits) {
  Job job(3);
  job.workload.train.batch.global = 3;
  job.workload.train.steps = 1'000'000;
  job.workload.checkpoint.every_steps = 0;
  job.start();
  ASSERT_TRUE(job.workers[0]->wait_for_step(3)) << job.messages();
  job.workers[1]->send(SIGKILL);
  EXPECT_EQ(job.workers[1]->wait(), -SIGKILL);
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(job.workers[survivor]->wait(), kExitPeerLost);
    EXPECT_THAT(job.workers[survivor]->message(), HasSubstr("collective"));
  }
}

TEST(Worker, KilledAtAnyMomentResumesToTheSameBits) {
  Job job(2);
  job.workload.checkpoint.every_steps = 2;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const std::string undisturbed = job.digest("step-8.g1");
  Job broken(2);
  broken.workload.train = job.workload.train;
  broken.workload.train.data.path = job.workload.train.data.path;
  broken.workload.checkpoint.every_steps = 1;
  broken.start();
  ASSERT_TRUE(broken.workers[0]->wait_for_step(5)) << broken.messages();
  for (const auto& worker : broken.workers) worker->send(SIGKILL);
  for (const auto& worker : broken.workers) worker->wait();
  const auto latest = latest_valid_checkpoint(broken.workload.checkpoint_dir, {});
  ASSERT_TRUE(latest.ok());
  if (*latest) {
    broken.resume((*latest)->name(), (*latest)->step);
  } else {
    ++broken.workload.generation;
  }
  if (!*latest || (*latest)->step < 8) {
    ASSERT_THAT(broken.run(), Each(kExitFinished)) << broken.messages();
  }
  const auto final_one = latest_valid_checkpoint(broken.workload.checkpoint_dir, {});
  ASSERT_TRUE(final_one.ok() && *final_one);
  EXPECT_EQ(broken.digest((*final_one)->name()), undisturbed);
}

// Time limit, scancel, preemption: one rank's SIGTERM is enough.
TEST(Worker, SigtermEndsAllRanksWithACheckpointOfTheStepUnderWay) {
  Job job(2);
  job.workload.train.steps = 60;
  job.workload.checkpoint.every_steps = 0;
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  Job stopped(2);
  stopped.workload.train = job.workload.train;
  stopped.workload.checkpoint.every_steps = 0;
  stopped.start();
  ASSERT_TRUE(stopped.workers[0]->wait_for_step(3)) << stopped.messages();
  stopped.workers[1]->send(SIGTERM);
  stopped.workers[1]->send(SIGTERM);  // by Slurm and by the agent
  for (const auto& worker : stopped.workers) EXPECT_EQ(worker->wait(), -SIGTERM);
  const uint64_t reached = stopped.workers[0]->page().step;
  const auto saved = latest_valid_checkpoint(stopped.workload.checkpoint_dir, {});
  ASSERT_TRUE(saved.ok() && *saved);
  EXPECT_EQ((*saved)->step, reached);
  ASSERT_LT(reached, 60U);
  stopped.resume((*saved)->name(), reached);
  ASSERT_THAT(stopped.run(), Each(kExitFinished)) << stopped.messages();
  EXPECT_EQ(stopped.digest("step-60.g2"), job.digest("step-60.g1"));
}

// Two workers that share everything out are killed; four in groups of two go on.
TEST(Worker, KilledThenGoesOnWithOtherRanksAndAnotherStrategy) {
  Job calm(2);
  calm.workload.train.steps = 40;
  ASSERT_THAT(calm.run(), Each(kExitFinished)) << calm.messages();
  Job job(2);
  job.workload.train = calm.workload.train;
  job.workload.checkpoint.every_steps = 2;
  job.start();
  ASSERT_TRUE(job.workers[0]->wait_for_step(8)) << job.messages();
  for (const auto& worker : job.workers) worker->send(SIGKILL);
  for (const auto& worker : job.workers) worker->wait();
  const auto latest = latest_valid_checkpoint(job.workload.checkpoint_dir, {});
  ASSERT_TRUE(latest.ok());
  ASSERT_TRUE(*latest) << "eight steps are enough for a save every second one";
  const uint64_t step = (*latest)->step;
  ASSERT_LT(step, 40U);
  // What the controller does before it starts a generation.
  GenerationRecord record;
  record.generation = 1;
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  record.generation = 2;
  record.parent = 1;
  record.start_step = step;
  record.checkpoint = (*latest)->name();
  ASSERT_TRUE(create_generation(job.workload.checkpoint_dir, record).ok());
  job.resume((*latest)->name(), step);
  job.workload.world_size = 4;
  job.workload.train.strategy = "hybrid";
  job.workload.train.shard_group = 2;
  job.workload.train.memory.activation_checkpointing = "full";
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  // Each of the four wrote its own quarter.
  const auto manifest = read_manifest(job.workload.checkpoint_dir + "/step-40.g2");
  ASSERT_TRUE(manifest.ok()) << manifest.error().message;
  ASSERT_EQ(manifest->files.size(), 4U);
  EXPECT_LT(manifest->files[0].bytes, 1.1 * static_cast<double>(manifest->files[3].bytes));
  EXPECT_FALSE(manifest->exact);
  const auto expected = calm.metrics();
  for (const auto& line : job.metrics()) {
    const double loss = expected.at(line["step"].get<size_t>() - 1)["loss"];
    EXPECT_NEAR(line["loss"].get<double>(), loss, 1e-3 * loss) << line;
  }
  EXPECT_EQ(job.metrics().back()["step"], 40);
  const auto ledger = verify_ledger(job.workload.ledger_dir, job.workload.checkpoint_dir);
  ASSERT_TRUE(ledger.ok()) << ledger.error().message;
  EXPECT_THAT(ledger->problems, ::testing::IsEmpty());
  EXPECT_EQ(ledger->cursor, 160U);
}

// Replicated state: the same bits again after a fault.
TEST(Worker, UnshardedGradientsResumeToTheSameBits) {
  Job job(2);
  job.workload.train.strategy = "no_shard";
  job.workload.train.batch.global = 8;  // two micro-batches, one reduction
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  job.resume("step-3.g1", 3);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  EXPECT_EQ(job.digest("step-8.g2"), job.digest("step-8.g1"));
}

// What cannot be cured by a restart: 93 and one line that names the thing.
struct BadInput {
  const char* name;
  void (*spoil)(Job&);
  const char* message;
};
class Refuses : public ::testing::TestWithParam<BadInput> {};
INSTANTIATE_TEST_SUITE_P(
    BadInput, Refuses,
    ::testing::Values(BadInput{"MissingData",
                               [](Job& j) { j.workload.train.data.path = j / "nothing"; },
                               "nothing"},
                      BadInput{"EmptyData",
                               [](Job& j) {
                                 j.workload.train.data.path = j / "empty";
                                 std::ofstream(j / "empty").close();
                               },
                               "empty"},
                      BadInput{"ShortData",
                               [](Job& j) {
                                 j.workload.train.data.path = j / "short";
                                 std::ofstream(j / "short") << "too short";
                               },
                               "short"},
                      BadInput{"SmallVocabulary",
                               [](Job& j) { j.workload.train.model.vocab = 255; },
                               "workload.train.model.vocab"},
                      BadInput{"CheckpointDirIsAFile",
                               [](Job& j) {
                                 std::ofstream(j / "file") << "x";
                                 j.workload.checkpoint_dir = j / "file/checkpoints";
                               },
                               "file"},
                      BadInput{"OtherModel",
                               [](Job& j) {
                                 ASSERT_THAT(j.run(), Each(kExitFinished)) << j.messages();
                                 j.resume("step-8.g1", 8);
                                 j.workload.train.model.ffn = 256;
                                 j.workload.train.steps = 10;
                               },
                               "step-8.g1"}),
    [](const auto& info) { return info.param.name; });

TEST_P(Refuses, WithOneLine) {
  Job job(1);
  GetParam().spoil(job);
  EXPECT_THAT(job.run(), Each(kExitDoNotRestart)) << job.messages();
  EXPECT_THAT(job.workers[0]->message(), HasSubstr(GetParam().message));
}

TEST(Worker, DataThatDifferBetweenRanksAreRefusedByAll) {
  Job job(2);
  for (const char* name : {"here", "there"}) {
    job.workload.train.data.path = job / name;
    std::ofstream(job / name) << std::string(20'000, name[0]);
    job.workload.rank = static_cast<int32_t>(job.workers.size());
    job.workload.rendezvous_dir = job / "rdzv";
    job.workers.push_back(std::make_unique<WorkerProcess>(job.workload));
  }
  for (const auto& worker : job.workers) {
    EXPECT_EQ(worker->wait(), kExitDoNotRestart);
    EXPECT_THAT(worker->message(), HasSubstr("differs between rank 0 and rank 1"));
  }
}

TEST(Worker, NoMemoryForTheArena) {
  Job job(1);
  job.workload.rank = 0;
  UniqueFd arena(memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(arena.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  WorkerProcess worker(job.workload, std::move(arena));
  EXPECT_EQ(worker.wait(), kExitDoNotRestart);
  EXPECT_THAT(worker.message(), HasSubstr("cannot reserve"));
}

TEST(Worker, DamagedCheckpointIsNamed) {
  Job job(2);
  ASSERT_THAT(job.run(), Each(kExitFinished)) << job.messages();
  const std::string shard = job.workload.checkpoint_dir + "/step-3.g1/shard-00001.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('x');
  }
  job.resume("step-3.g1", 3);
  const std::vector<int> codes = job.run();
  EXPECT_THAT(codes, ::testing::Contains(kExitCheckpointDamaged));
  EXPECT_THAT(job.messages(), HasSubstr("shard-00001.safetensors"));
  job.workload.resume_checkpoint += "x";
  ++job.workload.generation;
  EXPECT_THAT(job.run(), Each(kExitCheckpointDamaged)) << "a missing one is as bad";
}

// File systems that are visible to the worker alone.
bool mount_privately(unsigned long flags, const char* options) {
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("small", "/mnt", "tmpfs", flags, options) == 0;
}
bool small_disk() { return mount_privately(0, "size=256k"); }
bool read_only_disk() { return mount_privately(MS_RDONLY, ""); }

struct BadDisk {
  const char* name;
  bool (*in_child)();
  const char* message;
};
class BadDisks : public ::testing::TestWithParam<BadDisk> {};
INSTANTIATE_TEST_SUITE_P(Disk, BadDisks,
                         ::testing::Values(BadDisk{"Full", small_disk, "No space left on device"},
                                           BadDisk{"ReadOnly", read_only_disk,
                                                   "Read-only file system"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(BadDisks, StopTheJobWithAReason) {
  Job job(1);
  job.workload.rank = 0;
  job.workload.checkpoint_dir = "/mnt";
  WorkerProcess worker(job.workload, WorkerProcess::memory("arena", ""), GetParam().in_child);
  const int code = worker.wait();
  if (code == 77) GTEST_SKIP() << "a mount namespace needs privileges that this run lacks";
  EXPECT_EQ(code, kExitDoNotRestart);
  EXPECT_THAT(worker.message(), HasSubstr(GetParam().message));
}

}  // namespace
}  // namespace hpctl
