// SPDX-License-Identifier: Apache-2.0
// The store: rows survive, entries are kept in order and bounded, failures name path and remedy.
#include "controller/engine/store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "controller/core/codec.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/core/fake_shell.h"

namespace hpctl {
namespace {

core::EventBody submission(const std::string& name) {
  JobSpec spec;
  spec.name = name;
  spec.nodes = 2;
  spec.command = {"true"};
  spec.checkpoint.dir = "/nowhere/" + name;
  return core::JobSubmitted{spec, 7, name};
}

// Steps the event and commits what it brought.
void commit(Store& store, core::State& state, core::EventBody body) {
  const core::Event event{Seq{state.last_seq.value + 1}, state.now_ms + 10, 1, std::move(body)};
  const auto result = core::step(state, event);
  std::vector<StoredEntry> entries;
  for (const auto& entry : result.log) entries.push_back({0, event.wall_ms, entry});
  const auto written = store.commit(state, result.dirty, entries);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

std::string digest(const core::State& state) {
  std::string text = std::to_string(state.last_seq.value) + " " + std::to_string(state.now_ms) +
                     " " + std::to_string(state.last_local_job.value) + "\n";
  for (const auto& [id, row] : state.jobs) text += core::encode(row) + "\n";
  for (const auto& [key, row] : state.nodes) text += core::encode(row) + "\n";
  for (const auto& [key, row] : state.slots) text += core::encode(row) + "\n";
  for (const auto& [id, row] : state.outbox) text += core::encode(row) + "\n";
  return text;
}

TEST(Store, LoadsWhatWasCommitted) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/db";
  core::State state;
  {
    auto store = Store::open(path, Store::Mode::kOwner);
    ASSERT_TRUE(store.ok()) << store.error().message;
    commit(**store, state, submission("a"));
    commit(**store, state, core::NodeLaunched{state.outbox.begin()->first, JobId{1}, "n0", 42});
  }
  auto store = Store::open(path, Store::Mode::kOwner);
  ASSERT_TRUE(store.ok()) << store.error().message;
  const auto loaded = (*store)->load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(digest(*loaded), digest(state));
  EXPECT_EQ(loaded->index, state.index);
  struct stat st {};
  ASSERT_EQ(::stat(path.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 077U, 0U) << "job specifications may carry secrets";
}

// As a release of schema version 1 left them: a row for each rank.
void make_rows_of_version_1(const std::string& path, const core::State& state) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  std::string sql = "DELETE FROM slots; PRAGMA user_version=1;";
  for (const auto& [key, row] : state.slots) {
    sql += "INSERT INTO slots VALUES(" + to_string(key.job) + "," + to_string(key.rank) + ",'" +
           core::encode(row) + "');";
  }
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
}

int64_t count_rows_of_slots(const std::string& path) {
  sqlite3* database = nullptr;
  sqlite3_stmt* count = nullptr;
  EXPECT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  sqlite3_prepare_v2(database, "SELECT count(*) FROM slots", -1, &count, nullptr);
  EXPECT_EQ(sqlite3_step(count), SQLITE_ROW);
  const int64_t rows = sqlite3_column_int64(count, 0);
  sqlite3_finalize(count);
  sqlite3_close(database);
  return rows;
}

TEST(Store, TheSlotsOfANodeAreOneRow) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/db";
  core::FakeShell shell;
  JobSpec spec = core::small_job("slots", true);
  spec.nodes = 3;
  spec.workers_per_node = kSlotsPerRow;
  const JobId job = shell.submit(spec);
  shell.settle();
  const auto all = [&] {
    core::Dirty dirty;
    for (const auto& [id, row] : shell.state.jobs) dirty.jobs.insert(id);
    for (const auto& [key, row] : shell.state.nodes) dirty.nodes.insert(key);
    for (const auto& [key, row] : shell.state.slots) dirty.slots.insert(key);
    return dirty;
  }();
  auto store = Store::open(path, Store::Mode::kOwner);
  ASSERT_TRUE(store.ok());
  std::vector<StoredEntry> none;
  ASSERT_TRUE((*store)->commit(shell.state, all, none).ok());
  EXPECT_EQ(count_rows_of_slots(path), 3);
  core::Dirty dirty;  // one slot of the second row
  const core::SlotKey key{job, Rank{kSlotsPerRow + 2}};
  dirty.slots.insert(key);
  shell.state.slots.at(key).exit_code = 7;
  ASSERT_TRUE((*store)->commit(shell.state, dirty, none).ok());
  EXPECT_EQ(count_rows_of_slots(path), 3);
  const auto loaded = (*store)->load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(digest(*loaded), digest(shell.state));
}

TEST(Store, OpensWhatTheReleaseBeforeWrote) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/db";
  core::State state;
  {
    auto store = Store::open(path, Store::Mode::kOwner);
    ASSERT_TRUE(store.ok());
    commit(**store, state, submission("a"));
    commit(**store, state, submission("b"));
  }
  make_rows_of_version_1(path, state);
  EXPECT_FALSE(Store::open(path, Store::Mode::kReader).ok()) << "which cannot bring it up to date";
  for (int i = 0; i < 2; ++i) {
    auto store = Store::open(path, Store::Mode::kOwner);
    ASSERT_TRUE(store.ok()) << store.error().message;
    const auto loaded = (*store)->load();
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(digest(*loaded), digest(state));
  }
  EXPECT_EQ(count_rows_of_slots(path), 2) << "one of each job";
  EXPECT_TRUE(Store::open(path, Store::Mode::kReader).ok());
}

TEST(Store, ARemovedJobLeavesNoRow) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/db";
  core::State state;
  {
    auto store = Store::open(path, Store::Mode::kOwner);
    ASSERT_TRUE(store.ok()) << store.error().message;
    commit(**store, state, submission("a"));
    commit(**store, state, submission("b"));
    core::Job& job = state.jobs.at(JobId{1});
    job.removed = true;
    core::Dirty dirty;
    dirty.jobs.insert(job.id);
    dirty.slots.insert({job.id, Rank{0}});
    std::vector<StoredEntry> entries(1);
    entries[0].entry.job = job.id;
    ASSERT_TRUE((*store)->commit(state, dirty, entries).ok());
    const auto history = (*store)->entries_after(job.id, 0, 100);
    ASSERT_TRUE(history.ok());
    EXPECT_TRUE(history->empty());
  }
  auto store = Store::open(path, Store::Mode::kOwner);
  ASSERT_TRUE(store.ok()) << store.error().message;
  const auto loaded = (*store)->load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_EQ(loaded->jobs.size(), 1U);
  EXPECT_EQ(loaded->jobs.begin()->first, JobId{2});
  EXPECT_EQ(loaded->nodes.begin()->first.job, JobId{2});
  EXPECT_EQ(loaded->slots.begin()->first.job, JobId{2});
  EXPECT_EQ(loaded->last_local_job, JobId{2}) << "no job gets its number again";
}

TEST(Store, AReaderSeesCommittedEntriesInOrder) {
  const TemporaryDirectory dir;
  const std::string path = dir.path() + "/db";
  core::State state;
  auto store = Store::open(path, Store::Mode::kOwner);
  ASSERT_TRUE(store.ok());
  commit(**store, state, submission("a"));
  auto reader = Store::open(path, Store::Mode::kReader);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  const auto first = (*reader)->entries_after(JobId{1}, 0, 100);
  ASSERT_TRUE(first.ok());
  ASSERT_FALSE(first->empty());
  EXPECT_EQ(first->front().entry.type, "JobSubmitted");
  commit(**store, state, core::CancelRequested{JobId{1}, 7});
  const auto next = (*reader)->entries_after(JobId{1}, first->back().id, 100);
  ASSERT_TRUE(next.ok());
  ASSERT_FALSE(next->empty());
  EXPECT_EQ(next->front().entry.type, "CancelRequested");
  EXPECT_EQ((*reader)->last_id_up_to(JobId{1}, Seq{1}).value(), first->back().id);
}

TEST(Store, KeepsABoundedHistoryPerJob) {
  const TemporaryDirectory dir;
  auto store = Store::open(dir.path() + "/db", Store::Mode::kOwner);
  ASSERT_TRUE(store.ok());
  core::State state;
  commit(**store, state, submission("a"));
  std::vector<StoredEntry> entries;
  for (int64_t i = 0; i < kEventsKeptPerJob + 3'000; ++i) {
    core::LogEntry entry;
    entry.seq = Seq{static_cast<uint64_t>(i + 2)};
    entry.job = JobId{1};
    entry.type = "X";
    entries.push_back({0, 0, entry});
  }
  ASSERT_TRUE((*store)->commit(state, {}, entries).ok());
  const auto kept = (*store)->entries_after(JobId{1}, 0, 1'000'000);
  ASSERT_TRUE(kept.ok());
  EXPECT_GE(kept->size(), static_cast<size_t>(kEventsKeptPerJob));
  EXPECT_LE(kept->size(), static_cast<size_t>(kEventsKeptPerJob) + 1'000);
  EXPECT_EQ(kept->back().entry.seq, entries.back().entry.seq) << "the oldest go, not the newest";
}

TEST(Store, FailuresNamePathAndRemedy) {
  const TemporaryDirectory dir;
  const auto missing = Store::open(dir.path() + "/no/such/db", Store::Mode::kOwner);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find(dir.path()), std::string::npos);
  ASSERT_TRUE(write_file_atomic(dir.path() + "/text", std::string(4096, 'x')).ok());
  const auto damaged = Store::open(dir.path() + "/text", Store::Mode::kOwner);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kDataLoss) << damaged.error().message;
}

}  // namespace
}  // namespace hpctl
