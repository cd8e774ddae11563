// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/gloo_communicator.h"

#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/worker/injected_fault.h"
#include "trainer/comm/ordered_sum.h"
#include "trainer/compat/gloo_compat.h"

namespace hpctl {

namespace {

// Reduce-scatter in pieces, so that adding one overlaps receiving the next.
constexpr size_t kSegmentBytes = size_t{1} << 20;

// "[file:line] text" as Gloo writes it, reduced to the first line of its text.
std::string first_line_of(const std::string& what) {
  std::string text = what.substr(0, what.find('\n'));
  if (!text.empty() && text[0] == '[') {
    const size_t end = text.find("] ");
    if (end != std::string::npos) text = text.substr(end + 2);
  }
  return text;
}

}  // namespace

// An unbound buffer that abort() can reach.
class GlooCommunicator::LiveBuffer {
 public:
  LiveBuffer(GlooCommunicator& owner, void* data, size_t bytes)
      : owner_(owner), buffer_(owner.context_->createUnboundBuffer(data, bytes)) {
    const std::lock_guard lock(owner_.mutex_);
    owner_.live_.insert(buffer_.get());
  }
  // After a failed collective, messages may have completed without a waiter. The loop's thread
  // completed them with the buffer's lock, which abort() takes: so it is done with the buffer.
  ~LiveBuffer() {
    abort();
    const std::lock_guard lock(owner_.mutex_);
    owner_.live_.erase(buffer_.get());
  }
  LiveBuffer(const LiveBuffer&) = delete;
  LiveBuffer& operator=(const LiveBuffer&) = delete;

  gloo::transport::UnboundBuffer* operator->() { return buffer_.get(); }

  void abort() {
    buffer_->abortWaitRecv();
    buffer_->abortWaitSend();
  }
  void wait_recv() {
    if (owner_.aborted_ || !buffer_->waitRecv(nullptr, owner_.patience())) {
      throw std::runtime_error("aborted");
    }
  }
  void wait_send() {
    if (owner_.aborted_ || !buffer_->waitSend(nullptr, owner_.patience())) {
      throw std::runtime_error("aborted");
    }
  }

 private:
  GlooCommunicator& owner_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
};

// Ends after the buffers of its collective. If that was not completed, the loop's thread may have
// read or written its memory until its buffers ended. Gloo waits for that, but by a counter that
// orders nothing a sanitizer can see: a turn of the loop does.
class GlooCommunicator::LoopsLastLook {
 public:
  explicit LoopsLastLook(GlooCommunicator& owner) : owner_(owner) {}
  ~LoopsLastLook() {
    if (!is_completed_) owner_.loop_->await_turn();
  }
  LoopsLastLook(const LoopsLastLook&) = delete;
  LoopsLastLook& operator=(const LoopsLastLook&) = delete;

  void note_completed() {
    is_completed_ = true;
    owner_.note_completed();
  }

 private:
  GlooCommunicator& owner_;
  bool is_completed_ = false;
};

// The messages of one collective, begun on the loop's thread. If that fails, `fail` wakes their
// waiters.
class GlooCommunicator::Messages {
 public:
  using Begin = std::function<void()>;
  using Fail = std::function<void()>;

  // Objects that the functions use must live until the end of this object.
  Messages(GlooCommunicator& owner, Begin begin, Fail fail) : shared_(std::make_shared<Shared>()) {
    owner.loop_->post([shared = shared_, begin = std::move(begin), fail = std::move(fail)] {
      const std::lock_guard lock(shared->mutex);
      if (shared->is_over) return;
      try {
        begin();
      } catch (const std::exception& e) {
        shared->error = e.what();
        fail();
      }
    });
  }
  ~Messages() {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_over = true;
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // `wait`, whose error is the first one's.
  template <typename Wait>
  void await(Wait&& wait) {
    try {
      wait();
    } catch (const std::exception&) {
      const std::lock_guard lock(shared_->mutex);
      if (shared_->error.empty()) throw;
      throw std::runtime_error(shared_->error);
    }
  }

 private:
  struct Shared {
    std::mutex mutex;
    bool is_over = false;
    std::string error;
  };
  std::shared_ptr<Shared> shared_;
};

template <typename Body>
Outcome GlooCommunicator::guarded(const char* what, uint64_t sequence, Body&& body) {
  try {
    body();
    return Ok{};
  } catch (const std::exception& e) {
    return Error{kPeerLost, "collective " + std::to_string(sequence) + " (" + what + ") of rank " +
                                std::to_string(rank()) + " failed: " + first_line_of(e.what())};
  }
}

class GlooCommunicator::AllGather final : public Collective {
 public:
  AllGather(GlooCommunicator& owner, uint64_t sequence, void* data, size_t chunk)
      : owner_(owner),
        scrape_linger_(owner),
        sequence_(sequence),
        chunk_(chunk),
        slot_(owner.next_slot_++),
        buffer_(owner, data, chunk * owner.world_size()),
        messages_(
            owner, [this] { begin(); }, [this] { buffer_.abort(); }) {}

  Outcome wait() override {
    const Waiting waiting(owner_);
    return owner_.guarded("all-gather", sequence_, [this] {
      messages_.await([this] {
        for (int k = 1; k < owner_.world_size(); ++k) buffer_.wait_recv();
        for (int k = 1; k < owner_.world_size(); ++k) buffer_.wait_send();
      });
      scrape_linger_.note_completed();
    });
  }

 private:
  void begin() {
    const int n = owner_.world_size();
    const int rank = owner_.rank();
    for (int k = 1; k < n; ++k) {
      const int to = (rank + k) % n;
      const int from = (rank + n - k) % n;
      buffer_->recv(from, slot_, from * chunk_, chunk_);
      buffer_->send(to, slot_, rank * chunk_, chunk_);
    }
  }

  GlooCommunicator& owner_;
  LoopsLastLook scrape_linger_;  // ends after the buffers
  uint64_t sequence_;
  size_t chunk_;
  uint64_t slot_;
  LiveBuffer buffer_;
  Messages messages_;  // ends first
};

class GlooCommunicator::ReduceScatter final : public Collective {
 public:
  ReduceScatter(GlooCommunicator& owner, uint64_t sequence, NumberType type, const void* input,
                size_t chunk, void* output)
      : owner_(owner),
        scrape_linger_(owner),
        sequence_(sequence),
        type_(type),
        input_(static_cast<const std::byte*>(input)),
        chunk_(chunk * number_bytes(type)),
        output_(static_cast<std::byte*>(output)),
        received_(owner.scratch_, chunk_ * owner.world_size()),
        // Gloo only reads what it sends; its interface has no const.
        outgoing_(owner, const_cast<void*>(input), chunk_ * owner.world_size()) {
    const size_t segments = (chunk_ + kSegmentBytes - 1) / kSegmentBytes;
    first_slot_ = owner.next_slot_;
    owner.next_slot_ += segments;
    for (size_t s = 0; s < segments; ++s) {
      incoming_.push_back(
          std::make_unique<LiveBuffer>(owner, received_.data(), chunk_ * owner.world_size()));
    }
    messages_.emplace(
        owner, [this] { begin(); }, [this] { abort(); });
  }

  Outcome wait() override {
    const Waiting waiting(owner_);
    return owner_.guarded("reduce-scatter", sequence_, [this] {
      messages_->await([this] { add_what_comes(); });
      scrape_linger_.note_completed();
    });
  }

 private:
  void begin() {
    const int n = owner_.world_size();
    const int rank = owner_.rank();
    for (size_t s = 0; s < incoming_.size(); ++s) {
      const uint64_t slot = first_slot_ + s;
      const size_t offset = s * kSegmentBytes;
      const size_t bytes = std::min(kSegmentBytes, chunk_ - offset);
      for (int k = 1; k < n; ++k) {
        const int to = (rank + k) % n;
        const int from = (rank + n - k) % n;
        (*incoming_[s])->recv(from, slot, from * chunk_ + offset, bytes);
        outgoing_->send(to, slot, to * chunk_ + offset, bytes);
      }
    }
  }

  void abort() {
    for (const auto& buffer : incoming_) buffer->abort();
    outgoing_.abort();
  }

  void add_what_comes() {
    const int others = owner_.world_size() - 1;
    for (size_t s = 0; s < incoming_.size(); ++s) {
      for (int k = 0; k < others; ++k) incoming_[s]->wait_recv();
      const size_t begin = s * kSegmentBytes;
      add(begin, std::min(chunk_, begin + kSegmentBytes));
    }
    for (size_t k = 0; k < incoming_.size() * others; ++k) outgoing_.wait_send();
  }

  const std::byte* chunk_from(int rank) {
    return (rank == owner_.rank() ? input_ : received_.data()) + rank * chunk_;
  }

  // In one order, whatever the order of arrival.
  void add(size_t begin, size_t end) {
    std::vector<PartialSum> parts;
    for (int r = 0; r < owner_.world_size(); ++r) parts.push_back({chunk_from(r) + begin});
    sum_in_pairs(type_, parts, (end - begin) / number_bytes(type_), type_, output_ + begin);
  }

  GlooCommunicator& owner_;
  LoopsLastLook scrape_linger_;  // ends after the buffers
  uint64_t sequence_;
  NumberType type_;
  const std::byte* input_;
  size_t chunk_;  // bytes
  std::byte* output_;
  ScratchPool::Lease received_;  // as large as `input`, own chunk unused; outlives its buffers
  LiveBuffer outgoing_;
  std::vector<std::unique_ptr<LiveBuffer>> incoming_;  // one per segment, all over received_
  uint64_t first_slot_ = 0;
  std::optional<Messages> messages_;  // ends first
};

class GlooCommunicator::Exchange final : public Collective {
 public:
  Exchange(GlooCommunicator& owner, uint64_t sequence, int to, std::span<const std::byte> outgoing,
           int from, std::span<std::byte> incoming)
      : owner_(owner), scrape_linger_(owner), sequence_(sequence), slot_(owner.next_slot_++) {
    // Gloo only reads what it sends; its interface has no const.
    if (!outgoing.empty()) {
      outgoing_.emplace(owner, const_cast<std::byte*>(outgoing.data()), outgoing.size());
    }
    if (!incoming.empty()) incoming_.emplace(owner, incoming.data(), incoming.size());
    messages_.emplace(
        owner, [this, to, from, outgoing, incoming] { begin(to, outgoing, from, incoming); },
        [this] { abort(); });
  }

  Outcome wait() override {
    const Waiting waiting(owner_);
    return owner_.guarded("exchange", sequence_, [this] {
      messages_->await([this] {
        if (incoming_) incoming_->wait_recv();
        if (outgoing_) outgoing_->wait_send();
      });
      scrape_linger_.note_completed();
    });
  }

 private:
  void begin(int to, std::span<const std::byte> outgoing, int from, std::span<std::byte> incoming) {
    if (incoming_) (*incoming_)->recv(from, slot_, 0, incoming.size());
    if (outgoing_) (*outgoing_)->send(to, slot_, 0, outgoing.size());
  }
  void abort() {
    if (incoming_) incoming_->abort();
    if (outgoing_) outgoing_->abort();
  }

  GlooCommunicator& owner_;
  LoopsLastLook scrape_linger_;  // ends after the buffers
  uint64_t sequence_;
  uint64_t slot_;
  std::optional<LiveBuffer> outgoing_;
  std::optional<LiveBuffer> incoming_;
  std::optional<Messages> messages_;  // ends first
};

GlooCommunicator::GlooCommunicator(const CommunicatorOptions& options)
    : Communicator(options), options_(options) {}

Outcome GlooCommunicator::connect() {
  HP_TRY(guarded("rendezvous", 0, [this] {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options_.bind_address;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto store =
        std::make_shared<RendezvousStore>(options_.rendezvous_dir, options_.rendezvous_timeout);
    {
      const std::lock_guard lock(mutex_);
      store_ = store;
    }
    if (aborted_) throw std::runtime_error("aborted");
    context_ = std::make_shared<gloo::rendezvous::Context>(rank(), world_size());
    context_->setTimeout(options_.rendezvous_timeout);
    compat::connect_full_mesh(*context_, store, device);
    loop_ = std::make_unique<GlooLoop>(device);
  }));
  return hear_from_all();
}

Result<CollectivePtr> GlooCommunicator::begin_all_gather(void* buffer, size_t chunk_bytes) {
  const uint64_t sequence = next_sequence();
  CollectivePtr collective;
  HP_TRY(guarded("all-gather", sequence, [&] {
    collective = std::make_unique<AllGather>(*this, sequence, buffer, chunk_bytes);
  }));
  return collective;
}

Result<CollectivePtr> GlooCommunicator::begin_sums(NumberType type, const void* input, size_t chunk,
                                                   void* output) {
  const uint64_t sequence = next_sequence();
  CollectivePtr collective;
  HP_TRY(guarded("reduce-scatter", sequence, [&] {
    collective = std::make_unique<ReduceScatter>(*this, sequence, type, input, chunk, output);
  }));
  return collective;
}

Result<CollectivePtr> GlooCommunicator::begin_exchange(int to, std::span<const std::byte> outgoing,
                                                       int from, std::span<std::byte> incoming) {
  const uint64_t sequence = next_sequence();
  CollectivePtr collective;
  HP_TRY(guarded("exchange", sequence, [&] {
    collective = std::make_unique<Exchange>(*this, sequence, to, outgoing, from, incoming);
  }));
  return collective;
}

Outcome GlooCommunicator::suffer(PeerTrouble trouble) {
  return guarded("fault on purpose", 0, [&] {
    switch (trouble) {
      case PeerTrouble::kLate:
        loop_->delay(std::chrono::milliseconds(kDelaysLastMs),
                     std::chrono::milliseconds(kCollectiveDelayMs));
        break;
      case PeerTrouble::kSilent:
        loop_->fall_silent();
        break;
      case PeerTrouble::kCut:
        context_->closeConnections();
        break;
    }
  });
}

void GlooCommunicator::leave() {
  // If they cannot be closed they end with the process, which the others detect.
  if (context_) (void)guarded("leaving", 0, [this] { context_->closeConnections(); });
}

void GlooCommunicator::abort() {
  aborted_ = true;
  const std::lock_guard lock(mutex_);
  if (store_) store_->abort();
  for (gloo::transport::UnboundBuffer* buffer : live_) {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
}

}  // namespace hpctl
