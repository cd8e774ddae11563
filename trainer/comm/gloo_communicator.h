// SPDX-License-Identifier: Apache-2.0
// Collectives over Gloo's unbound buffers (TCP).
//
// All-to-all messages plus our own addition (ordered_sum.h) replace Gloo's reduce-scatter: it is
// bit-identical from run to run, and quicker. The transport's own thread moves the bytes, and
// begins each message too (trainer/comm/gloo_loop.h).
//
// Abort: a flag, then abortWaitRecv and abortWaitSend on every live buffer under a lock; Gloo keeps
// the request until the next wait, so a waiter that is about to wait is caught as well. Closing
// connections would not unblock a wait. SIGPIPE must be ignored in the process, or a peer's death
// can kill us while we write to it.
//
// Threads: as in communicator.h, but another one than that which begins may wait, and end what was
// begun.
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "trainer/comm/communicator.h"
#include "trainer/comm/gloo_loop.h"
#include "trainer/comm/rendezvous_store.h"
#include "trainer/comm/scratch_pool.h"

namespace hpctl {

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const CommunicatorOptions& options);

  Outcome connect() override;
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override;
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override;
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override;
  Outcome suffer(PeerTrouble trouble) override;
  void abort() override;

  // For the others it is as if this rank's process had ended. Any thread.
  void leave();

 private:
  class LiveBuffer;
  class LoopsLastLook;
  class Messages;
  class AllGather;
  class ReduceScatter;
  class Exchange;

  // Runs `body`, which may throw as Gloo does, and turns a failure into kPeerLost.
  template <typename Body>
  Outcome guarded(const char* what, uint64_t sequence, Body&& body);

  CommunicatorOptions options_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;  // guards store_ and live_
  std::shared_ptr<RendezvousStore> store_;
  std::set<gloo::transport::UnboundBuffer*> live_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  uint64_t next_slot_ = 1;          // Gloo's message tag; advances alike on all ranks
  ScratchPool scratch_;             // receive space of sums under way
  std::unique_ptr<GlooLoop> loop_;  // ends first
};

}  // namespace hpctl
