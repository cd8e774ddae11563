// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/store.h"

#include "controller/core/codec.h"

namespace hpctl::sim {

namespace {

template <typename Map, typename Keys>
void copy_rows(const Map& from, Map& to, const Keys& keys) {
  for (const auto& key : keys) {
    const auto it = from.find(key);
    if (it == from.end()) {
      to.erase(key);
    } else {
      to.insert_or_assign(key, it->second);
    }
  }
}

template <typename Map, typename Keys, typename Decode>
void through_codec(Map& rows, const Keys& keys, Decode decode, std::string& problem) {
  for (const auto& key : keys) {
    const auto it = rows.find(key);
    if (it == rows.end()) continue;
    const std::string text = core::encode(it->second);
    auto decoded = decode(text);
    if (!decoded.ok()) {
      problem = decoded.error().message;
    } else if (core::encode(decoded.value()) != text) {
      problem = "does not survive the codec: " + text;
    } else {
      it->second = std::move(decoded).value();
    }
  }
}

template <typename Map>
std::string compare(const Map& memory, const Map& stored) {
  if (memory.size() != stored.size()) return "number of rows differs";
  for (auto a = memory.begin(), b = stored.begin(); a != memory.end(); ++a, ++b) {
    const std::string left = core::encode(a->second);
    const std::string right = core::encode(b->second);
    if (left != right) return "memory " + left + " stored " + right;
  }
  return "";
}

}  // namespace

void Store::commit(const core::State& state, const core::Dirty& dirty,
                   const std::vector<core::LogEntry>& log) {
  merge(unread_, dirty);
  copy_rows(state.jobs, committed_.jobs, dirty.jobs);
  copy_rows(state.nodes, committed_.nodes, dirty.nodes);
  copy_rows(state.slots, committed_.slots, dirty.slots);
  copy_rows(state.outbox, committed_.outbox, dirty.outbox);
  if (dirty.meta) {
    committed_.last_seq = state.last_seq;
    committed_.now_ms = state.now_ms;
    committed_.last_local_job = state.last_local_job;
  }
  log_.insert(log_.end(), log.begin(), log.end());
  times_.resize(state.last_seq.value + 1, state.now_ms);
}

core::State Store::load(std::string& problem) {
  through_codec(committed_.jobs, unread_.jobs, core::decode_job, problem);
  through_codec(committed_.nodes, unread_.nodes, core::decode_node, problem);
  through_codec(committed_.slots, unread_.slots, core::decode_slot, problem);
  through_codec(committed_.outbox, unread_.outbox, core::decode_action, problem);
  unread_ = core::Dirty{};
  core::State state = committed_;
  core::rebuild_index(state);
  return state;
}

void Store::lose_rows() {
  core::State empty;
  empty.last_local_job = committed_.last_local_job;
  empty.now_ms = committed_.now_ms;
  // As seq_before_epoch(), with steps that a run's times_ can hold.
  constexpr uint64_t kEpoch = 10'000;
  empty.last_seq = {(committed_.last_seq.value / kEpoch + 1) * kEpoch};
  committed_ = std::move(empty);
  times_.resize(committed_.last_seq.value + 1, committed_.now_ms);
  unread_ = core::Dirty{};
}

std::string Store::difference(const core::State& state) const {
  for (const std::string& text :
       {compare(state.jobs, committed_.jobs), compare(state.nodes, committed_.nodes),
        compare(state.slots, committed_.slots), compare(state.outbox, committed_.outbox)}) {
    if (!text.empty()) return text;
  }
  core::State copy = committed_;
  core::rebuild_index(copy);
  return copy.index == state.index ? "" : "the index differs from one derived from the rows";
}

}  // namespace hpctl::sim
