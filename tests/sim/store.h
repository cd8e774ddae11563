// SPDX-License-Identifier: Apache-2.0
// The model of the SQLite store: what a commit wrote is all that survives the controller. Only rows
// marked dirty are copied, so a change that the core forgot to mark is lost on restart, as it would
// be for real; load() goes through the codec.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/core/core.h"

namespace hpctl::sim {

class Store {
 public:
  // One transaction over a batch of events that were all stepped at state.now_ms.
  void commit(const core::State& state, const core::Dirty& dirty,
              const std::vector<core::LogEntry>& log);
  // The committed state with a fresh index. Rows written since the last load go through the codec;
  // `problem` tells what did not survive it.
  core::State load(std::string& problem);
  // Rows in memory that differ from the committed ones; "" = none.
  std::string difference(const core::State& state) const;

  // The rows are gone with the disk they were on; the history was written elsewhere.
  void lose_rows();

  uint64_t last_seq() const { return committed_.last_seq.value; }
  const std::vector<core::LogEntry>& log() const { return log_; }
  // Time of the event; every seq up to last_seq has one.
  int64_t time_of(Seq seq) const { return times_.at(seq.value); }
  const core::State& committed() const { return committed_; }

 private:
  core::State committed_;
  core::Dirty unread_;  // rows written since the last load
  std::vector<core::LogEntry> log_;
  std::vector<int64_t> times_ = {0};  // by seq
};

}  // namespace hpctl::sim
