// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer/comm/node_peers.h"
#include "trainer/comm/rendezvous_communicator.h"

namespace hpctl {

namespace {

// One rank: every collective is complete when it begins.
class SoloCommunicator final : public Communicator {
 public:
  using Communicator::Communicator;

  Outcome connect() override { return Ok{}; }

  Result<CollectivePtr> begin_all_gather(void*, size_t) override {
    next_sequence();
    return CollectivePtr(std::make_unique<Complete>(*this));
  }

  Result<CollectivePtr> begin_sums(NumberType type, const void* input, size_t chunk,
                                   void* output) override {
    next_sequence();
    if (output != input) std::memcpy(output, input, chunk * number_bytes(type));
    return CollectivePtr(std::make_unique<Complete>(*this));
  }

  void abort() override {}

 private:
  struct Complete final : Collective {
    explicit Complete(SoloCommunicator& by) : owner(by) {}
    Outcome wait() override {
      owner.note_completed();
      return Ok{};
    }
    SoloCommunicator& owner;
  };
};

// Several collectives as one.
class Together final : public Collective {
 public:
  explicit Together(std::vector<CollectivePtr> parts) : parts_(std::move(parts)) {}

  Outcome wait() override {
    for (const CollectivePtr& part : parts_) HP_TRY(part->wait());
    return Ok{};
  }

 private:
  std::vector<CollectivePtr> parts_;
};

}  // namespace

Communicator::Communicator(const CommunicatorOptions& options)
    : rank_(options.rank),
      world_size_(options.world_size),
      rendezvous_timeout_(options.rendezvous_timeout),
      patience_(options.collective_timeout),
      count_(options.counts != nullptr ? &options.counts->at(options.group) : &own_count_),
      groups_(options.groups),
      slot_(options.slot),
      sequence_(options.sequence != nullptr ? options.sequence : &own_sequence_) {
  HP_CHECK(world_size_ >= 1 && rank_ >= 0 && rank_ < world_size_);
  HP_CHECK(slot_ < kGroupSlots);
}

Communicator::Waiting::Waiting(Communicator& comm)
    : waits_in_(comm.groups_ == nullptr ? nullptr : &comm.groups_->waits_in) {
  if (waits_in_ == nullptr) return;
  before_ = waits_in_->exchange(static_cast<uint32_t>(comm.slot_) + 1, std::memory_order_relaxed);
}

Communicator::Waiting::~Waiting() {
  if (waits_in_ != nullptr) waits_in_->store(before_, std::memory_order_relaxed);
}

Result<CollectivePtr> Communicator::begin_exchange(int, std::span<const std::byte>, int,
                                                   std::span<std::byte>) {
  return Error{ErrorCode::kFailedPrecondition,
               "this communicator has no messages between two ranks"};
}

// By distance, so that no rank is sent to by all at once.
Result<CollectivePtr> Communicator::begin_all_to_all(
    std::span<const std::span<const std::byte>> outgoing,
    std::span<const std::span<std::byte>> incoming) {
  const auto ranks = static_cast<size_t>(world_size_);
  const auto own = static_cast<size_t>(rank_);
  HP_CHECK(outgoing.size() == ranks && incoming.size() == ranks);
  HP_CHECK(outgoing[own].size() == incoming[own].size());
  std::vector<CollectivePtr> exchanges;
  for (size_t distance = 1; distance < ranks; ++distance) {
    const size_t to = (own + distance) % ranks;
    const size_t from = (own + ranks - distance) % ranks;
    HP_TRY_ASSIGN(CollectivePtr exchange, begin_exchange(static_cast<int>(to), outgoing[to],
                                                         static_cast<int>(from), incoming[from]));
    exchanges.push_back(std::move(exchange));
  }
  std::copy(outgoing[own].begin(), outgoing[own].end(), incoming[own].begin());
  return CollectivePtr(std::make_unique<Together>(std::move(exchanges)));
}

Outcome Communicator::await_readers(std::span<const std::byte>) { return Ok{}; }

Outcome Communicator::suffer(PeerTrouble) {
  return Error{ErrorCode::kFailedPrecondition,
               "the messages of this rank to its peers cannot be disturbed"};
}

Outcome Communicator::all_gather(void* buffer, size_t chunk_bytes) {
  HP_TRY_ASSIGN(const CollectivePtr gather, begin_all_gather(buffer, chunk_bytes));
  return gather->wait();
}

Outcome Communicator::reduce_scatter(const float* input, size_t chunk, float* output) {
  HP_TRY_ASSIGN(const CollectivePtr reduce, begin_reduce_scatter(input, chunk, output));
  return reduce->wait();
}

Outcome Communicator::all_reduce(std::span<double> values) {
  const size_t n = values.size();
  std::vector<double> all(n * world_size_);
  std::copy(values.begin(), values.end(), all.begin() + static_cast<ptrdiff_t>(n) * rank_);
  HP_TRY(all_gather(all.data(), n * sizeof(double)));
  for (size_t i = 0; i < n; ++i) {
    double sum = all[i];
    for (int r = 1; r < world_size_; ++r) sum += all[r * n + i];
    values[i] = sum;
  }
  return Ok{};
}

Outcome Communicator::barrier() {
  double token = 1;
  return all_reduce({&token, 1});
}

Outcome Communicator::hear_from_all() {
  const auto of_collectives = std::exchange(patience_, std::max(patience_, rendezvous_timeout_));
  const Outcome heard = barrier();
  patience_ = of_collectives;
  return heard;
}

Result<std::vector<std::string>> Communicator::all_gather_text(const std::string& text) {
  std::vector<uint64_t> sizes(world_size_);
  sizes[rank_] = text.size();
  HP_TRY(all_gather(sizes.data(), sizeof(uint64_t)));
  const size_t chunk = std::max<size_t>(1, *std::max_element(sizes.begin(), sizes.end()));
  std::string all(chunk * world_size_, '\0');
  std::copy(text.begin(), text.end(), all.begin() + static_cast<ptrdiff_t>(chunk) * rank_);
  HP_TRY(all_gather(all.data(), chunk));
  std::vector<std::string> texts;
  for (int r = 0; r < world_size_; ++r) texts.push_back(all.substr(chunk * r, sizes[r]));
  return texts;
}

std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) {
  if (options.world_size == 1) return std::make_unique<SoloCommunicator>(options);
  const Result<std::string> node = NodePeers::this_node();
  return std::make_unique<RendezvousCommunicator>(options, node.ok() ? *node : "");
}

}  // namespace hpctl
