// SPDX-License-Identifier: Apache-2.0
#include "controller/local_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cstring>

#include "common/base/log.h"

namespace hpctl {
namespace {

constexpr int kRetryAfterMs = 100;  // accept failed for want of descriptors or memory

Result<UniqueFd> bind_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorCode::kInvalidArgument, "socket path " + path + " is longer than " +
                                                  std::to_string(sizeof address.sun_path - 1) +
                                                  " bytes"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error("cannot create a socket");
  ::unlink(path.c_str());
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return errno_error("cannot bind " + path);
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return errno_error("cannot listen on " + path);
  }
  return fd;
}

}  // namespace

void PeerUids::remember(int fd, uid_t uid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uids_["fd:" + std::to_string(fd)] = uid;
}

std::optional<uid_t> PeerUids::of(const std::string& peer) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = uids_.find(peer);
  return it == uids_.end() ? std::nullopt : std::optional<uid_t>(it->second);
}

Result<std::unique_ptr<LocalListener>> LocalListener::open(const std::string& path,
                                                           Accepted accepted) {
  HP_TRY_ASSIGN(UniqueFd socket, bind_socket(path));
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC));
  if (!stop_event.valid()) return errno_error("cannot create an eventfd");
  return std::unique_ptr<LocalListener>(
      new LocalListener(path, std::move(socket), std::move(stop_event), std::move(accepted)));
}

LocalListener::LocalListener(std::string path, UniqueFd socket, UniqueFd stop_event,
                             Accepted accepted)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      stop_event_(std::move(stop_event)),
      accepted_(std::move(accepted)) {
  thread_ = std::thread([this] { run(); });
}

LocalListener::~LocalListener() { stop(); }

void LocalListener::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_event_.get(), 1);
  thread_.join();
  ::unlink(path_.c_str());
}

void LocalListener::accept_one() {
  UniqueFd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log_warning("cannot accept a connection: " + std::string(std::strerror(errno)) +
                  "; raise the limit of open files (ulimit -n)");
      pollfd stop{stop_event_.get(), POLLIN, 0};
      ::poll(&stop, 1, kRetryAfterMs);
    }
    return;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    log_warning("refused a connection: its peer is unknown: " + std::string(std::strerror(errno)));
    return;
  }
  if (!may_connect(peer.uid, ::geteuid())) {
    log_warning("refused a connection of uid " + std::to_string(peer.uid) + " (pid " +
                std::to_string(peer.pid) + "): this controller serves uid " +
                std::to_string(::geteuid()));
    return;
  }
  accepted_(std::move(connection), peer.uid);
}

void LocalListener::run() {
  for (;;) {
    std::array<pollfd, 2> ready{{{socket_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    if (ready[0].revents != 0) accept_one();
  }
}

}  // namespace hpctl
