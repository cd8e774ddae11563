// SPDX-License-Identifier: Apache-2.0
// hpctl checkpoint: what people and programs see, and the exit status, for good and bad
// directories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/host.h"
#include "common/base/json.h"
#include "common/job/directory_owner.h"
#include "common/job/lineage.h"
#include "tests/support/command_run.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/checkpoint/synthetic_state.h"
#include "trainer/checkpoint/commit.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/data/ledger.h"
#include "trainer/plan/memory_plan.h"

namespace hpctl {
namespace {

using nlohmann::json;
using test::CommandRun;
using testing::HasSubstr;

class CheckpointVerb : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(save_synthetic({dir_.path(), {20, 1}, 2, 1, 0, {}}).ok());
    ASSERT_TRUE(save_synthetic({dir_.path(), {40, 1}, 3, 2, 0, {{5, 7}}}).ok());
  }
  static CommandRun call(std::vector<std::string> words) {
    words.insert(words.begin(), "checkpoint");
    return test::run_hpctl(words);
  }
  void damage(const std::string& file) {
    const std::string bytes = read_file(dir_ / file).value();
    std::string bad = bytes;
    bad[bad.size() - 3] ^= 1;
    ASSERT_TRUE(write_file_atomic(dir_ / file, bad).ok());
  }
  TemporaryDirectory dir_;
};

TEST_F(CheckpointVerb, LsShowsEveryOneAndWhetherItCounts) {
  ASSERT_TRUE(write_synthetic_shard({dir_.path(), {60, 1}, 2, 1, 0, {}}, 0).ok());
  const CommandRun text = call({"ls", dir_.path()});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("step-20.g1"));
  EXPECT_THAT(text.out, HasSubstr("incomplete"));
  const json document = json::parse(call({"ls", dir_.path(), "--json"}).out);
  ASSERT_EQ(document.at("checkpoints").size(), 3U);
  EXPECT_EQ(document["checkpoints"][1]["name"], "step-40.g1");
  EXPECT_EQ(document["checkpoints"][1]["state"], "valid");
  EXPECT_EQ(document["checkpoints"][1]["world_size"], 3);
  EXPECT_EQ(document["checkpoints"][2]["state"], "incomplete");
}

TEST_F(CheckpointVerb, ShowMeansTheNewestValidOneOrTheOneNamed) {
  EXPECT_EQ(json::parse(call({"show", dir_.path(), "--json"}).out),
            json::parse(R"({"step":40,"generation":1,"parent":0,"world_size":3,
                            "sample_cursor":320,"skipped":[[5,7]]})"));
  EXPECT_EQ(json::parse(call({"show", dir_ / "step-20.g1/", "--json"}).out)["step"], 20);
  EXPECT_THAT(call({"show", dir_.path()}).out, HasSubstr("workers        3\n"));
}

// What hpctl plan tells of a checkpoint's size.
TEST_F(CheckpointVerb, PlannedBytesAreThoseOfAllRanges) {
  const Manifest manifest = read_manifest(dir_ / "step-40.g1").value();
  double bytes = 0;
  for (const ShardEntry& entry : manifest.shards)
    bytes += 4.0 * static_cast<double>(entry.range.size());
  EXPECT_EQ(checkpoint_bytes(manifest.blocks), bytes);
}

TEST_F(CheckpointVerb, DigestPrintsOneLineOfHex) {
  const CommandRun answer = call({"digest", dir_ / "step-20.g1"});
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.out, digest_checkpoint(dir_ / "step-20.g1").value() + "\n");
}

TEST_F(CheckpointVerb, VerifySaysUndamagedOrNamesTheDamage) {
  EXPECT_THAT(call({"verify", dir_.path()}).out, HasSubstr("step-40.g1: undamaged, "));
  damage("step-40.g1/shard-00002.safetensors");
  const CommandRun damaged = call({"verify", dir_.path()});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.err, HasSubstr("shard-00002.safetensors: head exp_avg_sq"));
  const CommandRun document = call({"verify", dir_.path(), "--json"});
  EXPECT_EQ(document.status, 1);
  EXPECT_EQ(json::parse(document.out)["problems"].size(), 1U);
  const CommandRun digest = call({"digest", dir_.path()});
  EXPECT_EQ(digest.status, 1);
  EXPECT_EQ(digest.out, "") << "no digest of damaged bytes";
  damage("step-40.g1/manifest.json");
  EXPECT_THAT(call({"show", dir_.path()}).err, HasSubstr("manifest.json is damaged"));
}

TEST_F(CheckpointVerb, ExportAndImportSayWhatTheyWrote) {
  const CommandRun exported =
      call({"export", dir_.path(), dir_ / "model", "--dtype", "bf16", "--json"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(json::parse(exported.out)["tensors"], 21);
  EXPECT_EQ(call({"export", dir_.path(), dir_ / "model"}).status, 1) << "it is there already";
  const CommandRun imported = call({"import", dir_ / "model", dir_ / "weights"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("checkpoint.resume: " + (dir_ / "weights/step-0.g0")));
  EXPECT_THAT(call({"show", dir_ / "weights"}).out, HasSubstr("parameters only, imported"));
  EXPECT_EQ(call({"export", dir_.path(), dir_ / "x", "--dtype", "fp8"}).status, 2);
  EXPECT_EQ(call({"show", dir_.path(), "--dtype", "bf16"}).status, 2);
  EXPECT_EQ(call({"import", dir_ / "model"}).status, 2);
  EXPECT_THAT(call({"import", dir_ / "none", dir_ / "w"}).err,
              HasSubstr("has no config.json; expected a Hugging Face model directory"));
  ASSERT_EQ(::unlink((dir_ / "model/model.safetensors").c_str()), 0);
  EXPECT_THAT(call({"import", dir_ / "model", dir_ / "w"}).err,
              HasSubstr("has no model.safetensors; weights in another form"));
}

TEST_F(CheckpointVerb, DiffTellsSameFromDifferent) {
  EXPECT_EQ(call({"diff", dir_ / "step-40.g1", dir_.path()}).status, 0);
  const CommandRun different = call({"diff", dir_ / "step-20.g1", dir_ / "step-40.g1"});
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.out, HasSubstr("lm_head.weight.exp_avg"));
  EXPECT_FALSE(json::parse(call({"diff", dir_ / "step-20.g1", dir_.path(), "--json"}).out)["same"]);
}

TEST_F(CheckpointVerb, DiffTellsHowLargeASmallDifferenceIs) {
  ASSERT_EQ(call({"export", dir_.path(), dir_ / "model"}).status, 0);
  const std::string path = dir_ / "model/model.safetensors";
  std::string text = read_file(path).value();
  for (const float last : {0.0F, 0.25F}) {
    std::memcpy(text.data() + text.size() - sizeof last, &last, sizeof last);
    ASSERT_TRUE(write_file_atomic(path, text).ok());
    ASSERT_EQ(call({"import", dir_ / "model", dir_ / (last == 0 ? "a" : "b")}).status, 0);
  }
  EXPECT_THAT(call({"diff", dir_ / "a", dir_ / "b"}).out, HasSubstr("  0.25\n"));
}

TEST_F(CheckpointVerb, LedgerProvesOrNamesWhatIsMissing) {
  EXPECT_EQ(call({"ledger", dir_.path()}).status, 1);
  auto writer = LedgerWriter::create(dir_ / "ledger", 1, 0);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->append(1, {{0, 5}, {7, 319}}, 0).ok());
  const CommandRun missing = call({"ledger", dir_.path()});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.err, HasSubstr("sample 319 never counted"));
  ASSERT_TRUE(writer->append(2, {{319, 320}}, 0).ok());
  EXPECT_THAT(call({"ledger", dir_.path()}).out,
              HasSubstr("below 320 (step 40) counted exactly once"));
}

TEST_F(CheckpointVerb, WrongArgumentsAreStatus2) {
  EXPECT_EQ(call({"ls"}).status, 2);
  EXPECT_EQ(call({"diff", dir_.path()}).status, 2);
  EXPECT_EQ(call({"ls", dir_.path(), dir_.path()}).status, 2);
  const CommandRun unknown = call({"verfy", dir_.path()});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(
      unknown.err,
      HasSubstr("expected ls, rm, adopt, show, verify, digest, diff, ledger, export or import"));
  EXPECT_EQ(call({"rm", dir_.path()}).status, 2) << "neither a chain nor names";
  EXPECT_EQ(call({"rm", dir_.path(), "step-20.g1", "--chain", "1"}).status, 2);
  EXPECT_EQ(call({"rm", dir_.path(), "20", "--yes"}).status, 2);
  EXPECT_EQ(call({"adopt", dir_.path()}).status, 2);
  EXPECT_EQ(call({"show", dir_.path(), "--yes"}).status, 2);
  EXPECT_EQ(call({"diff", dir_.path(), dir_.path(), dir_.path()}).status, 2);
  const CommandRun gone = call({"verify", dir_ / "gone"});
  EXPECT_EQ(gone.status, 1);
  EXPECT_THAT(gone.err, HasSubstr("No such file or directory"));
}

// One directory with the chains of two jobs: "former" recorded generation 1, and "fresh" began anew
// with generation 2 and owns the directory.
class CheckpointChains : public testing::Test {
 protected:
  void SetUp() override {
    record(1, 0, "former", 0);
    record(2, 0, "fresh", 0);
    for (const CheckpointRef ref : {CheckpointRef{10, 1}, {20, 1}, {2, 2}, {4, 2}}) {
      ASSERT_TRUE(save_synthetic({dir_.path(), ref, 2, 1, 0, {}}).ok());
    }
    own(ended("fresh"));
  }
  void record(uint64_t generation, uint64_t parent, const std::string& job, uint64_t start_step,
              const std::string& checkpoint = "") const {
    GenerationRecord r;
    r.generation = generation;
    r.parent = parent;
    r.start_step = start_step;
    r.checkpoint = checkpoint;
    r.job = 7;  // of each home
    r.job_name = job;
    r.job_uuid = "uuid-" + job;
    ASSERT_TRUE(create_generation(dir_.path(), r).ok());
  }
  // A job of a home on this machine that does not know it any more.
  JobIdentity ended(const std::string& name) const {
    EXPECT_TRUE(make_directories(home_.path()).ok());
    JobIdentity job;
    job.uuid = "uuid-" + name;
    job.name = name;
    job.home = home_.path();
    job.machine = host_name();
    return job;
  }
  // A job with a directory in which there is no verdict.
  JobIdentity living(const std::string& name) const {
    JobIdentity job = ended(name);
    job.home.clear();
    job.job = 7;
    job.job_dir = home_ / "job";
    return job;
  }
  void own(const JobIdentity& job) const {
    ASSERT_TRUE(
        write_file_atomic(dir_ / "owner.json", to_json_text(DirectoryOwner{job, {}, false})).ok());
  }
  CommandRun call(const std::string& what, std::vector<std::string> words) const {
    words.insert(words.begin(), {"checkpoint", what, dir_.path()});
    return test::run_hpctl(words);
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const CheckpointRef& ref : list_checkpoints(dir_.path()).value()) {
      names.push_back(ref.name());
    }
    return names;
  }

  const TemporaryDirectory dir_;
  const TemporaryDirectory home_;
};

// Nothing began with the record of an order that was withdrawn.
TEST_F(CheckpointChains, WithdrawnRecordIsNoChain) {
  record(3, 2, "fresh", 4, "step-4.g2");
  GenerationRecord next = read_generation(dir_.path(), 3).value();
  next.generation = 4;
  next.withdrawn = {3};
  ASSERT_TRUE(create_generation(dir_.path(), next).ok());
  const json document = json::parse(call("ls", {"--json"}).out);
  ASSERT_EQ(document["chains"].size(), 2U);
  EXPECT_EQ(document["chains"][0]["chain"], 4);
  EXPECT_EQ(document["chains"][1]["chain"], 1);
}

TEST_F(CheckpointChains, LsShowsAllChainsAndTheOwner) {
  const CommandRun text = call("ls", {});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("step-20.g1  foreign  1 "));
  EXPECT_THAT(text.out, HasSubstr("of the chain of job 7 \"former\""));
  EXPECT_THAT(text.out, HasSubstr("the owner's, resumed from"));
  EXPECT_THAT(text.out, HasSubstr("owner: job \"fresh\" (HPCTL_HOME " + home_.path() + ")\n"));
  EXPECT_THAT(text.out, HasSubstr("resume: latest starts from step-4.g2\n"));

  const json document = json::parse(call("ls", {"--json"}).out);
  EXPECT_EQ(document["resume"], "step-4.g2");
  EXPECT_EQ(document["owner"]["uuid"], "uuid-fresh");
  ASSERT_EQ(document["chains"].size(), 2U);
  const json newest = document["chains"][0];
  EXPECT_EQ(newest["chain"], 2);
  EXPECT_EQ(newest["newest"], "step-4.g2");
  EXPECT_EQ(newest["owners"], true);
  EXPECT_EQ(newest["latest"], true);
  const json former = document["chains"][1];
  EXPECT_EQ(former["chain"], 1);
  EXPECT_EQ(former["job_name"], "former");
  EXPECT_EQ(former["newest"], "step-20.g1");
  EXPECT_EQ(former["checkpoints"], 2);
  EXPECT_EQ(former["owners"], false);
  uint64_t bytes = 0;
  for (const char* name : {"step-10.g1", "step-20.g1"}) {
    for (const std::string& file : list_directory(dir_ / name).value()) {
      bytes += std::filesystem::file_size(dir_ / (name + ("/" + file)));
    }
  }
  EXPECT_EQ(former["bytes"], bytes);
}

TEST_F(CheckpointChains, LsShowsThemWithADamagedOwner) {
  ASSERT_TRUE(write_file_atomic(dir_ / "owner.json", "{").ok());
  const CommandRun text = call("ls", {});
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.err, HasSubstr("owner.json is damaged"));
  EXPECT_THAT(text.out, HasSubstr("step-20.g1"));
}

TEST_F(CheckpointChains, RmWithoutYesRemovesNothing) {
  const CommandRun asked = call("rm", {"--chain", "1"});
  EXPECT_EQ(asked.status, 1);
  EXPECT_THAT(asked.out, HasSubstr("step-10.g1"));
  EXPECT_THAT(asked.err, HasSubstr("nothing is removed; add --yes to remove 2 checkpoints, "));
  EXPECT_EQ(checkpoints().size(), 4U);
}

// Nothing else deletes a foreign chain, and a job that lives goes on beside it.
TEST_F(CheckpointChains, RmRemovesAForeignChainBesideALivingJob) {
  own(living("fresh"));
  const CommandRun removed = call("rm", {"--chain", "1", "--yes", "--json"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-2.g2", "step-4.g2"}));
  const json document = json::parse(removed.out);
  EXPECT_EQ(document["removed"].size(), 2U);
  EXPECT_EQ(document["removed"][0]["name"], "step-10.g1");
  EXPECT_GT(document["bytes"], 1000);
  EXPECT_EQ(document["resume"], "step-4.g2");
  EXPECT_EQ(read_lineage(dir_.path())->size(), 2U) << "records stay";
  const CommandRun again = call("rm", {"--chain", "1", "--yes"});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr("chain 1 has no checkpoints"));
}

TEST_F(CheckpointChains, RmKeepsWhatALivingJobMayNeed) {
  own(living("fresh"));
  const CommandRun own_one = call("rm", {"step-10.g1", "step-2.g2", "--yes"});
  EXPECT_EQ(own_one.status, 1);
  EXPECT_THAT(own_one.err,
              HasSubstr("cannot remove step-2.g2: " + dir_.path() + " belongs to job 7"));
  EXPECT_THAT(own_one.err, HasSubstr("it has no verdict in"));
  EXPECT_EQ(checkpoints().size(), 4U) << "all of them, or none";

  // What it started from, before it saved anything.
  record(3, 0, "third", 10, dir_ / "step-10.g1");
  own(living("third"));
  EXPECT_EQ(call("rm", {"step-10.g1", "--yes"}).status, 1);
  EXPECT_EQ(call("rm", {"step-20.g1", "--yes"}).status, 0);
  // What it continues.
  record(4, 2, "fourth", 4, "step-4.g2");
  own(living("fourth"));
  EXPECT_EQ(call("rm", {"step-2.g2", "--yes"}).status, 1);
}

TEST_F(CheckpointChains, RmWaitsForAJobThatHasNotStarted) {
  own(living("new"));
  const CommandRun refused = call("rm", {"--chain", "1", "--yes"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("it has recorded no generation yet"));
  EXPECT_EQ(checkpoints().size(), 4U);
}

TEST_F(CheckpointChains, RmOfAnEndedJobSaysWhatIsResumed) {
  const CommandRun one = call("rm", {"step-4.g2", "--yes"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("removed 1 checkpoint, "));
  EXPECT_THAT(one.out, HasSubstr("resume: latest starts from step-2.g2"));
  ASSERT_TRUE(write_synthetic_shard({dir_.path(), {6, 2}, 2, 1, 0, {}}, 0).ok());
  const CommandRun rest = call("rm", {"--chain", "2", "--yes"});
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("incomplete"));
  EXPECT_THAT(rest.out, HasSubstr("no checkpoint here can be resumed from"));
  EXPECT_EQ(list_directory(dir_.path()).value(),
            (std::vector<std::string>{"generations", "owner.json", "step-10.g1", "step-20.g1"}));
}

// A site keeps old checkpoints on another file system and links to them.
TEST_F(CheckpointChains, RmOfALinkKeepsWhatItLeadsTo) {
  const std::string kept = home_ / "kept";
  std::filesystem::rename(dir_ / "step-10.g1", kept);
  std::filesystem::create_symlink(kept, dir_ / "step-10.g1");
  EXPECT_EQ(call("rm", {"step-10.g1", "--yes"}).status, 0);
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-2.g2", "step-4.g2", "step-20.g1"}));
  const auto whole = verify_checkpoint(kept);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_TRUE(whole->problems.empty());
}

TEST_F(CheckpointChains, AdoptMakesAChainTheOneThatIsResumed) {
  const CommandRun adopted = call("adopt", {"--chain", "1", "--json"});
  ASSERT_EQ(adopted.status, 0) << adopted.err;
  EXPECT_EQ(json::parse(adopted.out),
            json::parse(R"({"chain": 3, "adopted": 1, "resume": "step-20.g1"})"));
  EXPECT_EQ(*latest_valid_checkpoint(dir_.path(), {}).value(), (CheckpointRef{20, 1}));
  const json listed = json::parse(call("ls", {"--json"}).out);
  EXPECT_EQ(listed["resume"], "step-20.g1");
  EXPECT_EQ(listed["chains"][0]["chain"], 3);
  EXPECT_EQ(listed["chains"][0]["job_name"], "former");
  EXPECT_EQ(listed["chains"][1]["chain"], 2);
  EXPECT_EQ(listed["chains"][1]["newest"], "step-4.g2") << "it can be adopted again";

  // The next job continues it, and its retention leaves the other chain alone.
  record(4, 3, "next", 20, "step-20.g1");
  ASSERT_TRUE(save_synthetic({dir_.path(), {30, 4}, 2, 1, 0, {}}).ok());
  ASSERT_TRUE(delete_older_checkpoints(dir_.path(), {.generation = 4}).ok());
  EXPECT_EQ(checkpoints(), (std::vector<std::string>{"step-2.g2", "step-4.g2", "step-30.g4"}));

  EXPECT_EQ(call("adopt", {"--chain", "2"}).status, 0);
  EXPECT_EQ(*latest_valid_checkpoint(dir_.path(), {}).value(), (CheckpointRef{4, 2}));
}

// The home of the owner is gone for good. Neither rm nor adopt could be used there ever again.
TEST_F(CheckpointChains, UnreachableOwnerIsOverridden) {
  JobIdentity gone = ended("fresh");
  gone.home = home_ / "gone";
  own(gone);
  for (const CommandRun& refused :
       {call("rm", {"step-4.g2", "--yes"}), call("adopt", {"--chain", "1"})}) {
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.err, HasSubstr("is not on this machine"));
    EXPECT_THAT(refused.err, HasSubstr("if it has ended, add --take-directory"));
  }
  EXPECT_EQ(call("rm", {"step-4.g2", "--take-directory"}).status, 1) << "without --yes";
  EXPECT_EQ(read_directory_owner(dir_.path()).value()->owner.uuid, gone.uuid);

  const CommandRun removed = call("rm", {"step-4.g2", "--yes", "--take-directory"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  const auto owner = read_directory_owner(dir_.path()).value();
  EXPECT_EQ(owner->owner.name, "hpctl checkpoint rm");
  EXPECT_EQ(owner->former.value_or(JobIdentity{}).uuid, gone.uuid);
  EXPECT_TRUE(owner->taken);
  EXPECT_FALSE(check_ownership(dir_.path(), gone).ok()) << "if it lives, it may not go on";
  EXPECT_EQ(call("adopt", {"--chain", "1"}).status, 0) << "a command has ended";

  own(gone);
  EXPECT_EQ(call("adopt", {"--chain", "2", "--take-directory"}).status, 0);
  EXPECT_EQ(read_directory_owner(dir_.path()).value()->owner.name, "hpctl checkpoint adopt");
}

TEST_F(CheckpointChains, LivingOwnerIsNotOverridden) {
  own(living("fresh"));
  const CommandRun rm = call("rm", {"step-4.g2", "--yes", "--take-directory"});
  EXPECT_EQ(rm.status, 1);
  EXPECT_THAT(rm.err, HasSubstr("cancel that job first"));
  EXPECT_EQ(call("adopt", {"--chain", "1", "--take-directory"}).status, 1);
  EXPECT_EQ(checkpoints().size(), 4U);
  EXPECT_EQ(read_directory_owner(dir_.path()).value()->owner.uuid, "uuid-fresh");
  EXPECT_EQ(call("ls", {"--take-directory"}).status, 2);
}

TEST_F(CheckpointChains, DamagedOwnerIsOverridden) {
  ASSERT_TRUE(write_file_atomic(dir_ / "owner.json", "{").ok());
  EXPECT_EQ(call("adopt", {"--chain", "1"}).status, 1);
  EXPECT_EQ(call("adopt", {"--chain", "1", "--take-directory"}).status, 0);
  EXPECT_EQ(read_directory_owner(dir_.path()).value()->owner.name, "hpctl checkpoint adopt");
}

TEST_F(CheckpointChains, AdoptRefusesWhatItCannotDo) {
  const CommandRun newest = call("adopt", {"--chain", "2"});
  EXPECT_EQ(newest.status, 1);
  EXPECT_THAT(newest.err, HasSubstr("chain 2 is the newest one"));
  const CommandRun unknown = call("adopt", {"--chain", "9"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_THAT(unknown.err, HasSubstr("there is no chain 9; chains: 2, 1"));
  own(living("fresh"));
  const CommandRun used = call("adopt", {"--chain", "1"});
  EXPECT_EQ(used.status, 1);
  EXPECT_THAT(used.err, HasSubstr("cannot adopt: " + dir_.path() + " belongs to job 7"));
  own(ended("fresh"));
  ASSERT_EQ(call("rm", {"--chain", "1", "--yes"}).status, 0);
  const CommandRun empty = call("adopt", {"--chain", "1"});
  EXPECT_EQ(empty.status, 1);
  EXPECT_THAT(empty.err, HasSubstr("has no valid checkpoint to resume from"));
  EXPECT_EQ(read_lineage(dir_.path())->size(), 2U) << "nothing was recorded";
}

}  // namespace
}  // namespace hpctl
