// SPDX-License-Identifier: Apache-2.0
// NCCL without GPUs: real collectives between threads or processes of one machine, over sockets.
// Rank 0 keeps a hub that every rank connects to; a collective is one message to it and one back.
// It is stricter than NCCL: a communicator that is used while a call on it is in progress, after an
// error that its user was told of or after its abort, ends the process.
//
//   STUB_NCCL_SLOW=N      collectives return ncclInProgress, for N polls
//   STUB_NCCL_ERROR_AT=N  the N-th collective of a communicator is an asynchronous error
//   STUB_NCCL_REFUSE_AT=N the call of the N-th answers with an error
//   STUB_NCCL_HANG_AT=N   the N-th never ends, until the communicator is aborted
//   STUB_NCCL_CRASH_AT=N  the N-th ends the process
//   STUB_NCCL_DELAY_MS=N  each takes so much longer
//   STUB_NCCL_WRONG=1     one bit of what an all-reduce gives this rank is wrong
//   STUB_NCCL_NETWORK=X, STUB_NCCL_PROVIDER=Y
//                         what a communicator writes into the log of NCCL_DEBUG=INFO, as NCCL and
//                         aws-ofi-nccl do
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data);

namespace {

enum Status { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kRemoteError = 6, kBusy = 7 };

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "stub NCCL: %s\n", what);
  std::abort();
}

int setting(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

bool send_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd, at, bytes, 0);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

enum Kind : uint64_t { kGather, kReduceScatter, kAllReduce, kExchange };

struct Header {
  uint64_t kind;
  uint64_t bytes;  // of one rank's part; of an all-reduce of all; 0 of an exchange
};

// Of a group of sends and receives. Every rank of the communicator has one: NCCL does not need
// that.
struct Transfer {
  bool is_send;
  void* at;
  size_t bytes;
  int peer;
};

sockaddr_un address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);  // abstract
  return address;
}

// What one rank sends to the others: so many bytes to each, one after the other.
struct Outbox {
  std::vector<uint64_t> sizes;
  std::vector<char> bytes;

  bool receive(int fd, size_t ranks) {
    sizes.resize(ranks);
    if (!receive_all(fd, sizes.data(), ranks * sizeof(uint64_t))) return false;
    bytes.resize(std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
    return receive_all(fd, bytes.data(), bytes.size());
  }
  bool pass(int fd, size_t to) const {
    const auto until = sizes.begin() + static_cast<std::ptrdiff_t>(to);
    const uint64_t begin = std::accumulate(sizes.begin(), until, uint64_t{0});
    return send_all(fd, bytes.data() + begin, sizes[to]);
  }
};

// Every rank's header has been received.
bool run_exchange(const std::vector<int>& peers) {
  std::vector<Outbox> outboxes(peers.size());
  bool good = true;
  for (size_t r = 0; r < peers.size(); ++r) {
    good = good && outboxes[r].receive(peers[r], peers.size());
  }
  for (size_t r = 0; r < peers.size(); ++r) {
    for (const Outbox& outbox : outboxes) good = good && outbox.pass(peers[r], r);
  }
  return good;
}

// Rank 0's: one message from every rank, one to every rank, until somebody is gone.
void run_hub(int listener, int ranks) {
  std::vector<int> peers(static_cast<size_t>(ranks), -1);
  bool good = true;
  for (int i = 0; good && i < ranks; ++i) {
    const int fd = ::accept(listener, nullptr, nullptr);
    int rank = -1;
    good = fd >= 0 && receive_all(fd, &rank, sizeof(rank)) && rank >= 0 && rank < ranks;
    if (good) peers[static_cast<size_t>(rank)] = fd;
  }
  const char go = 1;
  for (const int fd : peers) good = good && send_all(fd, &go, 1);
  while (good) {
    std::vector<std::vector<char>> parts;
    Header first{};
    for (const int fd : peers) {
      Header header{};
      good = good && receive_all(fd, &header, sizeof(header));
      if (!good) break;
      if (parts.empty()) first = header;
      if (header.kind != first.kind || header.bytes != first.bytes) {
        misuse("ranks began different collectives");
      }
      parts.emplace_back(header.bytes * (header.kind == kReduceScatter ? peers.size() : 1));
      good = receive_all(fd, parts.back().data(), parts.back().size());
    }
    if (good && first.kind == kExchange) {
      good = run_exchange(peers);
      continue;
    }
    if (!good) break;
    for (size_t r = 0; r < peers.size(); ++r) {
      if (first.kind == kGather) {
        for (const auto& part : parts) good = good && send_all(peers[r], part.data(), part.size());
        continue;
      }
      std::vector<float> sum(first.bytes / sizeof(float), 0.0F);
      for (const auto& part : parts) {
        const size_t at = first.kind == kReduceScatter ? r * first.bytes : 0;
        const auto* values = reinterpret_cast<const float*>(part.data() + at);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      good = good && send_all(peers[r], sum.data(), first.bytes);
    }
  }
  for (const int fd : peers) {
    if (fd >= 0) ::close(fd);
  }
  ::close(listener);
}

std::mutex listeners_mutex;
std::map<std::string, int> listeners;  // by name, of ids without a communicator
std::atomic<int> live{0};
std::atomic<int> running{0};

}  // namespace

struct ncclComm {
  int ranks = 0;
  int rank = 0;
  int fd = -1;
  std::atomic<int> state{kBusy};
  std::atomic<int> busy_polls{0};
  std::atomic<bool> aborted{false};
  std::atomic<bool> told_of_error{false};
  int collectives = 0;
  std::thread joining;

  ncclComm() { ++live; }
  ~ncclComm() {
    if (joining.joinable()) joining.join();
    if (fd >= 0) ::close(fd);
    --live;
  }
  void join(const std::string& name) {
    const sockaddr_un address = address_of(name);
    char go = 0;
    // An abort that came before the connection had nothing to shut down.
    const bool good =
        ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
        !aborted && send_all(fd, &rank, sizeof(rank)) && receive_all(fd, &go, 1);
    state = good ? kSuccess : kRemoteError;
  }
};

namespace {

// The caller's handle; tasks on streams hold the communicator itself, which outlives an abort.
struct Handle {
  std::shared_ptr<ncclComm> comm;
};

struct Task {
  std::shared_ptr<ncclComm> comm;
  const void* send;
  void* receive;
  Header header;
  int number;  // of the communicator's collectives
  std::vector<Transfer> transfers;

  bool send_transfers(size_t ranks) const {
    std::vector<uint64_t> sizes(ranks);
    std::vector<char> bytes;
    for (size_t to = 0; to < ranks; ++to) {
      for (const Transfer& transfer : transfers) {
        if (!transfer.is_send || transfer.peer != static_cast<int>(to)) continue;
        const auto* from = static_cast<const char*>(transfer.at);
        bytes.insert(bytes.end(), from, from + transfer.bytes);
        sizes[to] += transfer.bytes;
      }
    }
    return send_all(comm->fd, sizes.data(), ranks * sizeof(uint64_t)) &&
           send_all(comm->fd, bytes.data(), bytes.size());
  }
  bool receive_transfers(size_t ranks) const {
    bool good = true;
    for (size_t from = 0; from < ranks; ++from) {
      for (const Transfer& transfer : transfers) {
        if (transfer.is_send || transfer.peer != static_cast<int>(from)) continue;
        good = good && receive_all(comm->fd, transfer.at, transfer.bytes);
      }
    }
    return good;
  }
  bool exchange(size_t ranks) const {
    return send_all(comm->fd, &header, sizeof(header)) && send_transfers(ranks) &&
           receive_transfers(ranks);
  }
  bool reduce_or_gather(size_t ranks) const {
    const size_t out = header.bytes * (header.kind == kReduceScatter ? ranks : 1);
    const size_t in = header.bytes * (header.kind == kGather ? ranks : 1);
    return send_all(comm->fd, &header, sizeof(header)) && send_all(comm->fd, send, out) &&
           receive_all(comm->fd, receive, in);
  }

  void run() const {
    if (number == setting("STUB_NCCL_CRASH_AT")) misuse("told to crash");
    if (number == setting("STUB_NCCL_HANG_AT")) {
      char nothing = 0;  // an abort shuts the connection down
      while (!comm->aborted) ::recv(comm->fd, &nothing, 1, MSG_PEEK);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(setting("STUB_NCCL_DELAY_MS")));
    // One look: a poll meanwhile makes a communicator that is in progress one that is not.
    const int state = comm->state;
    if (state != kSuccess && state != kBusy) return;
    const auto ranks = static_cast<size_t>(comm->ranks);
    ++running;
    const bool good = header.kind == kExchange ? exchange(ranks) : reduce_or_gather(ranks);
    --running;
    if (good && header.kind == kAllReduce && setting("STUB_NCCL_WRONG") != 0) {
      static_cast<char*>(receive)[header.bytes / 2 + 2] ^= 1;
    }
    if (!good) comm->state = kRemoteError;
  }
};

int start(const Handle* handle, const void* send, void* receive, Header header, void* stream,
          const std::vector<Transfer>& transfers = {}) {
  const std::shared_ptr<ncclComm>& comm = handle->comm;
  if (comm->state == kBusy) misuse("a collective on a communicator that is in progress");
  if (comm->told_of_error) misuse("a collective on a communicator with an error");
  // It may come between a look at the communicator and this call, which then answers with it.
  if (const int state = comm->state; state != kSuccess) {
    comm->told_of_error = true;
    return state;
  }
  ++comm->collectives;
  if (comm->collectives == setting("STUB_NCCL_REFUSE_AT")) return kSystemError;
  if (comm->collectives == setting("STUB_NCCL_ERROR_AT")) {
    comm->state = kSystemError;
    return kSuccess;
  }
  const int slow = setting("STUB_NCCL_SLOW");
  if (slow > 0) {
    comm->busy_polls = slow;
    comm->state = kBusy;
  }
  cudaLaunchHostFunc(
      stream, [](void* data) { std::unique_ptr<Task>(static_cast<Task*>(data))->run(); },
      std::make_unique<Task>(Task{comm, send, receive, header, comm->collectives, transfers})
          .release());
  return slow > 0 ? kBusy : kSuccess;
}

// The group that this thread is in.
struct Group {
  bool is_open = false;
  const Handle* handle = nullptr;
  void* stream = nullptr;
  std::vector<Transfer> transfers;
};
thread_local Group group;

int add_to_group(const Transfer& transfer, int type, const Handle* handle, void* stream) {
  if (type != 1) misuse("a message of anything but bytes");
  if (!group.is_open) misuse("a message outside a group");
  if (group.handle != nullptr && group.handle != handle) misuse("a group of two communicators");
  group.handle = handle;
  group.stream = stream;
  group.transfers.push_back(transfer);
  return kSuccess;
}

void write_log() {
  const char* level = std::getenv("NCCL_DEBUG");
  if (level == nullptr || std::strcmp(level, "INFO") != 0) return;
  if (const char* network = std::getenv("STUB_NCCL_NETWORK"); network != nullptr) {
    std::printf("n0:1:1 [0] NCCL INFO Using network %s\n", network);
  }
  if (const char* provider = std::getenv("STUB_NCCL_PROVIDER"); provider != nullptr) {
    std::printf(
        "n0:1:1 [0] NCCL INFO NET/OFI Selected provider is %s, fabric is %s (found 4 nics)\n",
        provider, provider);
  }
}

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

int stub_nccl_live() { return live; }
// Collectives that have begun and wait for a rank.
int stub_nccl_running() { return running; }

int ncclGetVersion(int* version) {
  *version = 22105;
  return kSuccess;
}

int ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> count{0};
  const std::string name =
      "hpctl-stub-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
  const sockaddr_un address = address_of(name);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd, 64) != 0) {
    return kSystemError;
  }
  const std::lock_guard lock(listeners_mutex);
  listeners[name] = fd;
  *id = {};
  name.copy(id->internal, sizeof(id->internal) - 1);
  return kSuccess;
}

int ncclCommInitRankConfig(Handle** out, int ranks, ncclUniqueId id, int rank,
                           const ncclConfig* config) {
  if (config->magic != 0xcafebeef || config->size < sizeof(ncclConfig)) return kInvalidArgument;
  if (config->blocking != 0) misuse("only non-blocking communicators can be aborted");
  const std::string name = id.internal;
  write_log();
  auto comm = std::make_shared<ncclComm>();
  comm->ranks = ranks;
  comm->rank = rank;
  comm->fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (rank == 0) {
    const std::lock_guard lock(listeners_mutex);
    const int listener = listeners.extract(name).mapped();
    std::thread(run_hub, listener, ranks).detach();
  }
  comm->joining = std::thread([raw = comm.get(), name] { raw->join(name); });
  *out = std::make_unique<Handle>(Handle{std::move(comm)}).release();
  return kBusy;
}

int ncclCommGetAsyncError(const Handle* handle, int* state) {
  ncclComm& comm = *handle->comm;
  if (comm.busy_polls > 0 && --comm.busy_polls == 0) {
    int busy = kBusy;
    comm.state.compare_exchange_strong(busy, kSuccess);
  }
  *state = comm.state;
  if (*state != kSuccess && *state != kBusy) comm.told_of_error = true;
  return kSuccess;
}

int ncclCommAbort(Handle* handle) {
  const std::unique_ptr<Handle> owner(handle);
  handle->comm->aborted = true;
  ::shutdown(handle->comm->fd, SHUT_RDWR);
  return kSuccess;
}

int ncclAllGather(const void* send, void* receive, size_t count, int type, const Handle* comm,
                  void* stream) {
  if (type != 1) misuse("a gather of anything but bytes");
  return start(comm, send, receive, {kGather, count}, stream);
}

int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation,
                      const Handle* comm, void* stream) {
  if (type != 7 || operation != 0) misuse("a reduction of anything but sums of floats");
  return start(comm, send, receive, {kReduceScatter, count * sizeof(float)}, stream);
}

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation,
                  const Handle* comm, void* stream) {
  if (type != 7 || operation != 0) misuse("a reduction of anything but sums of floats");
  return start(comm, send, receive, {kAllReduce, count * sizeof(float)}, stream);
}

int ncclGroupStart() {
  if (group.is_open) misuse("a group within a group");
  group = {};
  group.is_open = true;
  return kSuccess;
}

int ncclGroupEnd() {
  if (!group.is_open) misuse("the end of no group");
  const Group ended = std::exchange(group, Group{});
  if (ended.handle == nullptr) return kSuccess;
  return start(ended.handle, nullptr, nullptr, {kExchange, 0}, ended.stream, ended.transfers);
}

int ncclSend(const void* from, size_t count, int type, int peer, const Handle* comm, void* stream) {
  return add_to_group({true, const_cast<void*>(from), count, peer}, type, comm, stream);
}

int ncclRecv(void* to, size_t count, int type, int peer, const Handle* comm, void* stream) {
  return add_to_group({false, to, count, peer}, type, comm, stream);
}

const char* ncclGetErrorString(int status) {
  switch (status) {
    case kSystemError:
      return "unhandled system error";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "an error of the stub";
  }
}

const char* ncclGetLastError(const Handle*) { return ""; }

}  // extern "C"
