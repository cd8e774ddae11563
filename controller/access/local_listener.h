// SPDX-License-Identifier: Apache-2.0
// The controller's listener for the programs of its own machine: a Unix socket in a 0700 directory.
// We accept ourselves, ask the kernel for the peer (SO_PEERCRED), and hand the connection on only
// if the peer is the controller's own uid or root. Other machines come by TLS
// (docs/decisions/0405).
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "common/base/fd.h"
#include "common/base/result.h"

namespace hpctl {

// uid of each accepted connection, by the peer string gRPC gives it ("fd:N"). A number is taken
// over by the next connection that gets it, which the kernel does only after the former is closed.
// Any thread.
class PeerUids {
 public:
  void remember(int fd, uid_t uid);
  // nullopt for a peer that did not come through the listener.
  std::optional<uid_t> of(const std::string& peer) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uid_t> uids_;
};

class LocalListener {
 public:
  // On the listener's thread; takes over the descriptor (non-blocking, close-on-exec).
  using Accepted = std::function<void(UniqueFd connection, uid_t uid)>;

  // Likewise: whom it has hung up on.
  using Refused = std::function<void(uid_t uid, pid_t pid)>;

  // Makes the socket's directory as it must be.
  using PrepareDirectory = std::function<Outcome()>;

  // Binds `path` (a stale socket file is replaced: the caller holds the home's lock) with mode 0600
  // and begins to accept. kInvalidArgument if the path is longer than a socket address holds. If
  // the socket file is removed, with its directory or without, it is there again after a second.
  static Result<std::unique_ptr<LocalListener>> open(const std::string& path,
                                                     PrepareDirectory prepare, Accepted accepted,
                                                     Refused refused);
  ~LocalListener();  // as stop()
  LocalListener(const LocalListener&) = delete;
  LocalListener& operator=(const LocalListener&) = delete;

  // Stops accepting and removes the socket file, unless it is another's.
  void stop();

 private:
  LocalListener(std::string path, UniqueFd stop_event, PrepareDirectory prepare, Accepted accepted,
                Refused refused);
  Outcome bind();
  void run();
  void accept_one();
  void restore();

  const std::string path_;
  const UniqueFd stop_event_;
  const PrepareDirectory prepare_;
  const Accepted accepted_;
  const Refused refused_;
  UniqueFd socket_;
  ino_t inode_ = 0;  // of our socket file
  std::string last_problem_;
  std::thread thread_;
};

// Returns whether a process of `peer` may talk to a controller of `own`.
constexpr bool may_connect(uid_t peer, uid_t own) { return peer == own || peer == 0; }

}  // namespace hpctl
