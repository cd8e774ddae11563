// SPDX-License-Identifier: Apache-2.0
// The worker's end of its control socket (common/worker/worker_control.h).
//
// One thread reads it for as long as the process lives, so an Abort arrives whatever the training
// thread does; it answers nothing itself. The training thread sends and receives all other
// messages. A socket that its peer has closed, or with an unknown message, counts as none: training
// goes on, and ends as it does without one.
//
// The descriptor of a Take replaces the old one at its number at once, and is used when the next
// generation begins: until then the process has the former memory mapped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/net/packet_socket.h"
#include "common/worker/worker_control.h"
#include "common/worker/workload.h"

namespace hpctl {

// Descriptor `fd` where it is such a socket: an older holder gives none. -1 is none either.
UniqueFd control_socket(int fd);

class Control {
 public:
  // An invalid `socket`: there is no peer.
  explicit Control(UniqueFd socket);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  void say(const control::FromWorker& message);

  // Until leave(), an Abort of `generation` calls `abort` from the reading thread; one that came
  // already calls it now.
  void enter(uint64_t generation, std::function<void()> abort);
  // Meanwhile abort() has not been called yet, and may be.
  bool may_abort();
  // Waits until that is not so any more.
  void await_abort();
  // True when it was called. It is not any more on return.
  bool leave();

  // The workload of the next Join; waits for it. nullopt if none will come: Finish, or no peer is
  // left to send one. kInvalidArgument if it cannot be used.
  Result<std::optional<Workload>> await_join();

 private:
  void read();
  Outcome on(const control::ToWorker& message, const UniqueFd& descriptor);
  void end();

  std::optional<PacketSocket> socket_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::optional<uint64_t> live_;  // generation
  std::function<void()> abort_;   // of it
  bool abort_called_ = false;
  uint64_t aborted_through_ = 0;
  std::optional<Result<Workload>> joined_;
  bool ended_ = false;
  std::thread reader_;
};

}  // namespace hpctl
