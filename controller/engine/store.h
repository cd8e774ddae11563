// SPDX-License-Identifier: Apache-2.0
// The controller's rows in SQLite on a local disk (WAL, synchronous=FULL): a returned commit
// survives the machine. One transaction per batch of events writes their log entries, the rows they
// changed and the outbox. The rows are the codec's JSON, a row per key, so the cost is proportional
// to the number of changed rows.
//
//   meta    last_seq, now_ms, last_local_job
//   jobs    job -> row          nodes  (job, name) -> row
//   slots   (job, rank) -> rows of kSlotsPerRow ranks, of which that is the first
//   outbox  (seq, idx) -> row   events id -> (seq, wall_ms, job, entry)
//
// The ranks of a node change together, so their slots are one row. A database of version 1, which
// had a row for each, becomes one of version 2 when its owner opens it.
//
// The store keeps the newest kEventsKeptPerJob log entries of each job (the status files keep all).
// A failed call leaves the database as the last commit left it; the caller must then stop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "controller/core/core.h"

struct sqlite3;
struct sqlite3_stmt;

namespace hpctl {

inline constexpr int64_t kEventsKeptPerJob = 20'000;
inline constexpr int kStoreSchemaVersion = 2;
inline constexpr int32_t kSlotsPerRow = 8;  // those of the usual node

// A log entry as it is kept: the core's entry and the label the shell gave it.
struct StoredEntry {
  int64_t id = 0;  // ascending in order of the log
  int64_t wall_ms = 0;
  core::LogEntry entry;
};

// Owned by one thread at a time.
class Store {
 public:
  enum class Mode { kOwner, kReader };

  // kOwner creates the database where there is none, and brings one of an older schema up to date.
  // Both refuse any other schema version.
  static Result<std::unique_ptr<Store>> open(const std::string& path, Mode mode);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // All rows, with the index rebuilt.
  Result<core::State> load();

  // Writes the dirty rows as they are in `state` (absent = deleted), and the log entries, which get
  // their ids. One transaction. Everything of a job that is removed is deleted, whatever is dirty.
  Outcome commit(const core::State& state, const core::Dirty& dirty,
                 std::vector<StoredEntry>& entries);

  // At most `limit` entries of the job after `after_id`, oldest first.
  Result<std::vector<StoredEntry>> entries_after(JobId job, int64_t after_id, int64_t limit);

  // Id of the job's last entry with a seq <= `seq`; 0 = none.
  Result<int64_t> last_id_up_to(JobId job, Seq seq);

  // Moves the write-ahead log into the database; for a clean end.
  Outcome checkpoint();

 private:
  class Statement;

  explicit Store(std::string path);
  Outcome initialise(Mode mode);
  Outcome execute(const char* sql);
  Error failure(const std::string& what) const;
  Result<Statement> statement(const char* sql);
  Outcome upgrade();
  template <typename Decode, typename Put>
  Outcome read_rows(const char* sql, const Decode& decode, const Put& put);
  Outcome put_slots(const std::map<core::SlotKey, core::Slot>& slots,
                    const std::set<core::SlotKey>& changed);
  Outcome commit_rows(const core::State& state, const core::Dirty& dirty);
  Outcome erase_removed(const core::State& state, const core::Dirty& dirty);
  Outcome commit_entries(const core::State& state, std::vector<StoredEntry>& entries);
  Outcome put_meta(const char* key, uint64_t value);
  Outcome prune(JobId job);

  std::string path_;
  sqlite3* database_ = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements_;  // prepared on first use
  int64_t last_entry_id_ = 0;
  std::map<JobId, int64_t> added_since_prune_;
};

}  // namespace hpctl
