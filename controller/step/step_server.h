// SPDX-License-Identifier: Apache-2.0
// The sockets and the loop of a step's controller. srun made the listener and holds the other end
// of the lifeline; when that closes, srun has gone and so does this process. A connection is a
// stranger until it has proved that it knows the step's token and sent a proper Hello. Strangers
// are bounded: each in time, all in number. If there are too many, or the process is out of
// descriptors, the one that has been silent for longest is closed. So a peer that speaks at once
// gets an answer.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/net/frame_stream.h"
#include "controller/step/step_controller.h"

namespace hpctl::step {

struct StrangerLimits {
  int64_t hello_ms = 2'000;
  size_t at_once = 256;
};

class StepServer final : public Outlet {
 public:
  StepServer(UniqueFd listener, UniqueFd lifeline, std::string token, StepSettings settings,
             StrangerLimits limits = {});
  // Until every task has gone, or srun has.
  void run();

  void send(int32_t task, const ToShim& message) override;
  void say(const std::string& line) override;

 private:
  struct Peer {
    FrameStream stream;
    int64_t since_ms = 0;
    int32_t task = -1;  // until a proper Hello
    bool broken = false;
  };

  int64_t wait_ms() const;
  bool may_accept() const { return clock_.monotonic_ms() >= accept_from_ms_; }
  bool drop_oldest_stranger();
  void poll_once();
  void accept_all();
  void read(Peer& peer);
  void on_hello(Peer& peer, const std::string& packet);
  void drop_broken();
  Peer* peer_of(int32_t task);

  const SystemClock clock_;
  UniqueFd listener_;
  UniqueFd lifeline_;
  const std::string token_;
  const StrangerLimits limits_;
  StepController controller_;
  std::map<int, std::unique_ptr<Peer>> peers_;  // by descriptor
  std::map<int32_t, int> descriptors_;          // by task
  std::set<std::string> begun_;                 // what proven connections began with
  size_t strangers_ = 0;                        // of peers_
  int64_t accept_from_ms_ = 0;
  bool srun_gone_ = false;
};

}  // namespace hpctl::step
