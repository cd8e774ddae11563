// SPDX-License-Identifier: Apache-2.0
// Collectives between the ranks of one generation.
//
// Every rank calls the same collectives in the same order, from one thread (the step loop's); only
// abort() may come from another. A collective is begun, runs in the background and is waited for,
// so that a gather can overlap computation. Reductions add in an order that depends on the number
// of ranks alone (trainer/comm/ordered_sum.h): the same inputs give the same bits, run after run,
// wherever the ranks are.
//
// Errors: a collective that cannot finish, because a peer went away, the deadline passed or
// abort() was called, returns kPeerLost with one line saying which collective. After that, the
// communicator is of no further use; a new generation makes a new one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/result.h"
#include "common/worker/worker_abi.h"
#include "trainer/comm/ordered_sum.h"
#include "trainer/comm/siblings.h"

namespace hpctl {

// A consequence of a fault elsewhere, never its cause: the process ends with kExitPeerLost.
inline constexpr ErrorCode kPeerLost = ErrorCode::kUnavailable;

struct CommunicatorOptions {
  int rank = 0;
  int world_size = 1;
  std::string rendezvous_dir;  // shared by all ranks, one per generation; created when missing
  std::string bind_address = "127.0.0.1";
  std::chrono::milliseconds rendezvous_timeout{60'000};
  std::chrono::milliseconds collective_timeout{600'000};
  // Counts collectives begun; null = an own counter. Lives longer than the communicator.
  std::atomic<uint64_t>* sequence = nullptr;
  // Where this communicator counts by itself, at `group`; null = nowhere. Likewise.
  CollectiveCounts* counts = nullptr;
  size_t group = 0;
  // Where it also counts, at `slot`, and says that this rank waits; null = nowhere. Likewise.
  GroupSlots* groups = nullptr;
  size_t slot = 0;
  // The other communicators of this rank whose collectives may be under way meanwhile; null = none.
  // The same thread calls all of them.
  std::shared_ptr<Siblings> siblings = nullptr;
  // In place of SharedSegment::map(), for tests whose ranks are threads and have one mapping; empty
  // = every rank maps the memory of its node for itself.
  std::function<Result<std::shared_ptr<std::byte>>(const UniqueFd& file, int ranks)> map_segment =
      nullptr;
};

// Times of collectives for which a device's streams wait, not the calling thread.
struct StreamTimes {
  double waiting = 0;    // seconds in which computation was held for a result
  double under_way = 0;  // in which a collective could run and was not done, each by itself
};

// Injected faults of the network between this rank and its peers (`hpctl chaos`).
enum class PeerTrouble {
  kLate,    // for a while messages go on their way later
  kSilent,  // no message goes on its way any more, and no connection breaks
  kCut,     // the connections break
};

// A collective under way. Its buffers must stay as they are until wait() returned; wait() is
// called once. Destroying one without wait() is for error paths only: the communicator is then
// out of step with its peers.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual Outcome wait() = 0;
};
using CollectivePtr = std::unique_ptr<Collective>;

class Communicator {
 public:
  explicit Communicator(const CommunicatorOptions& options);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }

  // Meets all peers; call once, first. The error names a rank that did not come.
  virtual Outcome connect() = 0;

  // `buffer` holds world_size chunks; this rank's is at rank * chunk_bytes already.
  virtual Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) = 0;

  // `input` holds world_size chunks of `chunk` numbers; `output[i]` becomes the sum over ranks
  // of their chunk number rank(). `output` may be used only after wait(), and may be
  // this rank's chunk of `input`. kFailedPrecondition for a type that a device does not sum.
  virtual Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                           void* output) = 0;
  Result<CollectivePtr> begin_reduce_scatter(const float* input, size_t chunk, float* output) {
    return begin_sums(NumberType::kFp32, input, chunk, output);
  }

  // Sends `outgoing` to rank `to` and fills `incoming` from rank `from`; each is empty where that
  // rank's is. Memory as of the other collectives. kFailedPrecondition with one rank.
  virtual Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing,
                                               int from, std::span<std::byte> incoming);
  // Sends outgoing[r] to every rank r and fills incoming[r] from it, this rank included. What one
  // rank sends is as large as what the other expects, and may be empty. Memory as of the other
  // collectives. On host memory it counts as world_size() - 1 exchanges.
  virtual Result<CollectivePtr> begin_all_to_all(
      std::span<const std::span<const std::byte>> outgoing,
      std::span<const std::span<std::byte>> incoming);

  // Memory for buffers of collectives from which the others take what this rank contributes, so
  // that nothing is copied to be sent; at least 64-byte aligned, and there as long as the
  // communicator. Null where there is none of it, or no more. After connect().
  virtual void* allocate_shared(size_t) { return nullptr; }
  // For memory of allocate_shared(): it must not change after wait() either, except by the
  // collective, until this has returned. The others read it whenever they call us. Errors are the
  // collectives'.
  virtual Outcome await_readers(std::span<const std::byte> shared);

  // Returns when all begun and awaited work is done, which on a device's streams is later than
  // wait(). Errors are the collectives': a wait for the device itself would never end.
  virtual Outcome settle() { return Ok{}; }
  // The times of the work settled since the last call; nullopt if the calling thread waits itself.
  virtual std::optional<StreamTimes> take_stream_times() { return std::nullopt; }

  // Wakes threads in a collective or in connect(); they return kPeerLost. Any thread.
  virtual void abort() = 0;

  // From now on, of what is begun later; messages on their way arrive. The collectives' thread.
  // kFailedPrecondition where others than we carry the messages.
  virtual Outcome suffer(PeerTrouble trouble);

  // These take host memory and return when the result is there.
  virtual Outcome all_gather(void* buffer, size_t chunk_bytes);
  Outcome reduce_scatter(const float* input, size_t chunk, float* output);
  // Each value becomes its sum over ranks, added in rank order. For a few numbers per step.
  Outcome all_reduce(std::span<double> values);
  Outcome barrier();
  // Every rank's text, by rank. For rare and small things, such as checkpoint receipts.
  Result<std::vector<std::string>> all_gather_text(const std::string& text);

 protected:
  // Counts one collective and returns its number, the first being 1.
  uint64_t next_sequence() {
    count_->begun.fetch_add(1, std::memory_order_relaxed);
    if (groups_ != nullptr) own_slot().count.begun.fetch_add(1, std::memory_order_relaxed);
    return sequence_->fetch_add(1, std::memory_order_relaxed) + 1;
  }
  void note_completed() {
    count_->completed.fetch_add(1, std::memory_order_relaxed);
    if (groups_ != nullptr) own_slot().count.completed.fetch_add(1, std::memory_order_relaxed);
  }
  // While it lives, the calling thread waits for peers in this communicator.
  class Waiting {
   public:
    explicit Waiting(Communicator& comm);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    std::atomic<uint32_t>* waits_in_;
    uint32_t before_ = 0;
  };
  // For how long a collective waits for its peers.
  std::chrono::milliseconds patience() const { return patience_; }
  // The end of connect(): a socket of a stopped process accepts connections, so only an answer
  // shows that a peer is alive. The deadline is the rendezvous's.
  Outcome hear_from_all();

 private:
  GroupSlot& own_slot() { return groups_->slots[slot_]; }

  int rank_;
  int world_size_;
  std::chrono::milliseconds rendezvous_timeout_;
  std::chrono::milliseconds patience_;
  CollectiveCount own_count_{};
  CollectiveCount* count_;
  GroupSlots* groups_;
  size_t slot_;
  std::atomic<uint64_t> own_sequence_{0};
  std::atomic<uint64_t>* sequence_;
};

// For two and more ranks memory that they share, Gloo, or both, which is found out when they meet
// (trainer/comm/rendezvous_communicator.h); for one rank, plain memory and no network.
std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options);

}  // namespace hpctl
