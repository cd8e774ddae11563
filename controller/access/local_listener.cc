// SPDX-License-Identifier: Apache-2.0
#include "controller/access/local_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cstring>

#include "common/base/log.h"
#include "common/net/unix_address.h"
#include "controller/access/accept.h"

namespace hpctl {
namespace {

constexpr int kLookMs = 1000;  // without a connection, until we look whether one can come

Result<UniqueFd> bind_socket(const std::string& path) {
  const auto address = UnixAddress::of(path);
  if (!address) {
    return Error{ErrorCode::kInvalidArgument, "socket path " + path + " is longer than " +
                                                  std::to_string(UnixAddress::kMaxPathBytes) +
                                                  " bytes"};
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error("cannot create a socket");
  if (::bind(fd.get(), address->get(), address->size()) != 0) {
    return errno_error("cannot bind " + path);
  }
  if (::chmod(path.c_str(), 0600) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const Error error = errno_error("cannot listen on " + path);
    ::unlink(path.c_str());
    return error;
  }
  return fd;
}

std::optional<ino_t> inode_at(const std::string& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 ? std::optional<ino_t>(st.st_ino) : std::nullopt;
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
                                                           PrepareDirectory prepare,
                                                           Accepted accepted, Refused refused) {
  UniqueFd stop_event(::eventfd(0, EFD_CLOEXEC));
  if (!stop_event.valid()) return errno_error("cannot create an eventfd");
  std::unique_ptr<LocalListener> listener(new LocalListener(
      path, std::move(stop_event), std::move(prepare), std::move(accepted), std::move(refused)));
  ::unlink(path.c_str());
  HP_TRY(listener->bind());
  listener->thread_ = std::thread([made = listener.get()] { made->run(); });
  return listener;
}

LocalListener::LocalListener(std::string path, UniqueFd stop_event, PrepareDirectory prepare,
                             Accepted accepted, Refused refused)
    : path_(std::move(path)),
      stop_event_(std::move(stop_event)),
      prepare_(std::move(prepare)),
      accepted_(std::move(accepted)),
      refused_(std::move(refused)) {}

LocalListener::~LocalListener() { stop(); }

void LocalListener::stop() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_event_.get(), 1);
  thread_.join();
  if (inode_at(path_) == inode_) ::unlink(path_.c_str());
}

Outcome LocalListener::bind() {
  HP_TRY_ASSIGN(socket_, bind_socket(path_));
  inode_ = inode_at(path_).value_or(0);
  return Ok{};
}

// A cleaner of /tmp removes our file too, and then no process could ever reach us, or replace us. A
// file that is not ours is left alone: it is a successor's.
void LocalListener::restore() {
  if (inode_at(path_)) return;
  Outcome restored = prepare_();
  if (restored.ok()) restored = bind();
  const std::string problem = restored.ok() ? "" : restored.error().message;
  if (problem.empty()) {
    log_warning(path_ + " had been removed; it is there again");
  } else if (problem != last_problem_) {
    log_warning(path_ + " was removed and cannot be made again: " + problem);
  }
  last_problem_ = problem;
}

void LocalListener::accept_one() {
  sockaddr_storage address{};  // says nothing
  UniqueFd connection = accept_connection(socket_.get(), stop_event_.get(), address);
  if (!connection.valid()) return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    log_warning("refused a connection: its peer is unknown: " + std::string(std::strerror(errno)));
    return;
  }
  if (!may_connect(peer.uid, ::geteuid())) {
    refused_(peer.uid, peer.pid);
    return;
  }
  accepted_(std::move(connection), peer.uid);
}

void LocalListener::run() {
  for (;;) {
    std::array<pollfd, 2> ready{{{socket_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}}};
    const int n = ::poll(ready.data(), ready.size(), kLookMs);
    if (n < 0 && errno != EINTR) return;
    if (n == 0) restore();
    if (ready[1].revents != 0) return;
    if (ready[0].revents != 0) accept_one();
  }
}

}  // namespace hpctl
