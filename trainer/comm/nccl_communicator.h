// SPDX-License-Identifier: Apache-2.0
// Collectives over NCCL, between GPUs.
//
// Buffers of begin_all_gather(), begin_sums(), begin_exchange() and begin_all_to_all() are device
// memory. A collective runs on the communicator's own stream, which has the highest priority: its
// few blocks get the next free processors before the many blocks of computation, which waits for
// them sooner or later. It begins when the earlier work of the compute stream is done, and wait()
// makes the compute stream, not the host, wait for its end. So the host runs ahead and gathers
// overlap computation.
//
// all_gather() and the functions built on it (all_reduce, barrier, texts) take host memory. The
// host waits in them, and in settle(), which waits for all awaited work: a peer's loss shows there,
// at the latest. Events on both streams measure how long the settled work took, and how long
// computation was held for it.
//
// The communicator is non-blocking, as NCCL demands of one that may be aborted: calls return at
// once, and progress is polled by ncclCommGetAsyncError, as NCCL documents; it has no descriptor to
// wait on. Every call into NCCL is made under a lock, since no other thread may be in a call when
// abort() calls ncclCommAbort.
//
// Sums are added in an order of NCCL's choice: the same from run to run with the same topology and
// NCCL_ALGO, but not the order of sums on host memory. Only fp32 is summed: NCCL would round bf16
// at each of its additions.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/gpu/cuda_api.h"
#include "common/gpu/nccl_api.h"
#include "trainer/comm/communicator.h"
#include "trainer/comm/rendezvous_store.h"

namespace hpctl {

class NcclCommunicator final : public Communicator {
 public:
  // `device`: ordinal of this rank's GPU. `compute`: the stream that fills and uses the buffers;
  // outlives this. kNotFound without CUDA or NCCL.
  static Result<std::unique_ptr<NcclCommunicator>> create(const CommunicatorOptions& options,
                                                          int device, cuda::Stream compute);
  ~NcclCommunicator() override;

  Outcome connect() override;
  Result<CollectivePtr> begin_all_gather(void* buffer, size_t chunk_bytes) override;
  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override;
  Result<CollectivePtr> begin_exchange(int to, std::span<const std::byte> outgoing, int from,
                                       std::span<std::byte> incoming) override;
  Result<CollectivePtr> begin_all_to_all(std::span<const std::span<const std::byte>> outgoing,
                                         std::span<const std::span<std::byte>> incoming) override;
  Outcome all_gather(void* buffer, size_t chunk_bytes) override;
  Outcome settle() override;
  std::optional<StreamTimes> take_stream_times() override {
    return std::exchange(times_, StreamTimes{});
  }
  void abort() override;

 private:
  class DeviceEvent;
  class DeviceCollective;
  struct Message;
  struct Moments;
  struct Staging;

  NcclCommunicator(const CommunicatorOptions& options, const cuda::Api& cuda, const nccl::Api& nccl,
                   cuda::Stream compute);

  Outcome prepare_device(int device);
  cuda::Status make_stream();
  Result<nccl::UniqueId> exchange_id();
  // Calls NCCL with the live communicator, then polls until what it began is under way.
  Outcome call(const std::string& what, const std::function<nccl::Status()>& body);
  // Polls until `done` (kNotReady = not yet) or a fault; without the lock between two polls.
  Outcome await(const std::string& what, std::chrono::milliseconds limit,
                const std::function<cuda::Status()>& done);
  // The state of the communicator, under the lock: Ok without an error.
  Outcome check(const std::string& what, bool* in_progress);
  Result<CollectivePtr> begin(const char* what, const std::function<nccl::Status()>& body);
  nccl::Status move_together(const std::vector<Message>& messages);
  Outcome cuda_outcome(const std::string& what, cuda::Status status) const;
  Error lost(const std::string& what, const std::string& why) const;

  const CommunicatorOptions options_;
  const cuda::Api& cuda_;
  const nccl::Api& nccl_;
  const cuda::Stream compute_;
  cuda::Stream stream_ = nullptr;
  std::unique_ptr<DeviceEvent> ready_;           // what the compute stream was given so far
  std::unique_ptr<Staging> staging_;             // of all_gather()
  std::deque<std::unique_ptr<Moments>> waited_;  // and not settled
  StreamTimes times_;                            // settled, and not taken

  std::mutex mutex_;  // guards the rest, and every call into NCCL
  nccl::Comm* comm_ = nullptr;
  std::shared_ptr<RendezvousStore> store_;
  bool aborted_ = false;
};

}  // namespace hpctl
