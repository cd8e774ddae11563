// SPDX-License-Identifier: Apache-2.0
#include "agent/nodecheck/network/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/net/socket_address.h"
#include "common/net/tcp_connect.h"
#include "common/net/wait_for_fd.h"

namespace hpctl::agent {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kBacklog = 64;
constexpr size_t kPieceBytes = 256U << 10;

Result<std::string> receive_word(int fd, size_t size, int64_t deadline_ms) {
  std::string word(size, '\0');
  for (size_t got = 0; got < size;) {
    const ssize_t n = ::recv(fd, word.data() + got, size - got, 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) ||
               !wait_for_fd(fd, POLLIN, deadline_ms).ok()) {
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
    const int64_t sends_until_ms = deadline_in(kExchangeTime.count());
    const int64_t deadline_ms = sends_until_ms + kDrainPatience.count();
    while (!(said_all_ && heard_all_)) {
      const auto events = static_cast<short>((said_all_ ? 0 : POLLOUT) | (heard_all_ ? 0 : POLLIN));
      const auto said = wait_for_fd(fd_, events, said_all_ ? deadline_ms : sends_until_ms);
      const short ready = said.ok() ? *said : short{0};
      const int64_t now_ms = deadline_in(0);
      if (!said_all_ && now_ms >= sends_until_ms) {
        said_all_ = true;
        ::shutdown(fd_, SHUT_WR);
      }
      if (now_ms >= deadline_ms) break;
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
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_error("cannot make a socket");
  if (::bind(fd.get(), address.get(), address.size()) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    return errno_error("cannot listen on " + ip);
  }
  return fd;
}

Result<UniqueFd> dial(const std::string& address, const std::string& word) {
  HP_TRY_ASSIGN(const SocketAddress peer, SocketAddress::parse(address));
  auto fd = connect_tcp(peer, deadline_in(kMeetPatience.count()));
  if (!fd.ok()) return Error{fd.error().code, address + ": " + fd.error().message};
  // A fresh connection takes so few bytes at once.
  if (::send(fd->get(), word.data(), word.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(word.size())) {
    return errno_error("cannot write to " + address);
  }
  return fd;
}

Result<UniqueFd> await(int listener, const std::string& word) {
  const int64_t deadline_ms = deadline_in(kMeetPatience.count());
  while (wait_for_fd(listener, POLLIN, deadline_ms).ok()) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) continue;  // it has gone again
    const auto said = receive_word(fd.get(), word.size(), deadline_ms);
    if (said.ok() && *said == word) return fd;
  }
  return Error{ErrorCode::kUnavailable, "its peer did not come"};
}

Transfer exchange(int connection) { return Exchange(connection).run(); }

}  // namespace hpctl::agent
