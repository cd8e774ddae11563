// SPDX-License-Identifier: Apache-2.0
#include "controller/engine/store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include "common/base/failpoint.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "controller/core/codec.h"

namespace hpctl {
namespace {

constexpr int64_t kPruneEvery = 1'000;
constexpr int64_t kMaxClockMs = 1'000'000'000'000'000;  // leaves room for any deadline
constexpr int kBusyTimeoutMs = 5'000;
constexpr int kSlotPerRow = 1;  // the schema version that had a row for each slot

constexpr char kSchema[] = R"(
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs(job INTEGER PRIMARY KEY, row TEXT NOT NULL);
CREATE TABLE nodes(job INTEGER, name TEXT, row TEXT NOT NULL, PRIMARY KEY(job, name)) WITHOUT ROWID;
CREATE TABLE slots(job INTEGER, rank INTEGER, row TEXT NOT NULL, PRIMARY KEY(job, rank))
  WITHOUT ROWID;
CREATE TABLE outbox(seq INTEGER, idx INTEGER, row TEXT NOT NULL, PRIMARY KEY(seq, idx))
  WITHOUT ROWID;
CREATE TABLE events(id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, wall_ms INTEGER NOT NULL,
                    job INTEGER NOT NULL, entry TEXT NOT NULL);
CREATE INDEX events_of_job ON events(job, id);
)";

// The first rank of the rank's row of slots.
core::SlotKey first_in_row(const core::SlotKey& key) {
  return {key.job, Rank{key.rank.value / kSlotsPerRow * kSlotsPerRow}};
}

int64_t as_int(uint64_t value) { return static_cast<int64_t>(value); }

bool is_removed(const core::State& state, JobId job) {
  const auto row = state.jobs.find(job);
  return row != state.jobs.end() && row->second.removed;
}

}  // namespace

// A prepared statement in use: bound, stepped, and reset at the end of the scope.
class Store::Statement {
 public:
  Statement(Store& store, sqlite3_stmt* statement) : store_(&store), statement_(statement) {}
  Statement(Statement&& other) noexcept
      : store_(other.store_), statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() {
    if (statement_ != nullptr) sqlite3_reset(statement_);
  }

  // Parameters in order. Text must outlive the statement's use.
  Statement& bind(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                      SQLITE_STATIC);
    return *this;
  }
  // True while there is a row.
  Result<bool> next() {
    const int rc = sqlite3_step(statement_);
    if (rc == SQLITE_ROW) return true;
    if (rc == SQLITE_DONE) return false;
    return store_->failure("cannot use");
  }
  Outcome run() {
    HP_TRY(next());
    return Ok{};
  }
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const {
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return data == nullptr
               ? std::string()
               : std::string(data, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  }

 private:
  Store* store_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

Store::Store(std::string path) : path_(std::move(path)) {}

Store::~Store() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(database_);
}

Error Store::failure(const std::string& what) const {
  const int code = database_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(database_);
  ErrorCode kind = ErrorCode::kInternal;
  std::string remedy;
  if (code == SQLITE_FULL) {
    kind = ErrorCode::kResourceExhausted;
    remedy = "; free space on that disk and start the controller again";
  } else if (code == SQLITE_IOERR) {  // also when a disk is too full for the shared index
    remedy = "; see that the disk is sound and has free space, then start the controller again";
  } else if (code == SQLITE_READONLY || code == SQLITE_CANTOPEN || code == SQLITE_PERM) {
    kind = ErrorCode::kPermissionDenied;
    remedy = "; make the directory writable, or set HPCTL_HOME to one that is";
  } else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
    kind = ErrorCode::kDataLoss;
    remedy = "; move it away: jobs can be submitted again and resume from their checkpoints";
  }
  const char* reason = database_ == nullptr ? "out of memory" : sqlite3_errmsg(database_);
  return Error{kind, what + " " + path_ + ": " + reason + remedy};
}

Outcome Store::execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return failure("cannot write");
  }
  return Ok{};
}

Result<Store::Statement> Store::statement(const char* sql) {
  auto it = statements_.find(sql);
  if (it == statements_.end()) {
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &prepared, nullptr) !=
        SQLITE_OK) {
      return failure("cannot use");
    }
    it = statements_.emplace(sql, prepared).first;
  }
  return Statement(*this, it->second);
}

Result<std::unique_ptr<Store>> Store::open(const std::string& path, Mode mode) {
  std::unique_ptr<Store> store(new Store(path));
  HP_TRY(store->initialise(mode));
  return store;
}

Outcome Store::initialise(Mode mode) {
  const int flags =
      mode == Mode::kOwner ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  if (sqlite3_open_v2(path_.c_str(), &database_, flags | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK) {
    return failure("cannot open");
  }
  sqlite3_busy_timeout(database_, kBusyTimeoutMs);
  if (mode == Mode::kOwner) {
    ::chmod(path_.c_str(), 0600);  // job specifications may carry secrets in env
    HP_TRY(execute("PRAGMA journal_mode=WAL"));
    HP_TRY(execute("PRAGMA synchronous=FULL"));
  }
  int64_t version = 0;
  {
    HP_TRY_ASSIGN(auto query, statement("PRAGMA user_version"));
    HP_TRY(query.next());
    version = query.integer(0);
  }
  if (version == 0 && mode == Mode::kOwner) {
    HP_TRY(execute("BEGIN IMMEDIATE"));
    HP_TRY(execute(kSchema));
    HP_TRY(execute(("PRAGMA user_version=" + std::to_string(kStoreSchemaVersion)).c_str()));
    HP_TRY(execute("COMMIT"));
  } else if (version == kSlotPerRow && mode == Mode::kOwner) {
    HP_TRY(upgrade());
  } else if (version != kStoreSchemaVersion) {
    return Error{ErrorCode::kFailedPrecondition,
                 path_ + " has schema version " + std::to_string(version) +
                     ", this program knows " + std::to_string(kStoreSchemaVersion) +
                     "; use the version that wrote it"};
  }
  HP_TRY_ASSIGN(auto newest, statement("SELECT coalesce(max(id), 0) FROM events"));
  HP_TRY(newest.next());
  last_entry_id_ = newest.integer(0);
  return Ok{};
}

// One table: decode each row and put it where it belongs.
template <typename Decode, typename Put>
Outcome Store::read_rows(const char* sql, const Decode& decode, const Put& put) {
  HP_TRY_ASSIGN(auto query, statement(sql));
  for (;;) {
    HP_TRY_ASSIGN(const bool more, query.next());
    if (!more) return Ok{};
    auto row = decode(query.text(0));
    if (!row.ok()) {
      return Error{ErrorCode::kDataLoss, path_ + " is damaged: " + row.error().message};
    }
    put(std::move(*row));
  }
}

// All or nothing: if it ends before the commit, the next owner starts it again.
Outcome Store::upgrade() {
  std::map<core::SlotKey, core::Slot> slots;
  std::set<core::SlotKey> keys;
  HP_TRY(read_rows("SELECT row FROM slots", core::decode_slot, [&](core::Slot row) {
    keys.insert(row.key);
    slots.emplace(row.key, std::move(row));
  }));
  HP_TRY(execute("BEGIN IMMEDIATE"));
  HP_TRY(execute("DELETE FROM slots"));
  HP_TRY(put_slots(slots, keys));
  HP_TRY(execute(("PRAGMA user_version=" + std::to_string(kStoreSchemaVersion)).c_str()));
  return execute("COMMIT");
}

Result<core::State> Store::load() {
  core::State state;
  {
    HP_TRY_ASSIGN(auto query, statement("SELECT key, value FROM meta"));
    for (;;) {
      HP_TRY_ASSIGN(const bool more, query.next());
      if (!more) break;
      const std::string key = query.text(0);
      if (query.integer(1) < 0 || (key == "now_ms" && query.integer(1) > kMaxClockMs)) {
        return Error{ErrorCode::kDataLoss, path_ + " is damaged: " + key + " is " +
                                               std::to_string(query.integer(1)) +
                                               "; move it away: jobs can be submitted again and "
                                               "resume from their checkpoints"};
      }
      if (key == "last_seq") state.last_seq.value = static_cast<uint64_t>(query.integer(1));
      if (key == "now_ms") state.now_ms = query.integer(1);
      if (key == "last_local_job") {
        state.last_local_job.value = static_cast<uint64_t>(query.integer(1));
      }
    }
  }
  HP_TRY(read_rows("SELECT row FROM jobs", core::decode_job,
                   [&](core::Job row) { state.jobs.emplace(row.id, std::move(row)); }));
  HP_TRY(read_rows("SELECT row FROM nodes", core::decode_node,
                   [&](core::Node row) { state.nodes.emplace(row.key, std::move(row)); }));
  HP_TRY(read_rows("SELECT row FROM slots", core::decode_slots, [&](std::vector<core::Slot> rows) {
    for (core::Slot& row : rows) state.slots.emplace(row.key, std::move(row));
  }));
  HP_TRY(read_rows("SELECT row FROM outbox", core::decode_action,
                   [&](core::Action row) { state.outbox.emplace(row.id, std::move(row)); }));
  for (const std::string& stray : core::drop_strays(state)) {
    log_warning(path_ + " is damaged: " + stray + " is left out");
  }
  core::rebuild_index(state);
  return state;
}

Outcome Store::put_meta(const char* key, uint64_t value) {
  HP_TRY_ASSIGN(auto put, statement("INSERT OR REPLACE INTO meta VALUES(?,?)"));
  const std::string name = key;
  return put.bind(name).bind(as_int(value)).run();
}

Outcome Store::put_slots(const std::map<core::SlotKey, core::Slot>& slots,
                         const std::set<core::SlotKey>& changed) {
  for (auto key = changed.begin(); key != changed.end();) {
    const core::SlotKey first = first_in_row(*key);
    std::vector<const core::Slot*> rows;
    for (auto it = slots.lower_bound(first); it != slots.end() && first_in_row(it->first) == first;
         ++it) {
      rows.push_back(&it->second);
    }
    const std::string row = core::encode(rows);
    HP_TRY_ASSIGN(auto put, statement("INSERT OR REPLACE INTO slots VALUES(?,?,?)"));
    HP_TRY(put.bind(as_int(first.job.value)).bind(first.rank.value).bind(row).run());
    while (key != changed.end() && first_in_row(*key) == first) ++key;
  }
  return Ok{};
}

Outcome Store::commit_rows(const core::State& state, const core::Dirty& dirty) {
  for (const JobId id : dirty.jobs) {
    const std::string row = core::encode(state.jobs.at(id));  // in memory no row is ever erased
    HP_TRY_ASSIGN(auto put, statement("INSERT OR REPLACE INTO jobs VALUES(?,?)"));
    HP_TRY(put.bind(as_int(id.value)).bind(row).run());
  }
  for (const core::NodeKey& key : dirty.nodes) {
    const std::string row = core::encode(state.nodes.at(key));
    HP_TRY_ASSIGN(auto put, statement("INSERT OR REPLACE INTO nodes VALUES(?,?,?)"));
    HP_TRY(put.bind(as_int(key.job.value)).bind(key.name).bind(row).run());
  }
  HP_TRY(put_slots(state.slots, dirty.slots));
  for (const ActionId id : dirty.outbox) {
    const auto it = state.outbox.find(id);
    if (it == state.outbox.end()) {
      HP_TRY_ASSIGN(auto erase, statement("DELETE FROM outbox WHERE seq=? AND idx=?"));
      HP_TRY(erase.bind(as_int(id.seq.value)).bind(id.index).run());
      continue;
    }
    const std::string row = core::encode(it->second);
    HP_TRY_ASSIGN(auto put, statement("INSERT OR REPLACE INTO outbox VALUES(?,?,?)"));
    HP_TRY(put.bind(as_int(id.seq.value)).bind(id.index).bind(row).run());
  }
  HP_TRY(erase_removed(state, dirty));
  HP_TRY(put_meta("last_seq", state.last_seq.value));
  HP_TRY(put_meta("now_ms", static_cast<uint64_t>(state.now_ms)));
  return put_meta("last_local_job", state.last_local_job.value);
}

// The rows that were just put of a job that is removed, and all others of it.
Outcome Store::erase_removed(const core::State& state, const core::Dirty& dirty) {
  std::set<JobId> removed;
  const auto note = [&](JobId job) {
    if (is_removed(state, job)) removed.insert(job);
  };
  for (const JobId job : dirty.jobs) note(job);
  for (const core::NodeKey& key : dirty.nodes) note(key.job);
  for (const core::SlotKey& key : dirty.slots) note(key.job);
  for (const JobId job : removed) {
    for (const char* sql : {"DELETE FROM jobs WHERE job=?", "DELETE FROM nodes WHERE job=?",
                            "DELETE FROM slots WHERE job=?", "DELETE FROM events WHERE job=?"}) {
      HP_TRY_ASSIGN(auto erase, statement(sql));
      HP_TRY(erase.bind(as_int(job.value)).run());
    }
  }
  return Ok{};
}

Outcome Store::commit_entries(const core::State& state, std::vector<StoredEntry>& entries) {
  for (StoredEntry& stored : entries) {
    stored.id = ++last_entry_id_;
    if (is_removed(state, stored.entry.job)) continue;
    const std::string entry = core::encode(stored.entry);
    HP_TRY_ASSIGN(auto put, statement("INSERT INTO events VALUES(?,?,?,?,?)"));
    HP_TRY(put.bind(stored.id)
               .bind(as_int(stored.entry.seq.value))
               .bind(stored.wall_ms)
               .bind(as_int(stored.entry.job.value))
               .bind(entry)
               .run());
    if (++added_since_prune_[stored.entry.job] >= kPruneEvery) HP_TRY(prune(stored.entry.job));
  }
  return Ok{};
}

Outcome Store::prune(JobId job) {
  added_since_prune_[job] = 0;
  HP_TRY_ASSIGN(auto erase,
                statement("DELETE FROM events WHERE job=?1 AND id<=(SELECT id FROM events WHERE "
                          "job=?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"));
  return erase.bind(as_int(job.value)).bind(kEventsKeptPerJob).run();
}

Outcome Store::commit(const core::State& state, const core::Dirty& dirty,
                      std::vector<StoredEntry>& entries) {
  HP_FAILPOINT("controller.transaction.before");
  HP_TRY(execute("BEGIN IMMEDIATE"));
  Outcome written = commit_rows(state, dirty);
  if (written.ok()) written = commit_entries(state, entries);
  HP_FAILPOINT("controller.transaction.written");
  if (written.ok()) written = execute("COMMIT");
  HP_FAILPOINT("controller.transaction.after");
  if (!written.ok()) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  return written;
}

Result<std::vector<StoredEntry>> Store::entries_after(JobId job, int64_t after_id, int64_t limit) {
  HP_TRY_ASSIGN(auto query, statement("SELECT entry, id, wall_ms FROM events WHERE job=? AND id>? "
                                      "ORDER BY id LIMIT ?"));
  query.bind(as_int(job.value)).bind(after_id).bind(limit);
  std::vector<StoredEntry> entries;
  for (;;) {
    HP_TRY_ASSIGN(const bool more, query.next());
    if (!more) return entries;
    HP_TRY_ASSIGN(auto entry, core::decode_log_entry(query.text(0)));
    entries.push_back({query.integer(1), query.integer(2), std::move(entry)});
  }
}

Result<int64_t> Store::last_id_up_to(JobId job, Seq seq) {
  HP_TRY_ASSIGN(auto query,
                statement("SELECT coalesce(max(id), 0) FROM events WHERE job=? AND seq<=?"));
  HP_TRY(query.bind(as_int(job.value)).bind(as_int(seq.value)).next());
  return query.integer(0);
}

Outcome Store::checkpoint() { return execute("PRAGMA wal_checkpoint(TRUNCATE)"); }

}  // namespace hpctl
