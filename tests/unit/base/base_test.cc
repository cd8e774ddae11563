// SPDX-License-Identifier: Apache-2.0
// common/base: checksums against published vectors, files, lineage rule, job document.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "common/base/checksum.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/temporary_file.h"
#include "common/job/exclusion.h"
#include "common/job/job_spec.h"
#include "common/job/lineage.h"
#include "common/job/paths.h"
#include "common/worker/workload.h"
#include "tests/support/temporary_directory.h"

namespace hpctl {
namespace {

TEST(Checksum, Crc32cMatchesRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283U);
  EXPECT_EQ(crc32c("6789", 4, crc32c("12345", 5)), 0xe3069283U);
}

// Long inputs are taken in lanes side by side, single bytes never are.
TEST(Checksum, Crc32cOfLongInputsIsThatOfTheirBytes) {
  std::string bytes(100'003, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761U >> 13);
  uint32_t expected = 0;
  for (size_t size = 1; size <= bytes.size(); ++size) {
    expected = crc32c(&bytes[size - 1], 1, expected);
    if (size % 8192 > 1 && size % 9973 != 0 && size != bytes.size()) continue;
    EXPECT_EQ(crc32c(bytes.data(), size), expected) << size;
  }
}

TEST(Checksum, Crc32cOfTheEndAloneAndOfTwoPartsJoined) {
  const std::string bytes = "the beginning, and the end";
  const uint32_t whole = crc32c(bytes.data(), bytes.size());
  for (size_t begin = 0; begin <= bytes.size(); ++begin) {
    const size_t rest = bytes.size() - begin;
    const uint32_t before = crc32c(bytes.data(), begin);
    const uint32_t end = crc32c(bytes.data() + begin, rest);
    EXPECT_EQ(crc32c_of_end(before, whole, rest), end) << begin;
    EXPECT_EQ(crc32c_joined(before, end, rest), whole) << begin;
  }
}

TEST(Checksum, Sha256MatchesFips180) {
  Sha256 hash;
  hash.update("abc");
  EXPECT_EQ(hash.hex_digest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(File, ExclusiveCreationHasOneWinner) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/record";
  EXPECT_TRUE(create_file_exclusive(path, "first").ok());
  const auto second = create_file_exclusive(path, "second");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(read_file(path).value(), "first");
  EXPECT_EQ(list_directory(dir.path())->size(), 1U) << "the loser must remove its temporary";
}

// A job's directory that was deleted, or whose mount is away.
TEST(File, DirectoriesAreMadeBelowARootThatIsThere) {
  const TemporaryDirectory dir;
  const std::string root = dir / "job";
  const Outcome gone = make_directories_below(root, root + "/nodes/n0");
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(is_accessible(root));
  ASSERT_TRUE(make_directories(root).ok());
  EXPECT_TRUE(make_directories_below(root, root + "/nodes/n0").ok());
  EXPECT_TRUE(is_accessible(root + "/nodes/n0"));
  EXPECT_TRUE(make_directories_below(root, root).ok());
  EXPECT_TRUE(make_directories_below("/", dir / "other").ok());
  EXPECT_TRUE(is_accessible(dir / "other"));
}

TEST(File, OnlyTheDirectoryOfAFileIsMade) {
  const TemporaryDirectory dir;
  const std::string path = dir / "job/logs/rank-0.log";
  EXPECT_EQ(make_directory_of(path).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(is_accessible(dir / "job"));
  ASSERT_TRUE(make_directories(dir / "job").ok());
  EXPECT_TRUE(make_directory_of(path).ok());
  EXPECT_TRUE(make_directory_of(path).ok()) << "it is there";
  EXPECT_TRUE(is_accessible(dir / "job/logs"));
  EXPECT_TRUE(make_directory_of("/file").ok());
  EXPECT_TRUE(make_directory_of("file").ok());
}

TEST(TemporaryFile, HasItsNameOnlyWhenAllOfItIsThere) {
  const TemporaryDirectory dir;
  const std::string path = dir / "file";
  ASSERT_TRUE(write_file_atomic(path, "old").ok());
  {
    auto file = TemporaryFile::create(path);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->append("half").ok());
    EXPECT_EQ(read_file(path).value(), "old");
    EXPECT_EQ(list_directory(dir.path())->size(), 2U) << "beside it, on the same file system";
  }
  EXPECT_EQ(list_directory(dir.path())->size(), 1U) << "given up: removed";
  auto file = TemporaryFile::create(path);
  auto other = TemporaryFile::create(path);
  ASSERT_TRUE(file.ok() && other.ok()) << "two writers of one name do not meet";
  TemporaryFile moved = std::move(file).value();
  ASSERT_TRUE(moved.append("new ").ok() && moved.append("content").ok() && moved.sync().ok());
  ASSERT_TRUE(moved.rename_into_place().ok());
  EXPECT_EQ(read_file(path).value(), "new content");
  EXPECT_EQ(other->link_into_place().error().code, ErrorCode::kAlreadyExists);
}

TEST(TemporaryFile, StepsOverWhatAKilledProcessOfTheSameIdLeft) {
  const TemporaryDirectory dir;
  const std::string path = dir / "file";
  std::string name;
  {
    const auto probe = TemporaryFile::create(path);
    ASSERT_TRUE(probe.ok());
    name = probe->name();
  }
  const size_t dot = name.rfind('.') + 1;
  const std::string next = std::to_string(std::stoull(name.substr(dot)) + 1);
  std::ofstream(name.substr(0, dot) + next) << "leftover";
  const auto file = TemporaryFile::create(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_NE(file->name(), name.substr(0, dot) + next);
}

// A link to itself: nobody can say whether there is something, not even root.
TEST(File, WhatCannotBeLookedForIsNotAbsent) {
  const TemporaryDirectory dir;
  ASSERT_EQ(::symlink("loop", (dir / "loop").c_str()), 0);
  EXPECT_FALSE(path_exists(dir / "loop").ok());
  EXPECT_FALSE(path_exists(dir / "loop/manifest.json").ok());
  EXPECT_FALSE(path_exists(dir / "none").value());
  EXPECT_TRUE(path_exists(dir.path()).value());
  EXPECT_EQ(list_directory(dir / "none").error().code, ErrorCode::kNotFound);
  EXPECT_NE(list_directory(dir / "loop").error().code, ErrorCode::kNotFound);
}

// A link that leads nowhere is listed, and is not found by name, as a file is for an NFS client
// that answers from a stale cache.
TEST(File, EntryIsAbsentOnlyIfItsDirectoryDoesNotListIt) {
  const TemporaryDirectory dir;
  ASSERT_EQ(::symlink("nowhere", (dir / "stale").c_str()), 0);
  ASSERT_FALSE(path_exists(dir / "stale").value());
  EXPECT_EQ(entry_exists(dir / "stale").error().code, ErrorCode::kStorage);
  EXPECT_EQ(read_file_if_there(dir / "stale").error().code, ErrorCode::kStorage);
  EXPECT_EQ(list_directory_if_there(dir / "stale").error().code, ErrorCode::kStorage);
  EXPECT_EQ(entry_exists(dir / "stale/below/manifest.json").error().code, ErrorCode::kStorage);
  EXPECT_FALSE(entry_exists(dir / "none").value());
  EXPECT_FALSE(entry_exists(dir / "none/below/manifest.json").value());
  std::ofstream(dir / "file") << "x";
  EXPECT_TRUE(entry_exists(dir / "file").value());
  EXPECT_FALSE(entry_exists(dir / "file/manifest.json").value());
  EXPECT_TRUE(entry_exists(dir.path() + "/").value());
  EXPECT_TRUE(entry_exists("/").value());
}

// It comes and goes while it is looked for: each look spans at most one of its changes.
TEST(File, EntryThatIsCreatedOrRemovedMeanwhileIsNoFault) {
  const TemporaryDirectory dir;
  const std::string path = dir / "entry";
  std::atomic<uint64_t> looks = 0;
  const auto await_looks = [&] {
    for (const uint64_t until = looks + 2; looks < until;) std::this_thread::yield();
  };
  const auto while_it_changes = [&](const auto& look, const auto& create) {
    std::atomic<bool> done = false;
    std::jthread changes([&] {
      for (int i = 0; i < 500; ++i) {
        create();
        await_looks();
        ASSERT_TRUE(remove_tree(path).ok());
        await_looks();
      }
      done = true;
    });
    for (; !done; ++looks) {
      const auto found = look(path);
      if (!found.ok()) ADD_FAILURE() << found.error().message;
    }
  };
  const auto create_file = [&] { std::ofstream{path} << "x"; };
  while_it_changes([](const auto& path) { return entry_exists(path); }, create_file);
  while_it_changes([](const auto& path) { return read_file_if_there(path); }, create_file);
  while_it_changes([](const auto& path) { return list_directory_if_there(path); },
                   [&] { ASSERT_EQ(::mkdir(path.c_str(), 0700), 0); });
}

TEST(Result, AnErrnoSaysWhetherRoomOrStorageIsMissing) {
  for (const int full : {ENOSPC, EDQUOT}) {
    EXPECT_EQ(errno_error("cannot write", full).code, ErrorCode::kResourceExhausted) << full;
  }
  for (const int away : {EIO, ESTALE, EROFS, EFBIG, ETIMEDOUT, ENOTCONN}) {
    EXPECT_EQ(errno_error("cannot write", away).code, ErrorCode::kStorage) << away;
    EXPECT_EQ(errno_error("cannot write", away).os_error, away);
  }
  // For a full disk older checkpoints are given up: not for want of descriptors or memory.
  for (const int here : {EMFILE, ENFILE, ENOMEM}) {
    EXPECT_EQ(errno_error("cannot write", here).code, ErrorCode::kInternal) << here;
  }
}

TEST(File, LockIsExclusive) {
  const TemporaryDirectory dir;
  auto held = lock_file(dir.path() + "/lock");
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(lock_file(dir.path() + "/lock").error().code, ErrorCode::kAlreadyExists);
  held->reset();
  EXPECT_TRUE(lock_file(dir.path() + "/lock").ok());
}

GenerationRecord record(uint64_t generation, uint64_t parent, uint64_t start_step) {
  GenerationRecord r;
  r.generation = generation;
  r.parent = parent;
  r.start_step = start_step;
  return r;
}

TEST(Lineage, LateCommitOfAStaleGenerationIsIgnored) {
  // g1 trained to 50; g2 restarted from step 20; g1 then committed step 40 late.
  const auto chain = chain_of_newest({record(1, 0, 0), record(2, 1, 20)});
  EXPECT_TRUE(valid_by_lineage({20, 1}, chain));
  EXPECT_FALSE(valid_by_lineage({40, 1}, chain));
  EXPECT_TRUE(valid_by_lineage({40, 2}, chain));
  EXPECT_FALSE(valid_by_lineage({60, 7}, chain)) << "not on the chain";
}

TEST(Lineage, KnownCommitIsThatOfTheSurvivingHistory) {
  GenerationRecord second = record(2, 1, 25);
  second.from_memory = true;
  second.committed = "step-20.g1";
  EXPECT_EQ(find_known_commit({}), "");
  EXPECT_EQ(find_known_commit(chain_of_newest({record(1, 0, 0)})), "");
  EXPECT_EQ(find_known_commit(chain_of_newest({record(1, 0, 0), second})), "step-20.g1");
  EXPECT_EQ(find_known_commit(chain_of_newest({record(1, 0, 0), second, record(3, 2, 0)})), "")
      << "the third began with the seed";
  GenerationRecord elsewhere = record(1, 0, 500);
  elsewhere.checkpoint = "/other/step-500.g3";
  EXPECT_EQ(find_known_commit({elsewhere}), "");
  second.damaged = {"step-20.g1"};
  EXPECT_EQ(find_known_commit(chain_of_newest({record(1, 0, 0), second})), "");
}

// A job that began with an import started from the seed if a fault came before its first save.
TEST(Lineage, ImportStaysValidForTheChainThatBeganWithIt) {
  GenerationRecord first = record(1, 0, 0);
  first.checkpoint = "step-0.g0";
  EXPECT_TRUE(valid_by_lineage({0, 0}, chain_of_newest({first})));
  EXPECT_TRUE(valid_by_lineage({0, 0}, chain_of_newest({first, record(2, 1, 0)})));
  EXPECT_FALSE(valid_by_lineage({0, 0}, chain_of_newest({record(1, 0, 0)})));
}

TEST(Lineage, NamesAreParsedStrictly) {
  EXPECT_EQ(parse_checkpoint_name("step-40.g2"), (CheckpointRef{40, 2}));
  for (const char* bad :
       {"step-40", "step-040.g2", "step--1.g2", "step-4.g2.tmp", "x", "step-.g"}) {
    EXPECT_FALSE(parse_checkpoint_name(bad)) << bad;
  }
}

TEST(Exclusion, IsReadByTheNextLifeAndDamageIsNamed) {
  const TemporaryDirectory dir;
  EXPECT_EQ(read_exclusion(dir.path(), 0)->attempt, 0);
  ASSERT_TRUE(write_exclusion(dir.path(), 3, {{"n2", "n7"}, 1}).ok());
  const auto found = read_exclusion(dir.path(), 3);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->nodes, (std::vector<std::string>{"n2", "n7"}));
  EXPECT_EQ(found->attempt, 1);
  EXPECT_TRUE(read_exclusion(dir.path(), 4)->nodes.empty());
  ASSERT_TRUE(write_file_atomic(dir.path() + "/excluded-4.json", "{\"nodes\": 1}").ok());
  EXPECT_EQ(read_exclusion(dir.path(), 4).error().code, ErrorCode::kDataLoss);
}

TEST(Lineage, RecordsRoundTripAndRaceHasOneWinner) {
  const TemporaryDirectory dir;
  GenerationRecord r = record(3, 2, 17);
  r.members = {{0, "n0", "i-0"}, {1, "n1", "i-1"}};
  r.reason = "worker 1 on n0 died of SIGKILL";
  EXPECT_TRUE(create_generation(dir.path(), r).ok());
  EXPECT_EQ(create_generation(dir.path(), r).error().code, ErrorCode::kAlreadyExists);
  const auto back = read_generation(dir.path(), 3);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(to_json_text(*back), to_json_text(r));
}

// An older release wrote neither whose order it was nor what was withdrawn.
TEST(Lineage, RecordOfAnOlderReleaseIsRead) {
  GenerationRecord r = record(3, 2, 17);
  r.order = "14.0";
  r.withdrawn = {2};
  nlohmann::json older = nlohmann::json::parse(to_json_text(r));
  older.erase("order");
  older.erase("withdrawn");
  const auto parsed = generation_record_from_json(older.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->start_step, 17U);
  EXPECT_EQ(parsed->order, "");
  EXPECT_TRUE(parsed->withdrawn.empty());
  EXPECT_TRUE(find_withdrawn({record(2, 1, 0), *parsed}).empty());
  EXPECT_EQ(find_withdrawn({record(2, 1, 0), r}), (std::set<uint64_t>{2}));
}

TEST(Lineage, ARecordWithNumbersThatCannotBeIsDamaged) {
  const TemporaryDirectory dir;
  const auto problem = [&](const GenerationRecord& r) {
    const auto parsed = generation_record_from_json(to_json_text(r));
    EXPECT_FALSE(create_generation(dir.path(), r).ok());
    return parsed.ok() ? "" : parsed.error().message;
  };
  GenerationRecord r = record(3, 2, 17);
  r.restarts_used = INT64_MAX;  // one line of the restart budget each
  EXPECT_NE(problem(r).find("there were not 9223372036854775807 restarts"), std::string::npos);
  for (const GenerationRecord& wrong :
       {record(0, 0, 0), record(UINT64_MAX, 2, 17), record(3, 3, 17), record(3, 2, UINT64_MAX)}) {
    EXPECT_NE(problem(wrong).find("not a generation record: "), std::string::npos);
  }
  std::string text = to_json_text(record(3, 2, 17));
  const size_t at = text.find(": 17");
  ASSERT_NE(at, std::string::npos);
  for (const char* unfit : {"1e30", "17.5", "-1", "18446744073709551616"}) {
    std::string damaged = text;
    damaged.replace(at, 4, std::string(": ") + unfit);
    const auto parsed = generation_record_from_json(damaged);
    ASSERT_FALSE(parsed.ok()) << unfit;
    EXPECT_NE(parsed.error().message.find("/start_step: expected a whole number from 0 to "),
              std::string::npos)
        << parsed.error().message;
  }
  EXPECT_FALSE(parse_checkpoint_name("step-999999999999999999.g1"));
  EXPECT_FALSE(parse_checkpoint_name("step-1.g999999999999999999"));
}

JobSpec valid_spec() {
  JobSpec spec;
  spec.name = "t";
  spec.nodes = 2;
  spec.workers_per_node = 2;
  TrainSpec train;
  train.model = *model_preset("debugmodel");
  train.data.path = "/x";
  train.data.seq_len = 128;
  train.batch.global = 8;
  train.steps = 10;
  spec.train = train;
  return spec;
}

TEST(JobSpec, RoundTrips) {
  const JobSpec spec = valid_spec();
  const auto back = job_spec_from_json(to_json_text(spec));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_json_text(*back), to_json_text(spec));
}

TEST(JobSpec, ProblemsNameTheKey) {
  JobSpec spec = valid_spec();
  spec.train->batch.global = 6;
  EXPECT_TRUE(find_problems(spec).empty()) << "four workers take 1, 2, 1 and 2 sequences";
  spec.train->batch.global = 3;
  EXPECT_EQ(find_problems(spec).at(0).key, "workload.train.batch.global");
  spec = valid_spec();
  spec.train->model.kv_heads = 3;
  EXPECT_EQ(find_problems(spec).at(0).key, "workload.train.model.kv_heads");
  spec = valid_spec();
  spec.command = {"true"};
  EXPECT_EQ(find_problems(spec).at(0).key, "workload");
}

TEST(Workload, RoundTrips) {
  Workload w;
  w.job = 7;
  w.claimed = true;
  w.train = *valid_spec().train;
  w.last_checkpoint_ms = 40'000;
  const auto back = workload_from_json(to_json_text(w));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(to_json_text(*back), to_json_text(w));
  EXPECT_TRUE(back->claimed);
  EXPECT_EQ(back->last_checkpoint_ms, 40'000);
  w.from_memory = w.is_last = true;
  EXPECT_TRUE(workload_from_json(to_json_text(w))->is_last);
  // Where somebody else writes it nothing is said of nodes: there is one.
  w.world_size = 4;
  nlohmann::json document = nlohmann::json::parse(to_json_text(w));
  document.erase("workers_per_node");
  document.erase("snapshot");
  const auto foreign = workload_from_json(document.dump());
  ASSERT_TRUE(foreign.ok()) << foreign.error().message;
  EXPECT_EQ(foreign->workers_per_node, 4);
}

TEST(HomePaths, OneJobHasItsStateOnTheNodesOwnDisk) {
  const auto paths = HomePaths::of_job("/shared/jobs/submit-k/", JobId{42}, "n7");
  EXPECT_EQ(paths.job(JobId{42}), "/shared/jobs/submit-k");
  EXPECT_EQ(paths.job_status(JobId{42}), "/shared/jobs/submit-k/status.json");
  const std::string local = "/tmp/hpctl-" + std::to_string(::geteuid()) + "/job-42-n7";
  EXPECT_EQ(paths.state(), local);
  EXPECT_EQ(paths.controller_socket(), local + "/controller.sock");
  EXPECT_EQ(paths.node_lock(JobId{42}, "n7"), local + "/lock");
  EXPECT_EQ(paths.node_log(JobId{42}, "n7"), "/shared/jobs/submit-k/nodes/n7/agent.log");
  EXPECT_EQ(paths.controller_log(), "/shared/jobs/submit-k/nodes/n7/controller.log");
}

TEST(HomePaths, ALongNodeNameLeavesRoomForTheSocket) {
  const std::string name(200, 'x');
  const auto one = HomePaths::of_job("/shared/j", JobId{UINT64_MAX}, name + "1");
  const auto other = HomePaths::of_job("/shared/j", JobId{UINT64_MAX}, name + "2");
  EXPECT_LE(one.controller_socket().size(), 107U);
  EXPECT_NE(one.state(), other.state());
}

}  // namespace
}  // namespace hpctl
