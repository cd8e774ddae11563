// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/nccl_communicator.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr char kIdKey[] = "nccl-id";
// Between two looks at work that offers nothing to wait on. Short beside a collective between
// nodes; only host values (a few per step) wait like this.
constexpr std::chrono::microseconds kPollEvery{50};

}  // namespace

class NcclCommunicator::DeviceEvent {
 public:
  explicit DeviceEvent(const cuda::Api& cuda) : cuda_(cuda) {}
  ~DeviceEvent() {
    if (event_ != nullptr) cuda_.event_destroy(event_);
  }
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  cuda::Status create(unsigned flags = cuda::kEventDisableTiming) {
    return cuda_.event_create(&event_, flags);
  }
  cuda::Status record(cuda::Stream stream) { return cuda_.event_record(event_, stream); }
  cuda::Status hold(cuda::Stream stream) { return cuda_.stream_wait_event(stream, event_, 0); }
  cuda::Status query() { return cuda_.event_query(event_); }
  // Both have happened.
  double seconds_until(const DeviceEvent& end) const {
    float ms = 0;
    return cuda_.event_elapsed(&ms, event_, end.event_) == cuda::kSuccess ? ms / 1e3 : 0;
  }

 private:
  const cuda::Api& cuda_;
  cuda::Event event_ = nullptr;
};

// Memory through which host values travel: page-locked, and on the device.
struct NcclCommunicator::Staging {
  explicit Staging(const cuda::Api& api) : cuda(api) {}
  ~Staging() { release(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void release() {
    if (host != nullptr) cuda.host_free(host);
    if (device != nullptr) cuda.free(device);
    host = device = nullptr;
    capacity = 0;
  }
  cuda::Status reserve(size_t bytes) {
    if (bytes <= capacity) return cuda::kSuccess;
    release();
    const cuda::Status status = cuda.host_malloc(&host, bytes);
    if (status != cuda::kSuccess) return status;
    capacity = bytes;
    return cuda.malloc(&device, bytes);
  }

  const cuda::Api& cuda;
  void* host = nullptr;
  void* device = nullptr;
  size_t capacity = 0;
};

// When one collective was what: on the communicator's stream, and on the one that waits for it.
struct NcclCommunicator::Moments {
  Moments(const cuda::Api& cuda, std::string name)
      : what(std::move(name)), begun(cuda), done(cuda), held(cuda), released(cuda) {}
  cuda::Status create() {
    for (DeviceEvent* event : {&begun, &done, &held, &released}) {
      const cuda::Status status = event->create(cuda::kEventDefault);
      if (status != cuda::kSuccess) return status;
    }
    return cuda::kSuccess;
  }

  const std::string what;
  DeviceEvent begun;
  DeviceEvent done;
  DeviceEvent held;
  DeviceEvent released;
};

// Between this rank and one peer; either part may be empty.
struct NcclCommunicator::Message {
  int peer;
  std::span<const std::byte> outgoing;
  std::span<std::byte> incoming;
};

class NcclCommunicator::DeviceCollective final : public Collective {
 public:
  DeviceCollective(NcclCommunicator& owner, std::unique_ptr<Moments> moments)
      : owner_(owner), moments_(std::move(moments)) {}

  Outcome wait() override {
    Moments& at = *moments_;
    HP_TRY(owner_.cuda_outcome(at.what, at.held.record(owner_.compute_)));
    HP_TRY(owner_.cuda_outcome(at.what, at.done.hold(owner_.compute_)));
    HP_TRY(owner_.cuda_outcome(at.what, at.released.record(owner_.compute_)));
    owner_.waited_.push_back(std::move(moments_));
    const std::lock_guard lock(owner_.mutex_);
    return owner_.check(at.what, nullptr);
  }

 private:
  NcclCommunicator& owner_;
  std::unique_ptr<Moments> moments_;
};

Result<std::unique_ptr<NcclCommunicator>> NcclCommunicator::create(
    const CommunicatorOptions& options, int device, cuda::Stream compute) {
  HP_TRY_ASSIGN(const cuda::Api* const cuda, cuda::load());
  HP_TRY_ASSIGN(const nccl::Api* const nccl, nccl::load());
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(options, *cuda, *nccl, compute));
  HP_TRY(made->prepare_device(device));
  return made;
}

NcclCommunicator::NcclCommunicator(const CommunicatorOptions& options, const cuda::Api& cuda,
                                   const nccl::Api& nccl, cuda::Stream compute)
    : Communicator(options),
      options_(options),
      cuda_(cuda),
      nccl_(nccl),
      compute_(compute),
      ready_(std::make_unique<DeviceEvent>(cuda)),
      staging_(std::make_unique<Staging>(cuda)) {}

// Not finalized: that waits for every peer, and an orderly end has had its last barrier.
NcclCommunicator::~NcclCommunicator() {
  abort();
  if (stream_ != nullptr) cuda_.stream_destroy(stream_);
}

Outcome NcclCommunicator::prepare_device(int device) {
  HP_TRY(cuda_outcome("use GPU " + std::to_string(device), cuda_.set_device(device)));
  HP_TRY(cuda_outcome("make a stream", make_stream()));
  return cuda_outcome("make an event", ready_->create());
}

// With the highest priority, if this CUDA runtime has priorities.
cuda::Status NcclCommunicator::make_stream() {
  int least = 0;
  int greatest = 0;
  cuda::Status status = cuda_.stream_priorities(&least, &greatest);
  if (status == cuda::kSuccess) {
    status = cuda_.stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, greatest);
  }
  if (status != cuda::kAbsent) return status;
  return cuda_.stream_create(&stream_, cuda::kStreamNonBlocking);
}

Outcome NcclCommunicator::cuda_outcome(const std::string& what, cuda::Status status) const {
  if (status == cuda::kSuccess) return Ok{};
  return cuda::error(cuda_, what, status);
}

Error NcclCommunicator::lost(const std::string& what, const std::string& why) const {
  return {kPeerLost, what + " of rank " + std::to_string(rank()) + " failed: " + why};
}

Outcome NcclCommunicator::check(const std::string& what, bool* in_progress) {
  if (in_progress != nullptr) *in_progress = false;
  if (aborted_ || comm_ == nullptr) return lost(what, "aborted");
  nccl::Status state = nccl::kSuccess;
  const nccl::Status asked = nccl_.async_error(comm_, &state);
  if (asked != nccl::kSuccess) state = asked;
  if (state == nccl::kSuccess) return Ok{};
  if (state == nccl::kInProgress) {
    if (in_progress != nullptr) *in_progress = true;
    return Ok{};
  }
  const char* detail = nccl_.last_error(comm_);
  const std::string words = detail == nullptr ? "" : detail;
  return lost(what, std::string("NCCL: ") + nccl_.error_string(state) +
                        (words.empty() ? "" : " (" + words + ")"));
}

Outcome NcclCommunicator::await(const std::string& what, std::chrono::milliseconds limit,
                                const std::function<cuda::Status()>& done) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const Waiting waiting(*this);
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      bool in_progress = false;
      HP_TRY(check(what, &in_progress));
      const cuda::Status status = in_progress ? cuda::kNotReady : done();
      if (status != cuda::kNotReady) return cuda_outcome(what, status);
    }
    if (std::chrono::steady_clock::now() > until) {
      return lost(what, "no end within " + std::to_string(limit.count()) + " ms");
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

Outcome NcclCommunicator::call(const std::string& what, const std::function<nccl::Status()>& body) {
  nccl::Status status = nccl::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    HP_TRY(check(what, nullptr));
    status = body();
  }
  if (status == nccl::kSuccess) return Ok{};
  if (status == nccl::kInProgress) {
    return await(what, patience(), [] { return cuda::kSuccess; });
  }
  return lost(what, std::string("NCCL: ") + nccl_.error_string(status));
}

Result<nccl::UniqueId> NcclCommunicator::exchange_id() {
  try {
    auto store =
        std::make_shared<RendezvousStore>(options_.rendezvous_dir, options_.rendezvous_timeout);
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) throw std::runtime_error("aborted");
      store_ = store;
    }
    nccl::UniqueId id{};
    if (rank() == 0) {
      const nccl::Status status = nccl_.get_unique_id(&id);
      if (status != nccl::kSuccess) throw std::runtime_error(nccl_.error_string(status));
      store->set(kIdKey, std::vector<char>(std::begin(id.bytes), std::end(id.bytes)));
    }
    // NCCL would wait for a missing rank without naming it.
    store->set(std::to_string(rank()), {});
    std::vector<std::string> peers;
    for (int r = 0; r < world_size(); ++r) peers.push_back(std::to_string(r));
    store->wait(peers, options_.rendezvous_timeout);
    const std::vector<char> text = store->get(kIdKey);
    if (text.size() != sizeof(id.bytes)) throw std::runtime_error("the id is not one of NCCL's");
    std::copy(text.begin(), text.end(), id.bytes);
    return id;
  } catch (const std::runtime_error& e) {
    return lost("rendezvous", e.what());
  }
}

Outcome NcclCommunicator::connect() {
  HP_TRY_ASSIGN(const nccl::UniqueId id, exchange_id());
  nccl::Config config;
  config.blocking = 0;
  nccl::Status status = nccl::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) return lost("rendezvous", "aborted");
    status = nccl_.init_rank(&comm_, world_size(), id, rank(), &config);
  }
  if (status != nccl::kSuccess && status != nccl::kInProgress) {
    return lost("rendezvous", std::string("NCCL: ") + nccl_.error_string(status));
  }
  HP_TRY(await("rendezvous", options_.rendezvous_timeout, [] { return cuda::kSuccess; }));
  int version = 0;
  if (nccl_.get_version(&version) == nccl::kSuccess && rank() == 0) {
    log_info("NCCL " + nccl::version_text(version) + " connects " + std::to_string(world_size()) +
             " ranks");
  }
  return hear_from_all();
}

Result<CollectivePtr> NcclCommunicator::begin(const char* name,
                                              const std::function<nccl::Status()>& body) {
  const std::string what = "collective " + std::to_string(next_sequence()) + " (" + name + ")";
  auto moments = std::make_unique<Moments>(cuda_, what);
  HP_TRY(cuda_outcome(what, moments->create()));
  HP_TRY(cuda_outcome(what, ready_->record(compute_)));
  HP_TRY(cuda_outcome(what, ready_->hold(stream_)));
  HP_TRY(cuda_outcome(what, moments->begun.record(stream_)));
  HP_TRY(call(what, body));
  HP_TRY(cuda_outcome(what, moments->done.record(stream_)));
  return CollectivePtr(std::make_unique<DeviceCollective>(*this, std::move(moments)));
}

Outcome NcclCommunicator::settle() {
  while (!waited_.empty()) {
    const std::unique_ptr<Moments> at = std::move(waited_.front());
    waited_.pop_front();
    HP_TRY(await(at->what, patience(), [&] { return at->done.query(); }));
    note_completed();
    HP_TRY(await(at->what, patience(), [&] { return at->released.query(); }));
    times_.waiting += at->held.seconds_until(at->released);
    times_.under_way += at->begun.seconds_until(at->done);
  }
  return Ok{};
}

Result<CollectivePtr> NcclCommunicator::begin_all_gather(void* buffer, size_t chunk_bytes) {
  const char* const own = static_cast<char*>(buffer) + chunk_bytes * static_cast<size_t>(rank());
  return begin("all-gather", [&] {
    return nccl_.all_gather(own, buffer, chunk_bytes, nccl::kUint8, comm_, stream_);
  });
}

Result<CollectivePtr> NcclCommunicator::begin_sums(NumberType type, const void* input, size_t chunk,
                                                   void* output) {
  if (type != NumberType::kFp32) {
    return Error{ErrorCode::kFailedPrecondition,
                 "collectives over NCCL sum fp32 only: NCCL would round bf16 at each addition"};
  }
  return begin("reduce-scatter", [&] {
    return nccl_.reduce_scatter(input, output, chunk, nccl::kFloat32, nccl::kSum, comm_, stream_);
  });
}

// As one operation: no message waits for another one.
nccl::Status NcclCommunicator::move_together(const std::vector<Message>& messages) {
  nccl::Status status = nccl_.group_start();
  const auto good = [&status] { return status == nccl::kSuccess || status == nccl::kInProgress; };
  for (const Message& message : messages) {
    const auto& [peer, outgoing, incoming] = message;
    if (good() && !outgoing.empty()) {
      status = nccl_.send(outgoing.data(), outgoing.size(), nccl::kUint8, peer, comm_, stream_);
    }
    if (good() && !incoming.empty()) {
      status = nccl_.receive(incoming.data(), incoming.size(), nccl::kUint8, peer, comm_, stream_);
    }
  }
  const nccl::Status ended = nccl_.group_end();
  return good() ? ended : status;
}

Result<CollectivePtr> NcclCommunicator::begin_exchange(int to, std::span<const std::byte> outgoing,
                                                       int from, std::span<std::byte> incoming) {
  return begin("exchange", [&] {
    return move_together({{to, outgoing, {}}, {from, {}, incoming}});
  });
}

Result<CollectivePtr> NcclCommunicator::begin_all_to_all(
    std::span<const std::span<const std::byte>> outgoing,
    std::span<const std::span<std::byte>> incoming) {
  const auto ranks = static_cast<size_t>(world_size());
  HP_CHECK(outgoing.size() == ranks && incoming.size() == ranks);
  std::vector<Message> messages;
  for (size_t peer = 0; peer < ranks; ++peer) {
    messages.push_back({static_cast<int>(peer), outgoing[peer], incoming[peer]});
  }
  return begin("all-to-all", [&] { return move_together(messages); });
}

Outcome NcclCommunicator::all_gather(void* buffer, size_t chunk_bytes) {
  const std::string what =
      "collective " + std::to_string(next_sequence()) + " (all-gather of host values)";
  const size_t total = chunk_bytes * static_cast<size_t>(world_size());
  const size_t own = chunk_bytes * static_cast<size_t>(rank());
  HP_TRY(cuda_outcome(what, staging_->reserve(total)));
  char* const host = static_cast<char*>(staging_->host);
  char* const device = static_cast<char*>(staging_->device);
  std::memcpy(host + own, static_cast<char*>(buffer) + own, chunk_bytes);
  HP_TRY(cuda_outcome(
      what, cuda_.copy_async(device + own, host + own, chunk_bytes, cuda::kCopyDefault, stream_)));
  HP_TRY(call(what, [&] {
    return nccl_.all_gather(device + own, device, chunk_bytes, nccl::kUint8, comm_, stream_);
  }));
  HP_TRY(cuda_outcome(what, cuda_.copy_async(host, device, total, cuda::kCopyDefault, stream_)));
  DeviceEvent done(cuda_);
  HP_TRY(cuda_outcome(what, done.create()));
  HP_TRY(cuda_outcome(what, done.record(stream_)));
  HP_TRY(await(what, patience(), [&] { return done.query(); }));
  std::memcpy(buffer, host, total);
  note_completed();
  return Ok{};
}

void NcclCommunicator::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (store_) store_->abort();
  if (comm_ == nullptr) return;
  nccl_.abort(comm_);
  comm_ = nullptr;
}

}  // namespace hpctl
