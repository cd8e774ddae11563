// SPDX-License-Identifier: Apache-2.0
#include "agent/network/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/base/socket_address.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kBacklog = 64;
constexpr size_t kPieceBytes = 256U << 10;

int left_ms(SteadyClock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
  return left.count() < 0 ? 0 : static_cast<int>(left.count());
}

// What the descriptor is ready for; 0 = the deadline is there.
short wait_for(int fd, short events, SteadyClock::time_point deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int n = ::poll(&entry, 1, left_ms(deadline));
    if (n > 0) return entry.revents;
    if (n == 0) return 0;
    if (errno != EINTR) return POLLERR;
  }
}

Result<UniqueFd> open_socket(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_error("cannot make a socket");
  return fd;
}

Result<std::string> receive_word(int fd, size_t size, SteadyClock::time_point deadline) {
  std::string word(size, '\0');
  for (size_t got = 0; got < size;) {
    const ssize_t n = ::recv(fd, word.data() + got, size - got, 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) ||
               wait_for(fd, POLLIN, deadline) == 0) {
      return Error{ErrorCode::kUnavailable, "it said nothing"};
    }
  }
  return word;
}

// Sends and receives a piece each, as far as it goes without waiting.
class Exchange {
 public:
  explicit Exchange(int fd) : fd_(fd), piece_(kPieceBytes), begin_(SteadyClock::now()) {}

  Transfer run() {
    const auto sends_until = begin_ + kExchangeTime;
    const auto deadline = sends_until + kDrainPatience;
    while (!(said_all_ && heard_all_)) {
      const auto events = static_cast<short>((said_all_ ? 0 : POLLOUT) | (heard_all_ ? 0 : POLLIN));
      const short ready = wait_for(fd_, events, said_all_ ? deadline : sends_until);
      const auto now = SteadyClock::now();
      if (!said_all_ && now >= sends_until) {
        said_all_ = true;
        ::shutdown(fd_, SHUT_WR);
      }
      if (now >= deadline) break;
      if ((ready & POLLOUT) != 0 && !said_all_) say();
      if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) hear();
    }
    if (bytes_ == 0) return {0, "nothing came over the connection", ""};
    return {static_cast<double>(bytes_) / std::max(seconds_, kShortestSeconds), "", ""};
  }

 private:
  void say() {
    const ssize_t n = ::send(fd_, piece_.data(), piece_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) said_all_ = true;
  }
  void hear() {
    const ssize_t n = ::recv(fd_, piece_.data(), piece_.size(), 0);
    if (n > 0) {
      bytes_ += static_cast<uint64_t>(n);
      seconds_ = std::chrono::duration<double>(SteadyClock::now() - begin_).count();
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      heard_all_ = true;
    }
  }

  const int fd_;
  std::vector<char> piece_;  // what it holds does not matter
  const SteadyClock::time_point begin_;
  bool said_all_ = false;
  bool heard_all_ = false;
  uint64_t bytes_ = 0;
  double seconds_ = 0;  // until the last of them
};

}  // namespace

Result<UniqueFd> listen_at(const std::string& ip) {
  HP_TRY_ASSIGN(const SocketAddress address, SocketAddress::of(ip, 0));
  HP_TRY_ASSIGN(UniqueFd fd, open_socket(address));
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("cannot listen on " + ip);
  }
  return fd;
}

Result<UniqueFd> dial(const std::string& address, const std::string& word) {
  const auto deadline = SteadyClock::now() + kMeetPatience;
  HP_TRY_ASSIGN(const SocketAddress peer, SocketAddress::parse(address));
  HP_TRY_ASSIGN(UniqueFd fd, open_socket(peer));
  if (::connect(fd.get(), peer.get(), peer.size()) != 0 && errno != EINPROGRESS) {
    return errno_error("cannot connect to " + address);
  }
  if (wait_for(fd.get(), POLLOUT, deadline) == 0) {
    return Error{ErrorCode::kUnavailable, address + " does not answer"};
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return errno_error("cannot connect to " + address, error);
  // A fresh connection takes so few bytes at once.
  if (::send(fd.get(), word.data(), word.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(word.size())) {
    return errno_error("cannot write to " + address);
  }
  return fd;
}

Result<UniqueFd> await(int listener, const std::string& word) {
  const auto deadline = SteadyClock::now() + kMeetPatience;
  while (wait_for(listener, POLLIN, deadline) != 0) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) continue;  // it has gone again
    const auto said = receive_word(fd.get(), word.size(), deadline);
    if (said.ok() && *said == word) return fd;
  }
  return Error{ErrorCode::kUnavailable, "its peer did not come"};
}

Transfer exchange(int connection) { return Exchange(connection).run(); }

}  // namespace hpctl::agent
