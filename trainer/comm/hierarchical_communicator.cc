// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/hierarchical_communicator.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "trainer/comm/ordered_sum.h"

namespace hpctl {

namespace {

// The part of a chunk that is in flight while the next is passed or added.
constexpr size_t kOnTheWayBytes = size_t{1} << 20;

size_t segments_of(size_t size, size_t segment) {
  return std::max<size_t>(1, (size + segment - 1) / segment);
}

// The communicators beneath count for themselves.
CommunicatorOptions uncounted(CommunicatorOptions options) {
  options.sequence = nullptr;
  options.counts = nullptr;
  options.group = 0;
  options.groups = nullptr;
  // A thread of ours calls them.
  options.siblings = nullptr;
  return options;
}

CommunicatorOptions of_node(const CommunicatorOptions& options, int per_node) {
  CommunicatorOptions node = uncounted(options);
  node.rank = options.rank % per_node;
  node.world_size = per_node;
  return node;
}

// The error without the name of the collective of the communicator beneath it.
std::string reason_of(const Error& error) {
  const std::string failed = " failed: ";
  const size_t at = error.message.find(failed);
  return at == std::string::npos ? error.message : error.message.substr(at + failed.size());
}

}  // namespace

// The thread's part of a collective, and the rest for the waiting thread.
class HierarchicalCommunicator::Work {
 public:
  Work(HierarchicalCommunicator& by, std::string what) : owner(by), name(std::move(what)) {}
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  virtual Outcome carry() = 0;
  virtual Outcome finish() { return Ok{}; }

  HierarchicalCommunicator& owner;
  const std::string name;  // "12 (all-gather)"
  std::optional<Outcome> carried;
};

class HierarchicalCommunicator::AllGather final : public Work {
 public:
  AllGather(HierarchicalCommunicator& by, std::string what, std::byte* buffer, size_t chunk)
      : Work(by, std::move(what)), buffer_(buffer), chunk_(chunk) {}

  Outcome carry() override {
    const size_t segments = segments_of(chunk_, kOnTheWayBytes);
    for (size_t s = 0; s < segments; ++s) HP_TRY(send(s));
    std::deque<CollectivePtr> passed;
    for (size_t s = 0; s < segments; ++s) passed.push_back(pass(s, owner.own_node_));
    auto message = messages_.begin();
    for (size_t s = 0; s < segments; ++s) {
      for (int d = 1; d < owner.nodes_; ++d) {
        HP_TRY((*message++)->wait());
        passed.push_back(pass(s, owner.node_at(-d)));
      }
    }
    for (; !passed.empty(); passed.pop_front()) HP_TRY(passed.front()->wait());
    return Ok{};
  }

 private:
  Outcome send(size_t segment) {
    for (int d = 1; d < owner.nodes_; ++d) {
      const int to = owner.counterpart(owner.node_at(d));
      const int from = owner.counterpart(owner.node_at(-d));
      HP_TRY_ASSIGN(CollectivePtr message,
                    owner.network_.begin_exchange(to, part(owner.rank(), segment), from,
                                                  part(from, segment)));
      messages_.push_back(std::move(message));
    }
    return Ok{};
  }
  // The chunks of the ranks of `node`; this rank has the one of its place.
  CollectivePtr pass(size_t segment, int node) {
    const std::span<std::byte> first = part(node * owner.per_node_, segment);
    return owner.memory_.begin_strided_gather(first.data(), chunk_, first.size());
  }
  std::span<std::byte> part(int rank, size_t segment) const {
    const size_t begin = segment * kOnTheWayBytes;
    return {buffer_ + static_cast<size_t>(rank) * chunk_ + begin,
            std::min(kOnTheWayBytes, chunk_ - begin)};
  }

  std::byte* buffer_;
  size_t chunk_;
  std::vector<CollectivePtr> messages_;  // by segment, then by distance
};

class HierarchicalCommunicator::ReduceScatter final : public Work {
 public:
  ReduceScatter(HierarchicalCommunicator& by, std::string what, NumberType type, const void* input,
                size_t chunk, void* output)
      : Work(by, std::move(what)),
        type_(type),
        input_(static_cast<const std::byte*>(input)),
        chunk_(chunk),
        output_(static_cast<std::byte*>(output)),
        sum_bytes_(number_bytes(sum_type(type))),
        on_the_way_(kOnTheWayBytes / sum_bytes_) {
    size_t numbers = 0;
    for (int node = 0; node < owner.nodes_; ++node) {
      outgoing_.push_back(numbers);
      numbers += blocks(owner.own_node_) * chunk_;
      incoming_.push_back(numbers);
      if (node != owner.own_node_) numbers += blocks(node) * chunk_;
    }
    incoming_[static_cast<size_t>(owner.own_node_)] =
        outgoing_[static_cast<size_t>(owner.own_node_)];
    scratch_.emplace(owner.scratch_, numbers * sum_bytes_);
  }

  Outcome carry() override {
    const size_t segments = segments_of(chunk_, on_the_way_);
    std::deque<CollectivePtr> sums;
    for (size_t s = 0; s < segments; ++s) {
      for (int d = 1; d <= owner.nodes_; ++d) sums.push_back(add_for(owner.node_at(d), s));
    }
    for (size_t s = 0; s < segments; ++s) {
      for (int d = 1; d <= owner.nodes_; ++d) {
        HP_TRY(sums.front()->wait());
        sums.pop_front();
        if (d < owner.nodes_) HP_TRY(send(d, s));
      }
    }
    return Ok{};
  }

  Outcome finish() override {
    auto message = messages_.begin();
    for (size_t s = 0; s < segments_of(chunk_, on_the_way_); ++s) {
      for (int d = 1; d < owner.nodes_; ++d) HP_TRY((*message++)->wait());
      add_nodes(s);
    }
    return Ok{};
  }

 private:
  size_t blocks(int node) const { return owner.blocks_[static_cast<size_t>(node)].size(); }
  size_t count(size_t segment) const {
    return std::min(on_the_way_, chunk_ - segment * on_the_way_);
  }
  // The sums of a segment: its blocks are adjacent, after the blocks of earlier segments.
  std::span<std::byte> in_scratch(size_t begin, int blocks_of, size_t segment) {
    const size_t first = begin + blocks(blocks_of) * segment * on_the_way_;
    return {scratch_->data() + first * sum_bytes_, blocks(blocks_of) * count(segment) * sum_bytes_};
  }
  std::span<std::byte> outgoing(int to, size_t segment) {
    return in_scratch(outgoing_[static_cast<size_t>(to)], owner.own_node_, segment);
  }
  std::span<std::byte> incoming(int from, size_t segment) {
    return in_scratch(incoming_[static_cast<size_t>(from)], from, segment);
  }

  // The contributions of this node's ranks for the ranks of `node`: each gets the sums for its
  // place.
  CollectivePtr add_for(int node, size_t segment) {
    const size_t first = static_cast<size_t>(node) * static_cast<size_t>(owner.per_node_) * chunk_;
    return owner.memory_.begin_block_sums(
        type_, input_ + (first + segment * on_the_way_) * number_bytes(type_), chunk_,
        count(segment), owner.blocks_[static_cast<size_t>(owner.own_node_)],
        outgoing(node, segment).data());
  }

  Outcome send(int distance, size_t segment) {
    const int to = owner.node_at(distance);
    const int from = owner.node_at(-distance);
    HP_TRY_ASSIGN(CollectivePtr message,
                  owner.network_.begin_exchange(owner.counterpart(to), outgoing(to, segment),
                                                owner.counterpart(from), incoming(from, segment)));
    messages_.push_back(std::move(message));
    return Ok{};
  }

  void add_nodes(size_t segment) {
    std::vector<PartialSum> parts;
    for (int node = 0; node < owner.nodes_; ++node) {
      const std::byte* numbers = incoming(node, segment).data();
      for (const int ranks : owner.blocks_[static_cast<size_t>(node)]) {
        parts.push_back({numbers, ranks});
        numbers += count(segment) * sum_bytes_;
      }
    }
    sum_in_pairs(sum_type(type_), parts, count(segment), type_,
                 output_ + segment * on_the_way_ * number_bytes(type_));
  }

  NumberType type_;
  const std::byte* input_;
  size_t chunk_;  // numbers
  std::byte* output_;
  size_t sum_bytes_;   // of a number in the scratch
  size_t on_the_way_;  // numbers of a segment
  // Where in the scratch the sums for and of each node begin; this node's own are the same.
  std::vector<size_t> outgoing_;
  std::vector<size_t> incoming_;
  std::optional<ScratchPool::Lease> scratch_;
  std::vector<CollectivePtr> messages_;  // by segment, then by distance
};

class HierarchicalCommunicator::Exchange final : public Work {
 public:
  Exchange(HierarchicalCommunicator& by, std::string what, int to,
           std::span<const std::byte> outgoing, int from, std::span<std::byte> incoming)
      : Work(by, std::move(what)), to_(to), outgoing_(outgoing), from_(from), incoming_(incoming) {}

  Outcome carry() override {
    HP_TRY_ASSIGN(message_, owner.network_.begin_exchange(to_, outgoing_, from_, incoming_));
    return Ok{};
  }
  Outcome finish() override { return message_->wait(); }

 private:
  int to_;
  std::span<const std::byte> outgoing_;
  int from_;
  std::span<std::byte> incoming_;
  CollectivePtr message_;
};

class HierarchicalCommunicator::Trouble final : public Work {
 public:
  Trouble(HierarchicalCommunicator& by, PeerTrouble trouble)
      : Work(by, "0 (fault on purpose)"), trouble_(trouble) {}

  Outcome carry() override {
    HP_TRY(owner.memory_.suffer(trouble_));
    return owner.network_.suffer(trouble_);
  }

 private:
  PeerTrouble trouble_;
};

// The caller's end of what the thread carries.
class HierarchicalCommunicator::Begun final : public Collective {
 public:
  explicit Begun(std::unique_ptr<Work> work) : work_(std::move(work)) {
    HierarchicalCommunicator& owner = work_->owner;
    {
      const std::lock_guard lock(owner.mutex_);
      owner.begun_.push_back(work_.get());
    }
    owner.changed_.notify_all();
  }
  ~Begun() override { work_->owner.withdraw(*work_); }

  Outcome wait() override { return work_->owner.await(*work_); }
  Outcome wait_carried() { return work_->owner.await_carried(*work_); }

 private:
  std::unique_ptr<Work> work_;
};

HierarchicalCommunicator::HierarchicalCommunicator(const CommunicatorOptions& options,
                                                   std::unique_ptr<NodePeers> peers,
                                                   const std::vector<std::string>& addresses)
    : Communicator(options),
      per_node_(static_cast<int>(addresses.size())),
      nodes_(options.world_size / per_node_),
      own_node_(options.rank / per_node_),
      place_(options.rank % per_node_),
      memory_(of_node(options, per_node_), std::move(peers), addresses, own_node_ * per_node_),
      network_(uncounted(options)) {
  HP_CHECK(per_node_ >= 2 && nodes_ >= 2 && nodes_ * per_node_ == world_size());
  for (int node = 0; node < nodes_; ++node) {
    blocks_.push_back(blocks_between(node * per_node_, (node + 1) * per_node_, world_size()));
  }
}

HierarchicalCommunicator::~HierarchicalCommunicator() {
  {
    const std::lock_guard lock(mutex_);
    HP_CHECK(begun_.empty());
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Outcome HierarchicalCommunicator::connect() {
  Outcome met = memory_.connect();
  if (met.ok()) met = network_.connect();
  if (!met.ok()) {
    fail(reason_of(met.error()));
    return failed("0 (rendezvous)");
  }
  try {
    thread_ = std::thread([this] { carry_on(); });
  } catch (const std::system_error& e) {
    fail(std::string("cannot start a thread that carries collectives: ") + e.what());
    return failed("0 (rendezvous)");
  }
  return Ok{};
}

Result<CollectivePtr> HierarchicalCommunicator::begin_all_gather(void* buffer, size_t chunk_bytes) {
  return CollectivePtr(std::make_unique<Begun>(
      std::make_unique<AllGather>(*this, std::to_string(next_sequence()) + " (all-gather)",
                                  static_cast<std::byte*>(buffer), chunk_bytes)));
}

Result<CollectivePtr> HierarchicalCommunicator::begin_sums(NumberType type, const void* input,
                                                           size_t chunk, void* output) {
  return CollectivePtr(std::make_unique<Begun>(std::make_unique<ReduceScatter>(
      *this, std::to_string(next_sequence()) + " (reduce-scatter)", type, input, chunk, output)));
}

Result<CollectivePtr> HierarchicalCommunicator::begin_exchange(int to,
                                                               std::span<const std::byte> outgoing,
                                                               int from,
                                                               std::span<std::byte> incoming) {
  return CollectivePtr(std::make_unique<Begun>(std::make_unique<Exchange>(
      *this, std::to_string(next_sequence()) + " (exchange)", to, outgoing, from, incoming)));
}

Outcome HierarchicalCommunicator::suffer(PeerTrouble trouble) {
  return Begun(std::make_unique<Trouble>(*this, trouble)).wait_carried();
}

void HierarchicalCommunicator::abort() {
  aborted_ = true;
  memory_.abort();
  network_.abort();
}

void HierarchicalCommunicator::carry_on() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !begun_.empty(); });
    if (begun_.empty()) return;
    carry_next(lock);
  }
}

void HierarchicalCommunicator::carry_next(std::unique_lock<std::mutex>& lock) {
  Work& work = *begun_.front();
  begun_.pop_front();
  lock.unlock();
  // A rank that has aborted takes no part any more: its messages would complete for the others.
  Outcome carried = aborted_ ? Outcome(Error{kPeerLost, "aborted"}) : work.carry();
  // At once: the others are to know, even while this rank computes.
  if (!carried.ok()) fail(reason_of(carried.error()));
  lock.lock();
  work.carried = std::move(carried);
  changed_.notify_all();
}

Outcome HierarchicalCommunicator::await_carried(const Work& work) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&work] { return work.carried.has_value(); });
  return *work.carried;
}

Outcome HierarchicalCommunicator::await(Work& work) {
  const Waiting waiting(*this);
  Outcome done = await_carried(work);
  if (done.ok()) done = work.finish();
  if (done.ok() && !aborted_) {
    note_completed();
    return Ok{};
  }
  fail(done.ok() ? "aborted" : reason_of(done.error()));
  return failed(work.name);
}

// Before the memory that a collective uses may go, the thread must be done with it.
void HierarchicalCommunicator::withdraw(const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    if (work.carried) return;
  }
  fail("a collective before it was given up");
  std::unique_lock lock(mutex_);
  const auto waiting = std::find(begun_.begin(), begun_.end(), &work);
  if (waiting != begun_.end()) {
    begun_.erase(waiting);
  } else {
    changed_.wait(lock, [&work] { return work.carried.has_value(); });
  }
}

// The first reason is the reason. Also ends what else this rank waits for.
void HierarchicalCommunicator::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = aborted_ ? "aborted" : why;
  }
  if (!aborted_) {
    memory_.leave();
    network_.leave();
  }
  memory_.abort();
  network_.abort();
}

Error HierarchicalCommunicator::failed(const std::string& collective) {
  const std::lock_guard lock(mutex_);
  return Error{kPeerLost, "collective " + collective + " of rank " + std::to_string(rank()) +
                              " failed: " + broken_};
}

}  // namespace hpctl
