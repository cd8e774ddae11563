// SPDX-License-Identifier: Apache-2.0
// SecondReader: carries out ConfirmDamage. `hpagent confirm` reads, in a process beside the agent's
// loop, and has the order's limit; then it is killed and left to die, which may take as long as the
// file server does not answer.
//
// One order counts, the newest. Its answer is kept and given again where the order is repeated.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "agent/holder/event_loop.h"
#include "agent/holder/spawn.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "proto/hpctl/v1/hpctl.pb.h"

namespace hpctl::agent {

class SecondReader {
 public:
  using Answer = std::function<void(const v1::DamageAnswered& answer)>;

  // `program` is hpagent. `answer` is called from the loop, or from read() itself.
  SecondReader(EventLoop& loop, std::string program, Answer answer)
      : loop_(loop), program_(std::move(program)), answer_(std::move(answer)) {}
  SecondReader(const SecondReader&) = delete;
  SecondReader& operator=(const SecondReader&) = delete;
  ~SecondReader();

  void read(const v1::ConfirmDamage& order);

  // The agent's timer.
  int64_t deadline_ms() const { return deadline_ms_; }
  void on_time(int64_t now_ms);

 private:
  struct Reading {
    SpawnedProcess process;
    UniqueFd output;
  };
  using Readings = std::list<Reading>;

  void on_exit(Readings::iterator ended);
  void abandon();
  void answer(uint32_t verdict, const std::string& what);
  void answer_line(const std::string& line);

  EventLoop& loop_;
  const std::string program_;
  const Answer answer_;
  const SystemClock clock_;
  std::optional<v1::ConfirmDamage> order_;  // that is carried out
  v1::DamageAnswered answered_;             // the newest
  Readings readings_;                       // processes that live
  Readings::iterator present_ = readings_.end();
  int64_t deadline_ms_ = INT64_MAX;
};

}  // namespace hpctl::agent
