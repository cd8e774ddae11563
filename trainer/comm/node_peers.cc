// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/node_peers.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/join.h"
#include "common/base/random_hex.h"

namespace hpctl {

namespace {

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

// Precondition: the name is one of ours, or as short.
AbstractAddress abstract_address(const std::string& name) {
  AbstractAddress made;
  made.address.sun_family = AF_UNIX;
  HP_CHECK(name.size() < sizeof made.address.sun_path);
  // A first byte of zero says that it is abstract.
  std::memcpy(made.address.sun_path + 1, name.data(), name.size());
  made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return made;
}

const sockaddr* general(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

bool is_ours(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

}  // namespace

Result<std::string> NodePeers::this_node() {
  HP_TRY_ASSIGN(std::string boot, read_file("/proc/sys/kernel/random/boot_id", 64));
  while (!boot.empty() && boot.back() == '\n') boot.pop_back();
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) {
    return errno_error("cannot look at /proc/self/ns/net");
  }
  std::string name = boot + "." + std::to_string(network.st_ino);
  const char* const node = std::getenv("HPCTL_NODE");
  if (std::getenv("HPTRAIN_NODES_APART") != nullptr && node != nullptr) {
    name += std::string(".") + node;
  }
  return name;
}

Result<std::unique_ptr<NodePeers>> NodePeers::listen() {
  HP_TRY_ASSIGN(const std::string key, random_hex(16));
  std::string address = "hptrain-" + key;
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress at = abstract_address(address);
  if (!listener.valid() || ::bind(listener.get(), general(at.address), at.size) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0) {
    return errno_error("cannot listen for the ranks of this node");
  }
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return errno_error("cannot make an eventfd");
  return std::unique_ptr<NodePeers>(
      new NodePeers(std::move(address), std::move(listener), std::move(stop)));
}

NodePeers::NodePeers(std::string address, UniqueFd listener, UniqueFd stop)
    : address_(std::move(address)), listener_(std::move(listener)), stop_(std::move(stop)) {}

NodePeers::~NodePeers() {
  abort();
  if (watcher_.joinable()) watcher_.join();
}

void NodePeers::abort() {
  const uint64_t one = 1;
  // It fails only where the counter is full, and then it is readable.
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
}

Result<UniqueFd> NodePeers::meet(int rank, const std::vector<std::string>& addresses, UniqueFd file,
                                 Clock::time_point deadline, int first_name) {
  HP_CHECK(addresses.size() <= SharedSegment::kMostRanks && peers_.empty());
  HP_CHECK(file.valid() == (rank == 0));
  rank_ = rank;
  first_name_ = first_name;
  for (size_t r = 0; r < addresses.size(); ++r) peers_.emplace_back(UniqueFd());
  for (int peer = 0; peer < rank_; ++peer) {
    HP_TRY(connect_to(peer, addresses[static_cast<size_t>(peer)]));
  }
  while (!missing().empty()) HP_TRY(accept_one(deadline));
  listener_.reset();
  if (rank_ == 0) {
    for (int peer = 1; peer < ranks(); ++peer) {
      HP_TRY(peers_[static_cast<size_t>(peer)].send_or_queue("file", file.get()));
    }
    return file;
  }
  HP_TRY(wait_for(peers_[0].fd(), deadline, "the file of " + name_of(0)));
  HP_TRY_ASSIGN(std::optional<Packet> packet, peers_[0].receive());
  if (!packet || !packet->descriptor.valid()) {
    return Error{ErrorCode::kUnavailable, name_of(0) + " sent no file to share"};
  }
  return std::move(packet->descriptor);
}

// Those behind us that have not come.
std::string NodePeers::missing() const {
  std::vector<std::string> missing;
  for (int peer = rank_ + 1; peer < ranks(); ++peer) {
    if (!is_met(peer)) missing.push_back(name_of(peer));
  }
  return join(missing, ", ");
}

Outcome NodePeers::wait_for(int fd, Clock::time_point deadline, const std::string& whom) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return Error{ErrorCode::kUnavailable, whom + " did not come to the rendezvous in time"};
    }
    pollfd fds[] = {{stop_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
    const auto at_most = std::min<int64_t>(left.count(), std::numeric_limits<int>::max());
    if (::poll(fds, std::size(fds), static_cast<int>(at_most)) < 0) {
      if (errno == EINTR) continue;
      return errno_error("cannot wait for " + whom);
    }
    if (fds[0].revents != 0) return Error{ErrorCode::kUnavailable, "the rendezvous was aborted"};
    if (fds[1].revents != 0) return Ok{};
  }
}

Outcome NodePeers::connect_to(int peer, const std::string& address) {
  const std::string whom = name_of(peer);
  UniqueFd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection.valid()) return errno_error("cannot make a socket");
  const AbstractAddress at = abstract_address(address);
  if (::connect(connection.get(), general(at.address), at.size) != 0) {
    return errno_error("cannot connect to " + whom);
  }
  if (!is_ours(connection.get())) {
    return Error{ErrorCode::kPermissionDenied, whom + " is of another user"};
  }
  PacketSocket& socket = peers_[static_cast<size_t>(peer)];
  socket = PacketSocket(std::move(connection));
  return socket.send_now(std::to_string(rank_));
}

// A stranger, or a peer that leaves at once, is not counted.
Outcome NodePeers::accept_one(Clock::time_point deadline) {
  const std::string whom = missing();
  HP_TRY(wait_for(listener_.get(), deadline, whom));
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.valid() || !is_ours(connection.get())) return Ok{};
  PacketSocket socket(std::move(connection));
  HP_TRY(wait_for(socket.fd(), deadline, whom));
  const Result<std::optional<Packet>> said = socket.receive();
  if (!said.ok() || !*said) return Ok{};
  for (int peer = rank_ + 1; peer < ranks(); ++peer) {
    if ((*said)->bytes != std::to_string(peer) || is_met(peer)) continue;
    peers_[static_cast<size_t>(peer)] = std::move(socket);
    break;
  }
  return Ok{};
}

Outcome NodePeers::watch(std::function<void()> lost_one) {
  try {
    watcher_ = std::thread([this, lost_one = std::move(lost_one)] { run(lost_one); });
  } catch (const std::system_error& e) {
    return Error{ErrorCode::kResourceExhausted,
                 std::string("cannot start a thread that watches the peers: ") + e.what()};
  }
  return Ok{};
}

void NodePeers::run(const std::function<void()>& lost_one) {
  std::vector<pollfd> fds;
  for (const PacketSocket& peer : peers_) fds.push_back({peer.fd(), POLLIN, 0});
  fds.push_back({stop_.get(), POLLIN, 0});
  while (fds.back().revents == 0) {
    if (::poll(fds.data(), fds.size(), -1) < 0) {
      HP_CHECK(errno == EINTR);
      continue;
    }
    RankSet lost = 0;
    for (int peer = 0; peer < ranks(); ++peer) {
      pollfd& fd = fds[static_cast<size_t>(peer)];
      if (fd.fd < 0 || fd.revents == 0) continue;
      lost |= only_rank(peer);
      fd.fd = -1;
    }
    if (lost == 0) continue;
    lost_.fetch_or(lost, std::memory_order_release);
    lost_one();
  }
}

void NodePeers::cut() {
  for (const PacketSocket& peer : peers_) {
    if (peer.fd() >= 0) ::shutdown(peer.fd(), SHUT_RDWR);
  }
}

}  // namespace hpctl
